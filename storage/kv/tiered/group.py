"""A group of writes to one space, and one turn in which it is made.

Where the durable tier is to be changed, the group is planned inside its transaction, under its locks: nobody can come
between what is found and what is done, and the transactions of many spaces become one. Where it looks as if only the
ephemeral tier were written, a look at the durable one is enough. What must be changed in Valkey first sends the group
into a second transaction, where it has to come to the same plan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from baobab.storage.kv.engine import Tier, Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.once import once
from baobab.storage.kv.postgres.transaction import More
from baobab.storage.kv.tiered.durable import Asked, Durable, Found
from baobab.storage.kv.tiered.ephemeral import Change, Ephemeral, Turn, Wish
from baobab.storage.kv.tiered.plan import Changes, Crowded, Plan
from baobab.storage.kv.transaction import Transaction

_ATTEMPTS = 10
_PAUSE = 0.05
_NOTHING = Usage(0, 0)


class Job(NamedTuple):
    """A write: the keys it may touch, or all of the space; the most it may add; whether a quota is to be held.

    `tier` is the one that it will write to, or None for the one in which its keys are found; `resizes` tells whether
    it may add, remove or resize entries. Both are guesses, and a wrong one costs a round trip.
    """

    write: Callable[[Any], Any]
    keys: tuple[str, ...]
    tier: Tier | None
    growth: Usage = _NOTHING
    capped: bool = False
    alone: bool = False
    resizes: bool = True
    token: str | None = None


class Outcome(NamedTuple):
    result: Any
    error: Exception | None
    touched: frozenset[Tier] = frozenset()


class _Lost(Exception):
    """The turn was over before all was done, and whatever was done may be done again."""


class _Planned(NamedTuple):
    changes: Changes
    outcomes: list[Outcome]


class Group:
    def __init__(self, space: str, jobs: list[Job], durable: Durable, ephemeral: Ephemeral) -> None:
        self._jobs = jobs
        self._durable = durable
        self._ephemeral = ephemeral
        self._wish = Wish(
            space,
            tuple(dict.fromkeys(key for job in jobs for key in job.keys)),
            tuple(job.token for job in jobs if job.token is not None),
            any(job.alone for job in jobs),
            Usage(sum(job.growth.keys for job in jobs), sum(job.growth.bytes for job in jobs)),
        )
        # Whether something in Valkey was changed, or may have been.
        self._started = False
        # The turn of which nobody knows whether the durable tier has done its part.
        self._undecided: Turn | None = None

    async def make(self) -> tuple[list[Outcome], list[str]]:
        """The outcomes, and keys that are in doubt. Raises StoreUnavailable."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._make()
            except Crowded:
                self._wish = self._wish._replace(alone=True)
            except _Lost:
                continue
        raise StoreUnavailable("every turn was over before its writes were made")

    @property
    def is_decided(self) -> bool:
        """Whether it is known if the durable tier has done its part."""
        return self._undecided is None

    async def settle(self) -> None:
        """Keeps the turn until what the durable tier was asked for is done or never will be."""
        turn, self._undecided = self._undecided, None
        assert turn is not None
        while time.monotonic() < turn.ends:
            try:
                await self._durable.decided(self._wish.space)
                break
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE)
        await self._ephemeral.doubt(self._wish, turn)

    async def _make(self) -> tuple[list[Outcome], list[str]]:
        self._started = False
        turn = await self._ephemeral.enter(self._wish)
        try:
            changes, outcomes = await self._done(turn)
            spoilt = await self._finish(turn, changes)
        except BaseException:
            if self._undecided is None:
                await self._give_up(turn)
            raise
        if spoilt is None:
            return outcomes, turn.doubtful
        await self._ephemeral.doubt(self._wish, turn)
        return [failed(spoilt) if Tier.EPHEMERAL in outcome.touched else outcome for outcome in outcomes], []

    async def _done(self, turn: Turn) -> _Planned:
        """All but the last changes in Valkey."""
        if self._looks_ephemeral(turn):
            planned = self._plan(turn, await self._durable.find(self._asked))
            if not (planned.changes.before or planned.changes.deed):
                return planned
        else:
            planned = await self._transact(turn, [])
            if not planned.changes.before:
                return planned
        if before := planned.changes.before:
            self._started = True
            if not await self._ephemeral.change(self._wish.space, turn, before):
                raise _Lost
        return await self._transact(turn, before) if planned.changes.deed else planned

    async def _finish(self, turn: Turn, changes: Changes) -> StoreUnavailable | None:
        """Answers what has kept the last changes from being made, those of the ephemeral tier."""
        if not changes.after:
            self._ephemeral.leave(self._wish, turn, done=True)
            return None
        self._started = True
        try:
            if await self._ephemeral.finish(self._wish, turn, changes.after):
                return None
        except StoreUnavailable as exc:
            return exc
        if not changes.deed:
            raise _Lost
        return StoreUnavailable("the turn was over before the last of its changes")

    async def _transact(self, turn: Turn, before: list[Change]) -> _Planned:
        """Changes the durable tier, unless Valkey must be changed first and `before` says that it is not."""

        def work(transaction: Transaction, found: Found) -> _Planned:
            planned = self._plan(turn, found)
            if planned.changes.before != before:
                if before:
                    raise _Lost
                return planned
            if planned.changes.deed:
                # Asked under the locks: whoever has the next turn there will see what this one has done.
                if time.monotonic() >= turn.ends:
                    raise _Lost
                self._undecided = turn
                planned.changes.deed.apply(self._wish.space, transaction)
            return planned

        resizes = self._wish.alone or any(job.resizes or job.token is not None for job in self._jobs)
        try:
            planned = await self._durable.change(self._asked, work, resizes=resizes)
        except (Crowded, _Lost):
            self._undecided = None
            raise
        self._undecided = None
        return planned

    async def _give_up(self, turn: Turn) -> None:
        if self._started:
            await self._ephemeral.doubt(self._wish, turn)
        else:
            self._ephemeral.leave(self._wish, turn, done=False)

    def _plan(self, turn: Turn, found: Found) -> _Planned:
        plan = Plan(self._wish.keys, turn, found, alone=self._wish.alone)
        outcomes = [_apply(plan, job) for job in self._jobs]
        return _Planned(plan.changes(), outcomes)

    def _looks_ephemeral(self, turn: Turn) -> bool:
        return all(
            job.tier is Tier.EPHEMERAL or (job.tier is None and all(key in turn.rows for key in job.keys))
            for job in self._jobs
        )

    @property
    def _asked(self) -> Asked:
        usage = self._wish.alone or any(job.capped for job in self._jobs)
        return Asked(self._wish.space, self._wish.keys, self._wish.tokens, usage)


def _apply(plan: Plan, job: Job) -> Outcome:
    plan.begin()
    write: Callable[[Any], Any] = job.write if job.token is None else once(job.token, job.write)
    try:
        return Outcome(write(plan), None, frozenset(plan.touched))
    except (Crowded, More):
        raise
    except Exception as exc:  # noqa: BLE001 - a refusal or one caller's mistake is not the rest of the group's business
        return Outcome(None, exc)


def failed(cause: Exception) -> Outcome:
    """One error for each who waits: a traceback grows wherever it is raised."""
    error = StoreUnavailable(cause.reason) if isinstance(cause, StoreUnavailable) else StoreUnavailable.because(cause)
    error.__cause__ = cause
    return Outcome(None, error)
