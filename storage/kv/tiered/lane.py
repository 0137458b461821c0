"""The writes of one space in one process: those that wait are made as one group, in the order in which they came.

It takes a round trip or two to Valkey and those of the durable tier's transaction, whether it is one write or a
hundred.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from baobab.storage.kv.engine import Tier
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.tiered.durable import Durable
from baobab.storage.kv.tiered.ephemeral import Ephemeral
from baobab.storage.kv.tiered.group import Group, Job, Outcome, failed

# Bounds what a group has in memory: a value may have 256 KB.
_LARGEST_GROUP = 250
_UNDECIDED = "nobody knows yet whether an earlier write was made"


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    job: Job


class Lane:
    def __init__(self, space: str, durable: Durable, ephemeral: Ephemeral, idle: Callable[[Lane], None]) -> None:
        """`idle` is called when there is nothing left to do."""
        self.space = space
        self._durable = durable
        self._ephemeral = ephemeral
        self._idle = idle
        self._queue: deque[_Waiting] = deque()
        # The group of which nobody knows whether the durable tier has done its part. Others are refused meanwhile.
        self._undecided: Group | None = None
        # What was asked last, done or not.
        self.latest: asyncio.Future[Any] | None = None
        self.task = asyncio.create_task(self._run(), name="kv-lane")

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, job: Job) -> asyncio.Future[Any]:
        if self._undecided is not None:
            raise StoreUnavailable(_UNDECIDED)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._queue.append(_Waiting(future, job))
        self.latest = future
        return future

    async def _run(self) -> None:
        while self._queue:
            group = self._group()
            try:
                outcomes = await self._outcomes([waiting.job for waiting in group])
            except Exception as exc:  # noqa: BLE001 - whatever ended the group, its waiters must hear and the task live
                outcomes = [failed(exc) for _ in group]
            for (future, _), outcome in zip(group, outcomes, strict=True):
                _resolve(future, outcome)
            if self._undecided is not None:
                for future, _ in self._queue:
                    _resolve(future, failed(StoreUnavailable(_UNDECIDED)))
                self._queue.clear()
                await self._undecided.settle()
                self._undecided = None
        self._idle(self)

    def _group(self) -> list[_Waiting]:
        group = [self._queue.popleft()]
        keys = len(group[0].job.keys)
        while self._queue and (keys := keys + len(self._queue[0].job.keys)) <= _LARGEST_GROUP:
            group.append(self._queue.popleft())
        return group

    async def _outcomes(self, jobs: list[Job]) -> list[Outcome]:
        group = Group(self.space, jobs, self._durable, self._ephemeral)
        try:
            outcomes, doubtful = await group.make()
        finally:
            self._undecided = None if group.is_decided else group
        self._clear_up(set(doubtful).difference(*(job.keys for job in jobs)))
        return outcomes

    def _clear_up(self, doubtful: set[str]) -> None:
        """Looking at a key is enough: a group drops the copy that it finds beside a durable entry."""
        if doubtful:
            settled = self.submit(Job(lambda _: None, tuple(doubtful), Tier.EPHEMERAL))
            # Whether it comes to that or not: who next has a turn here is told of them again.
            settled.add_done_callback(lambda done: done.cancelled() or done.exception())


def _resolve(future: asyncio.Future[Any], outcome: Outcome) -> None:
    # Done already where the caller has gone.
    if future.done():
        return
    if outcome.error is None:
        future.set_result(outcome.result)
    else:
        future.set_exception(outcome.error)
