"""A group of writes to one space, made under one write lock.

If the group changes the durable tier, it is planned inside that tier's transaction, under its locks: nobody can write
between reading and writing, and groups of many spaces share a transaction. If it seems to write only the ephemeral
tier, reading the durable one is enough. If Valkey must be changed first, a second transaction follows, which must come
to the same plan.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from baobab.storage.kv.engine import Tier, Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.idempotency import make_idempotent
from baobab.storage.kv.postgres.transaction import MoreNeeded
from baobab.storage.kv.tiered.durable import DurableEngine, LookupRequest, LookupResult
from baobab.storage.kv.tiered.ephemeral import Change, EphemeralTier, LockRequest, WriteLock
from baobab.storage.kv.tiered.plan import Changes, QuotaUncertain, WritePlan
from baobab.storage.kv.transaction import Transaction

_ATTEMPTS = 10
_PAUSE = 0.05
_NOTHING = Usage(0, 0)


class WriteJob(NamedTuple):
    """A write: the keys that it may touch, or the whole space; the most that it may add; whether a quota applies.

    `tier` is the tier that it will write to, or None for the tier that holds its keys; `resizes` says whether it may
    add, remove or resize entries. Both are guesses, and a wrong one costs a round trip.
    """

    write: Callable[[Any], Any]
    keys: tuple[str, ...]
    tier: Tier | None
    growth: Usage = _NOTHING
    capped: bool = False
    alone: bool = False
    resizes: bool = True
    token: str | None = None


class WriteResult(NamedTuple):
    result: Any
    error: Exception | None
    touched: frozenset[Tier] = frozenset()


class _LockLost(Exception):
    """The lock expired before everything was done; the group may be made again."""


class _PlannedGroup(NamedTuple):
    changes: Changes
    outcomes: list[WriteResult]


class WriteGroup:
    def __init__(self, space: str, jobs: list[WriteJob], durable: DurableEngine, ephemeral: EphemeralTier) -> None:
        self._jobs = jobs
        self._durable = durable
        self._ephemeral = ephemeral
        self._lock_request = LockRequest(
            space,
            tuple(dict.fromkeys(key for job in jobs for key in job.keys)),
            tuple(job.token for job in jobs if job.token is not None),
            any(job.alone for job in jobs),
            Usage(sum(job.growth.keys for job in jobs), sum(job.growth.bytes for job in jobs)),
        )
        # Whether anything in Valkey has changed or may have changed.
        self._started = False
        # The lock of a change for which it is unknown whether the durable tier has committed.
        self._undecided: WriteLock | None = None

    async def execute(self) -> tuple[list[WriteResult], list[str]]:
        """Returns the results, and keys whose state is in doubt. Raises StoreUnavailable."""
        for _ in range(_ATTEMPTS):
            try:
                return await self._attempt()
            except QuotaUncertain:
                self._lock_request = self._lock_request._replace(alone=True)
            except _LockLost:
                continue
        raise StoreUnavailable("the write lock expired at every attempt")

    @property
    def is_decided(self) -> bool:
        """Whether it is known if the durable tier has committed."""
        return self._undecided is None

    async def wait_until_decided(self) -> None:
        """Holds the lock until the durable tier's change is committed or can no longer commit."""
        lock, self._undecided = self._undecided, None
        assert lock is not None
        while time.monotonic() < lock.expires_at:
            try:
                await self._durable.wait_for_transactions(self._lock_request.space)
                break
            except StoreUnavailable:
                await asyncio.sleep(_PAUSE)
        await self._ephemeral.abandon_lock(self._lock_request, lock)

    async def _attempt(self) -> tuple[list[WriteResult], list[str]]:
        self._started = False
        lock = await self._ephemeral.acquire_lock(self._lock_request)
        try:
            changes, outcomes = await self._apply_durable(lock)
            failure = await self._finish_ephemeral(lock, changes)
        except BaseException:
            if self._undecided is None:
                await self._give_up(lock)
            raise
        if failure is None:
            return outcomes, lock.doubtful
        await self._ephemeral.abandon_lock(self._lock_request, lock)
        return [build_failure(failure) if Tier.EPHEMERAL in outcome.touched else outcome for outcome in outcomes], []

    async def _apply_durable(self, lock: WriteLock) -> _PlannedGroup:
        """Makes all changes but the last ones in Valkey."""
        if self._looks_ephemeral(lock):
            planned = self._plan(lock, await self._durable.look_up(self._lookup_request))
            if not (planned.changes.before or planned.changes.update):
                return planned
        else:
            planned = await self._transact(lock, [])
            if not planned.changes.before:
                return planned
        if before := planned.changes.before:
            self._started = True
            if not await self._ephemeral.apply_changes(self._lock_request.space, lock, before):
                raise _LockLost
        return await self._transact(lock, before) if planned.changes.update else planned

    async def _finish_ephemeral(self, lock: WriteLock, changes: Changes) -> StoreUnavailable | None:
        """Makes the last changes, those of the ephemeral tier. Returns the error that prevented them, if any."""
        if not changes.after:
            self._ephemeral.release_lock(self._lock_request, lock, done=True)
            return None
        self._started = True
        try:
            if await self._ephemeral.finish_changes(self._lock_request, lock, changes.after):
                return None
        except StoreUnavailable as exc:
            return exc
        if not changes.update:
            raise _LockLost
        return StoreUnavailable("the write lock expired before the last change")

    async def _transact(self, lock: WriteLock, before: list[Change]) -> _PlannedGroup:
        """Changes the durable tier, unless Valkey must be changed first and `before` shows that it has not been."""

        def work(transaction: Transaction, found: LookupResult) -> _PlannedGroup:
            planned = self._plan(lock, found)
            if planned.changes.before != before:
                if before:
                    raise _LockLost
                return planned
            if planned.changes.update:
                # Checked under the durable tier's locks: the next holder of those sees this change.
                if time.monotonic() >= lock.expires_at:
                    raise _LockLost
                self._undecided = lock
                planned.changes.update.apply(self._lock_request.space, transaction)
            return planned

        resizes = self._lock_request.alone or any(job.resizes or job.token is not None for job in self._jobs)
        try:
            planned = await self._durable.change_rows(self._lookup_request, work, resizes=resizes)
        except (QuotaUncertain, _LockLost):
            self._undecided = None
            raise
        self._undecided = None
        return planned

    async def _give_up(self, lock: WriteLock) -> None:
        if self._started:
            await self._ephemeral.abandon_lock(self._lock_request, lock)
        else:
            self._ephemeral.release_lock(self._lock_request, lock, done=False)

    def _plan(self, lock: WriteLock, found: LookupResult) -> _PlannedGroup:
        plan = WritePlan(self._lock_request.keys, lock, found, alone=self._lock_request.alone)
        outcomes = [_apply_job(plan, job) for job in self._jobs]
        return _PlannedGroup(plan.build_changes(), outcomes)

    def _looks_ephemeral(self, lock: WriteLock) -> bool:
        return all(
            job.tier is Tier.EPHEMERAL or (job.tier is None and all(key in lock.rows for key in job.keys))
            for job in self._jobs
        )

    @property
    def _lookup_request(self) -> LookupRequest:
        usage = self._lock_request.alone or any(job.capped for job in self._jobs)
        return LookupRequest(self._lock_request.space, self._lock_request.keys, self._lock_request.tokens, usage)


def _apply_job(plan: WritePlan, job: WriteJob) -> WriteResult:
    plan.begin_write()
    write: Callable[[Any], Any] = job.write if job.token is None else make_idempotent(job.token, job.write)
    try:
        return WriteResult(write(plan), None, frozenset(plan.touched))
    except (QuotaUncertain, MoreNeeded):
        raise
    except Exception as exc:  # noqa: BLE001 - an error of one write must not fail the rest of the group
        return WriteResult(None, exc)


def build_failure(cause: Exception) -> WriteResult:
    """Builds a separate error for each caller, because a traceback grows wherever an error is raised."""
    error = StoreUnavailable(cause.reason) if isinstance(cause, StoreUnavailable) else StoreUnavailable.because(cause)
    error.__cause__ = cause
    return WriteResult(None, error)
