"""The queue of writes of one space in one process: queued writes are made as one group, in order.

A group takes one or two round trips to Valkey and the durable tier's transaction, for one write or a hundred.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from baobab.storage.kv.engine import Tier
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.tiered.durable import DurableEngine
from baobab.storage.kv.tiered.ephemeral import EphemeralTier
from baobab.storage.kv.tiered.group import WriteGroup, WriteJob, WriteResult, build_failure

# Limits the memory of a group, since a value may have 256 KB.
_LARGEST_GROUP = 250
_UNDECIDED = "it is not known yet whether an earlier write was made"


class _QueuedWrite(NamedTuple):
    future: asyncio.Future[Any]
    job: WriteJob


class WriteQueue:
    def __init__(
        self, space: str, durable: DurableEngine, ephemeral: EphemeralTier, on_idle: Callable[[WriteQueue], None]
    ) -> None:
        """on_idle: called when the queue is empty."""
        self.space = space
        self._durable = durable
        self._ephemeral = ephemeral
        self._on_idle = on_idle
        self._queue: deque[_QueuedWrite] = deque()
        # The group for which it is unknown whether the durable tier has committed. Other writes are refused meanwhile.
        self._undecided: WriteGroup | None = None
        # The newest write, done or not.
        self.latest: asyncio.Future[Any] | None = None
        self.task = asyncio.create_task(self._run(), name="kv-write-queue")

    @property
    def waiting_count(self) -> int:
        return len(self._queue)

    def submit(self, job: WriteJob) -> asyncio.Future[Any]:
        if self._undecided is not None:
            raise StoreUnavailable(_UNDECIDED)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_QueuedWrite(future, job))
        self.latest = future
        return future

    async def _run(self) -> None:
        while self._queue:
            group = self._take_group()
            try:
                outcomes = await self._execute_group([waiting.job for waiting in group])
            except Exception as exc:  # noqa: BLE001 - callers must get a result, and the task must survive
                outcomes = [build_failure(exc) for _ in group]
            for (future, _), outcome in zip(group, outcomes, strict=True):
                _resolve_future(future, outcome)
            if self._undecided is not None:
                for future, _ in self._queue:
                    _resolve_future(future, build_failure(StoreUnavailable(_UNDECIDED)))
                self._queue.clear()
                await self._undecided.wait_until_decided()
                self._undecided = None
        self._on_idle(self)

    def _take_group(self) -> list[_QueuedWrite]:
        group = [self._queue.popleft()]
        keys = len(group[0].job.keys)
        while self._queue and (keys := keys + len(self._queue[0].job.keys)) <= _LARGEST_GROUP:
            group.append(self._queue.popleft())
        return group

    async def _execute_group(self, jobs: list[WriteJob]) -> list[WriteResult]:
        group = WriteGroup(self.space, jobs, self._durable, self._ephemeral)
        try:
            outcomes, doubtful = await group.execute()
        finally:
            self._undecided = None if group.is_decided else group
        self._remove_copies(set(doubtful).difference(*(job.keys for job in jobs)))
        return outcomes

    def _remove_copies(self, doubtful: set[str]) -> None:
        """Removes copies left by a crash: reading a key is enough, since a group drops the copy beside a
        durable entry.
        """
        if doubtful:
            settled = self.submit(WriteJob(lambda _: None, tuple(doubtful), Tier.EPHEMERAL))
            # The result does not matter: the next lock holder gets these keys again.
            settled.add_done_callback(lambda done: done.cancelled() or done.exception())


def _resolve_future(future: asyncio.Future[Any], outcome: WriteResult) -> None:
    # Done already if the caller was cancelled.
    if future.done():
        return
    if outcome.error is None:
        future.set_result(outcome.result)
    else:
        future.set_exception(outcome.error)
