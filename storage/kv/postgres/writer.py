"""A connection that writes.

It takes all queued writes as one group: two round trips and one commit, which cost about the same for one write and for
a thousand.

A group locks the spaces that it writes, in the order of their numbers, then reads. A space whose number of entries or
bytes may change is locked alone. A counter or an expiry that changes in place shares its space and locks its row
instead; rows are locked in one order too. So there are no deadlocks, and a busy counter does not hold up other keys.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import psycopg

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Tier, Usage
from baobab.storage.kv.errors import QueueFull, StoreClosed, StoreUnavailable
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.postgres import statements
from baobab.storage.kv.postgres.session import Rows, Session
from baobab.storage.kv.postgres.statements import require_text
from baobab.storage.kv.postgres.transaction import (
    ExpiredCountNeeded,
    GroupState,
    LockNeeded,
    MoreNeeded,
    PostgresTransaction,
)
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.transaction import Place, StoredEntry

# Limits how long one group keeps other processes from its spaces.
_LARGEST_GROUP = 1000
# Our own locks cannot deadlock, but other users of this database may cause it.
_ATTEMPTS = 3
_COLLISIONS = (psycopg.errors.DeadlockDetected, psycopg.errors.SerializationFailure)


class WriteJob(NamedTuple):
    """A write to a space: `alone` if it may add, remove or resize entries, `blind` if it needs no stored values.

    Without a space it only checks that a write can begin.
    """

    write: Callable[[Any], Any]
    space: str | None = None
    places: tuple[Place, ...] = ()
    alone: bool = True
    blind: bool = False


class _QueuedWrite(NamedTuple):
    future: asyncio.Future[Any]
    job: WriteJob


_WriteResult = tuple[Any, Exception | None]


class Writer:
    def __init__(self, session: Session, clock: Callable[[], float], queue_limit: int) -> None:
        self._session = session
        self._clock = clock
        self._queue_limit = queue_limit
        self._queue: deque[_QueuedWrite] = deque()
        self._wakeup = asyncio.Event()
        self._closing = False
        self._task = asyncio.create_task(self._run(), name="kv-writer")

    def submit(self, job: WriteJob) -> asyncio.Future[Any]:
        """Queues a write. The future fails with what the write raised, or with StoreUnavailable if its group did not
        commit.
        """
        if self._closing:
            raise StoreClosed
        if len(self._queue) >= self._queue_limit:
            raise QueueFull
        for place in job.places:
            require_text(place)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedWrite(future, job))
        self._wakeup.set()
        return future

    async def close(self) -> None:
        """Returns when every write that was submitted before has its result."""
        self._closing = True
        self._wakeup.set()
        await self._task
        await self._session.drop()

    async def _run(self) -> None:
        while self._queue or not self._closing:
            if not self._queue:
                self._wakeup.clear()
                await self._wakeup.wait()
                continue
            group = [self._queue.popleft() for _ in range(min(len(self._queue), _LARGEST_GROUP))]
            _resolve_group(group, await self._execute_jobs([waiting.job for waiting in group]))

    async def _execute_jobs(self, jobs: list[WriteJob]) -> list[_WriteResult]:
        alone = {job.space for job in jobs if job.alone and job.space not in (None, SPACE)}
        collisions = 0
        while True:
            try:
                return await self._commit(jobs, alone)
            except LockNeeded as wanted:
                alone.add(wanted.space)
            except _COLLISIONS as exc:
                collisions += 1
                if collisions == _ATTEMPTS:
                    return _fail_all(jobs, exc)
            except Exception as exc:  # noqa: BLE001 - callers must get a result, and the task must survive
                return _fail_all(jobs, exc)

    async def _commit(self, jobs: list[WriteJob], alone: set[str]) -> list[_WriteResult]:
        try:
            state = await self._begin(jobs, alone)
            # Read after the locks were acquired, because waiting for them may have taken time.
            now = expiry.milliseconds(self._clock())
            try:
                transaction, outcomes = await self._apply_jobs(jobs, state, now)
            except LockNeeded:
                # Nothing is written yet. After a ROLLBACK psycopg would forget its prepared statements.
                await self._session.run(statements.COMMIT)
                raise
            await self._session.run(*transaction.build_statements(), statements.COMMIT)
        except LockNeeded:
            raise
        except BaseException:
            await self._session.drop()
            raise
        return outcomes

    async def _begin(self, jobs: list[WriteJob], alone: set[str]) -> GroupState:
        wants_value_by_place: dict[Place, bool] = {}
        for job in jobs:
            for place in job.places:
                # A token's value is always needed, even for a blind write.
                wants_value_by_place[place] = (
                    wants_value_by_place.get(place, False) or not job.blind or place[0] == SPACE
                )
        shared_spaces = {space for space, _ in wants_value_by_place} - alone - {SPACE}
        batch = []
        if alone or shared_spaces:
            batch.append(statements.lock(alone, shared_spaces))
        if alone:
            batch.append(statements.totals(alone))
        if wants_value_by_place:
            batch.append(statements.rows(wants_value_by_place, locked=bool(shared_spaces)))
        answers = await self._session.begin(*batch)
        state = GroupState(alone)
        if wants_value_by_place:
            rows = answers.pop()
            if shared_spaces:
                state.is_frozen_by_space.update((row[0], row[-1]) for row in rows)
                rows = [row[:-1] for row in rows]
            state.rows = _parse_rows(rows)
        if alone:
            for space, keys, size, is_frozen in answers.pop():
                state.usage[space] = Usage(keys, size)
                state.is_frozen_by_space[space] = is_frozen
        return state

    async def _apply_jobs(
        self, jobs: list[WriteJob], state: GroupState, now: int
    ) -> tuple[PostgresTransaction, list[_WriteResult]]:
        while True:
            transaction = PostgresTransaction(state, now)
            try:
                return transaction, [_apply_job(transaction, job) for job in jobs]
            except ExpiredCountNeeded as wanted:
                [[usage_row]] = await self._session.run(statements.count_expired(wanted.space, now))
                state.expired_usage[wanted.space] = Usage(*usage_row)


def _parse_rows(rows: Rows) -> dict[Place, StoredEntry]:
    return {
        (space, key): StoredEntry(Tier(tier), size, expires, None if value is None else Row(value, expires, window))
        for space, key, tier, size, expires, window, value in rows
    }


def _apply_job(transaction: PostgresTransaction, job: WriteJob) -> _WriteResult:
    try:
        return job.write(transaction), None
    except MoreNeeded:
        raise
    except Exception as exc:  # noqa: BLE001 - an error of one write must not fail the rest of the group
        return None, exc


def _fail_all(jobs: list[WriteJob], cause: Exception) -> list[_WriteResult]:
    outcomes: list[_WriteResult] = []
    for _ in jobs:
        error = StoreUnavailable.because(cause)
        error.__cause__ = cause
        outcomes.append((None, error))
    return outcomes


def _resolve_group(group: list[_QueuedWrite], outcomes: list[_WriteResult]) -> None:
    for (future, _), (result, error) in zip(group, outcomes, strict=True):
        # Done already if the caller was cancelled.
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
