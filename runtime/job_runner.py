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

from baobab.runtime.job_attempt import LEASE, Attempt
from baobab.runtime.job_rows import insert_new, jobs
from baobab.runtime.job_slots import Lane, Slot
from baobab.storage.cancellation import completed
from baobab.storage.clock import Clock, Ids
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.storage.tables import Instant
from baobab.tools.core.job import JobKind
from baobab.tools.core.jobs import OUTAGES, Again, JobLost
from baobab.tools.core.registry import Registry
from baobab.tools.core.tenancy import PLATFORM, set_tenant

_HEARTBEAT_SECONDS = 3.0
_GRACE_SECONDS = 3.0
_LONGEST_PAUSE_SECONDS = 300.0
_OUTAGE_PAUSE_SECONDS = 2.0
# A deadline so far off comes from a clock that was wrong: nobody waits for that. Not sooner: two machines whose clocks
# differ by an hour would take each job from each other, back and forth.
_ABSURD = timedelta(days=1)
_LOST = 2
# So many attempts have ended, the last of them with its process: it may be the job that ends processes.
_DOUBTFUL = and_(jobs.c.held_by.is_not(None), jobs.c.attempts >= _LOST)
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


class Running(NamedTuple):
    """An attempt that is under way here, and the slot it has."""

    attempt: Attempt
    slot: Slot


class Hand(NamedTuple):
    """Slots that were taken for jobs of one tenant."""

    lane: Lane
    tenant: str
    kinds: Collection[str]
    slots: int


class Runner:
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
        shared, upkeep, approved = Lane(at_once), Lane(_UPKEEP_SLOTS), Lane(max(at_once // 2, 2))
        self._lanes: dict[str, Lane] = {}
        for kind in kinds.values():
            if kind.at_once is not None:
                # Such jobs are long: a slot that one tenant has is not free again soon.
                self._lanes[kind.name] = Lane(kind.at_once, kind.at_once * _INSIDE_FOR_EACH_BOUNDED, shared=True)
            else:
                self._lanes[kind.name] = upkeep if kind.every else approved if kind.approved else shared
        # A round begins at its time and not with a process: whoever is there then makes it.
        self._periodic = [(kind, kind.every) for kind in rounds if kind.every]
        self._rounds = {kind.name: self._round(seconds) for kind, seconds in self._periodic}
        self._me = ids.uuid()
        self._wake = asyncio.Event()
        self._stopping = False
        self._running: dict[asyncio.Task[None], Running] = {}
        self._lapses: dict[asyncio.Task[None], asyncio.TimerHandle] = {}
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        self._wake.set()
        self._tasks = [
            asyncio.create_task(self._look(), name="jobs"),
            asyncio.create_task(self._keep(), name="leases of jobs"),
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

    async def _look(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                await self._ask_for_rounds()
                # Whole: what is claimed and not begun would wait for its lease to run out, with an attempt to its name.
                await completed(self._take())
            except DatabaseUnavailable as exc:
                # The next wake is half a second off at most.
                _log.warning("jobs: the database does not answer (%s)", exc)
            except Exception:  # noqa: BLE001 - whatever it is, it must not end the making of jobs in this process
                _log.exception("jobs: could not look for any")
                await asyncio.sleep(_OUTAGE_PAUSE_SECONDS)

    async def _take(self) -> None:
        """Begin as many as there are slots for; look again where some got all the slots that were taken for them."""
        more = True
        while more and not self._stopping:
            now, since = self._clock.now(), asyncio.get_running_loop().time()
            more = False
            hands = self._deal(await self._due_lines(now))
            try:
                while hands:
                    rows = await self._claim(hands[-1], now, doubt=self._doubts(since))
                    hand = hands.pop()
                    for row in rows:
                        self._begin(row, since, hand.lane)
                    hand.lane.give_back(hand.tenant, hand.slots - len(rows))
                    more = more or len(rows) == hand.slots
            finally:
                for hand in hands:
                    hand.lane.give_back(hand.tenant, hand.slots)

    def _deal(self, due: Mapping[Lane, Mapping[str, Collection[str]]]) -> list[Hand]:
        """Take slots for the tenants who have jobs that are due: one each in turn, those first who have fewest."""
        hands: list[Hand] = []
        for lane, kinds in due.items():
            taken = dict.fromkeys(sorted(kinds, key=lane.inside), 0)
            turns = list(taken)
            while turns:
                turns = [tenant for tenant in turns if lane.take(tenant)]
                for tenant in turns:
                    taken[tenant] += 1
            for tenant, slots in taken.items():
                if slots:
                    hands.append(Hand(lane, tenant, kinds[tenant], slots))
                else:
                    lane.ask(tenant, self._wake.set)
        for lane in set(self._lanes.values()):
            lane.give_up_granted()
        return hands

    def _doubts(self, now: float) -> bool:
        """Whether one is being made that may end this process. now: in the time of the loop."""
        return any(
            running.attempt.attempt > _LOST and now < running.attempt.begun + _HARMLESS_SECONDS
            for running in self._running.values()
        )

    async def _ask_for_rounds(self) -> None:
        """The periodic kinds: one job for each round, whichever process comes first."""
        now = self._clock.now()
        for kind, seconds in self._periodic:
            if (round_ := self._round(seconds)) == self._rounds[kind.name]:
                continue
            row = {"id": f"{kind.name}:{round_}", "kind": kind.name, "arguments": {}, "due_at": now}
            row["tenant"] = PLATFORM
            async with self._database.working() as unit:
                await insert_new(unit, row | {"epoch": 0, "attempts": 0, "created_at": now})
            self._rounds[kind.name] = round_

    def _round(self, seconds: float) -> int:
        return math.floor(self._clock.time() / seconds)

    async def _due_lines(self, now: datetime) -> dict[Lane, dict[str, list[str]]]:
        """The kinds that are due, by lane and tenant. Looked at before anything is written: most looks find nothing."""
        due: dict[Lane, dict[str, list[str]]] = {}
        async with self._database.reading() as connection:
            lines = (await connection.execute(_DUE_LINES, {"now": now, "absurd": now + _ABSURD})).all()
        for tenant, kind in lines:
            # A kind that this version does not know is left to those who do.
            if kind in self._lanes:
                due.setdefault(self._lanes[kind], {}).setdefault(tenant, []).append(kind)
        return due

    async def _claim(self, hand: Hand, now: datetime, *, doubt: bool) -> list[Any]:
        """Doubtful ones are made one at a time: what ends a process is not to take others with it again and again.

        doubt: one is being made here already.
        """
        due = self._due(now, hand)
        eldest = select(jobs.c.id).where(due, _DOUBTFUL).order_by(jobs.c.due_at).limit(1).correlate(None)
        one = false() if doubt else jobs.c.id == eldest.scalar_subquery()
        first = select(jobs.c.id).where(due, or_(not_(_DOUBTFUL), one)).order_by(jobs.c.due_at).limit(hand.slots)
        values = {
            "epoch": jobs.c.epoch + 1,
            "attempts": jobs.c.attempts + 1,
            "held_by": self._me,
            "due_at": now + LEASE,
        }
        # What another process is taking at this moment is not waited for.
        taken = update(jobs).where(jobs.c.id.in_(first.with_for_update(skip_locked=True))).values(**values)
        async with self._database.writing(turn=False) as connection:
            return list((await connection.execute(taken.returning(jobs))).all())

    def _due(self, now: datetime, hand: Hand) -> ColumnElement[bool]:
        return and_(
            jobs.c.finished_at.is_(None),
            jobs.c.tenant == hand.tenant,
            jobs.c.kind.in_(hand.kinds),
            or_(jobs.c.due_at <= now, and_(jobs.c.held_by.is_not(None), jobs.c.due_at > now + _ABSURD)),
        )

    def _begin(self, row: Any, since: float, lane: Lane) -> None:
        attempt = Attempt(row, self._kinds[row.kind], self._registry, self._database, self._clock)
        slot = Slot(lane, row.tenant)
        task = asyncio.create_task(self._make(attempt, slot), name=f"job {attempt.kind.name} {attempt.id}")
        self._running[task] = Running(attempt, slot)
        self._hold(task, since)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.pop(task).slot.end()
        self._lapses.pop(task).cancel()
        self._wake.set()

    def _hold(self, task: asyncio.Task[None], since: float) -> None:
        """The lease has been moved on: only when this one has run out is the attempt ended.

        What it writes is fenced by the row; this is for what it does elsewhere while another has taken the job over.
        since: a moment, in the time of the loop, before the lease was written.
        """
        earlier = self._lapses.pop(task, None)
        if earlier is not None:
            earlier.cancel()
        self._lapses[task] = asyncio.get_running_loop().call_at(since + LEASE.total_seconds(), task.cancel)

    async def _keep(self) -> None:
        """One heart for all that runs here. A beat that fails is made up for by the next, or the leases run out."""
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            running, since = dict(self._running), asyncio.get_running_loop().time()
            if not running:
                continue
            try:
                kept = await self._beat([each.attempt.claim for each in running.values()])
            except DatabaseUnavailable as exc:
                _log.warning("jobs: leases could not be moved on (%s)", exc)
                continue
            except Exception:  # noqa: BLE001 - a heart that stops would end all that runs here
                _log.exception("jobs: leases could not be moved on")
                continue
            for task, each in running.items():
                if task.done():
                    continue
                if each.attempt.claim in kept:
                    self._hold(task, since)
                else:
                    task.cancel()

    async def _beat(self, claims: Sequence[tuple[str, int]]) -> set[tuple[str, int]]:
        """Move the leases on of all that are still held; those whose epoch is their own."""
        columns = (jobs.c.id, jobs.c.epoch)
        ours = tuple_(*columns).in_(claims)
        # Whoever is writing just now has locked its row, and moves its lease on by itself.
        free = select(jobs.c.id).where(ours, jobs.c.held_by == self._me).with_for_update(skip_locked=True)
        moved = update(jobs).where(jobs.c.id.in_(free), jobs.c.finished_at.is_(None))
        async with self._database.writing(turn=False) as connection:
            await connection.execute(moved.values(due_at=self._clock.now() + LEASE))
        async with self._database.reading() as connection:
            return {(row.id, row.epoch) for row in await connection.execute(select(*columns).where(ours))}

    async def _make(self, attempt: Attempt, slot: Slot) -> None:
        slot.use()
        set_tenant(slot.tenant)
        try:
            await self._try(attempt)
        except JobLost:
            _log.warning("job %s %s: taken over by another attempt", attempt.kind.name, attempt.id)
        except DatabaseUnavailable as exc:
            # Its lease runs out, and somebody makes it again.
            _log.warning("job %s %s: the database does not answer (%s)", attempt.kind.name, attempt.id, exc)

    async def _try(self, attempt: Attempt) -> None:
        kind = attempt.kind
        if attempt.attempt > kind.attempts:
            # Nobody reported why: the attempts ended with their processes.
            await attempt.finish("Each attempt ended with the process that made it.")
            return
        try:
            await self._work(attempt)
        except asyncio.CancelledError:
            # The process stops, or the lease has run out here: what holds everything up must not do so for ever.
            try:
                await attempt.put_back(0 if self._stopping else _pause(attempt.attempt), blameless=self._stopping)
            except JobLost:
                _log.warning("job %s %s: taken over by another attempt", kind.name, attempt.id)
            except DatabaseUnavailable as exc:
                _log.warning("job %s %s: the database does not answer (%s)", kind.name, attempt.id, exc)
            raise
        except JobLost:
            raise
        except Again as again:
            await attempt.put_back(again.seconds, blameless=True, error=str(again) or None)
        except OUTAGES as exc:
            _log.warning("job %s %s: a store does not answer (%s)", kind.name, attempt.id, exc)
            await attempt.put_back(_OUTAGE_PAUSE_SECONDS, blameless=True, error=str(exc))
        except Exception as exc:  # noqa: BLE001 - the row is who is told
            _log.exception("job %s %s: attempt %d failed", kind.name, attempt.id, attempt.attempt)
            await self._blame(attempt, f"{type(exc).__name__}: {exc}"[:2000])

    async def _work(self, attempt: Attempt) -> None:
        kind = attempt.kind
        if kind.consumes is None:
            await kind.work(attempt, **attempt.arguments)
        else:
            await kind.work(attempt, await attempt.event())
        if not attempt.ended:
            await attempt.finish()

    async def _blame(self, attempt: Attempt, error: str) -> None:
        if attempt.attempt >= attempt.kind.attempts:
            await attempt.finish(error)
        else:
            await attempt.put_back(_pause(attempt.attempt), blameless=False, error=error)


def _pause(attempt: int) -> float:
    return min(float(4 ** min(attempt - 1, 10)), _LONGEST_PAUSE_SECONDS)
