"""A segment: a run from where it stands to its end, or to where a person must decide. One durable job each."""

import asyncio
import json
import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.charges import Charges
from baobab.runtime.agents.children import Children
from baobab.runtime.agents.desk import Desk
from baobab.runtime.agents.failures import RunFailed, TimedOut
from baobab.runtime.agents.family import close
from baobab.runtime.agents.journal import Journal
from baobab.runtime.agents.kinds import ADVANCE, WEBHOOK
from baobab.runtime.agents.library import graphs
from baobab.runtime.agents.offers import Offers, offered
from baobab.runtime.agents.rows import ENDED, FROZEN, runs
from baobab.runtime.agents.session import Session
from baobab.runtime.agents.spec import GraphSpec
from baobab.runtime.agents.threads import ThreadMemory, add_turns
from baobab.runtime.agents.watch import Watch
from baobab.storage.transactions import Statements, TransactionsOf
from baobab.tools.core.auth import proposers
from baobab.tools.core.errors import BaobabError, Unavailable
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import OUTAGES, Again, JobLost

_log = logging.getLogger(__name__)
_BUSY_SECONDS = 0.2
_LARGEST_OUTPUT = 2**20
_MOST_ATTEMPTS = 5
"""After so many at the same step, each of which ended with its process, the run may be what ends processes."""

_STANDING = (
    "SELECT locked.status, locked.job_id FROM agent_runs AS locked WHERE locked.id = ? FOR NO KEY UPDATE OF locked"
)
_CLAIMED = (
    "UPDATE agent_runs SET job_id = ?, started_at = COALESCE(started_at, ?), status = ?, paused_until = NULL"
    " WHERE id = ?"
)
# Somebody may have asked in this moment for the run to end.
_RESTED = (
    "UPDATE agent_runs SET status = CASE WHEN status = 'running' THEN ? ELSE status END, paused_until = ?,"
    " active_seconds = active_seconds + ?, job_id = NULL WHERE id = ? AND job_id = ? RETURNING status"
)
_FINISHED = "UPDATE agent_runs SET status = ?, output = ?, error = ?, finished_at = ? WHERE id = ? AND job_id = ?"
_SUPERSEDED = (
    "DELETE FROM agent_writes WHERE thread_id = ?"
    " AND checkpoint_id <> (SELECT MAX(id) FROM agent_checkpoints WHERE thread_id = ? AND namespace = '')"
)


class Segment:
    """One attempt of one segment."""

    def __init__(self, job: Job, run_id: str) -> None:
        self._job = job
        self._run_id = run_id
        self._services = job.services
        self._watch = self._services.of(Watch)
        self._transactions = self._services.part(TransactionsOf).on(job.database)
        self._cancelled = False

    async def make(self) -> None:
        """Again while another segment of the run is under way; JobLost where another attempt has taken over."""
        if not await self._claimed():
            return
        async with self._job.database.reading() as connection:
            run = (await connection.execute(select(runs).where(runs.c.id == self._run_id))).first()
        if run is None:
            # The app was deleted in this moment.
            return
        self._run = run
        clock, ring = self._services.clock, self._watch.ring
        self._journal = Journal(self._job, run, self._transactions, clock, known=self._known, told=ring)
        self._charges = Charges(self._services, self._job.database, self._journal, run)
        origin = {"forked_from": run.forked_from, "step": run.forked_step} if run.forked_from else {}
        self._journal.tell("run_start", {"input": run.input, **origin}, "run_start")
        try:
            await self._attempt(run)
        except (JobLost, Again, *OUTAGES):
            # Nobody's fault, and over soon: another attempt goes on.
            raise
        except Exception:  # noqa: BLE001 - what nobody expected would come again at each attempt
            _log.exception("a run failed", extra={"run": self._run_id})
            await self._end("failed", "run_failed", RunFailed("internal_error", "Something went wrong on our side."))

    async def _attempt(self, run: Any) -> None:
        await self._charges.load()
        if self._begun or self._job.attempt > 1:
            await self._charges.count_missing()
        # Here: a graph that a later version does not read any more ends its run.
        self._spec = GraphSpec.model_validate_json(json.dumps(run.graph_spec))
        try:
            if self._job.attempt > _MOST_ATTEMPTS and not self._cancelled:
                lost = f"The processes that made the run were lost at the same step, {_MOST_ATTEMPTS} in turn."
                raise RunFailed("worker_lost", lost)
            async with self._services.database.reading() as connection:
                execute, credits_, now = connection.execute, self._services.credits, self._services.clock.now()
                caller = await proposers.restored(execute, credits_, run.caller, now)
            if proposers.kind_of(caller) != run.caller_kind:
                raise RunFailed("not_allowed", "The run does not act as whoever it was started for.")
            registry, base_url = self._job.registry, self._services.options.base_url
            offers = Offers(registry)
            if self._spec.tools.mcp_servers:
                async with self._job.database.reading() as connection:
                    offers = await offered(registry, connection.execute, run.app_id)
            children = Children(self._services, self._job.database, self._journal, run)
            desk = Desk(registry, self._journal, run, self._spec, caller, base_url, offers, children, self._charges)
            output, waiting, said = await self._within_time(desk)
        except Unavailable:
            raise
        except TimedOut as exc:
            await self._end("timed_out", "run_failed", exc)
        except RunFailed as exc:
            await self._end("failed", "run_failed", exc)
        except BaobabError as exc:
            # What started the run has no right to go on.
            await self._end("failed", "run_failed", RunFailed("not_allowed", exc.message))
        except _Cancelled:
            await self._cancel()
        else:
            if waiting:
                await self._pause(waiting)
            else:
                await self._complete(output, said)

    async def _claimed(self) -> bool:
        """Whether there is something to do, which is then this job's."""
        now = self._services.clock.now()

        def claim(statements: Statements) -> bool:
            self._job.keep(statements)
            found = statements.rows(_STANDING, self._run_id)
            if not found or found[0][0] in ENDED:
                return False
            status, job_id = found[0]
            if job_id == FROZEN:
                # Taken up anew when its app is not moved any more.
                return False
            if status in ("running", "cancelling") and job_id not in (None, self._job.id):
                raise Again(_BUSY_SECONDS, "another segment is under way")
            self._cancelled = status == "cancelling"
            statements.rows(_CLAIMED, self._job.id, now, "cancelling" if self._cancelled else "running", self._run_id)
            told = statements.rows(
                "SELECT subject FROM agent_events WHERE run_id = ? AND subject IS NOT NULL", self._run_id
            )
            self._known = {subject for (subject,) in told}
            kept = "SELECT 1 FROM agent_checkpoints WHERE thread_id = ? LIMIT 1"
            self._begun = bool(statements.rows(kept, self._run_id))
            return True

        return await self._transactions.run(claim, durable=False)

    async def _within_time(self, desk: Desk) -> tuple[Any, list[Any], Mapping[str, Any]]:
        left = self._spec.limits.timeout_seconds - self._run.active_seconds
        driving = asyncio.create_task(self._drive(desk))

        def cancel() -> None:
            self._cancelled = True
            driving.cancel()

        if self._cancelled:
            cancel()
        try:
            with self._watch.making(self._run_id, self._job.database, cancel):
                await asyncio.wait({driving}, timeout=max(left, 0))
            late = not driving.done()
        finally:
            driving.cancel()
            await asyncio.gather(driving, return_exceptions=True)
        if self._cancelled:
            raise _Cancelled
        if late:
            raise TimedOut(f"The run used up its {self._spec.limits.timeout_seconds} seconds.")
        return driving.result()

    async def _drive(self, desk: Desk) -> tuple[Any, list[Any], Mapping[str, Any]]:
        made = await graphs()
        saver = made.checkpointer(self._job.database, self._transactions, self._journal)
        graph = made.compiled(self._run.graph_spec, saver)
        config = {
            "configurable": {"thread_id": self._run.id},
            # Steps are counted across segments, by the graph itself.
            "recursion_limit": 100_000,
        }
        given = None if self._begun else made.begun(self._run.input, tainted=self._run.tainted)
        turns = asyncio.Semaphore(self._spec.limits.max_parallel_tools)
        session = Session(self._journal, desk, ThreadMemory(self._job.database, self._run), turns)
        waiting: list[Any] = []
        async for told in graph.astream(given, config, context=session, stream_mode="updates", durability="sync"):
            waiting += [one.value for one in told.get("__interrupt__", ())]
        if waiting:
            return None, waiting, {}
        last = (await graph.aget_state(config)).values
        return last.get("output"), [], last.get("said") or {}

    async def _pause(self, waiting: list[dict[str, Any]]) -> None:
        """Nothing of the run stays here: for a person it is paused; after a run below it, and when a limit lets it, it
        goes on by itself. Again in the latter case.
        """
        asked = [each for each in waiting if "approval_id" in each]
        deadlines: list[datetime] = []
        for each in asked:
            # One that was decided in this moment has none any more.
            until = datetime.fromisoformat(each["until"]) if each["until"] else None
            deadlines += [until] if until else []
            told = {
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
            self._journal.tell("run_paused", told, f"paused {each['approval_id']}", above=True)
        limited = max((each["again_in"] for each in waiting if "again_in" in each), default=0)
        # A limit is the run's own affair, so that it uses up its time; to wait for people does not.
        waited = 0 if asked else limited
        status, first = ("paused", min(deadlines, default=None)) if asked else ("running", None)

        def rest(statements: Statements) -> None:
            rested = statements.rows(_RESTED, status, first, waited, self._run_id, self._job.id)
            if rested and rested[0][0] == "cancelling":
                why = f"run:{self._run_id}:after:{self._job.id}"[-200:]
                self._services.jobs.enqueue_in(statements, ADVANCE, {"run_id": self._run_id}, why)

        await self._journal.write(rest, last=not limited, rests=True)
        self._services.jobs.wake()
        if limited:
            raise Again(limited, "a limit lets the run go on later")

    async def _complete(self, output: Any, said: Mapping[str, Any]) -> None:
        if len(json.dumps(output)) > _LARGEST_OUTPUT:
            failed = RunFailed("output_too_large", f"The output has more than {_LARGEST_OUTPUT} bytes.")
            return await self._end("failed", "run_failed", failed)
        self._journal.tell("run_end", {"output": output}, "run_end")
        return await self._finish("completed", output=output, said=said)

    async def _end(self, status: str, event: str, failed: RunFailed) -> None:
        await self._services.approvals.abandon(self._run_id)
        self._journal.tell(event, failed.event, "run_end")
        await self._finish(status, error=failed.error)

    async def _cancel(self) -> None:
        # First: what waits must not be done for a run that is no more.
        await self._services.approvals.abandon(self._run_id)
        self._journal.tell("run_cancelled", {}, "run_end")
        await self._finish("cancelled")

    async def _finish(
        self, status: str, *, output: Any = None, error: Any = None, said: Mapping[str, Any] | None = None
    ) -> None:
        if self._charges.may_miss_some or status in ("cancelled", "timed_out"):
            await self._charges.count_missing()
        kept = [None if value is None else json.dumps(value) for value in (output, error)]
        now, url = self._services.clock.now(), self._run.webhook_url

        def finish(statements: Statements) -> None:
            statements.rows(_FINISHED, status, *kept, now, self._run_id, self._job.id)
            # A fork goes on from the last step with what its calls returned; nothing goes on from the others so.
            statements.rows(_SUPERSEDED, self._run_id, self._run_id)
            if said:
                add_turns(statements, self._run, said, self._services.ids.uuid(), now)
            close(statements, self._services.jobs, self._run_id, self._run.graph_spec)
            if url is not None:
                told = {"run_id": self._run_id}
                self._services.jobs.enqueue_in(statements, WEBHOOK, told, f"webhook:{self._run_id}")

        await self._journal.write(finish, last=True)
        self._services.jobs.wake()


class _Cancelled(Exception):
    pass
