"""Runs the jobs of one database.

A runner claims a job that is due by raising its epoch. From then on the job is due again when the lease ends, which the
runner keeps extending. An attempt can write only while the epoch is still the one that it claimed.
"""

import asyncio
import contextlib
import logging
import math
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

from sqlalchemy import Executable, and_, bindparam, false, not_, or_, select, text, tuple_, update

from baobab.runtime.jobs.job_attempt import LEASE, JobAttempt
from baobab.runtime.jobs.job_slots import JobSlot, SlotPool
from baobab.runtime.jobs.job_tables import insert_new, jobs
from baobab.storage.cancellation import run_to_completion
from baobab.storage.clock import Clock, Ids
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.tables import Instant
from baobab.tools.core.job import JobKind
from baobab.tools.core.jobs import JOBS, OUTAGES, JobLost, RetryLater
from baobab.tools.core.registry import Registry
from baobab.tools.core.tenancy import PLATFORM, set_tenant

_HEARTBEAT_SECONDS = 3.0
_GRACE_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 300.0
_OUTAGE_PAUSE_SECONDS = 2.0
_ANNOUNCEMENT_SECONDS = 0.02
# A lease that ends later than this was written by a wrong clock, and is ignored. A smaller value would let two machines
# whose clocks differ by an hour take each job from each other, back and forth.
_MAX_LEASE_AHEAD = timedelta(days=1)
_LOST_ATTEMPTS = 2
# The last of this many attempts ended with its process, so the job itself may crash processes.
_IS_DOUBTFUL = and_(jobs.c.held_by.is_not(None), jobs.c.attempts >= _LOST_ATTEMPTS)
# A doubtful job that has run for this long without harm no longer delays the next doubtful one.
_HARMLESS_SECONDS = 30.0

# Periodic jobs are few and short; many of them are due in the same second.
_UPKEEP_SLOTS = 2
# A job of a bounded kind holds much memory, so that few more may wait for the network.
_INSIDE_FOR_EACH_BOUNDED = 4
# Every tenant and kind that has a due job. Skips from one pair to the next along the index, however many jobs wait.
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
_LIST_DUE_LINES = _DUE_LINES.columns(jobs.c.tenant, jobs.c.kind)


@cache
def _build_claim(kinds: int, *, doubtful: bool) -> Executable:
    """Builds the statement that claims due jobs. Executed for each job, so each is built once.

    kinds: of how many kinds of jobs. doubtful: whether one of them may be a doubtful job.
    """
    is_due = and_(
        jobs.c.finished_at.is_(None),
        jobs.c.tenant == bindparam("of_tenant"),
        jobs.c.kind.in_([bindparam(f"kind_{place}") for place in range(kinds)]),
        or_(jobs.c.due_at <= bindparam("now"), and_(jobs.c.held_by.is_not(None), jobs.c.due_at > bindparam("absurd"))),
    )
    eldest_doubtful = select(jobs.c.id).where(is_due, _IS_DOUBTFUL).order_by(jobs.c.due_at).limit(1).correlate(None)
    is_allowed_doubtful = jobs.c.id == eldest_doubtful.scalar_subquery() if doubtful else false()
    due = select(jobs.c.id).where(is_due, or_(not_(_IS_DOUBTFUL), is_allowed_doubtful))
    due_ids = due.order_by(jobs.c.due_at).limit(bindparam("slots"))
    # Does not wait for rows that another process is claiming at this moment.
    claim = update(jobs).where(jobs.c.id.in_(due_ids.with_for_update(skip_locked=True)))
    claiming_update = claim.values(
        epoch=jobs.c.epoch + 1, attempts=jobs.c.attempts + 1, held_by=bindparam("runner"), due_at=bindparam("lease")
    )
    return claiming_update.returning(jobs)


_log = logging.getLogger(__name__)


class RunningAttempt(NamedTuple):
    """An attempt that is running here, and its slot."""

    attempt: JobAttempt
    slot: JobSlot
    was_doubtful: bool
    """Whether other doubtful jobs wait for this one."""


class JobLine(NamedTuple):
    """The jobs of one kind that one tenant has."""

    tenant: str
    kind: str


class SlotReservation(NamedTuple):
    """Slots that are reserved for jobs of one tenant."""

    pool: SlotPool
    tenant: str
    kinds: Collection[str]
    slots: int


class JobRunner:
    """Runs the jobs of one database in this process.

    at_once: how many work at the same time, not counting those that wait for the network. There are half as many slots
    more for approved calls, some for periodic jobs, and for each kind with an `at_once` of its own as many as it says.
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
        """kinds: those that may run here; rounds: the periodic kinds that are enqueued here."""
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
                # Such jobs are long, so a slot that one tenant uses is not free again soon.
                self._pools[kind.name] = SlotPool(kind.at_once, kind.at_once * _INSIDE_FOR_EACH_BOUNDED, shared=True)
            else:
                self._pools[kind.name] = upkeep_pool if kind.every else approved_pool if kind.approved else shared_pool
        # A round begins at a fixed time, not when a process starts: any process that runs then enqueues it.
        self._periodic = [(kind, kind.every) for kind in rounds if kind.every]
        self._rounds = {kind.name: self._current_round(seconds) for kind, seconds in self._periodic}
        self._runner_id = ids.uuid()
        self._wake = asyncio.Event()
        self._stopping = False
        self._lacks_slots = False
        """Whether the last search found due jobs of a tenant that had no slot or no place."""
        self._must_list = False
        """Whether any line may have due jobs: other processes' jobs and delayed ones are found by a query."""
        self._known_lines: set[JobLine] = set()
        """The lines that probably have due jobs. They are claimed without that query."""
        self._has_own = False
        """Whether this process has enqueued jobs since the last search."""
        self._excess = asyncio.Event()
        """Set when there were more of them than slots."""
        self._running: dict[asyncio.Task[None], RunningAttempt] = {}
        self._lease_timers: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self.wake()
        self._tasks = [
            asyncio.create_task(self._run_loop(), name="jobs"),
            asyncio.create_task(self._renew_leases(), name="leases of jobs"),
            asyncio.create_task(self._announce_excess(), name="announcements of jobs"),
        ]

    def wake(self) -> None:
        """Makes the runner look for due jobs now."""
        self._must_list = True
        self._wake.set()

    def knows(self, kind: str) -> bool:
        """Returns whether jobs of this kind run here."""
        return kind in self._kinds

    def look_for_own(self, line: JobLine | None = None) -> None:
        """Makes the runner look for jobs that this process has just enqueued. If it has no slots for them, it tells
        other processes, which would else look in vain.

        line: where they are; None if that is not known.
        """
        self._has_own = True
        if line is None:
            self._must_list = True
        else:
            self._known_lines.add(line)
        self._wake.set()

    async def stop(self) -> None:
        self._stopping = True
        run_loop, lease_renewal, announcing = self._tasks
        for task in (run_loop, announcing):
            task.cancel()
        await asyncio.gather(run_loop, announcing, return_exceptions=True)
        running = list(self._running)
        if running:
            await asyncio.wait(running, timeout=_GRACE_SECONDS)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        lease_renewal.cancel()
        await asyncio.gather(lease_renewal, return_exceptions=True)

    async def _run_loop(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._enqueue_rounds()
                # Runs to its end if cancelled: a job that is claimed and not started would wait for its lease.
                await run_to_completion(self._claim_due_jobs())
            except DatabaseUnavailable as exc:
                # The next wake is half a second off at most.
                _log.warning("jobs: the database does not answer (%s)", exc)
            except Exception:  # noqa: BLE001 - no error may stop the jobs of this process
                _log.exception("jobs: could not look for any")
                await asyncio.sleep(_OUTAGE_PAUSE_SECONDS)

    async def _claim_due_jobs(self) -> None:
        """Starts as many due jobs as there are slots for. Looks again where a tenant used all slots reserved for it."""
        has_own, self._has_own = self._has_own, False
        more = True
        while more and not self._stopping:
            now, since = self._clock.now(), asyncio.get_running_loop().time()
            more = False
            reservations = self._reserve_slots(await self._find_due_kinds(now))
            if has_own and self._lacks_slots:
                self._excess.set()
            try:
                while reservations:
                    rows = await self._claim_jobs(reservations[-1], now, doubt=self._runs_doubtful(since))
                    reservation = reservations.pop()
                    for row in rows:
                        self._start_attempt(row, since, reservation.pool)
                    reservation.pool.return_slots(reservation.tenant, reservation.slots - len(rows))
                    if len(rows) == reservation.slots:
                        more = True
                        self._known_lines.update(JobLine(reservation.tenant, kind) for kind in reservation.kinds)
            finally:
                for reservation in reservations:
                    reservation.pool.return_slots(reservation.tenant, reservation.slots)

    async def _announce_excess(self) -> None:
        """Tells other processes when there are more jobs than slots here, as often as they look at most."""
        while True:
            await self._excess.wait()
            self._excess.clear()
            with contextlib.suppress(DatabaseUnavailable):
                await self._database.announce(JOBS)
            await asyncio.sleep(_ANNOUNCEMENT_SECONDS)

    def _reserve_slots(self, due: Mapping[SlotPool, Mapping[str, Collection[str]]]) -> list[SlotReservation]:
        """Reserves slots for the tenants with due jobs: one each in turn, those with the fewest running jobs first."""
        reservations: list[SlotReservation] = []
        self._lacks_slots = False
        for pool, kinds in due.items():
            reserved_slots = dict.fromkeys(sorted(kinds, key=pool.count_inside), 0)
            tenants = list(reserved_slots)
            while tenants:
                tenants = [tenant for tenant in tenants if pool.try_acquire(tenant)]
                for tenant in tenants:
                    reserved_slots[tenant] += 1
            for tenant, slots in reserved_slots.items():
                if slots:
                    reservations.append(SlotReservation(pool, tenant, kinds[tenant], slots))
                else:
                    self._lacks_slots = True
                    self._known_lines.update(JobLine(tenant, kind) for kind in kinds[tenant])
                    pool.request_slot(tenant, self._wake.set)
        for pool in set(self._pools.values()):
            pool.release_granted()
        return reservations

    def _runs_doubtful(self, now: float) -> bool:
        """Returns whether a job that may crash this process is running. now: the event loop's time."""
        return any(
            running.attempt.attempt > _LOST_ATTEMPTS and now < running.attempt.started_at + _HARMLESS_SECONDS
            for running in self._running.values()
        )

    async def _enqueue_rounds(self) -> None:
        """Enqueues one job for each round of the periodic kinds, whichever process comes first."""
        now = self._clock.now()
        for kind, seconds in self._periodic:
            if not self._runs_now(kind):
                continue
            if (round_ := self._current_round(seconds)) == self._rounds[kind.name]:
                continue
            row = {"id": f"{kind.name}:{round_}", "kind": kind.name, "arguments": {}, "due_at": now}
            row["tenant"] = PLATFORM
            async with self._database.writing_unit(lock=None) as unit:
                await insert_new(unit, row | {"epoch": 0, "attempts": 0, "created_at": now})
            self._rounds[kind.name] = round_

    def _current_round(self, seconds: float) -> int:
        return math.floor(self._clock.time() / seconds)

    async def _find_due_kinds(self, now: datetime) -> dict[SlotPool, dict[str, list[str]]]:
        """Finds the kinds with due jobs, by slot pool and tenant."""
        must_list, self._must_list = self._must_list, False
        lines, self._known_lines = self._known_lines, set()
        due: dict[SlotPool, dict[str, list[str]]] = {}
        for line in await self._list_due_lines(now) if must_list else lines:
            # A kind that this version does not know is left to processes of another version.
            if line.kind in self._pools and self._runs_now(self._kinds[line.kind]):
                due.setdefault(self._pools[line.kind], {}).setdefault(line.tenant, []).append(line.kind)
        return due

    def _runs_now(self, kind: JobKind) -> bool:
        """Returns whether jobs of a kind run here. In a copy of an installation, those that act wait until it lives."""
        return kind.in_copies or not self._registry.services.liveness.is_copy

    async def _list_due_lines(self, now: datetime) -> list[JobLine]:
        """Lists the lines with due jobs. Only reads, since most of the time nothing is due."""
        rows = (await self._database.execute(_LIST_DUE_LINES, {"now": now, "absurd": now + _MAX_LEASE_AHEAD})).all()
        return [JobLine(row.tenant, row.kind) for row in rows]

    async def _claim_jobs(self, reservation: SlotReservation, now: datetime, *, doubt: bool) -> list[Any]:
        """Claims due jobs for reserved slots, at most one of them doubtful, so that a crash hits few others.

        doubt: whether a doubtful job is running here already.
        """
        values = {
            "of_tenant": reservation.tenant,
            **{f"kind_{place}": kind for place, kind in enumerate(reservation.kinds)},
            "now": now,
            "absurd": now + _MAX_LEASE_AHEAD,
            "slots": reservation.slots,
            "runner": self._runner_id,
            "lease": now + LEASE,
        }
        claim = _build_claim(len(reservation.kinds), doubtful=not doubt)
        return list(await self._database.write(claim, values))

    def _start_attempt(self, row: Any, since: float, pool: SlotPool) -> None:
        attempt = JobAttempt(row, self._kinds[row.kind], self._registry, self._database, self._clock)
        slot = JobSlot(pool, row.tenant)
        task = asyncio.create_task(self._run_attempt(attempt, slot), name=f"job {attempt.kind.name} {attempt.id}")
        self._running[task] = RunningAttempt(attempt, slot, row.attempts > _LOST_ATTEMPTS)
        self._extend_lease(task, since)
        task.add_done_callback(self._clean_up_task)

    def _clean_up_task(self, task: asyncio.Task[None]) -> None:
        running = self._running.pop(task)
        self._lease_timers.pop(task).cancel()
        running.slot.end_job()
        if running.was_doubtful or not running.attempt.has_ended:
            # Another doubtful job may begin now, and this one may be due again.
            self.wake()
        elif self._lacks_slots:
            self._wake.set()

    def _extend_lease(self, task: asyncio.Task[None], since: float) -> None:
        """Cancels the attempt when the lease that has just been written ends, and no longer when an earlier one ends.

        The epoch protects the database; this stops what the attempt does elsewhere once another may take the job over.
        since: a moment before the lease was written, in the time of the loop.
        """
        earlier = self._lease_timers.pop(task, None)
        if earlier is not None:
            earlier.cancel()
        self._lease_timers[task] = asyncio.get_running_loop().call_at(since + LEASE.total_seconds(), task.cancel)

    async def _renew_leases(self) -> None:
        """Extends the leases of all attempts that run here, every few seconds. A failure leaves them to the next
        round.
        """
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            running, since = dict(self._running), asyncio.get_running_loop().time()
            if not running:
                continue
            try:
                renewed_ids = await self._renew_claims(
                    [running_attempt.attempt.claim for running_attempt in running.values()]
                )
            except DatabaseUnavailable as exc:
                _log.warning("jobs: leases could not be moved on (%s)", exc)
                continue
            except Exception:  # noqa: BLE001 - without this loop all attempts here would lose their leases
                _log.exception("jobs: leases could not be moved on")
                continue
            for task, running_attempt in running.items():
                if task.done():
                    continue
                if running_attempt.attempt.claim in renewed_ids:
                    self._extend_lease(task, since)
                else:
                    task.cancel()

    async def _renew_claims(self, claims: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Extends the leases of claims. Returns those that still have their epoch."""
        columns = (jobs.c.id, jobs.c.epoch)
        is_claimed = tuple_(*columns).in_(claims)
        # An attempt that is writing has locked its row, and extends its lease itself.
        unlocked_ids = (
            select(jobs.c.id).where(is_claimed, jobs.c.held_by == self._runner_id).with_for_update(skip_locked=True)
        )
        renewal = update(jobs).where(jobs.c.id.in_(unlocked_ids), jobs.c.finished_at.is_(None))
        async with self._database.writing(lock=None) as connection:
            await connection.execute(renewal.values(due_at=self._clock.now() + LEASE))
        async with self._database.reading() as connection:
            return {(row.id, row.epoch) for row in await connection.execute(select(*columns).where(is_claimed))}

    async def _run_attempt(self, attempt: JobAttempt, slot: JobSlot) -> None:
        slot.bind_to_task()
        set_tenant(slot.tenant)
        try:
            await self._settle_attempt(attempt)
        except JobLost:
            _log.warning("job %s %s: taken over by another attempt", attempt.kind.name, attempt.id)
        except DatabaseUnavailable as exc:
            # Its lease ends, and the job is claimed again.
            _log.warning("job %s %s: the database does not answer (%s)", attempt.kind.name, attempt.id, exc)

    async def _settle_attempt(self, attempt: JobAttempt) -> None:
        kind = attempt.kind
        if attempt.attempt > kind.attempts:
            # There is no error to report: the attempts ended with their processes.
            await attempt.finish("Each attempt ended with the process that made it.")
            return
        try:
            await self._run_work(attempt)
        except asyncio.CancelledError:
            # The process stops, or the lease ended here: a job that blocks this process must not do so for ever.
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
        except Exception as exc:  # noqa: BLE001 - the error is written to the job's row
            _log.exception("job %s %s: attempt %d failed", kind.name, attempt.id, attempt.attempt)
            await self._record_failure(attempt, f"{type(exc).__name__}: {exc}"[:2000])

    async def _run_work(self, attempt: JobAttempt) -> None:
        kind = attempt.kind
        if kind.consumes is None:
            await kind.work(attempt, **attempt.arguments)
        else:
            await kind.work(attempt, await attempt.event())
        if not attempt.has_ended:
            await attempt.finish()

    async def _record_failure(self, attempt: JobAttempt, error: str) -> None:
        if attempt.attempt >= attempt.kind.attempts:
            await attempt.finish(error)
        else:
            await attempt.reschedule(_retry_delay(attempt.attempt), blameless=False, error=error)


def _retry_delay(attempt: int) -> float:
    return min(float(4 ** min(attempt - 1, 10)), _LONGEST_PAUSE_SECONDS)
