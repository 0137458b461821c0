"""The event log of a run: what it has done, written in the transactions in which it did it."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from pydantic_core import to_json

from baobab.runtime.agents.failures import RunTakenOver
from baobab.runtime.agents.model_calls import ModelCallRecord
from baobab.runtime.agents.pieces import CheckpointRow, save_checkpoints
from baobab.runtime.agents.run_tree import INSERT_EVENT, emit_to_parents
from baobab.runtime.agents.run_watcher import RUN_EVENTS
from baobab.runtime.agents.tables import Write
from baobab.storage.clock import Clock
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import RetryLater

_SET_USAGE = (
    "UPDATE agent_runs SET last_seq = last_seq + ?, active_seconds = active_seconds + ?, cost = cost + ?,"
    " prompt_tokens = prompt_tokens + ?, completion_tokens = completion_tokens + ?, tainted = (tainted OR ?)"
)
_SET_CLAIM = "job_id = ?, started_at = COALESCE(started_at, ?), paused_until = NULL"
_SET_RUNNING = "status = CASE WHEN status = 'cancelling' THEN status ELSE 'running' END"
_SET_END = "status = ?, output = ?, error = ?, incomplete = ?, finished_at = ?"
_IS_MINE = "WHERE app_id = ? AND id = ? AND job_id = ?"
# Nobody has written to the run since its row was read; or this job has claimed it before, in this attempt or another.
_IS_FREE = (
    "WHERE app_id = ? AND id = ? AND finished_at IS NULL"
    " AND (job_id = ? OR (last_seq = ? AND COALESCE(job_id, '') = ?))"
)
_USAGE = "RETURNING last_seq, cost, prompt_tokens, completion_tokens, tainted, parent_run_id"
_UPDATE_RUN = f"{_SET_USAGE} {_IS_MINE} RETURNING last_seq"
_END_RUN = f"{_SET_USAGE}, {_SET_END} {_IS_MINE} {_USAGE}"
_CLAIM_RUN = f"{_SET_USAGE}, {_SET_CLAIM}, {_SET_RUNNING} {_IS_FREE} RETURNING last_seq"
_CLAIM_AND_END_RUN = f"{_SET_USAGE}, {_SET_CLAIM}, {_SET_END} {_IS_FREE} {_USAGE}"
_LEAST_BETWEEN_SECONDS = 0.1
"""The shortest time between two announcements of a run, and the longest delay of an event or checkpoint."""
_MOST_KEPT_BACK = 2**20
"""The most characters of checkpoints whose writing is delayed."""
_BUSY_SECONDS = 0.2


class RunEnd(NamedTuple):
    """How a run ends. output, error, incomplete: as JSON."""

    status: str
    output: str | None
    error: str | None
    incomplete: str | None
    at: datetime
    follow: Callable[[Statements, Sequence[Any]], None]
    """Called last in the transaction, with cost, prompt_tokens, completion_tokens, tainted and parent_run_id of the
    run's row.
    """


class EventLog:
    """Collects a run's events and checkpoints, and writes them together in transactions that only the run's present job
    can make. The first transaction claims the run for that job.

    What has no effect outside the run needs no transaction of its own: whoever causes an effect calls `flush` before.

    run: its row, as it was read. emitted_subjects: the subjects of events that an earlier attempt wrote, which are not
    written again. notify: called with the id of each run that has new events.
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
        self._app_id: str = run.app_id
        self._key = (self._app_id, self._run_id)
        self._parent_id: str | None = run.parent_run_id
        self._run_fields = {"run_id": run.id, "agent": run.agent}
        self._read_state = (run.last_seq, run.job_id or "")
        self._is_claimed = False
        self.database = database
        self._clock = clock
        self._emitted_subjects = emitted_subjects
        self._notify = notify
        self._pending: list[tuple[str, Mapping[str, Any], str | None]] = []
        self._parent_events: list[tuple[str, Mapping[str, Any], str | None]] = []
        self._has_news = asyncio.Event()
        self._checkpoints: list[CheckpointRow] = []
        self._kept_back = 0
        self._deferred_writes: list[Write] = []
        self._model_calls: list[ModelCallRecord] = []
        self.has_written_deferred = False
        """Whether this log has run the deferred writes."""
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
        """Adds an event, unless the run has ever emitted one of this subject. Returns whether it was added.

        above: whether the event is added to the parent runs, too.
        """
        if subject is not None:
            if subject in self._emitted_subjects:
                return False
            self._emitted_subjects.add(subject)
        self._pending.append((type_, payload, subject))
        self._has_news.set()
        if above and self._parent_id is not None:
            self._parent_events.append((type_, {**payload, **self._run_fields}, subject))
        return True

    def has_emitted(self, subject: str) -> bool:
        """Returns whether the run has ever emitted an event of this subject."""
        return subject in self._emitted_subjects

    def add_model_call(self, record: ModelCallRecord) -> None:
        """Writes down what a model was asked, with the next transaction."""
        self._model_calls.append(record)

    def add_usage(self, *, cost: int, prompt_tokens: int = 0, completion_tokens: int = 0) -> None:
        """Adds to the usage of the run; cost is in nano-dollars."""
        self._cost += cost
        self._prompt += prompt_tokens
        self._completion += completion_tokens

    def taint(self) -> None:
        """Marks the run as having read text from outside."""
        self._tainted = True

    async def add_checkpoint(self, row: CheckpointRow) -> None:
        """Writes a checkpoint with the next transaction. It replaces the deferred writes, whose content it contains."""
        self._deferred_writes.clear()
        self._checkpoints.append(row)
        self._has_news.set()
        self._kept_back += row.size
        if self._kept_back > _MOST_KEPT_BACK:
            await self.write_transaction()

    def defer_write(self, write: Write) -> None:
        """Writes something with the next transaction, unless a checkpoint is added before that."""
        self._deferred_writes.append(write)

    async def claim(self) -> None:
        """Claims the run, unless a transaction has done so. Raises RetryLater where somebody has changed it."""
        if not self._is_claimed:
            await self.write_transaction()

    async def keep_written(self) -> None:
        """Writes pending changes a moment after they were added, until the task is cancelled."""
        while True:
            await self._has_news.wait()
            await asyncio.sleep(_LEAST_BETWEEN_SECONDS)
            self._has_news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Writes the pending events, usage and checkpoints, so that others see them and a crash does not undo them.

        The run is claimed afterwards, so that the caller may cause an effect. Raises as `write_transaction`.
        """
        is_pending = self._pending or self._checkpoints or self._cost or self._prompt or self._completion
        if is_pending or not self._is_claimed:
            await self.write_transaction()

    async def write_transaction(
        self, work: Write | None = None, *, end: RunEnd | None = None, last: bool = False, rests: bool = False
    ) -> None:
        """Commits what is pending together with `work`.

        Raises JobLost where another attempt has the job now, RunTakenOver where the run is no longer this job's, and
        RetryLater where the run was to be claimed and somebody has changed it since it was read.
        Not durable: a power failure may take the run back by some steps. What tools do is committed durably.

        end: how the run ends, and its job with it. last: only the job ends with this transaction; rests: the run pauses
        after it. Each of them is announced at once.
        """
        last = last or end is not None
        async with self._write_lock:
            pending, self._pending = self._pending, []
            parent_events, self._parent_events = self._parent_events, []
            parent_ids: list[str] = []
            checkpoints, self._checkpoints, self._kept_back = self._checkpoints, [], 0
            deferred_writes, self._deferred_writes = self._deferred_writes, []
            model_calls, self._model_calls = self._model_calls, []
            usage = (self._cost, self._prompt, self._completion, self._tainted)
            self._cost = self._prompt = self._completion = 0
            now = asyncio.get_running_loop().time()
            active, self._since = now - self._since, now

            def run_work(statements: Statements) -> None:
                # Each event is emitted once, so an attempt that has events is further than any attempt before.
                self._job.keep(statements, last=last, further=bool(pending))
                created_at = self._clock.now()
                # Before the work, which may end the run: then the row is no longer this job's.
                last_seq, *totals = self._update_run(statements, created_at, end, len(pending), active, *usage)
                if pending:
                    first = last_seq - len(pending) + 1
                    statements.insert_many(
                        INSERT_EVENT,
                        [
                            (*self._key, first + index, type_, to_json(payload).decode(), subject, created_at)
                            for index, (type_, payload, subject) in enumerate(pending)
                        ],
                    )
                if checkpoints:
                    save_checkpoints(statements, self._app_id, checkpoints)
                for write in deferred_writes:
                    write(statements)
                for record in model_calls:
                    record.save(statements, *self._key, created_at)
                if self._parent_id is not None:
                    parent_ids[:] = emit_to_parents(
                        statements, self._app_id, self._parent_id, parent_events, created_at
                    )
                if work is not None:
                    work(statements)
                if end is not None:
                    end.follow(statements, totals)

            # Each announcement makes every process query its runs; listeners in other processes can wait a moment.
            announce = bool(pending) and (last or rests or now >= self._announced_at + _LEAST_BETWEEN_SECONDS)
            await self.database.transact(run_work, durable=False, announce=[RUN_EVENTS] if announce else ())
            self._is_claimed = True
            self.has_written_deferred = self.has_written_deferred or bool(deferred_writes)
            if announce:
                self._announced_at = now
        if last:
            self._job.end()
        for run_id in [self._run_id, *parent_ids] if pending else ():
            self._notify(run_id)

    def _update_run(self, statements: Statements, now: datetime, end: RunEnd | None, *counters: Any) -> Sequence[Any]:
        """Adds to the run's row, claims the run if that is still to be done, and ends it if it ends.

        Returns its last `seq`, and what `RunEnd.follow` is called with.
        """
        ending = () if end is None else (end.status, end.output, end.error, end.incomplete, end.at)
        if self._is_claimed:
            text = _UPDATE_RUN if end is None else _END_RUN
            updated_rows = statements.rows(text, *counters, *ending, *self._key, self._job.id)
        else:
            text = _CLAIM_RUN if end is None else _CLAIM_AND_END_RUN
            claiming = (self._job.id, now, *ending, *self._key, self._job.id, *self._read_state)
            updated_rows = statements.rows(text, *counters, *claiming)
        if not updated_rows:
            if self._is_claimed:
                raise RunTakenOver
            raise RetryLater(_BUSY_SECONDS, "the run has changed since it was read")
        return updated_rows[0]
