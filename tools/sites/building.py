"""How files become a deployment: each content is stored once for the app, then all of it is published in one step.

Contents lie in the folder of the deployment that has stored them, so that an attempt which was killed is repeated over
its own objects, and what no row refers to is found by its folder. A row refers to a content only from the transaction
that publishes it.
"""

import gzip
import hashlib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from baobab.runtime.fair_thread_pool import FairThreadPool
from baobab.storage.objects.store import ObjectStore
from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.stores import Stores
from baobab.tools.sites import rules
from baobab.tools.sites.archive import MOST_FILE_BYTES
from baobab.tools.sites.file_paths import RULE_FILES, warn_of
from baobab.tools.sites.media_types import find_media_type, is_compressible
from baobab.tools.sites.tables import (
    FREEZES,
    build_content_key,
    site_contents,
    site_deployments,
    site_files,
    sites_table,
)

WAITING, UPLOADING, BUILDING, READY, ERROR, CANCELED = "WAITING", "UPLOADING", "BUILDING", "READY", "ERROR", "CANCELED"
UNFINISHED = (WAITING, UPLOADING, BUILDING)
TIDY, ERASE, UNPACK = "sites_tidy", "sites_erase", "sites_unpack"
_MOST_FAILURES = 20
"""Deployments that failed or were cancelled of which an app keeps the rows."""
_LOOKS_EVERY = 50
"""Files between two looks whether the deployment was cancelled."""
_SMALL_BYTES = 512
_LATER_SECONDS = 60.0
_AT_ONCE = 500
_MOST_ROUNDS = 5
_columns = site_deployments.c


@dataclass(frozen=True, slots=True)
class SiteSource:
    """What is to be deployed. read: returns the content of a path. Raises SiteInvalid."""

    paths: Sequence[str]
    read: Callable[[str], bytes]
    warnings: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class _Content:
    sha256: str
    raw: bytes
    compressed: bytes | None


@dataclass
class _Deployment:
    """A deployment as it is built: digests by path, and the sizes of the contents that this attempt has stored."""

    files: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int | None]] = field(default_factory=dict)
    total_bytes: int = 0


class Unpacking:
    """The threads in which contents are unpacked and compressed, in turns of the organisations."""

    def __init__(self, services: Services) -> None:
        self.pool = FairThreadPool("unpacking sites", threads=1)


async def build(services: Services, app: App, stores: Stores, deployment_id: str, source: SiteSource) -> None:
    """Stores the contents of a deployment and publishes it. Does nothing if it was cancelled or is published already.

    Raises SiteInvalid, StoreUnavailable and AppMigrating. It may be called again after a kill.
    """
    pool = services.of(Unpacking).pool
    headers, header_warnings = rules.parse_headers(await _read_rules(pool, source, "_headers"))
    redirects, redirect_warnings = rules.parse_redirects(await _read_rules(pool, source, "_redirects"))
    paths = [path for path in source.paths if path not in RULE_FILES]
    warnings = [*source.warnings, *warn_of(paths), *header_warnings, *redirect_warnings]
    async with stores.database.reading() as connection:
        known_digests = await _list_digests(connection.execute, app.id)
    deployment = _Deployment()
    for number, path in enumerate(paths):
        if number % _LOOKS_EVERY == 0 and not await is_building(stores, app.id, deployment_id):
            return
        content = await pool.run_work(partial(_prepare, source, path))
        deployment.files[path] = content.sha256
        deployment.total_bytes += len(content.raw)
        if content.sha256 not in known_digests and content.sha256 not in deployment.sizes:
            await _store(stores.objects, app.id, deployment_id, path, content)
            deployment.sizes[content.sha256] = _measure(content)
    values = {"rules": {"headers": headers, "redirects": redirects}, "warnings": warnings}
    for _ in range(_MOST_ROUNDS):
        async with stores.database.writing_unit(lock=app.id, bulk=True) as unit:
            await FREEZES.require_thawed(unit.execute, app.id)
            missing = await _publish(unit, services, app, deployment_id, deployment, values)
        if not missing:
            return
        # Another deployment had stored these, and was removed meanwhile.
        for path, sha256 in deployment.files.items():
            if sha256 in missing and sha256 not in deployment.sizes:
                content = await pool.run_work(partial(_prepare, source, path))
                await _store(stores.objects, app.id, deployment_id, path, content)
                deployment.sizes[sha256] = _measure(content)


async def is_building(stores: Stores, app_id: str, deployment_id: str) -> bool:
    async with stores.database.reading() as connection:
        row = await find_deployment(connection.execute, app_id, deployment_id)
    return row is not None and row.status == BUILDING


async def find_deployment(execute: Execute, app_id: str, deployment_id: str) -> Any:
    """Returns the row of a deployment, or None."""
    query = select(site_deployments).where(_columns.app_id == app_id, _columns.id == deployment_id)
    return (await execute(query)).first()


async def find_live_id(execute: Execute, app_id: str) -> str | None:
    """Returns the id of the deployment that visitors see; None if there is none."""
    query = select(sites_table.c.live_id).where(sites_table.c.app_id == app_id)
    live_id: str | None = (await execute(query)).scalar_one_or_none()
    return live_id


async def set_live(unit: Unit, app_id: str, deployment_id: str | None) -> None:
    """Swaps the deployment that visitors see, in one row."""
    insertion = build_upsert(unit.database.dialect, sites_table).values(app_id=app_id, live_id=deployment_id)
    await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id"], set_={"live_id": deployment_id}))


async def end(unit: Unit, services: Services, app: App, deployment_id: str, **values: Any) -> None:
    """Ends a deployment that was not published: it failed, or was cancelled. unit: holds the app's lock."""
    is_it = (_columns.app_id == app.id, _columns.id == deployment_id, _columns.status.in_(UNFINISHED))
    change = update(site_deployments).where(*is_it).values(ended_at=services.clock.now(), **values)
    if not (await unit.execute(change)).rowcount:
        return
    await request_tidying(services, unit, app, deployment_id)
    failures = (_columns.app_id == app.id, _columns.status.in_((ERROR, CANCELED)))
    newest = select(_columns.id).where(*failures).order_by(_columns.position.desc()).limit(_MOST_FAILURES)
    kept_ids: list[str] = list((await unit.execute(newest)).scalars())
    await unit.execute(delete(site_deployments).where(*failures, _columns.id.not_in(kept_ids)))


async def remove_deployment(unit: Unit, services: Services, app: App, deployment_id: str) -> None:
    """Removes a deployment, and the contents that no other one has. unit: holds the app's lock."""
    files = site_files.c
    await unit.execute(delete(site_files).where(files.app_id == app.id, files.deployment_id == deployment_id))
    await unit.execute(delete(site_deployments).where(_columns.app_id == app.id, _columns.id == deployment_id))
    await _prune(unit, services, app)
    await request_tidying(services, unit, app, deployment_id)


async def request_tidying(services: Services, unit: Unit, app: App, deployment_id: str) -> None:
    """Enqueues the deletion of what a deployment has stored and no row refers to: its zip, and leftovers."""
    arguments = {"app_id": app.id, "deployment_id": deployment_id}
    # Later, because an attempt that has not noticed its end may still be storing.
    await services.jobs.enqueue(unit, TIDY, arguments, delay=_LATER_SECONDS, tenant=app.organisation_id)


async def _publish(
    unit: Unit, services: Services, app: App, deployment_id: str, deployment: _Deployment, values: Mapping[str, Any]
) -> set[str]:
    """Makes a deployment ready and, if it says so, live. Returns the digests of contents to be stored first."""
    row = await find_deployment(unit.execute, app.id, deployment_id)
    if row is None or row.status != BUILDING:
        return set()
    known_digests = await _list_digests(unit.execute, app.id)
    digests = set(deployment.files.values())
    missing = digests - known_digests - deployment.sizes.keys()
    if missing:
        return missing
    content_rows = [
        {
            "app_id": app.id,
            "sha256": sha256,
            "stored_by": deployment_id,
            "size_bytes": deployment.sizes[sha256][0],
            "gzip_bytes": deployment.sizes[sha256][1],
        }
        for sha256 in sorted(digests - known_digests)
    ]
    file_rows = [
        {"app_id": app.id, "deployment_id": deployment_id, "path": path, "sha256": sha256}
        for path, sha256 in deployment.files.items()
    ]
    for table, rows in ((site_contents, content_rows), (site_files, file_rows)):
        for start in range(0, len(rows), _AT_ONCE):
            await unit.execute(insert(table), rows[start : start + _AT_ONCE])
    warnings = list(values["warnings"])
    live_id = await find_live_id(unit.execute, app.id)
    live = None if live_id is None else await find_deployment(unit.execute, app.id, live_id)
    if row.goes_live and (live is None or live.position <= row.position):
        await set_live(unit, app.id, deployment_id)
        live_id = deployment_id
    elif row.goes_live and live is not None:
        warnings.append(f"The deployment {live.id}, which was created later, stays live.")
    is_it = (_columns.app_id == app.id, _columns.id == deployment_id)
    change: dict[str, Any] = {
        "status": READY,
        "rules": values["rules"],
        "files_count": len(deployment.files),
        "size_bytes": deployment.total_bytes,
        "error": None,
        "ended_at": services.clock.now(),
    }
    await unit.execute(update(site_deployments).where(*is_it).values(warnings=warnings, **change))
    warnings += await _remove_oldest(unit, services, app, {deployment_id, *([] if live_id is None else [live_id])})
    await unit.execute(update(site_deployments).where(*is_it).values(warnings=warnings))
    await request_tidying(services, unit, app, deployment_id)
    return set()


async def _remove_oldest(unit: Unit, services: Services, app: App, kept_ids: set[str]) -> list[str]:
    """Removes the oldest deployments that the plan no longer keeps, and returns what to say of it."""
    kept_count = app.plan.deployments
    if kept_count is None:
        return []
    ready = (_columns.app_id == app.id, _columns.status == READY)
    rows = (
        await unit.execute(select(_columns.id, _columns.created_at).where(*ready).order_by(_columns.position))
    ).all()
    excess = max(len(rows) - max(kept_count, len(kept_ids)), 0)
    removed_rows = [row for row in rows if row.id not in kept_ids][:excess]
    for row in removed_rows:
        await remove_deployment(unit, services, app, row.id)
    why = f"the plan {app.plan.name} keeps {kept_count}"
    return [f"The deployment {row.id} of {row.created_at:%Y-%m-%d} was removed: {why}." for row in removed_rows]


async def _prune(unit: Unit, services: Services, app: App) -> None:
    """Removes contents that no deployment has, whose bytes a job deletes once the unit is committed."""
    columns = site_contents.c
    used_digests = select(site_files.c.sha256).where(site_files.c.app_id == app.id)
    is_unused = (columns.app_id == app.id, columns.sha256.not_in(used_digests))
    rows = (await unit.execute(delete(site_contents).where(*is_unused).returning(*columns))).all()
    keys = [
        build_content_key(app.id, row.stored_by, row.sha256, compressed=is_compressed)
        for row in rows
        for is_compressed in ((False,) if row.gzip_bytes is None else (False, True))
    ]
    for start in range(0, len(keys), _AT_ONCE):
        arguments = {"app_id": app.id, "keys": keys[start : start + _AT_ONCE]}
        await services.jobs.enqueue(unit, ERASE, arguments, tenant=app.organisation_id)


async def _list_digests(execute: Execute, app_id: str) -> set[str]:
    query = select(site_contents.c.sha256).where(site_contents.c.app_id == app_id)
    return set((await execute(query)).scalars())


async def next_position(execute: Execute, app_id: str) -> int:
    highest = select(func.coalesce(func.max(_columns.position), 0)).where(_columns.app_id == app_id)
    position: int = (await execute(highest)).scalar_one() + 1
    return position


async def _read_rules(pool: FairThreadPool, source: SiteSource, name: str) -> bytes:
    return await pool.run_work(partial(source.read, name)) if name in source.paths else b""


def _prepare(source: SiteSource, path: str) -> _Content:
    """Reads a content, digests it, and compresses it where that makes it much smaller. For a thread."""
    raw = source.read(path)
    smaller_raw = None
    if len(raw) >= _SMALL_BYTES and is_compressible(path):
        # Without a time in it, the same content is the same bytes.
        shorter = gzip.compress(raw, compresslevel=9, mtime=0)
        smaller_raw = shorter if len(shorter) < 0.9 * len(raw) else None
    return _Content(hashlib.sha256(raw).hexdigest(), raw, smaller_raw)


def _measure(content: _Content) -> tuple[int, int | None]:
    return len(content.raw), None if content.compressed is None else len(content.compressed)


async def _store(objects: ObjectStore, app_id: str, deployment_id: str, path: str, content: _Content) -> None:
    for raw, is_compressed in ((content.raw, False), (content.compressed, True)):
        if raw is not None:
            key = build_content_key(app_id, deployment_id, content.sha256, compressed=is_compressed)
            await objects.put(key, _iterate(raw), content_type=find_media_type(path), max_bytes=MOST_FILE_BYTES)


async def _iterate(raw: bytes) -> AsyncIterator[bytes]:
    if raw:
        yield raw
