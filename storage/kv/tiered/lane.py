"""The writes of one space in one process: those that wait are made as one group, in the order in which they came.

A group has its turn on the keys it writes, then looks at them in both tiers, plans, and makes its changes in an order
that a crash may break off anywhere. It takes two round trips to Valkey and those of the durable tier's transaction,
whether it is one write or a hundred.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from baobab.storage.kv.engine import Tier, Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.once import once
from baobab.storage.kv.tiered.durable import Deed, Durable, Outdated
from baobab.storage.kv.tiered.ephemeral import Change, Ephemeral, Turn, Wish
from baobab.storage.kv.tiered.plan import Changes, Crowded, Plan

# Bounds what a group has in memory: a value may have 256 KB.
_LARGEST_GROUP = 250
_ATTEMPTS = 10
_PAUSE = 0.05
_UNDECIDED = "nobody knows yet whether an earlier write was made"


class Job(NamedTuple):
    """A write: the keys it may touch, or all of the space; the most it may add; whether a quota is to be held."""

    write: Callable[[Any], Any]
    keys: tuple[str, ...]
    growth: Usage = Usage(0, 0)
    capped: bool = False
    alone: bool = False
    token: str | None = None


class _Waiting(NamedTuple):
    future: asyncio.Future[Any]
    job: Job


class _Outcome(NamedTuple):
    result: Any
    error: Exception | None
    touched: frozenset[Tier] = frozenset()


class _Lost(Exception):
    """The turn was over before anything was changed."""


class Lane:
    def __init__(self, space: str, durable: Durable, ephemeral: Ephemeral, idle: Callable[[Lane], None]) -> None:
        """`idle` is called when there is nothing left to do."""
        self.space = space
        self._durable = durable
        self._ephemeral = ephemeral
        self._idle = idle
        self._queue: deque[_Waiting] = deque()
        # The turn of which nobody knows whether the durable tier has done its part.
        self._unknown: Turn | None = None
        # What was asked last, done or not.
        self.latest: asyncio.Future[Any] | None = None
        self.task = asyncio.create_task(self._run(), name="kv-lane")

    @property
    def waiting(self) -> int:
        return len(self._queue)

    def submit(self, job: Job) -> asyncio.Future[Any]:
        if self._unknown is not None:
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
                outcomes = [_failed(exc) for _ in group]
            for (future, _), outcome in zip(group, outcomes, strict=True):
                _resolve(future, outcome)
            if self._unknown is not None:
                await self._find_out(self._unknown)
        self._idle(self)

    def _group(self) -> list[_Waiting]:
        group = [self._queue.popleft()]
        keys = len(group[0].job.keys)
        while self._queue and (keys := keys + len(self._queue[0].job.keys)) <= _LARGEST_GROUP:
            group.append(self._queue.popleft())
        return group

    async def _outcomes(self, jobs: list[Job]) -> list[_Outcome]:
        alone = any(job.alone for job in jobs)
        for _ in range(_ATTEMPTS):
            wish = Wish(
                self.space,
                tuple(dict.fromkeys(key for job in jobs for key in job.keys)),
                tuple(job.token for job in jobs if job.token is not None),
                alone,
                Usage(sum(job.growth.keys for job in jobs), sum(job.growth.bytes for job in jobs)),
            )
            try:
                return await self._attempt(jobs, wish)
            except Crowded:
                alone = True
            except _Lost:
                continue
        raise StoreUnavailable("every turn was over before its writes were made")

    async def _attempt(self, jobs: list[Job], wish: Wish) -> list[_Outcome]:
        turn = await self._ephemeral.enter(wish)
        try:
            usage = wish.alone or any(job.capped for job in jobs)
            found = await self._durable.find(self.space, wish.keys, wish.tokens, usage=usage)
            plan = Plan(self.space, turn, found, alone=wish.alone)
            outcomes = [_apply(plan, job) for job in jobs]
        except BaseException:
            self._ephemeral.leave(wish, turn, done=False)
            raise
        spoilt = await self._make(plan, turn)
        if spoilt is None:
            self._ephemeral.leave(wish, turn, done=True)
            self._clear_up(set(turn.doubtful) - set(wish.keys))
            return outcomes
        await self._ephemeral.doubt(self.space, turn.holder)
        return [_failed(spoilt) if Tier.EPHEMERAL in outcome.touched else outcome for outcome in outcomes]

    async def _make(self, plan: Plan, turn: Turn) -> StoreUnavailable | None:
        """Answers what has kept the last changes from being made, those of the ephemeral tier, when the others were."""
        changes = plan.changes()
        deed = self._deed(plan, changes, turn)
        if changes.before:
            await self._change(turn, changes.before)
        if deed is None:
            if changes.after:
                await self._change(turn, changes.after)
            return None
        try:
            await self._durable.do(deed)
        except Outdated as exc:
            await self._ephemeral.doubt(self.space, turn.holder)
            raise _Lost from exc
        except Exception as exc:
            self._unknown = turn
            raise StoreUnavailable.because(exc) from exc
        try:
            if changes.after:
                await self._change(turn, changes.after)
        except StoreUnavailable as exc:
            return exc
        except _Lost:
            return StoreUnavailable("the turn was over before the last of its changes")
        return None

    async def _change(self, turn: Turn, changes: list[Change]) -> None:
        try:
            made = await self._ephemeral.change(self.space, turn, changes)
        except StoreUnavailable:
            await self._ephemeral.doubt(self.space, turn.holder)
            raise
        if not made:
            raise _Lost

    def _deed(self, plan: Plan, changes: Changes, turn: Turn) -> Deed | None:
        if not (changes.durable or changes.tokens or plan.flushed or plan.marking):
            return None
        frozen = plan.frozen if plan.marking else None
        # Asked under the locks of the durable tier: whoever has the next turn there will see what this one has done.
        may = lambda: time.monotonic() < turn.ends  # noqa: E731
        return Deed(self.space, plan.flushed, frozen, changes.durable, changes.tokens, may)

    def _clear_up(self, doubtful: set[str]) -> None:
        """Looking at a key is enough: a group drops the copy that it finds beside a durable entry."""
        if doubtful:
            settled = self.submit(Job(lambda _: None, tuple(doubtful)))
            # Whether it comes to that or not: who next has a turn here is told of them again.
            settled.add_done_callback(lambda done: done.cancelled() or done.exception())

    async def _find_out(self, turn: Turn) -> None:
        """Keeps the turn until what the durable tier was asked for is done or never will be, and refuses meanwhile."""
        while self._queue:
            _resolve(self._queue.popleft().future, _failed(StoreUnavailable(_UNDECIDED)))
        while time.monotonic() < turn.ends:
            try:
                await self._durable.decided(self.space)
                break
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE)
        self._unknown = None
        await self._ephemeral.doubt(self.space, turn.holder)


def _apply(plan: Plan, job: Job) -> _Outcome:
    plan.begin()
    write: Callable[[Any], Any] = job.write if job.token is None else once(job.token, job.write)
    try:
        return _Outcome(write(plan), None, frozenset(plan.touched))
    except Crowded:
        raise
    except Exception as exc:  # noqa: BLE001 - a refusal or one caller's mistake is not the rest of the group's business
        return _Outcome(None, exc)


def _failed(cause: Exception) -> _Outcome:
    """One error for each who waits: a traceback grows wherever it is raised."""
    error = StoreUnavailable(cause.reason) if isinstance(cause, StoreUnavailable) else StoreUnavailable.because(cause)
    error.__cause__ = cause
    return _Outcome(None, error)


def _resolve(future: asyncio.Future[Any], outcome: _Outcome) -> None:
    # Done already where the caller has gone.
    if future.done():
        return
    if outcome.error is None:
        future.set_result(outcome.result)
    else:
        future.set_exception(outcome.error)
