"""The only thread that writes.

It takes all queued writes as one group, commits once, and hands all results to the event loop in one call: a commit to
disk costs the same for one write and for a thousand.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import apsw

from baobab.storage.kv.errors import QueueFull
from baobab.storage.kv.files import Faults
from baobab.storage.kv.sqlite_transaction import EphemeralFailed, SqliteTransaction
from baobab.storage.kv.tier_file import TierFile

T = TypeVar("T")

# Limits how long one commit keeps other processes from writing.
_LARGEST_GROUP = 1000


class _WriteJob(NamedTuple):
    future: asyncio.Future[Any]
    write: Callable[[SqliteTransaction], Any]


class _WriteResult(NamedTuple):
    future: asyncio.Future[Any]
    result: Any
    error: Exception | None
    touched_ephemeral: bool = False


class Writer:
    def __init__(
        self,
        durable: TierFile,
        ephemeral: TierFile,
        clock: Callable[[], float],
        loop: asyncio.AbstractEventLoop,
        queue_limit: int,
        faults: Faults,
    ) -> None:
        self._faults = faults
        self._durable = durable
        self._ephemeral = ephemeral
        self._clock = clock
        self._loop = loop
        self._queue_limit = queue_limit
        self._queue: queue.SimpleQueue[_WriteJob | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="kv-writer", daemon=True)
        self._thread.start()

    def submit(self, write: Callable[[SqliteTransaction], T]) -> asyncio.Future[T]:
        """Queues a write. The future fails with what `write` raised, or with StoreUnavailable if its group did not
        commit.
        """
        if self._queue.qsize() >= self._queue_limit:
            raise QueueFull
        future: asyncio.Future[T] = self._loop.create_future()
        self._queue.put(_WriteJob(future, write))
        return future

    async def close(self) -> None:
        """Returns when every write that was submitted before has its result."""
        self._queue.put(None)
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            group = [job]
            # Only this thread takes from the queue, so it holds at least as many as it reports.
            waiting = min(self._queue.qsize(), _LARGEST_GROUP - 1)
            closing = False
            for _ in range(waiting):
                following = self._queue.get()
                if following is None:
                    closing = True
                    break
                group.append(following)
            self._deliver(self._commit(group))
            if closing:
                return

    def _commit(self, group: list[_WriteJob]) -> list[_WriteResult]:
        outcomes: list[_WriteResult] = []
        try:
            transaction = SqliteTransaction(self._durable, self._ephemeral, self._clock)
            outcomes.extend(_apply_job(transaction, job) for job in group)
            transaction.commit()
        except EphemeralFailed as exc:
            self._rollback()
            return [
                self._build_failure(outcome.future, exc) if outcome.touched_ephemeral else outcome
                for outcome in outcomes
            ]
        except Exception as exc:  # noqa: BLE001 - callers must get a result, and the thread must survive
            self._rollback()
            return [self._build_failure(job.future, exc) for job in group]
        return outcomes

    def _build_failure(self, future: asyncio.Future[Any], cause: Exception) -> _WriteResult:
        error = self._faults.translate(cause)
        error.__cause__ = cause
        return _WriteResult(future, None, error)

    def _rollback(self) -> None:
        self._durable.rollback()
        self._ephemeral.rollback()

    def _deliver(self, outcomes: list[_WriteResult]) -> None:
        try:
            self._loop.call_soon_threadsafe(_resolve_futures, outcomes)
        except RuntimeError:
            # The loop is closed, so nobody waits any more. Committed writes stay committed.
            return


def _apply_job(transaction: SqliteTransaction, job: _WriteJob) -> _WriteResult:
    transaction.touched_ephemeral = False
    try:
        return _WriteResult(job.future, job.write(transaction), None, transaction.touched_ephemeral)
    except apsw.Error:
        raise
    except Exception as exc:  # noqa: BLE001 - an error of one write must not fail the rest of the group
        return _WriteResult(job.future, None, exc)


def _resolve_futures(outcomes: list[_WriteResult]) -> None:
    for future, result, error, _ in outcomes:
        # Done already if the caller was cancelled.
        if future.done():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)
