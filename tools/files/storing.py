"""How a file gets its bytes: room is reserved, the bytes are stored, and the row is settled.

Each attempt stores the bytes under a key of its own, and only one attempt settles the row. So if a process is killed, a
file exists as a whole or not at all, and is counted once or not at all. Leftovers of an attempt are deleted with the
file, or by the sweep.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select, update

from baobab.storage.objects.errors import StoreUnavailable, TooLarge
from baobab.storage.objects.store import ObjectInfo
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import AppMigrating, BaobabError, Call, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.guard.own_prefixes import is_covered, list_prefixes
from baobab.tools.core.guard.texts import find_origin, find_writer, is_own_text
from baobab.tools.files import quota
from baobab.tools.files.access import owner_of
from baobab.tools.files.errors import AlreadyStored, FileNotFound, LengthDiffers, StoreFailed, UploadRunning
from baobab.tools.files.quota import Usage
from baobab.tools.files.schemas import StoredFile
from baobab.tools.files.signed_urls import UPLOAD_SECONDS, build_published_url
from baobab.tools.files.tables import FREEZES, PENDING, build_folder, file_parts, files_table, own_folders
from baobab.tools.files.toolset import DELETED, STORED

Row = Any
"""A row of `files_table`."""
_ERASE, _ERASE_MANY = "files_erase", "files_erase_many"
_MOST_NAMESAKES = 100
_columns = files_table.c


class Receiving:
    """The files whose bytes this process is receiving. Each file has one request at a time, so that repeated requests
    cannot fill the disk.
    """

    def __init__(self, services: Services) -> None:
        self.ids: set[str] = set()


async def reserve(
    call: Call,
    unit: Unit,
    *,
    filename: str,
    content_type: str,
    size: int,
    public: bool,
    seconds: int = UPLOAD_SECONDS,
    **values: Any,
) -> tuple[Row, Usage]:
    """Inserts the row of a file without bytes, which belongs to the caller and reserves room for some seconds.

    Returns the row and the usage of the app with it. Raises ContentTypeRefused, FileTooLarge, QuotaExceeded or
    TooManyUploads. unit: holds the app's lock. values: of further columns.
    """
    app, now, user_id = call.require_app(), call.now, owner_of(call.caller)
    quota.require_allowed(app, content_type, size)
    await quota.require_few_pending(unit.execute, app.id, user_id, now)
    usage = await quota.require_room(unit, app, user_id, size, now)
    row = {
        "app_id": app.id,
        "id": call.services.ids.uuid_at(now),
        "user_id": user_id,
        "filename": filename,
        "content_type": content_type,
        "writer": find_writer(call),
        "size_bytes": size,
        "public": public,
        "created_at": now,
        "reserved_until": now + timedelta(seconds=seconds),
        **values,
    }
    inserted_row = (await unit.execute(insert(files_table).values(row).returning(files_table))).one()
    return inserted_row, replace(usage, reserved_bytes=usage.reserved_bytes + size)


async def receive(call: Call, row: Row, chunks: AsyncIterator[bytes], *, replaces: bool = False) -> None:
    """Stores the bytes of a reserved file and settles it.

    replaces: whether the owner's other files of its name are deleted. Raises LengthDiffers, UploadRunning, StoreFailed,
    the errors of `settle`, and those of `chunks`.
    """
    receiving = call.services.of(Receiving).ids
    if row.id in receiving:
        raise UploadRunning
    receiving.add(row.id)
    try:
        attempt = call.services.ids.uuid()
        key = build_folder(row.app_id, row.id) + attempt
        try:
            info = await call.stores.objects.put(key, chunks, content_type=row.content_type, max_bytes=row.size_bytes)
            if info.size != row.size_bytes:
                raise LengthDiffers(details={"expected_bytes": row.size_bytes, "received_bytes": info.size})
            await settle(call, row, attempt, info, replaces=replaces)
        except TooLarge as exc:
            raise LengthDiffers(details={"expected_bytes": row.size_bytes}) from exc
        except StoreUnavailable as exc:
            raise StoreFailed from exc
        except BaobabError:
            # The settling was refused, so nothing refers to these bytes. After other failures, the row may be settled.
            await call.stores.objects.delete(key)
            raise
    finally:
        receiving.discard(row.id)


async def settle(call: Call, row: Row, attempt: str, info: ObjectInfo, *, replaces: bool = False) -> None:
    """Records once that the bytes have arrived.

    Raises FileNotFound if the file was deleted meanwhile, AlreadyStored, AppMigrating, or QuotaExceeded if the upload
    took longer than its room was reserved for and others have taken the room.
    """
    app = call.require_app()
    if (await call.services.directory.app(app.id)).region != app.region:
        raise AppMigrating
    async with FREEZES.writing(call) as unit:
        origin = find_origin(call)
        # A copy has the name of a file that may come from outside, whoever makes it.
        origin["outside"] = origin["outside"] or row.writer == "outside"
        await settle_in(unit, call.services, app, row.id, attempt, info, origin)
        if replaces:
            await _delete_namesakes(call, unit, row)


async def _delete_namesakes(call: Call, unit: Unit, row: Row) -> None:
    """Deletes the stored files of the same name and owner, in the transaction that settles this one."""
    conditions = (_columns.app_id == row.app_id, _columns.filename == row.filename, _columns.id != row.id)
    of_same_owner = (_columns.user_id.is_not_distinct_from(row.user_id), ~PENDING)
    query = select(files_table).where(*conditions, *of_same_owner).order_by(_columns.id.desc()).limit(_MOST_NAMESAKES)
    for namesake in (await unit.execute(query)).all():
        await delete_file(call.services, unit, namesake, call.require_app().organisation_id)


async def settle_in(
    unit: Unit,
    services: Services,
    app: App,
    file_id: str,
    attempt: str,
    info: ObjectInfo,
    origin: Mapping[str, Any] | None = None,
) -> None:
    """Settles a file in a unit that holds the lock of an app that is not being moved. origin: who stores it."""
    now = services.clock.now()
    row = await find_row(unit.execute, app.id, file_id)
    if row is None:
        raise FileNotFound
    if row.stored_at is not None:
        raise AlreadyStored
    if row.reserved_until <= now:
        await quota.require_room(unit, app, row.user_id, row.size_bytes, now)
    values = {"stored_as": attempt, "sha256": info.sha256, "stored_at": now}
    await unit.execute(update(files_table).where(*is_file(app.id, file_id)).values(**values))
    await quota.count_file(unit, app.id, row.user_id, row.size_bytes)
    await services.jobs.emit(
        unit, STORED, app_id=app.id, data=_describe(row), tenant=app.organisation_id, origin=origin
    )


async def delete_file(services: Services, unit: Unit, row: Row, tenant: str | None = None) -> None:
    """Deletes the row of a file, in a unit that holds the app's lock, and enqueues the deletion of its bytes."""
    await unit.execute(delete(files_table).where(*is_file(row.app_id, row.id)))
    parts = file_parts.c
    await unit.execute(delete(file_parts).where(parts.app_id == row.app_id, parts.file_id == row.id))
    if row.stored_at is not None:
        await quota.count_file(unit, row.app_id, row.user_id, -row.size_bytes, -1)
        await services.jobs.emit(
            unit, DELETED, app_id=row.app_id, data=_describe(row), tenant=tenant, only_awaited=True
        )
    await request_erasure(services, unit, row, tenant=tenant)


def _describe(row: Row) -> dict[str, Any]:
    """Returns what events tell of a file."""
    names = ("filename", "content_type", "size_bytes", "user_id")
    return {"object_id": row.id, "key": build_object_key(row), **{name: getattr(row, name) for name in names}}


async def delete_files(call: Call, unit: Unit, conditions: Sequence[ColumnElement[bool]]) -> Sequence[Row]:
    """Deletes the rows of files of the caller's app, in a unit that holds its lock, and enqueues the deletion of their
    bytes. Returns the rows.
    """
    app, services = call.require_app(), call.services
    rows = (await unit.execute(delete(files_table).where(*conditions).returning(files_table))).all()
    if not rows:
        return rows
    ids, parts = [row.id for row in rows], file_parts.c
    await unit.execute(delete(file_parts).where(parts.app_id == app.id, parts.file_id.in_(ids)))
    totals: dict[str | None, list[int]] = {}
    for row in rows:
        if row.stored_at is not None:
            total = totals.setdefault(row.user_id, [0, 0])
            total[0], total[1] = total[0] + row.size_bytes, total[1] + 1
            await services.jobs.emit(
                unit, DELETED, app_id=app.id, data=_describe(row), tenant=app.organisation_id, only_awaited=True
            )
    for user_id, (size, count) in totals.items():
        await quota.count_file(unit, app.id, user_id, -size, -count)
    arguments = {"app_id": app.id, "file_ids": ids}
    await services.jobs.enqueue(unit, _ERASE_MANY, arguments, tenant=app.organisation_id)
    return rows


async def choose_writer(call: Call, execute: Execute, row: Row) -> str | None:
    """Returns as whose text a file counts that gets another name, or is copied.

    It never becomes the app's own text by that: what comes from outside stays so, and a run of an agent cannot move
    what is not the app's own into a place that is.
    """
    if "outside" in (find_writer(call), row.writer) or row.user_id is not None:
        return "outside"
    if call.context.step is not None or call.approved_attempt is not None:
        folders = [each.prefix for each in await list_prefixes(execute, own_folders, row.app_id)]
        if not is_own_text(row.writer, in_own_place=is_covered(row.filename, folders)):
            return "outside"
    writer: str | None = row.writer
    return writer


async def delete_pending(
    services: Services, unit: Unit, app_id: str, ids: Sequence[str], conditions: Sequence[ColumnElement[bool]]
) -> None:
    """Deletes those of an app's files without bytes that still meet the conditions, and the parts that have
    arrived.
    """
    is_pending = (_columns.app_id == app_id, _columns.id.in_(ids), PENDING, *conditions)
    rows = (await unit.execute(delete(files_table).where(*is_pending).returning(_columns.id))).scalars()
    deleted_ids = list(rows)
    if deleted_ids:
        parts = file_parts.c
        await unit.execute(delete(file_parts).where(parts.app_id == app_id, parts.file_id.in_(deleted_ids)))
        await services.jobs.enqueue(unit, _ERASE_MANY, {"app_id": app_id, "file_ids": deleted_ids})


async def request_erasure(
    services: Services, unit: Unit, row: Row, *, keep: str = "", tenant: str | None = None
) -> None:
    """Enqueues the deletion of a file's bytes, which begins after the commit (jobs.py).

    keep: the name under which the bytes of a file that stays are stored; everything else of it is deleted.
    """
    arguments = {"app_id": row.app_id, "file_id": row.id, "keep": keep}
    await services.jobs.enqueue(unit, _ERASE, arguments, tenant=tenant)


def is_file(app_id: str, file_id: str) -> tuple[Any, Any]:
    """Returns the conditions for one row."""
    return _columns.app_id == app_id, _columns.id == file_id


async def find_row(execute: Execute, app_id: str, file_id: str, *conditions: Any) -> Any:
    return (await execute(select(files_table).where(*is_file(app_id, file_id), *conditions))).first()


def build_object_key(row: Row) -> str:
    """Returns the name by which clients know a file. The object store uses another name, which no caller chooses."""
    return f"{row.app_id}/{row.user_id or 'service'}/{row.id}_{row.filename}"


def describe(call: Call, row: Row) -> StoredFile:
    return {
        "id": row.id,
        "user_id": row.user_id,
        "key": build_object_key(row),
        "filename": row.filename,
        "content_type": row.content_type,
        "size_bytes": row.size_bytes,
        "public": row.public,
        "created_at": row.created_at,
        "metadata": row.metadata or {},
        "published_url": None if row.published_at is None else build_published_url(call, row.id),
    }


async def iterate(raw: bytes) -> AsyncIterator[bytes]:
    yield raw
