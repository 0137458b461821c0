"""Making the jobs of one database.

A job that is due belongs to whoever raises its epoch. From then on it is due again after the lease, which the holder
keeps moving on; whatever the holder writes is written only while the epoch is still its own.
"""

import asyncio
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from sqlalchemy import ColumnElement, and_, bindparam, false, not_, or_, select, text, tuple_, update

from baobab.runtime.job_attempt import LEASE, JobAttempt
from baobab.runtime.job_slots import JobSlot, SlotPool
from baobab.runtime.job_tables import insert_new, jobs
from baobab.storage.cancellation import run_to_completion
from baobab.storage.clock import Clock, Ids
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.storage.tables import Instant
from baobab.tools.core.job import JobKind
from baobab.tools.core.jobs import OUTAGES, JobLost, RetryLater
from baobab.tools.core.registry import Registry
from baobab.tools.core.tenancy import PLATFORM, set_tenant

_HEARTBEAT_SECONDS = 3.0
_GRACE_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 300.0
_OUTAGE_PAUSE_SECONDS = 2.0
# A deadline so far off comes from a clock that was wrong: nobody waits for that. Not sooner: two machines whose clocks
# differ by an hour would take each job from each other, back and forth.
_MAX_LEASE_AHEAD = timedelta(days=1)
_LOST_ATTEMPTS = 2
# So many attempts have ended, the last of them with its process: it may be the job that ends processes.
_IS_DOUBTFUL = and_(jobs.c.held_by.is_not(None), jobs.c.attempts >= _LOST_ATTEMPTS)
# One that has been made for so long without harm holds up no other that is doubtful.
_HARMLESS_SECONDS = 30.0

# Rounds are few and short; many of them are due in the same second.
_UPKEEP_SLOTS = 2
# What a job of a bounded kind holds is large: few more wait for the network.
_INSIDE_FOR_EACH_BOUNDED = 4
# Each tenant and kind of which there is a job that is due: found by leaps along the index, however many jobs wait.
_DUE_LINES = text(
    """
    WITH RECURSIVE lines (tenant, kind) AS (
        SELECT CAST(eldest.tenant AS TEXT), CAST(eldest.kind AS TEXT) FROM (
            SELECT tenant, kind FROM jobs WHERE finished_at IS NULL ORDER BY tenant, kind LIMIT 1
        ) AS eldest
        UNION ALL
        SELECT
            (SELECT CAST(jobs.tenant AS TEXT) FROM jobs WHERE jobs.finished_at IS NULL
                AND (jobs.tenant, jobs.kind) > (lines.tenant, lines.kind)
                ORDER BY jobs.tenant, jobs.kind LIMIT 1),
            (SELECT CAST(jobs.kind AS TEXT) FROM jobs WHERE jobs.finished_at IS NULL
                AND (jobs.tenant, jobs.kind) > (lines.tenant, lines.kind)
                ORDER BY jobs.tenant, jobs.kind LIMIT 1)
        FROM lines WHERE lines.tenant IS NOT NULL
    )
    SELECT lines.tenant, lines.kind FROM lines WHERE EXISTS (
        SELECT 1 FROM jobs WHERE jobs.finished_at IS NULL AND jobs.tenant = lines.tenant AND jobs.kind = lines.kind
            AND (jobs.due_at <= :now OR (jobs.held_by IS NOT NULL AND jobs.due_at > :absurd))
    )
    """
).bindparams(bindparam("now", type_=Instant()), bindparam("absurd", type_=Instant()))

_log = logging.getLogger(__name__)


class RunningAttempt(NamedTuple):
    """An attempt that is under way here, and the slot it has."""

    attempt: JobAttempt
    slot: JobSlot


class SlotReservation(NamedTuple):
    """Slots that were taken for jobs of one tenant."""

    pool: SlotPool
    tenant: str
    kinds: Collection[str]
    slots: int


class JobRunner:
    """Makes the jobs of one database in this process.

    at_once: how many work at the same time, beside those that wait for the network. Half as many slots more are kept
    for what people have approved, some for upkeep, and as many as it says for each kind that has a bound of its own.
    """

    def __init__(
        self,
        database: Database,
        kinds: Mapping[str, JobKind],
        rounds: Sequence[JobKind],
        registry: Registry,
        clock: Clock,
        ids: Ids,
        at_once: int,
    ) -> None:
        """kinds: those that may be made here; rounds: the periodic ones that are asked for here."""
        self._database = database
        self._registry = registry
        self._clock = clock
        self._kinds = kinds
        shared_pool, upkeep_pool, approved_pool = (
            SlotPool(at_once),
            SlotPool(_UPKEEP_SLOTS),
            SlotPool(max(at_once // 2, 2)),
        )
        self._pools: dict[str, SlotPool] = {}
        for kind in kinds.values():
            if kind.at_once is not None:
                # Such jobs are long: a slot that one tenant has is not free again soon.
                self._pools[kind.name] = SlotPool(kind.at_once, kind.at_once * _INSIDE_FOR_EACH_BOUNDED, shared=True)
            else:
                self._pools[kind.name] = upkeep_pool if kind.every else approved_pool if kind.approved else shared_pool
        # A round begins at its time and not with a process: whoever is there then makes it.
        self._periodic = [(kind, kind.every) for kind in rounds if kind.every]
        self._rounds = {kind.name: self._current_round(seconds) for kind, seconds in self._periodic}
        self._runner_id = ids.uuid()
        self._wake = asyncio.Event()
        self._stopping = False
        self._running: dict[asyncio.Task[None], RunningAttempt] = {}
        self._lease_timers: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._wake.set()
        self._tasks = [
            asyncio.create_task(self._run_loop(), name="jobs"),
            asyncio.create_task(self._renew_leases(), name="leases of jobs"),
        ]

    def wake(self) -> None:
        """There may be something to do."""
        self._wake.set()

    async def stop(self) -> None:
        self._stopping = True
        looking, keeping = self._tasks
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        running = list(self._running)
        if running:
            await asyncio.wait(running, timeout=_GRACE_SECONDS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)

    async def _run_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._enqueue_rounds()
                # Whole: what is claimed and not begun would wait for its lease to run out, with an attempt to its name.
                await run_to_completion(self._claim_due_jobs())
            except DatabaseUnavailable as exc:
                # The next wake is half a second off at most.
                _log.warning("jobs: the database does not answer (%s)", exc)
            except Exception:  # noqa: BLE001 - whatever it is, it must not end the making of jobs in this process
                _log.exception("jobs: could not look for any")
                await asyncio.sleep(_OUTAGE_PAUSE_SECONDS)

    async def _claim_due_jobs(self) -> None:
        """Begin as many as there are slots for; look again where some got all the slots that were taken for them."""
        more = True
        while more and not self._stopping:
            now, since = self._clock.now(), asyncio.get_running_loop().time()
            more = False
            reservations = self._reserve_slots(await self._list_due_kinds(now))
            try:
                while reservations:
                    rows = await self._claim_jobs(reservations[-1], now, doubt=self._runs_doubtful(since))
                    reservation = reservations.pop()
                    for row in rows:
                        self._start_attempt(row, since, reservation.pool)
                    reservation.pool.return_slots(reservation.tenant, reservation.slots - len(rows))
                    more = more or len(rows) == reservation.slots
            finally:
                for reservation in reservations:
                    reservation.pool.return_slots(reservation.tenant, reservation.slots)

    def _reserve_slots(self, due: Mapping[SlotPool, Mapping[str, Collection[str]]]) -> list[SlotReservation]:
        """Take slots for the tenants who have jobs that are due: one each in turn, those first who have fewest."""
        reservations: list[SlotReservation] = []
        for pool, kinds in due.items():
            reserved = dict.fromkeys(sorted(kinds, key=pool.count_inside), 0)
            tenants = list(reserved)
            while tenants:
                tenants = [tenant for tenant in tenants if pool.try_acquire(tenant)]
                for tenant in tenants:
                    reserved[tenant] += 1
            for tenant, slots in reserved.items():
                if slots:
                    reservations.append(SlotReservation(pool, tenant, kinds[tenant], slots))
                else:
                    pool.request_slot(tenant, self._wake.set)
        for pool in set(self._pools.values()):
            pool.release_granted()
        return reservations

    def _runs_doubtful(self, now: float) -> bool:
        """Whether one is being made that may end this process. now: in the time of the loop."""
        return any(
            running.attempt.attempt > _LOST_ATTEMPTS and now < running.attempt.started_at + _HARMLESS_SECONDS
            for running in self._running.values()
        )

    async def _enqueue_rounds(self) -> None:
        """The periodic kinds: one job for each round, whichever process comes first."""
        now = self._clock.now()
        for kind, seconds in self._periodic:
            if (round_ := self._current_round(seconds)) == self._rounds[kind.name]:
                continue
            row = {"id": f"{kind.name}:{round_}", "kind": kind.name, "arguments": {}, "due_at": now}
            row["tenant"] = PLATFORM
            async with self._database.writing_unit() as unit:
                await insert_new(unit, row | {"epoch": 0, "attempts": 0, "created_at": now})
            self._rounds[kind.name] = round_

    def _current_round(self, seconds: float) -> int:
        return math.floor(self._clock.time() / seconds)

    async def _list_due_kinds(self, now: datetime) -> dict[SlotPool, dict[str, list[str]]]:
        """The kinds that are due, by lane and tenant. Looked at before anything is written: most looks find nothing."""
        due: dict[SlotPool, dict[str, list[str]]] = {}
        async with self._database.reading() as connection:
            lines = (await connection.execute(_DUE_LINES, {"now": now, "absurd": now + _MAX_LEASE_AHEAD})).all()
        for tenant, kind in lines:
            # A kind that this version does not know is left to those who do.
            if kind in self._pools:
                due.setdefault(self._pools[kind], {}).setdefault(tenant, []).append(kind)
        return due

    async def _claim_jobs(self, reservation: SlotReservation, now: datetime, *, doubt: bool) -> list[Any]:
        """Doubtful ones are made one at a time: what ends a process is not to take others with it again and again.

        doubt: one is being made here already.
        """
        due = self._due_condition(now, reservation)
        eldest = select(jobs.c.id).where(due, _IS_DOUBTFUL).order_by(jobs.c.due_at).limit(1).correlate(None)
        one = false() if doubt else jobs.c.id == eldest.scalar_subquery()
        first = (
            select(jobs.c.id).where(due, or_(not_(_IS_DOUBTFUL), one)).order_by(jobs.c.due_at).limit(reservation.slots)
        )
        values = {
            "epoch": jobs.c.epoch + 1,
            "attempts": jobs.c.attempts + 1,
            "held_by": self._runner_id,
            "due_at": now + LEASE,
        }
        # What another process is taking at this moment is not waited for.
        claim = update(jobs).where(jobs.c.id.in_(first.with_for_update(skip_locked=True))).values(**values)
        async with self._database.writing(write_lock=False) as connection:
            return list((await connection.execute(claim.returning(jobs))).all())

    def _due_condition(self, now: datetime, reservation: SlotReservation) -> ColumnElement[bool]:
        return and_(
            jobs.c.finished_at.is_(None),
            jobs.c.tenant == reservation.tenant,
            jobs.c.kind.in_(reservation.kinds),
            or_(jobs.c.due_at <= now, and_(jobs.c.held_by.is_not(None), jobs.c.due_at > now + _MAX_LEASE_AHEAD)),
        )

    def _start_attempt(self, row: Any, since: float, pool: SlotPool) -> None:
        attempt = JobAttempt(row, self._kinds[row.kind], self._registry, self._database, self._clock)
        slot = JobSlot(pool, row.tenant)
        task = asyncio.create_task(self._run_attempt(attempt, slot), name=f"job {attempt.kind.name} {attempt.id}")
        self._running[task] = RunningAttempt(attempt, slot)
        self._extend_lease(task, since)
        task.add_done_callback(self._clean_up_task)

    def _clean_up_task(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task).slot.end_job()
        self._lease_timers.pop(task).cancel()
        self._wake.set()

    def _extend_lease(self, task: asyncio.Task[None], since: float) -> None:
        """The lease has been moved on: only when this one has run out is the attempt ended.

        What it writes is fenced by the row; this is for what it does elsewhere while another has taken the job over.
        since: a moment, in the time of the loop, before the lease was written.
        """
        earlier = self._lease_timers.pop(task, None)
        if earlier is not None:
            earlier.cancel()
        self._lease_timers[task] = asyncio.get_running_loop().call_at(since + LEASE.total_seconds(), task.cancel)

    async def _renew_leases(self) -> None:
        """One heart for all that runs here. A beat that fails is made up for by the next, or the leases run out."""
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            running, since = dict(self._running), asyncio.get_running_loop().time()
            if not running:
                continue
            try:
                renewed = await self._renew_claims([each.attempt.claim for each in running.values()])
            except DatabaseUnavailable as exc:
                _log.warning("jobs: leases could not be moved on (%s)", exc)
                continue
            except Exception:  # noqa: BLE001 - a heart that stops would end all that runs here
                _log.exception("jobs: leases could not be moved on")
                continue
            for task, each in running.items():
                if task.done():
                    continue
                if each.attempt.claim in renewed:
                    self._extend_lease(task, since)
                else:
                    task.cancel()

    async def _renew_claims(self, claims: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Move the leases on of all that are still held; those whose epoch is their own."""
        columns = (jobs.c.id, jobs.c.epoch)
        ours = tuple_(*columns).in_(claims)
        # Whoever is writing just now has locked its row, and moves its lease on by itself.
        free = select(jobs.c.id).where(ours, jobs.c.held_by == self._runner_id).with_for_update(skip_locked=True)
        renewal = update(jobs).where(jobs.c.id.in_(free), jobs.c.finished_at.is_(None))
        async with self._database.writing(write_lock=False) as connection:
            await connection.execute(renewal.values(due_at=self._clock.now() + LEASE))
        async with self._database.reading() as connection:
            return {(row.id, row.epoch) for row in await connection.execute(select(*columns).where(ours))}

    async def _run_attempt(self, attempt: JobAttempt, slot: JobSlot) -> None:
        slot.bind_to_task()
        set_tenant(slot.tenant)
        try:
            await self._settle_attempt(attempt)
        except JobLost:
            _log.warning("job %s %s: taken over by another attempt", attempt.kind.name, attempt.id)
        except DatabaseUnavailable as exc:
            # Its lease runs out, and somebody makes it again.
            _log.warning("job %s %s: the database does not answer (%s)", attempt.kind.name, attempt.id, exc)

    async def _settle_attempt(self, attempt: JobAttempt) -> None:
        kind = attempt.kind
        if attempt.attempt > kind.attempts:
            # Nobody reported why: the attempts ended with their processes.
            await attempt.finish("Each attempt ended with the process that made it.")
            return
        try:
            await self._run_work(attempt)
        except asyncio.CancelledError:
            # The process stops, or the lease has run out here: what holds everything up must not do so for ever.
            try:
                await attempt.reschedule(
                    0 if self._stopping else _retry_delay(attempt.attempt), blameless=self._stopping
                )
            except JobLost:
                _log.warning("job %s %s: taken over by another attempt", kind.name, attempt.id)
            except DatabaseUnavailable as exc:
                _log.warning("job %s %s: the database does not answer (%s)", kind.name, attempt.id, exc)
            raise
        except JobLost:
            raise
        except RetryLater as again:
            await attempt.reschedule(again.seconds, blameless=True, error=str(again) or None)
        except OUTAGES as exc:
            _log.warning("job %s %s: a store does not answer (%s)", kind.name, attempt.id, exc)
            await attempt.reschedule(_OUTAGE_PAUSE_SECONDS, blameless=True, error=str(exc))
        except Exception as exc:  # noqa: BLE001 - the row is who is told
            _log.exception("job %s %s: attempt %d failed", kind.name, attempt.id, attempt.attempt)
            await self._record_failure(attempt, f"{type(exc).__name__}: {exc}"[:2000])

    async def _run_work(self, attempt: JobAttempt) -> None:
        kind = attempt.kind
        if kind.consumes is None:
            await kind.work(attempt, **attempt.arguments)
        else:
            await kind.work(attempt, await attempt.event())
        if not attempt.ended:
            await attempt.finish()

    async def _record_failure(self, attempt: JobAttempt, error: str) -> None:
        if attempt.attempt >= attempt.kind.attempts:
            await attempt.finish(error)
        else:
            await attempt.reschedule(_retry_delay(attempt.attempt), blameless=False, error=error)


def _retry_delay(attempt: int) -> float:
    return min(float(4 ** min(attempt - 1, 10)), _LONGEST_PAUSE_SECONDS)
