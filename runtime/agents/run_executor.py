"""A segment: a run from where it stands to its end, or to where a person must decide. One durable job each."""

import asyncio
import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.charges import RunCharges
from baobab.runtime.agents.child_runs import ChildRuns
from baobab.runtime.agents.event_log import EventLog
from baobab.runtime.agents.failures import RunFailed, RunTimedOut
from baobab.runtime.agents.job_kinds import ADVANCE, WEBHOOK
from baobab.runtime.agents.langgraph_import import load_graph_library
from baobab.runtime.agents.offers import ToolOffers, load_offers
from baobab.runtime.agents.run_session import RunSession
from baobab.runtime.agents.run_toolbox import RunToolbox
from baobab.runtime.agents.run_tree import close_run
from baobab.runtime.agents.run_watcher import RunWatcher
from baobab.runtime.agents.spec import GraphSpec
from baobab.runtime.agents.tables import ENDED, FROZEN, runs
from baobab.runtime.agents.threads import ThreadMemory, add_turns
from baobab.storage.transactions import Statements, TransactionRunners
from baobab.tools.core.auth import proposers
from baobab.tools.core.errors import BaobabError, Unavailable
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import OUTAGES, JobLost, RetryLater

_log = logging.getLogger(__name__)
_BUSY_SECONDS = 0.2
_LARGEST_OUTPUT = 2**20
_MOST_ATTEMPTS = 5
"""After so many at the same step, each of which ended with its process, the run may be what ends processes."""

_LOCK_RUN = (
    "SELECT locked.status, locked.job_id FROM agent_runs AS locked WHERE locked.id = ? FOR NO KEY UPDATE OF locked"
)
_CLAIM_RUN = (
    "UPDATE agent_runs SET job_id = ?, started_at = COALESCE(started_at, ?), status = ?, paused_until = NULL"
    " WHERE id = ?"
)
# Somebody may have asked in this moment for the run to end.
_PAUSE_RUN = (
    "UPDATE agent_runs SET status = CASE WHEN status = 'running' THEN ? ELSE status END, paused_until = ?,"
    " active_seconds = active_seconds + ?, job_id = NULL WHERE id = ? AND job_id = ? RETURNING status"
)
_FINISH_RUN = "UPDATE agent_runs SET status = ?, output = ?, error = ?, finished_at = ? WHERE id = ? AND job_id = ?"
_DELETE_SUPERSEDED = (
    "DELETE FROM agent_writes WHERE thread_id = ?"
    " AND checkpoint_id <> (SELECT MAX(id) FROM agent_checkpoints WHERE thread_id = ? AND namespace = '')"
)


class RunExecutor:
    """One attempt of one segment."""

    def __init__(self, job: Job, run_id: str) -> None:
        self._job = job
        self._run_id = run_id
        self._services = job.services
        self._watcher = self._services.of(RunWatcher)
        self._transactions = self._services.part(TransactionRunners).get_runner(job.database)
        self._is_cancelled = False

    async def execute_run(self) -> None:
        """Again while another segment of the run is under way; JobLost where another attempt has taken over."""
        if not await self._claim_run():
            return
        async with self._job.database.reading() as connection:
            run = (await connection.execute(select(runs).where(runs.c.id == self._run_id))).first()
        if run is None:
            # The app was deleted in this moment.
            return
        self._run = run
        clock, notify = self._services.clock, self._watcher.notify_listeners
        self._event_log = EventLog(
            self._job, run, self._transactions, clock, emitted_subjects=self._emitted_subjects, notify=notify
        )
        self._charges = RunCharges(self._services, self._job.database, self._event_log, run)
        origin = {"forked_from": run.forked_from, "step": run.forked_step} if run.forked_from else {}
        self._event_log.emit_event("run_start", {"input": run.input, **origin}, "run_start")
        try:
            await self._run_attempt(run)
        except (JobLost, RetryLater, *OUTAGES):
            # Nobody's fault, and over soon: another attempt goes on.
            raise
        except Exception:  # noqa: BLE001 - what nobody expected would come again at each attempt
            _log.exception("a run failed", extra={"run": self._run_id})
            await self._end_run(
                "failed", "run_failed", RunFailed("internal_error", "Something went wrong on our side.")
            )

    async def _run_attempt(self, run: Any) -> None:
        await self._charges.load()
        if self._has_checkpoint or self._job.attempt > 1:
            await self._charges.count_missing()
        # Here: a graph that a later version does not read any more ends its run.
        self._spec = GraphSpec.model_validate_json(json.dumps(run.graph_spec))
        try:
            if self._job.attempt > _MOST_ATTEMPTS and not self._is_cancelled:
                lost = f"The processes that made the run were lost at the same step, {_MOST_ATTEMPTS} in turn."
                raise RunFailed("worker_lost", lost)
            async with self._services.database.reading() as connection:
                execute, credits_, now = connection.execute, self._services.credits, self._services.clock.now()
                caller = await proposers.restore_caller(execute, credits_, run.caller, now)
            if proposers.kind_of(caller) != run.caller_kind:
                raise RunFailed("not_allowed", "The run does not act as whoever it was started for.")
            registry, base_url = self._job.registry, self._services.options.base_url
            offers = ToolOffers(registry)
            if self._spec.tools.mcp_servers:
                async with self._job.database.reading() as connection:
                    offers = await load_offers(registry, connection.execute, run.app_id)
            child_runs = ChildRuns(self._services, self._job.database, self._event_log, run)
            toolbox = RunToolbox(
                registry, self._event_log, run, self._spec, caller, base_url, offers, child_runs, self._charges
            )
            output, waiting, said = await self._drive_with_timeout(toolbox)
        except Unavailable:
            raise
        except RunTimedOut as exc:
            await self._end_run("timed_out", "run_failed", exc)
        except RunFailed as exc:
            await self._end_run("failed", "run_failed", exc)
        except BaobabError as exc:
            # What started the run has no right to go on.
            await self._end_run("failed", "run_failed", RunFailed("not_allowed", exc.message))
        except _RunCancelled:
            await self._cancel_run()
        else:
            if waiting:
                await self._pause_run(waiting)
            else:
                await self._complete_run(output, said)

    async def _claim_run(self) -> bool:
        """Whether there is something to do, which is then this job's."""
        now = self._services.clock.now()

        def claim(statements: Statements) -> bool:
            self._job.keep(statements)
            locked = statements.rows(_LOCK_RUN, self._run_id)
            if not locked or locked[0][0] in ENDED:
                return False
            status, job_id = locked[0]
            if job_id == FROZEN:
                # Taken up anew when its app is not moved any more.
                return False
            if status in ("running", "cancelling") and job_id not in (None, self._job.id):
                raise RetryLater(_BUSY_SECONDS, "another segment is under way")
            self._is_cancelled = status == "cancelling"
            statements.rows(
                _CLAIM_RUN, self._job.id, now, "cancelling" if self._is_cancelled else "running", self._run_id
            )
            emitted = statements.rows(
                "SELECT subject FROM agent_events WHERE run_id = ? AND subject IS NOT NULL", self._run_id
            )
            self._emitted_subjects = {subject for (subject,) in emitted}
            checkpoint_query = "SELECT 1 FROM agent_checkpoints WHERE thread_id = ? LIMIT 1"
            self._has_checkpoint = bool(statements.rows(checkpoint_query, self._run_id))
            return True

        return await self._transactions.run(claim, durable=False)

    async def _drive_with_timeout(self, toolbox: RunToolbox) -> tuple[Any, list[Any], Mapping[str, Any]]:
        left = self._spec.limits.timeout_seconds - self._run.active_seconds
        driving = asyncio.create_task(self._drive_graph(toolbox))

        def cancel_driving() -> None:
            self._is_cancelled = True
            driving.cancel()

        if self._is_cancelled:
            cancel_driving()
        try:
            with self._watcher.watch_cancellation(self._run_id, self._job.database, cancel_driving):
                await asyncio.wait({driving}, timeout=max(left, 0))
            late = not driving.done()
        finally:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
        if self._is_cancelled:
            raise _RunCancelled
        if late:
            raise RunTimedOut(f"The run used up its {self._spec.limits.timeout_seconds} seconds.")
        return driving.result()

    async def _drive_graph(self, toolbox: RunToolbox) -> tuple[Any, list[Any], Mapping[str, Any]]:
        library = await load_graph_library()
        saver = library.checkpointer(self._job.database, self._transactions, self._event_log)
        graph = library.compile_graph(self._run.graph_spec, saver)
        config = {
            "configurable": {"thread_id": self._run.id},
            # Steps are counted across segments, by the graph itself.
            "recursion_limit": 100_000,
        }
        given = None if self._has_checkpoint else library.initial_state(self._run.input, tainted=self._run.tainted)
        call_slots = asyncio.Semaphore(self._spec.limits.max_parallel_tools)
        session = RunSession(self._event_log, toolbox, ThreadMemory(self._job.database, self._run), call_slots)
        waiting: list[Any] = []
        async for update in graph.astream(given, config, context=session, stream_mode="updates", durability="sync"):
            waiting += [one.value for one in update.get("__interrupt__", ())]
        if waiting:
            return None, waiting, {}
        last = (await graph.aget_state(config)).values
        return last.get("output"), [], last.get("said") or {}

    async def _pause_run(self, waiting: list[dict[str, Any]]) -> None:
        """Nothing of the run stays here: for a person it is paused; after a run below it, and when a limit lets it, it
        goes on by itself. Again in the latter case.
        """
        pending = [each for each in waiting if "approval_id" in each]
        deadlines: list[datetime] = []
        for each in pending:
            # One that was decided in this moment has none any more.
            until = datetime.fromisoformat(each["until"]) if each["until"] else None
            deadlines += [until] if until else []
            payload = {
                "approval_id": each["approval_id"],
                "tool_name": each["tool_name"],
                "tool_source": each["tool_source"],
                **({"server": each["server"]} if "server" in each else {}),
                "call_id": each["call_id"],
                "args": each["args"],
                "tainted": each["tainted"],
                "approvers": each["approvers"],
                "expires_at": until,
            }
            self._event_log.emit_event("run_paused", payload, f"paused {each['approval_id']}", above=True)
        limited = max((each["again_in"] for each in waiting if "again_in" in each), default=0)
        # A limit is the run's own affair, so that it uses up its time; to wait for people does not.
        waited = 0 if pending else limited
        status, first = ("paused", min(deadlines, default=None)) if pending else ("running", None)

        def release_run(statements: Statements) -> None:
            released = statements.rows(_PAUSE_RUN, status, first, waited, self._run_id, self._job.id)
            if released and released[0][0] == "cancelling":
                why = f"run:{self._run_id}:after:{self._job.id}"[-200:]
                self._services.jobs.enqueue_in(statements, ADVANCE, {"run_id": self._run_id}, why)

        await self._event_log.write_transaction(release_run, last=not limited, rests=True)
        self._services.jobs.wake()
        if limited:
            raise RetryLater(limited, "a limit lets the run go on later")

    async def _complete_run(self, output: Any, said: Mapping[str, Any]) -> None:
        if len(json.dumps(output)) > _LARGEST_OUTPUT:
            failed = RunFailed("output_too_large", f"The output has more than {_LARGEST_OUTPUT} bytes.")
            return await self._end_run("failed", "run_failed", failed)
        self._event_log.emit_event("run_end", {"output": output}, "run_end")
        return await self._finish_run("completed", output=output, said=said)

    async def _end_run(self, status: str, event: str, failed: RunFailed) -> None:
        await self._services.approvals.abandon(self._run_id)
        self._event_log.emit_event(event, failed.event, "run_end")
        await self._finish_run(status, error=failed.error)

    async def _cancel_run(self) -> None:
        # First: what waits must not be done for a run that is no more.
        await self._services.approvals.abandon(self._run_id)
        self._event_log.emit_event("run_cancelled", {}, "run_end")
        await self._finish_run("cancelled")

    async def _finish_run(
        self, status: str, *, output: Any = None, error: Any = None, said: Mapping[str, Any] | None = None
    ) -> None:
        if self._charges.may_be_incomplete or status in ("cancelled", "timed_out"):
            await self._charges.count_missing()
        columns = [None if value is None else json.dumps(value) for value in (output, error)]
        now, url = self._services.clock.now(), self._run.webhook_url

        def write_end(statements: Statements) -> None:
            statements.rows(_FINISH_RUN, status, *columns, now, self._run_id, self._job.id)
            # A fork goes on from the last step with what its calls returned; nothing goes on from the others so.
            statements.rows(_DELETE_SUPERSEDED, self._run_id, self._run_id)
            if said:
                add_turns(statements, self._run, said, self._services.ids.uuid(), now)
            close_run(statements, self._services.jobs, self._run_id, self._run.graph_spec)
            if url is not None:
                arguments = {"run_id": self._run_id}
                self._services.jobs.enqueue_in(statements, WEBHOOK, arguments, f"webhook:{self._run_id}")

        await self._event_log.write_transaction(write_end, last=True)
        self._services.jobs.wake()


class _RunCancelled(Exception):
    pass
