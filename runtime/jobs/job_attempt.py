"""One attempt at a job."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, select, update

from baobab.runtime.jobs.job_tables import events, jobs
from baobab.storage.clock import Clock
from baobab.storage.sql.database import Database, Unit
from baobab.storage.sql.statements import Statements
from baobab.tools.core.job import JobKind
from baobab.tools.core.jobs import Event, JobLost
from baobab.tools.core.registry import Registry

LEASE = timedelta(seconds=10)
_HOLD_JOB = "UPDATE jobs SET due_at = ? WHERE id = ? AND epoch = ? AND finished_at IS NULL RETURNING id"
_HOLD_AND_RESET = (
    "UPDATE jobs SET due_at = ?, attempts = 1 WHERE id = ? AND epoch = ? AND finished_at IS NULL RETURNING id"
)
_END_JOB = (
    "UPDATE jobs SET finished_at = ?, error = NULL WHERE id = ? AND epoch = ? AND finished_at IS NULL RETURNING id"
)


class JobAttempt:
    """One attempt at a job, passed as the `Job` to the function of its kind."""

    def __init__(self, row: Any, kind: JobKind, registry: Registry, database: Database, clock: Clock) -> None:
        self.id: str = row.id
        self.attempt: int = row.attempts
        self.claim: tuple[str, int] = (row.id, row.epoch)
        self.registry = registry
        self.services = registry.services
        self.database = database
        self.kind = kind
        self.arguments: Mapping[str, Any] = row.arguments
        self.has_ended = False
        self.started_at = asyncio.get_running_loop().time()
        self._clock = clock

    @property
    def _mine(self) -> tuple[ColumnElement[bool], ...]:
        job_id, epoch = self.claim
        return jobs.c.id == job_id, jobs.c.epoch == epoch, jobs.c.finished_at.is_(None)

    async def hold(self, unit: Unit, *, last: bool = False) -> None:
        """Locks the job's row in the unit, so that no other attempt can claim the job before the commit. Raises
        JobLost.

        last: whether the job ends with this unit.
        """
        # The row is locked from here to the commit, so nobody else can claim the job.
        await unit.run_statements(partial(self.keep, last=last))
        if last:
            unit.after_commit(self.end)

    def keep(self, statements: Statements, *, last: bool = False, further: bool = False) -> None:
        """Does the same as `hold` in a transaction of `Database.transact`.

        further: whether the job has made progress, so that earlier attempts no longer count.
        """
        job_id, epoch = self.claim
        now = self._clock.now()
        if last:
            updated_rows = statements.rows(_END_JOB, now, job_id, epoch)
        else:
            updated_rows = statements.rows(_HOLD_AND_RESET if further else _HOLD_JOB, now + LEASE, job_id, epoch)
        if not updated_rows:
            raise JobLost
        if further:
            self.attempt = 1

    def end(self) -> None:
        self.has_ended = True

    @asynccontextmanager
    async def writing(self, *, last: bool = False, lock: str | None = None, bulk: bool = False) -> AsyncIterator[Unit]:
        async with self.database.writing_unit(lock=lock, bulk=bulk) as unit:
            await self.hold(unit, last=last)
            yield unit

    async def finish(self, error: str | None = None) -> None:
        await self._update_row({"finished_at": self._clock.now(), "error": error})
        self.end()

    async def reschedule(self, seconds: float, *, blameless: bool, error: str | None = None) -> None:
        """Leaves the job to a later attempt. blameless: whether this attempt does not count towards the most
        attempts.
        """
        due = self._clock.now() + timedelta(seconds=seconds)
        values: dict[str, Any] = {"due_at": due, "held_by": None, "error": error}
        await self._update_row(values | ({"attempts": max(self.attempt - 1, 0)} if blameless else {}))

    async def event(self) -> Event:
        """Returns the event that the job consumes."""
        query = select(events).where(events.c.id == self.arguments["event_id"])
        async with self.database.reading() as connection:
            row = (await connection.execute(query)).one()
        return Event(row.id, row.type, row.at, row.app_id, row.data, row.origin)

    async def _update_row(self, values: Mapping[str, Any]) -> None:
        async with self.database.writing(lock=None) as connection:
            if (await connection.execute(update(jobs).where(*self._mine).values(**values))).rowcount != 1:
                raise JobLost
