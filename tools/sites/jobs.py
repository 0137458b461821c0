"""The jobs of sites: one unpacks a deployment, others delete what is left, the sweep ends what nobody goes on with."""

import asyncio
import contextlib
import tempfile
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import IO

from sqlalchemy import select

from baobab.storage.objects.errors import ObjectDamaged, StoreUnavailable
from baobab.tools.core import AppMigrating, AppNotFound, Job, RetryLater, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.stores import Stores
from baobab.tools.sites.archive import open_archive
from baobab.tools.sites.building import BUILDING, CANCELED, ERROR, UNFINISHED, SiteSource, build, end, find_deployment
from baobab.tools.sites.errors import SiteInvalid
from baobab.tools.sites.tables import (
    FREEZES,
    build_content_key,
    build_folder,
    build_upload_key,
    site_contents,
    site_deployments,
)
from baobab.tools.sites.toolset import sites

_MOVING_SECONDS, _OUTAGE_SECONDS = 10.0, 15.0
_FORGOTTEN = timedelta(hours=24)
_ROUND = 200
_columns = site_deployments.c


@sites.job(at_once=2, cancel="sites_cancel")
async def sites_unpack(job: Job, app_id: str, deployment_id: str) -> None:
    """Unpacks the zip of a deployment, and publishes it."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    stores = services.stores_of(app.region)
    async with stores.database.reading() as connection:
        row = await find_deployment(connection.execute, app_id, deployment_id)
    if row is None or row.status != BUILDING:
        return
    failure: SiteInvalid | None = None
    try:
        async with _fetch(stores, build_upload_key(app_id, deployment_id, row.upload_as or "none")) as file:
            # Its directory may name thousands of files.
            archive = await asyncio.to_thread(open_archive, file)
            source = SiteSource(list(archive.members), archive.read, archive.warnings)
            await build(services, app, stores, deployment_id, source)
    except SiteInvalid as exc:
        failure = exc
    except AppMigrating as exc:
        raise RetryLater(_MOVING_SECONDS, "the app is being moved") from exc
    except StoreUnavailable as exc:
        raise RetryLater(_OUTAGE_SECONDS, "the object store does not answer") from exc
    if failure is not None:
        await _fail(services, app, stores, deployment_id, failure.code, failure.message)


@contextlib.asynccontextmanager
async def _fetch(stores: Stores, key: str) -> AsyncIterator[IO[bytes]]:
    """Yields a temporary file with the bytes of an object. Raises SiteInvalid if they are gone or damaged."""
    try:
        reader = await stores.objects.get(key)
    except ObjectDamaged as exc:
        raise SiteInvalid("The stored zip is damaged. Upload it again.") from exc
    if reader is None:
        raise SiteInvalid("The stored zip is gone. Upload it again.")
    with tempfile.TemporaryFile() as file:
        async with contextlib.aclosing(reader):
            try:
                async for chunk in reader:
                    await asyncio.to_thread(file.write, chunk)
            except ObjectDamaged as exc:
                raise SiteInvalid("The stored zip is damaged. Upload it again.") from exc
        yield file


async def _fail(services: Services, app: App, stores: Stores, deployment_id: str, code: str, message: str) -> None:
    async with stores.database.writing_unit(lock=app.id) as unit:
        if await FREEZES.is_frozen(unit.execute, app.id):
            raise RetryLater(_MOVING_SECONDS, "the app is being moved")
        await end(unit, services, app, deployment_id, status=ERROR, error={"code": code, "message": message})


@sites.job()
async def sites_erase(job: Job, app_id: str, keys: list[str]) -> None:
    """Deletes the bytes of contents whose rows are gone, wherever the app has been since."""
    await _require_settled(job.services, app_id)
    for stores in list(job.services.regions.values()):
        for key in keys:
            await stores.objects.delete(key)


@sites.job()
async def sites_tidy(job: Job, app_id: str, deployment_id: str) -> None:
    """Deletes what a deployment that has ended has stored and no row refers to."""
    await _require_settled(job.services, app_id)
    try:
        app = await job.services.directory.app(app_id)
    except AppNotFound:
        return
    stores, columns, folder = job.services.stores_of(app.region), site_contents.c, build_folder(app_id, deployment_id)
    async with stores.database.reading() as connection:
        row = await find_deployment(connection.execute, app_id, deployment_id)
        query = select(columns.sha256).where(columns.app_id == app_id, columns.stored_by == deployment_id)
        digests = (await connection.execute(query)).scalars().all()
    if row is not None and row.status in UNFINISHED:
        return
    kept_keys = {
        build_content_key(app_id, deployment_id, sha256, compressed=is_compressed)
        for sha256 in digests
        for is_compressed in (False, True)
    }
    after = ""
    while keys := await stores.objects.list(folder, after, _ROUND):
        for key in keys:
            if key not in kept_keys:
                await stores.objects.delete(key)
        after = keys[-1]


@sites.job(every=3600.0)
async def sites_sweep(job: Job) -> None:
    """Ends deployments that nobody has gone on with for a day."""
    services = job.services
    before = services.clock.now() - _FORGOTTEN
    is_old = (_columns.status.in_(UNFINISHED), _columns.created_at < before, FREEZES.is_thawed(_columns.app_id))
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        async with database.reading() as connection:
            query = select(_columns.app_id, _columns.id, _columns.status).where(*is_old).limit(_ROUND)
            rows = (await connection.execute(query)).all()
        for row in rows:
            with contextlib.suppress(AppNotFound):
                app = await services.directory.app(row.app_id)
                if services.stores_of(app.region).database is not database:
                    continue
                was_building = row.status == BUILDING
                error = {"code": "DEPLOY_FAILED", "message": "It did not end within a day. Deploy again."}
                async with database.writing_unit(lock=app.id) as unit:
                    if not await FREEZES.is_frozen(unit.execute, app.id):
                        values = {"status": ERROR, "error": error} if was_building else {"status": CANCELED}
                        await end(unit, services, app, row.id, **values)


async def _require_settled(services: Services, app_id: str) -> None:
    """Raises RetryLater while the app is being moved: a copy in progress may include what is to be deleted."""
    with contextlib.suppress(AppNotFound):
        stores = services.stores_of((await services.directory.app(app_id)).region)
        async with stores.database.reading() as connection:
            if await FREEZES.is_frozen(connection.execute, app_id):
                raise RetryLater(_MOVING_SECONDS, "the app is being moved")
