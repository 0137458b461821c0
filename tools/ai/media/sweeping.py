"""What nobody else looks after: money of jobs that nobody polls, jobs without a worker, files and rows that are old."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, exists, func, select, update

from baobab.runtime.job_rows import jobs
from baobab.storage.database import Database
from baobab.tools.ai.media.submitting import JOB
from baobab.tools.ai.media.tables import FREEZES, HOLDING, UNENDED, folder, generation_jobs
from baobab.tools.ai.media.toolset import media
from baobab.tools.core.credits import Reservation
from baobab.tools.core.errors import AppMigrating
from baobab.tools.core.job import Job
from baobab.tools.core.services import Services

ABANDONED = timedelta(minutes=5)
"""After so long without a poll the money comes back; the job goes on, and is charged when it is polled after all."""
FILES_KEPT, ROWS_KEPT = timedelta(days=30), timedelta(days=90)
_ROUND = 200
_columns = generation_jobs.c
_THAWED = FREEZES.thawed(_columns.app_id)
_WORKING = exists().where(jobs.c.id == _columns.worker, jobs.c.finished_at.is_(None))


@media.job(every=60)
async def media_sweep(job: Job) -> None:
    """Look after the generation jobs of every region."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        await _release(services, database)
        await _take_up(services, database)
        await _empty(services, database)


async def _release(services: Services, database: Database) -> None:
    now = services.clock.now()
    for row in await _some(database, HOLDING, _columns.polled_at < now - ABANDONED, order=_columns.polled_at):
        await services.credits.release(Reservation(row.reservation_id, row.organisation_id, row.reserved))
        await _write(database, row, HOLDING, released_at=now)


async def _take_up(services: Services, database: Database) -> None:
    """A job that has come with a move gets a worker; one whose worker has given up has failed."""
    now = services.clock.now()
    for row in await _some(database, UNENDED, ~_WORKING, order=_columns.created_at):
        if row.worker is not None:
            told = "This server could not finish it."
            values = {"status": "failed", "error": told, "ended_at": now, "request": None, "handle": None}
            await _write(database, row, UNENDED, _columns.worker == row.worker, **values)
            continue
        worker = f"{JOB}:{services.ids.uuid()}"
        free = (_columns.id == row.id, UNENDED, _columns.worker.is_(None), _THAWED)
        async with database.working() as unit:
            if (await unit.execute(update(generation_jobs).where(*free).values(worker=worker))).rowcount:
                arguments = {"app_id": row.app_id, "generation_id": row.id}
                await services.jobs.enqueue(unit, JOB, arguments, job_id=worker, tenant=row.organisation_id)


async def _empty(services: Services, database: Database) -> None:
    """Delete files that are old, and in time the rows. What nobody has asked about by then costs nothing any more."""
    now = services.clock.now()
    old = (_columns.ended_at < now - FILES_KEPT, _columns.emptied_at.is_(None))
    for row in await _some(database, *old, order=_columns.ended_at):
        for stores in services.regions.values():
            if stores.database is database:
                await stores.objects.delete_all(folder(row.app_id, row.id))
        await _write(database, row, _columns.emptied_at.is_(None), emptied_at=now)
        await _write(database, row, _columns.settled_at.is_(None), settled_at=now, cost=0)
    few = select(_columns.id).where(_columns.ended_at < now - ROWS_KEPT, _THAWED).limit(_ROUND)
    async with database.writing() as connection:
        await connection.execute(delete(generation_jobs).where(_columns.id.in_(few)))


async def _some(database: Database, *conditions: Any, order: Any) -> list[Any]:
    """Some of those that may be written, one of each organisation in turn; the next round finds the rest."""
    turn = func.row_number().over(partition_by=_columns.organisation_id, order_by=order)
    query = select(generation_jobs).where(*conditions, _THAWED).order_by(turn, order).limit(_ROUND)
    async with database.reading() as connection:
        return list((await connection.execute(query)).all())


async def _write(database: Database, row: Any, *conditions: Any, **values: Any) -> None:
    changing = update(generation_jobs).where(_columns.id == row.id, *conditions).values(**values)
    try:
        async with database.writing() as connection:
            await FREEZES.require_thawed(connection.execute, row.app_id)
            await connection.execute(changing)
    except AppMigrating:
        return
