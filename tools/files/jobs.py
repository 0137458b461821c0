"""The jobs of files: one deletes the bytes of a file that is gone, and the sweep removes uploads that never arrived."""

import contextlib
from datetime import timedelta

from sqlalchemy import delete, select

from baobab.storage.database import Database, Unit
from baobab.tools.core.errors import AppNotFound
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import RetryLater
from baobab.tools.core.services import Services
from baobab.tools.files.storing import find_row, is_file
from baobab.tools.files.tables import FREEZES, PENDING, build_folder, files_table
from baobab.tools.files.toolset import files

KEPT = timedelta(hours=24)
"""How long the row of an upload is kept whose bytes have not arrived."""
_ROUND = 200
_MOVING_SECONDS = 10.0
_columns = files_table.c


async def request_erasure(services: Services, unit: Unit, app_id: str, file_id: str, tenant: str | None = None) -> None:
    """Has the bytes of a file deleted once the unit, which deletes its row, is committed."""
    arguments = {"app_id": app_id, "file_id": file_id}
    await services.jobs.enqueue(unit, files_erase.__name__, arguments, tenant=tenant)


@files.job()
async def files_erase(job: Job, app_id: str, file_id: str) -> None:
    """Deletes the bytes of a file whose row is gone, wherever the app has been since."""
    services = job.services
    with contextlib.suppress(AppNotFound):
        stores = services.stores_of((await services.directory.app(app_id)).region)
        async with stores.database.reading() as connection:
            if await FREEZES.is_frozen(connection.execute, app_id):
                # A copy under way may have these bytes with it.
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")
    for stores in list(services.regions.values()):
        await stores.objects.delete_all(build_folder(app_id, file_id))


@files.job(every=3600.0)
async def files_sweep(job: Job) -> None:
    """Delete the rows of uploads whose bytes have not arrived within a day, and what attempts have left of them."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        await _sweep(services, database)


async def _sweep(services: Services, database: Database) -> None:
    now = services.clock.now()
    is_old = (PENDING, _columns.created_at < now - KEPT, _columns.reserved_until <= now)
    query = select(_columns.app_id, _columns.id).where(*is_old, FREEZES.is_thawed(_columns.app_id))
    while True:
        async with database.reading() as connection:
            rows = (await connection.execute(query.limit(_ROUND))).all()
        for row in rows:
            async with database.writing_unit(lock=row.app_id) as unit:
                if await FREEZES.is_frozen(unit.execute, row.app_id):
                    continue
                if await find_row(unit.execute, row.app_id, row.id, *is_old) is None:
                    continue
                await unit.execute(delete(files_table).where(*is_file(row.app_id, row.id)))
                await request_erasure(services, unit, row.app_id, row.id)
        if len(rows) < _ROUND:
            return
