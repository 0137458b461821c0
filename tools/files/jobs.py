"""The jobs of files: they delete the bytes of deleted files, uploads that never arrived, and leftovers."""

import contextlib
import logging
from datetime import timedelta
from itertools import groupby

from sqlalchemy import func, select

from baobab.storage.sql.database import Database
from baobab.tools.core import AppMigrating, AppNotFound, Job, RetryLater, Services
from baobab.tools.core.errors import Damaged
from baobab.tools.files.errors import FileNotFound, QuotaExceeded
from baobab.tools.files.leftovers import delete_leftovers
from baobab.tools.files.parts import KEPT_SECONDS, complete
from baobab.tools.files.quota import name_organisation
from baobab.tools.files.storing import delete_pending
from baobab.tools.files.tables import FREEZES, PENDING, build_folder, file_parts, file_usage, files_table
from baobab.tools.files.toolset import files

_log = logging.getLogger(__name__)

KEPT = timedelta(hours=24)
"""How long the row of an upload is kept if its bytes do not arrive."""
_BUSY_SECONDS = 60
_ROUND = 200
_MOVING_SECONDS = 10.0
_columns = files_table.c


@files.job()
async def files_erase(job: Job, app_id: str, file_id: str, keep: str = "") -> None:
    """Deletes bytes of a file that no row refers to, wherever the app has been since."""
    await _require_settled(job.services, app_id)
    folder = build_folder(app_id, file_id)
    for stores in list(job.services.regions.values()):
        if not keep:
            await stores.objects.delete_all(folder)
            continue
        while keys := [key for key in await stores.objects.list(folder, "", _ROUND) if key != folder + keep]:
            for key in keys:
                await stores.objects.delete(key)


@files.job()
async def files_erase_many(job: Job, app_id: str, file_ids: list[str]) -> None:
    """Deletes the bytes of files whose rows are gone, wherever the app has been since."""
    await _require_settled(job.services, app_id)
    for stores in list(job.services.regions.values()):
        for file_id in file_ids:
            await stores.objects.delete_all(build_folder(app_id, file_id))


async def _require_settled(services: Services, app_id: str) -> None:
    """Raises RetryLater while the app is being moved, because a copy in progress may include bytes that are to be
    deleted.
    """
    with contextlib.suppress(AppNotFound):
        stores = services.stores_of((await services.directory.app(app_id)).region)
        async with stores.database.reading() as connection:
            if await FREEZES.is_frozen(connection.execute, app_id):
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")


@files.job(every=60.0)
async def files_complete(job: Job) -> None:
    """Complete files whose parts have all arrived, where the last request could not put them together."""
    services, parts = job.services, file_parts.c
    idle_before = services.clock.now() + timedelta(seconds=KEPT_SECONDS - _BUSY_SECONDS)
    sizes_query = select(parts.app_id, parts.file_id, func.sum(parts.size_bytes).label("size"))
    arrived_sizes = sizes_query.group_by(parts.app_id, parts.file_id).subquery()
    is_whole = (arrived_sizes.c.app_id == _columns.app_id) & (arrived_sizes.c.file_id == _columns.id)
    is_whole &= arrived_sizes.c.size == _columns.size_bytes
    query = select(files_table).join(arrived_sizes, is_whole)
    # Of what has not said its length, it is not known whether it is whole.
    query = query.where(PENDING, _columns.length_deferred.is_(None))
    query = query.where(_columns.reserved_until < idle_before, FREEZES.is_thawed(_columns.app_id))
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        async with database.reading() as connection:
            rows = (await connection.execute(query.limit(_ROUND))).all()
        for row in rows:
            with contextlib.suppress(AppNotFound, AppMigrating, QuotaExceeded, FileNotFound, Damaged):
                app = await services.directory.app(row.app_id)
                stores = services.stores_of(app.region)
                if stores.database is database:
                    await complete(services, app, stores, row)


@files.job(every=3600.0)
async def files_sweep(job: Job) -> None:
    """Delete the rows of uploads whose bytes have not arrived within a day, and what attempts have left of them."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        await _sweep(services, database)
        await _name_organisations(services, database)


@files.job(every=24 * 3600.0)
async def files_leftovers(job: Job) -> None:
    """Delete bytes that no file refers to, which killed processes have left, and log how many objects that were."""
    for region in job.services.regions:
        if count := await delete_leftovers(job.services, region):
            _log.warning("Deleted %d objects in %s to which no file referred.", count, region)


async def _name_organisations(services: Services, database: Database) -> None:
    """Records the organisation of apps whose files were stored before organisations had a limit."""
    query = select(file_usage.c.app_id).where(file_usage.c.organisation_id.is_(None))
    async with database.reading() as connection:
        app_ids = (await connection.execute(query)).scalars().all()
    for app_id in app_ids:
        with contextlib.suppress(AppNotFound):
            app = await services.directory.app(app_id)
            async with database.writing_unit(lock=app_id) as unit:
                if not await FREEZES.is_frozen(unit.execute, app_id):
                    await name_organisation(unit, app)


async def _sweep(services: Services, database: Database) -> None:
    """Deletes what has expired, in one transaction for each app of a round. After a kill, the next run continues."""
    now = services.clock.now()
    is_old = (PENDING, _columns.created_at < now - KEPT, _columns.reserved_until <= now)
    query = select(_columns.app_id, _columns.id).where(*is_old, FREEZES.is_thawed(_columns.app_id))
    query = query.order_by(_columns.app_id, _columns.id).limit(_ROUND)
    while True:
        async with database.reading() as connection:
            rows = (await connection.execute(query)).all()
        for app_id, of_app in groupby(rows, key=lambda row: row.app_id):
            async with database.writing_unit(lock=app_id) as unit:
                if not await FREEZES.is_frozen(unit.execute, app_id):
                    await delete_pending(services, unit, app_id, [row.id for row in of_app], is_old)
        if len(rows) < _ROUND:
            return
