"""The run executor: a durable job that takes a run to its end, or to where a person must decide."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import ValidationError
from sqlalchemy import bindparam, select

from baobab.runtime.agents.charges import RunCharges
from baobab.runtime.agents.child_runs import ChildRuns
from baobab.runtime.agents.event_log import EventLog, RunEnd
from baobab.runtime.agents.failures import RunFailed, RunTimedOut
from baobab.runtime.agents.job_kinds import ADVANCE, RUN_ENDED, RUN_PAUSED, WEBHOOK
from baobab.runtime.agents.langgraph_import import load_graph_library
from baobab.runtime.agents.live_text import LiveTexts
from baobab.runtime.agents.offers import ToolOffers, load_offers
from baobab.runtime.agents.run_session import RunSession
from baobab.runtime.agents.run_toolbox import RunToolbox
from baobab.runtime.agents.run_tree import close_run, tell_triggers
from baobab.runtime.agents.run_watcher import RunWatcher
from baobab.runtime.agents.spec.spec import parse_graph
from baobab.runtime.agents.tables import AGENT_OF_RUN, ENDED, FROZEN, agents, checkpoints, events, runs
from baobab.runtime.agents.threads import ThreadMemory, add_turns
from baobab.storage.sql.statements import Statements
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.errors import BaobabError, Unavailable
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import OUTAGES, JobLost, RetryLater

_log = logging.getLogger(__name__)
_BUSY_SECONDS = 0.2
_OTHER_VERSION_SECONDS = 5.0
_LARGEST_OUTPUT = 2**20
_RESULTS = ["output", "said", "incomplete"]
"""The channels of the state that are read at the end of a run."""
_MOST_ATTEMPTS = 5
"""If this many attempts at one step have ended with their process, the run itself may crash processes."""

# The run keeps the status `cancelling` if somebody has just asked for that.
_PAUSE_RUN = (
    "UPDATE agent_runs SET status = CASE WHEN status = 'running' THEN ? ELSE status END, paused_until = ?,"
    " active_seconds = active_seconds + ?, job_id = NULL WHERE app_id = ? AND id = ? AND job_id = ? RETURNING status"
)
_FIND_RUN = select(runs, agents.c.daily_budget).outerjoin(agents, AGENT_OF_RUN).where(runs.c.id == bindparam("run"))
_LIST_SUBJECTS = select(events.c.subject).where(
    events.c.app_id == bindparam("app"), events.c.run_id == bindparam("run"), events.c.subject.is_not(None)
)
_FIND_CHECKPOINT = (
    select(checkpoints.c.id)
    .where(checkpoints.c.app_id == bindparam("app"), checkpoints.c.thread_id == bindparam("run"))
    .limit(1)
)
_DELETE_SUPERSEDED = (
    "DELETE FROM agent_writes WHERE app_id = ? AND thread_id = ? AND checkpoint_id <>"
    " (SELECT MAX(id) FROM agent_checkpoints WHERE app_id = ? AND thread_id = ? AND namespace = '')"
)


class RunExecutor:
    """Executes one run, in one attempt of one job."""

    def __init__(self, job: Job, run_id: str) -> None:
        self._job = job
        self._run_id = run_id
        self._services = job.services
        self._watcher = self._services.of(RunWatcher)
        self._is_cancelled = False

    async def execute_run(self) -> None:
        """Executes the run until it ends or pauses.

        Raises RetryLater while another job executes it, and JobLost where another attempt has taken this job over.
        """
        run = await self._read_run()
        if run is None:
            return
        self._run = run
        # So that this process knows for what the app waits when the run pauses or ends.
        await self._services.subscriptions.waits_for(run.app_id, RUN_ENDED)
        clock, notify = self._services.clock, self._watcher.notify_listeners
        self._event_log = EventLog(
            self._job, run, self._job.database, clock, emitted_subjects=self._emitted_subjects, notify=notify
        )
        self._charges = RunCharges(self._services, self._job.database, self._event_log, run)
        origin = {"forked_from": run.forked_from, "step": run.forked_step} if run.forked_from else {}
        self._event_log.emit_event("run_start", {"input": run.input, **origin}, "run_start")
        try:
            await self._run_attempt(run)
        except (JobLost, RetryLater, *OUTAGES):
            # These pass soon and are not the run's fault: another attempt continues it.
            raise
        except Exception:  # noqa: BLE001 - an unexpected error would come again at each attempt
            _log.exception("a run failed", extra={"run": self._run_id})
            await self._end_run(
                "failed", "run_failed", RunFailed("internal_error", "Something went wrong on our side.")
            )

    async def _run_attempt(self, run: Any) -> None:
        await self._charges.load()
        if self._has_checkpoint or self._job.attempt > 1:
            # The next steps may cause an effect at once.
            await self._event_log.claim()
            await self._charges.count_missing()
        try:
            self._read_graph(run)
            if self._job.attempt > _MOST_ATTEMPTS and not self._is_cancelled:
                message = f"{_MOST_ATTEMPTS} processes in a row stopped at the same step of the run."
                raise RunFailed("worker_lost", message)
            caller = await self._restore_caller(run)
            registry, base_url = self._job.registry, self._services.options.base_url
            offers = ToolOffers(registry)
            if self._spec.tools.mcp_servers or self._spec.tools.functions:
                async with self._job.database.reading() as connection:
                    offers = await load_offers(registry, connection.execute, run.app_id)
            child_runs = ChildRuns(self._services, self._job.database, self._event_log, run)
            toolbox = RunToolbox(
                registry,
                self._event_log,
                run,
                self._spec,
                caller,
                base_url,
                offers,
                child_runs,
                self._charges,
                self._services.of(LiveTexts),
            )
            state, waiting = await self._drive_with_timeout(toolbox)
        except Unavailable:
            raise
        except RunTimedOut as exc:
            await self._end_run("timed_out", "run_failed", exc)
        except RunFailed as exc:
            await self._end_run("failed", "run_failed", exc)
        except BaobabError as exc:
            # The person or key that started the run may no longer run it.
            await self._end_run("failed", "run_failed", RunFailed("not_allowed", exc.message))
        except _RunCancelled:
            await self._cancel_run()
        else:
            if waiting:
                await self._pause_run(waiting)
            else:
                await self._complete_run(state)

    def _read_graph(self, run: Any) -> None:
        self._graph_text = json.dumps(run.graph_spec, sort_keys=True)
        try:
            self._spec = parse_graph(self._graph_text)
        except ValidationError as exc:
            message = "The server was upgraded, and does not read the graph with which this run was started."
            raise RunFailed("outdated", message) from exc

    async def _restore_caller(self, run: Any) -> Caller:
        execute, now = self._services.database.execute, self._services.clock.now()
        try:
            caller = await proposers.restore_caller(execute, self._services.credits, run.caller, now)
        except proposers.CallerUnreadable as exc:
            # A server of the version that stored the run may go on with it.
            raise RetryLater(_OTHER_VERSION_SECONDS, exc.message) from exc
        if proposers.kind_of(caller) != run.caller_kind:
            raise RunFailed("not_allowed", "The caller that the run acts for is not of the kind that started it.")
        return caller

    async def _read_run(self) -> Any:
        """Reads the run's row. None where the run is deleted, has ended or is frozen, so that there is nothing to do.

        Raises RetryLater while another job executes it. The run is claimed by the first transaction of its event log,
        if nobody has changed it until then.
        """
        rows = (await self._job.database.execute(_FIND_RUN, {"run": self._run_id})).all()
        run: Any = rows[0] if rows else None
        # A frozen run is continued after its app has been moved.
        if run is None or run.status in ENDED or run.job_id == FROZEN:
            return None
        if run.status in ("running", "cancelling") and run.job_id not in (None, self._job.id):
            raise RetryLater(_BUSY_SECONDS, "another job is executing the run")
        self._is_cancelled = run.status == "cancelling"
        self._emitted_subjects: set[str] = set()
        self._has_checkpoint = False
        if run.last_seq or run.forked_from:
            # Read after the row: whoever adds to them meanwhile also changes the row, and a claim notices that.
            key = {"app": run.app_id, "run": run.id}
            async with self._job.database.reading() as connection:
                subjects = (await connection.execute(_LIST_SUBJECTS, key)).scalars()
                self._emitted_subjects.update(subjects)
                self._has_checkpoint = (await connection.execute(_FIND_CHECKPOINT, key)).first() is not None
        return run

    async def _drive_with_timeout(self, toolbox: RunToolbox) -> tuple[Mapping[str, Any], list[Any]]:
        seconds_left = self._spec.limits.timeout_seconds - self._run.active_seconds
        driving = asyncio.create_task(self._drive_graph(toolbox))
        writing = asyncio.create_task(self._event_log.keep_written())

        def cancel_driving() -> None:
            self._is_cancelled = True
            driving.cancel()

        if self._is_cancelled:
            cancel_driving()
        try:
            with self._watcher.watch_cancellation(self._run_id, self._job.database, cancel_driving):
                tasks = {driving, writing}
                await asyncio.wait(tasks, timeout=max(seconds_left, 0), return_when=asyncio.FIRST_COMPLETED)
            if writing.done():
                writing.result()
            is_late = not driving.done()
        finally:
            driving.cancel()
            writing.cancel()
            await asyncio.gather(driving, writing, return_exceptions=True)
        if self._is_cancelled:
            raise _RunCancelled
        if is_late:
            raise RunTimedOut(f"The run used up its {self._spec.limits.timeout_seconds} seconds.")
        return driving.result()

    async def _drive_graph(self, toolbox: RunToolbox) -> tuple[Mapping[str, Any], list[Any]]:
        library = await load_graph_library()
        saver = library.checkpointer(
            self._job.database, self._run.app_id, self._event_log, is_new=not self._has_checkpoint
        )
        graph = library.compile_graph(self._graph_text, saver)
        config = {
            "configurable": {"thread_id": self._run.id},
            # The graph itself counts steps, across all jobs of the run.
            "recursion_limit": 100_000,
        }
        graph_input = (
            None if self._has_checkpoint else library.initial_state(self._run.input, tainted=self._run.tainted)
        )
        call_slots = asyncio.Semaphore(self._spec.limits.max_parallel_tools)
        session = RunSession(self._event_log, toolbox, ThreadMemory(self._job.database, self._run), call_slots)
        waiting: list[Any] = []
        state: Mapping[str, Any] = {}
        async for chunk in graph.astream(
            graph_input, config, context=session, stream_mode="values", output_keys=_RESULTS, durability="sync"
        ):
            if "__interrupt__" in chunk:
                waiting += [interrupt.value for interrupt in chunk["__interrupt__"]]
            else:
                state = chunk
        if waiting:
            return {}, waiting
        if not state:
            # The graph had ended before, in an attempt that did not come to record that.
            state = (await graph.aget_state(config)).values
        return state, []

    async def _pause_run(self, waiting: list[dict[str, Any]]) -> None:
        """Releases the run: it pauses for a person, and continues by itself after a child run or a rate limit.

        Raises RetryLater in the case of a rate limit.
        """
        pending = [interrupt for interrupt in waiting if "approval_id" in interrupt]
        deadlines: list[datetime] = []
        new_approvals: list[dict[str, Any]] = []
        for interrupt in pending:
            # An approval that has just been decided has none.
            deadline = datetime.fromisoformat(interrupt["until"]) if interrupt["until"] else None
            deadlines += [deadline] if deadline else []
            payload: dict[str, Any] = {
                "approval_id": interrupt["approval_id"],
                "tool_name": interrupt["tool_name"],
                "tool_source": interrupt["tool_source"],
                **{name: interrupt[name] for name in ("server", "run_as") if name in interrupt},
                "call_id": interrupt["call_id"],
                "args": interrupt["args"],
                "tainted": interrupt["tainted"],
                "approvers": interrupt["approvers"],
                "expires_at": deadline,
            }
            if self._event_log.emit_event("run_paused", payload, f"paused {interrupt['approval_id']}", above=True):
                new_approvals.append({"approval_id": interrupt["approval_id"], "expires_at": interrupt["until"]})
        limit_seconds = max((interrupt["again_in"] for interrupt in waiting if "again_in" in interrupt), default=0)
        # Waiting for a rate limit uses up the run's time; waiting for people does not.
        counted_seconds = 0 if pending else limit_seconds
        status, first_deadline = ("paused", min(deadlines, default=None)) if pending else ("running", None)

        def release_run(statements: Statements) -> None:
            released_rows = statements.rows(
                _PAUSE_RUN, status, first_deadline, counted_seconds, self._run.app_id, self._run_id, self._job.id
            )
            if released_rows and released_rows[0][0] == "cancelling":
                job_id = f"run:{self._run_id}:after:{self._job.id}"[-200:]
                self._services.jobs.enqueue_in(statements, ADVANCE, {"run_id": self._run_id}, job_id)
                return
            if released_rows and new_approvals:
                tell_triggers(statements, self._services.jobs, self._run, RUN_PAUSED, approvals=new_approvals)
            if released_rows and new_approvals and self._run.webhook_url is not None:
                # In the transaction of the events: each pause is told, and an attempt after a crash tells none anew.
                arguments = {"run_id": self._run_id, "approvals": new_approvals}
                job_id = f"webhook:{self._run_id}:{new_approvals[0]['approval_id']}"
                self._services.jobs.enqueue_in(statements, WEBHOOK, arguments, job_id)

        await self._event_log.write_transaction(release_run, last=not limit_seconds, rests=True)
        self._services.jobs.wake()
        if limit_seconds:
            raise RetryLater(limit_seconds, "a rate limit lets the run continue later")

    async def _complete_run(self, state: Mapping[str, Any]) -> None:
        """Ends the run with its output. It says so where an answer of a model was not whole."""
        output, incomplete = state.get("output"), state.get("incomplete")
        if len(json.dumps(output)) > _LARGEST_OUTPUT:
            failure = RunFailed("output_too_large", f"The output has more than {_LARGEST_OUTPUT} bytes.")
            return await self._end_run("failed", "run_failed", failure)
        mark = {} if incomplete is None else {"incomplete": incomplete}
        self._event_log.emit_event("run_end", {"output": output, **mark}, "run_end")
        turns_by_node = state.get("said") or {}
        return await self._finish_run("completed", output=output, turns_by_node=turns_by_node, **mark)

    async def _end_run(self, status: str, event: str, failure: RunFailed) -> None:
        await self._event_log.claim()
        await self._services.approvals.abandon(self._run_id)
        self._event_log.emit_event(event, failure.event, "run_end")
        await self._finish_run(status, error=failure.error)

    async def _cancel_run(self) -> None:
        await self._event_log.claim()
        # First: pending calls must not be executed for a run that has ended.
        await self._services.approvals.abandon(self._run_id)
        self._event_log.emit_event("run_cancelled", {}, "run_end")
        await self._finish_run("cancelled")

    async def _finish_run(
        self,
        status: str,
        *,
        output: Any = None,
        error: Any = None,
        incomplete: Any = None,
        turns_by_node: Mapping[str, Any] | None = None,
    ) -> None:
        if self._charges.may_be_incomplete or status in ("cancelled", "timed_out"):
            await self._charges.count_missing()
        output_text, error_text, incomplete_text = (
            None if value is None else json.dumps(value) for value in (output, error, incomplete)
        )
        now, url = self._services.clock.now(), self._run.webhook_url
        has_jobs = url is not None

        def write_end(statements: Statements, usage: Sequence[Any]) -> None:
            nonlocal has_jobs
            if self._has_checkpoint or self._event_log.has_written_deferred:
                # A fork of the last step uses the results of its calls; those of earlier steps are in checkpoints.
                statements.rows(_DELETE_SUPERSEDED, *(self._run.app_id, self._run_id) * 2)
            if turns_by_node:
                add_turns(statements, self._run, turns_by_node, self._services.ids.uuid(), now)
            has_jobs |= close_run(statements, self._services.jobs, self._run, usage)
            has_jobs |= tell_triggers(statements, self._services.jobs, self._run, RUN_ENDED, status=status)
            if url is not None:
                arguments = {"run_id": self._run_id}
                self._services.jobs.enqueue_in(statements, WEBHOOK, arguments, f"webhook:{self._run_id}")

        end = RunEnd(status, output_text, error_text, incomplete_text, now, write_end)
        await self._event_log.write_transaction(end=end)
        if has_jobs:
            self._services.jobs.wake()


class _RunCancelled(Exception):
    pass
