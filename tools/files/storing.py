"""How a file gets its bytes: its room is reserved, the bytes are stored, the row is settled.

Each attempt stores the bytes under a key of its own, and only one attempt settles the row. So a process that is killed
anywhere leaves a file that is there as a whole or not at all, and is counted once or not at all. What an attempt has
left is deleted with the file, or by the sweep.
"""

from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from sqlalchemy import insert, select, update

from baobab.storage.database import Execute, Unit
from baobab.storage.objects.errors import StoreUnavailable, TooLarge
from baobab.storage.objects.store import ObjectInfo
from baobab.tools.core.call import Call
from baobab.tools.core.errors import AppMigrating, BaobabError
from baobab.tools.core.services import Services
from baobab.tools.files import quota
from baobab.tools.files.errors import AlreadyStored, FileNotFound, LengthDiffers, StoreFailed, UploadRunning
from baobab.tools.files.quota import Usage
from baobab.tools.files.schemas import StoredFile
from baobab.tools.files.signed_urls import UPLOAD_SECONDS
from baobab.tools.files.tables import FREEZES, build_file_id, build_folder, files_table

STORED = "file.stored"
"""The event of a file whose bytes have arrived."""
Row = Any
"""A row of `files_table`."""
_columns = files_table.c


class Receiving:
    """The files whose bytes this process receives now: one request for each, so that repeating fills no disk."""

    def __init__(self, services: Services) -> None:
        self.ids: set[str] = set()


async def reserve(
    call: Call, unit: Unit, *, user_id: str | None, filename: str, content_type: str, size: int, public: bool
) -> tuple[Row, Usage]:
    """Inserts the row of a file without bytes, which holds room in the app's quota for as long as its address lives.

    Raises ContentTypeRefused, FileTooLarge, QuotaExceeded, TooManyUploads. unit: holds the app's lock.
    """
    app, now = call.require_app(), call.now
    quota.require_allowed(app, content_type, size)
    await quota.require_few_pending(unit.execute, app.id, user_id, now)
    usage = await quota.require_room(unit.execute, app, size, now)
    row = {
        "app_id": app.id,
        "id": build_file_id(call.services.ids, now),
        "user_id": user_id,
        "filename": filename,
        "content_type": content_type,
        "size_bytes": size,
        "public": public,
        "created_at": now,
        "reserved_until": now + timedelta(seconds=UPLOAD_SECONDS),
    }
    inserted = (await unit.execute(insert(files_table).values(row).returning(files_table))).one()
    return inserted, usage


async def receive(call: Call, row: Row, chunks: AsyncIterator[bytes]) -> None:
    """Stores the bytes of a reserved file, and settles it.

    Raises LengthDiffers, UploadRunning, StoreFailed, what `settle` raises, and whatever `chunks` raises.
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
            await settle(call, row, attempt, info)
        except TooLarge as exc:
            raise LengthDiffers(details={"expected_bytes": row.size_bytes}) from exc
        except StoreUnavailable as exc:
            raise StoreFailed from exc
        except BaobabError:
            # It was refused, so nothing refers to these bytes. After another failure the row may have been settled.
            await call.stores.objects.delete(key)
            raise
    finally:
        receiving.discard(row.id)


async def settle(call: Call, row: Row, attempt: str, info: ObjectInfo) -> None:
    """Records that the bytes have arrived, once.

    Raises FileNotFound if the file was deleted meanwhile, AlreadyStored, AppMigrating, and QuotaExceeded if the upload
    took longer than its room was reserved for and others have taken it.
    """
    app = call.require_app()
    if (await call.services.directory.app(app.id)).region != app.region:
        raise AppMigrating
    async with FREEZES.writing(call) as unit:
        now = call.now
        current = await find_row(unit.execute, app.id, row.id)
        if current is None:
            raise FileNotFound
        if current.stored_at is not None:
            raise AlreadyStored
        if current.reserved_until <= now:
            await quota.require_room(unit.execute, app, current.size_bytes, now)
        values = {"stored_as": attempt, "sha256": info.sha256, "stored_at": now}
        await unit.execute(update(files_table).where(*is_file(app.id, row.id)).values(**values))
        await quota.count_file(unit, app.id, current.size_bytes)
        data = {
            "object_id": row.id,
            "key": build_object_key(row),
            "filename": row.filename,
            "content_type": row.content_type,
            "size_bytes": row.size_bytes,
            "user_id": row.user_id,
        }
        await call.services.jobs.emit(unit, STORED, app_id=app.id, data=data, tenant=app.organisation_id)


def is_file(app_id: str, file_id: str) -> tuple[Any, Any]:
    """The conditions for one row."""
    return _columns.app_id == app_id, _columns.id == file_id


async def find_row(execute: Execute, app_id: str, file_id: str, *conditions: Any) -> Any:
    return (await execute(select(files_table).where(*is_file(app_id, file_id), *conditions))).first()


def build_object_key(row: Row) -> str:
    """Returns the name by which clients know a file; the object store has another one, which no caller has chosen."""
    return f"{row.app_id}/{row.user_id or 'service'}/{row.id}_{row.filename}"


def describe(row: Row) -> StoredFile:
    return {
        "id": row.id,
        "user_id": row.user_id,
        "key": build_object_key(row),
        "filename": row.filename,
        "content_type": row.content_type,
        "size_bytes": row.size_bytes,
        "public": row.public,
        "created_at": row.created_at,
    }
