"""The event log of a run: what it has done, written in the transactions in which it did it."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import to_json

from baobab.runtime.agents.failures import RunTakenOver
from baobab.runtime.agents.run_tree import emit_to_parents
from baobab.runtime.agents.tables import Write
from baobab.storage.clock import Clock
from baobab.storage.database import Database
from baobab.storage.statements import Statements
from baobab.tools.core.job import Job

_UPDATE_RUN = (
    "UPDATE agent_runs SET last_seq = last_seq + ?, active_seconds = active_seconds + ?, cost = cost + ?,"
    " prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?, tainted = (tainted OR ?)"
    " WHERE id = ? AND job_id = ? RETURNING last_seq"
)
_INSERT_EVENT = "INSERT INTO agent_events (run_id, seq, type, payload, subject, created_at) VALUES (?, ?, ?, ?, ?, ?)"
_LEAST_BETWEEN_SECONDS = 0.1
"""The least time between two announcements of a run."""


class EventLog:
    """Collects events and writes them with the run's next transaction, which only its present job can make.

    run: its row. emitted_subjects: the subjects of events that an earlier attempt wrote, which are not written again.
    notify: called with the id of each run that has new events.
    """

    def __init__(
        self,
        job: Job,
        run: Any,
        database: Database,
        clock: Clock,
        *,
        emitted_subjects: set[str],
        notify: Callable[[str], None],
    ) -> None:
        self._job = job
        self._run_id: str = run.id
        self._parent_id: str | None = run.parent_run_id
        self._run_fields = {"run_id": run.id, "agent": run.agent}
        self._database = database
        self._clock = clock
        self._emitted_subjects = emitted_subjects
        self._notify = notify
        self._pending: list[tuple[str, Mapping[str, Any], str | None]] = []
        self._parent_events: list[tuple[str, Mapping[str, Any], str | None]] = []
        self._deferred_writes: list[Write] = []
        self._cost = self._prompt = self._completion = 0
        self._tainted = False
        self._write_lock = asyncio.Lock()
        self._opened_at = self._since = asyncio.get_running_loop().time()
        self._announced_at = 0.0

    @property
    def active_seconds(self) -> float:
        """The seconds since this event log was opened."""
        return asyncio.get_running_loop().time() - self._opened_at

    def emit_event(
        self, type_: str, payload: Mapping[str, Any], subject: str | None = None, *, above: bool = False
    ) -> bool:
        """Add an event, unless the run has ever emitted one of this subject. Returns whether it was added.

        above: whether the event is added to the parent runs, too.
        """
        if subject is not None:
            if subject in self._emitted_subjects:
                return False
            self._emitted_subjects.add(subject)
        self._pending.append((type_, payload, subject))
        if above and self._parent_id is not None:
            self._parent_events.append((type_, {**payload, **self._run_fields}, subject))
        return True

    def add_usage(self, *, cost: int, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Add to the usage of the run; cost is in nano-dollars."""
        self._cost += cost
        self._prompt += prompt_tokens
        self._completion += completion_tokens

    def taint(self) -> None:
        self._tainted = True

    def defer_write(self, write: Write) -> None:
        """Do a write with the next transaction, unless `discard_deferred` is called before."""
        self._deferred_writes.append(write)

    def discard_deferred(self) -> None:
        """Drop the deferred writes, which are no longer needed."""
        self._deferred_writes.clear()

    async def flush(self) -> None:
        """Write the pending events and usage, so that others see them before the next step ends."""
        if self._pending or self._cost or self._prompt or self._completion:
            await self.write_transaction()

    async def write_transaction(self, work: Write | None = None, *, last: bool = False, rests: bool = False) -> None:
        """Commit the pending events and usage together with `work`.

        Raises JobLost where another attempt has the job now, and RunTakenOver where the run is no longer this job's.
        Not durable: a power failure may take the run back by some steps. What tools do is committed durably.

        last: the job ends with this transaction; rests: the run pauses after it. Either is announced at once.
        """
        async with self._write_lock:
            pending, self._pending = self._pending, []
            parent_events, self._parent_events = self._parent_events, []
            parent_ids: list[str] = []
            deferred_writes, self._deferred_writes = self._deferred_writes, []
            usage = (self._cost, self._prompt, self._completion, self._tainted)
            self._cost = self._prompt = self._completion = 0
            now = asyncio.get_running_loop().time()
            active, self._since = now - self._since, now

            def run_work(statements: Statements) -> None:
                # Each event is emitted once, so an attempt that has events is further than any attempt before.
                self._job.keep(statements, last=last, further=bool(pending))
                # Before the work, which may end the run: then the row is no longer this job's.
                updated_rows = statements.rows(_UPDATE_RUN, len(pending), active, *usage, self._run_id, self._job.id)
                if not updated_rows:
                    raise RunTakenOver
                first, created_at = updated_rows[0][0] - len(pending) + 1, self._clock.now()
                if pending:
                    statements.execute_many(
                        _INSERT_EVENT,
                        [
                            (self._run_id, first + index, type_, to_json(payload).decode(), subject, created_at)
                            for index, (type_, payload, subject) in enumerate(pending)
                        ],
                    )
                for write in deferred_writes:
                    write(statements)
                if self._parent_id is not None:
                    parent_ids[:] = emit_to_parents(statements, self._parent_id, parent_events, created_at)
                if work is not None:
                    work(statements)

            # Each announcement makes every process query its runs; listeners in other processes can wait a moment.
            announce = bool(pending) and (last or rests or now >= self._announced_at + _LEAST_BETWEEN_SECONDS)
            await self._database.transact(run_work, durable=False, announce=announce)
            if announce:
                self._announced_at = now
        if last:
            self._job.end()
        for run_id in [self._run_id, *parent_ids] if pending else ():
            self._notify(run_id)
