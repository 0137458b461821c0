"""Durable jobs of an installation under test."""

import asyncio
import itertools
from typing import Any, Protocol

from sqlalchemy import bindparam, func, or_, select, update

from baobab.runtime.jobs.jobs import DurableJobs
from baobab.storage.sql.database import Database
from baobab.storage.sql.tables import metadata
from baobab.tools.core.services import Services

TIMEOUT_SECONDS = 180.0
jobs = metadata.tables["jobs"]
events = metadata.tables["events"]


class HasServices(Protocol):
    @property
    def services(self) -> Services: ...


async def run_job(application: HasServices, kind: str) -> None:
    """Have a job without arguments made, and return when it is."""
    services = application.services
    unit = services.database.build_unit(write=True)
    job_id = await services.jobs.enqueue(unit, kind, {})
    await unit.commit()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (await get_job(application, job_id)).finished_at is None:
            await asyncio.sleep(0.005)


async def run_due_jobs(application: HasServices, database: Database | None = None) -> None:
    """Return when every job that is due by the installation's clock has run."""
    services: Any = application.services
    # Anew each time, for what one job asks for is due after the look before; and in one look, for a job that ends may
    # have asked for another.
    is_held_or_due = or_(jobs.c.held_by.is_not(None), jobs.c.due_at <= bindparam("now", type_=jobs.c.due_at.type))
    unfinished_count = select(func.count()).where(jobs.c.finished_at.is_(None), is_held_or_due)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        for turn in itertools.count():
            # While one is running there is nothing to learn, and looking takes time from it; but it may wait for
            # another one, which the clock has made due.
            if turn % 20 == 0 or not _is_running_jobs(services.jobs):
                services.jobs.wake()
                async with (database or services.database).reading() as connection:
                    if not await connection.scalar(unfinished_count, {"now": services.clock.now()}):
                        return
            await asyncio.sleep(0.005)


def _is_running_jobs(durable_jobs: DurableJobs) -> bool:
    return any(runner._running for runner in durable_jobs._runners.values())


async def list_unfinished_jobs(application: HasServices, database: Database | None = None) -> list[Any]:
    async with (database or application.services.database).reading() as connection:
        rows = await connection.execute(select(jobs).where(jobs.c.finished_at.is_(None)).order_by(jobs.c.id))
        return list(rows.all())


async def get_job(application: HasServices, job_id: str) -> Any:
    async with application.services.database.reading() as connection:
        return (await connection.execute(select(jobs).where(jobs.c.id == job_id))).one()


async def list_events(application: HasServices, type_: str) -> list[Any]:
    """The events of a type, oldest first."""
    async with application.services.database.reading() as connection:
        rows = await connection.execute(select(events).where(events.c.type == type_).order_by(events.c.at))
        return list(rows.all())


async def let_decisions_count(application: HasServices) -> None:
    """Make the decisions that people made in the console count, as if ten seconds had passed, and what follows."""
    services = application.services
    is_held = (jobs.c.kind == "approvals_count_held", jobs.c.finished_at.is_(None))
    async with services.database.writing() as connection:
        await connection.execute(update(jobs).where(*is_held).values(due_at=services.clock.now()))
    await run_due_jobs(application)
