"""Resumable uploads: each part is stored and recorded by itself, and the last part completes the file.

Parts follow each other without gaps, and only one request can add the next part. So after a broken connection or a
killed process, the client continues where the recorded parts end.
"""

import contextlib
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, update

from baobab.storage.objects.errors import StoreUnavailable
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import BaobabError, Call, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.errors import Damaged
from baobab.tools.core.stores import Stores
from baobab.tools.core.stream import ClientGone
from baobab.tools.files import quota
from baobab.tools.files.errors import AlreadyStored, FileNotFound, LengthDiffers, OffsetDiffers, StoreFailed
from baobab.tools.files.serving import read_bytes
from baobab.tools.files.storing import Row, find_row, is_file, request_erasure, settle_in
from baobab.tools.files.tables import FREEZES, build_folder, file_parts, files_table

BEGUN_SECONDS, KEPT_SECONDS = 3600, 24 * 3600
"""How long an upload keeps its room: before its first part, and after its latest."""
_PART_BYTES = 8 * 2**20
_columns = file_parts.c


class _Splitter:
    """Splits a body into parts. A body that breaks off ends like a complete one, and `is_broken_off` is then true."""

    def __init__(self, chunks: AsyncIterator[bytes]) -> None:
        self._chunks = chunks
        self._rest = b""
        self.is_broken_off = False

    async def has_more(self) -> bool:
        if not self._rest and not self.is_broken_off:
            try:
                self._rest = await anext(self._chunks, b"")
            except ClientGone:
                self.is_broken_off = True
        return bool(self._rest)

    async def read_part(self) -> AsyncIterator[bytes]:
        remaining_bytes = _PART_BYTES
        while remaining_bytes and await self.has_more():
            chunk, self._rest = self._rest[:remaining_bytes], self._rest[remaining_bytes:]
            remaining_bytes -= len(chunk)
            yield chunk


async def read_offset(execute: Execute, row: Row) -> int:
    """Returns the number of bytes that have arrived of a file."""
    if row.stored_at is not None:
        return int(row.size_bytes)
    query = select(func.coalesce(func.sum(_columns.size_bytes), 0)).where(*_are_of(row))
    return int((await execute(query)).scalar_one())


async def append(call: Call, row: Row, offset: int, chunks: AsyncIterator[bytes]) -> int:
    """Adds bytes to a file, and completes it with the last one. Returns the number of bytes that have arrived.

    Raises OffsetDiffers, LengthDiffers, FileNotFound, FileTooLarge, QuotaExceeded, StoreFailed, AppMigrating, or
    ClientGone after it has stored what arrived before.
    """
    splitter, objects = _Splitter(chunks), call.stores.objects
    try:
        while await splitter.has_more():
            attempt = call.services.ids.uuid()
            key = build_folder(row.app_id, row.id) + attempt
            info = await objects.put(
                key, splitter.read_part(), content_type="application/octet-stream", max_bytes=_PART_BYTES
            )
            try:
                await _record(call, row, offset, info.size, attempt)
            except BaobabError:
                await objects.delete(key)
                raise
            offset += info.size
        if offset == row.size_bytes and not row.length_deferred:
            await complete(call.services, call.require_app(), call.stores, row)
    except StoreUnavailable as exc:
        raise StoreFailed from exc
    if splitter.is_broken_off:
        raise ClientGone
    return offset


async def complete(services: Services, app: App, stores: Stores, row: Row) -> None:
    """Joins the parts of a file if all of them have arrived. Of several callers, the first one completes the file."""
    attempt = services.ids.uuid()
    key = build_folder(row.app_id, row.id) + attempt
    async with stores.database.reading() as connection:
        query = select(file_parts).where(*_are_of(row)).order_by(_columns.start_byte)
        parts = (await connection.execute(query)).all()
    if sum(part.size_bytes for part in parts) != row.size_bytes:
        return
    try:
        chunks = _read_parts(stores, row, parts)
        info = await stores.objects.put(key, chunks, content_type=row.content_type, max_bytes=row.size_bytes)
        async with stores.database.writing_unit(lock=app.id) as unit:
            await FREEZES.require_thawed(unit.execute, app.id)
            await settle_in(unit, services, app, row.id, attempt, info)
            await unit.execute(delete(file_parts).where(*_are_of(row)))
            await request_erasure(services, unit, row, keep=attempt, tenant=app.organisation_id)
    except BaobabError as error:
        await stores.objects.delete(key)
        # Another request was faster, and may have deleted the parts while they were read here.
        if not isinstance(error, AlreadyStored | Damaged) or not await _is_stored(stores, row):
            raise


async def _record(call: Call, row: Row, offset: int, size: int, attempt: str) -> None:
    """Records the next part in a transaction of its own, so that it stays whatever happens to the later ones."""
    app_id, now = row.app_id, call.now
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        current = await find_row(unit.execute, app_id, row.id)
        if current is None:
            raise FileNotFound
        received_bytes = await read_offset(unit.execute, current)
        if received_bytes != offset:
            raise OffsetDiffers.at(received_bytes)
        if current.length_deferred:
            await _grow(call, unit, current, offset + size)
        elif offset + size > current.size_bytes:
            raise LengthDiffers(details={"expected_bytes": current.size_bytes})
        elif current.reserved_until <= now:
            await quota.require_room(unit, call.require_app(), current.user_id, current.size_bytes, now)
        part = {"app_id": app_id, "file_id": row.id, "start_byte": offset, "size_bytes": size, "stored_as": attempt}
        await unit.execute(insert(file_parts), part)
        until = now + timedelta(seconds=KEPT_SECONDS)
        await unit.execute(update(files_table).where(*is_file(app_id, row.id)).values(reserved_until=until))


async def say_length(call: Call, row: Row, length: int) -> Row:
    """Records the length of an upload that began without one, and returns its row.

    Raises LengthDiffers for another length than was said, or less than has arrived, FileNotFound, FileTooLarge,
    QuotaExceeded or AppMigrating.
    """
    async with call.stores.database.writing_unit(lock=row.app_id) as unit:
        await FREEZES.require_thawed(unit.execute, row.app_id)
        current = await find_row(unit.execute, row.app_id, row.id)
        if current is None:
            raise FileNotFound
        if not current.length_deferred:
            if length != current.size_bytes:
                raise LengthDiffers(details={"expected_bytes": current.size_bytes})
            return current
        received_bytes = await read_offset(unit.execute, current)
        if length < received_bytes:
            raise LengthDiffers(details={"received_bytes": received_bytes})
        await _grow(call, unit, current, length, length_deferred=None)
        said_row = await find_row(unit.execute, row.app_id, row.id)
        assert said_row is not None
        return said_row


async def _grow(call: Call, unit: Unit, row: Row, size: int, **values: Any) -> None:
    """Reserves room for an upload up to a size. Raises FileTooLarge or QuotaExceeded."""
    app, now = call.require_app(), call.now
    quota.require_allowed(app, row.content_type, size)
    reserved_bytes = row.size_bytes if row.reserved_until > now else 0
    await quota.require_room(unit, app, row.user_id, size - reserved_bytes, now)
    await unit.execute(update(files_table).where(*is_file(row.app_id, row.id)).values(size_bytes=size, **values))


async def _read_parts(stores: Stores, row: Row, parts: Any) -> AsyncIterator[bytes]:
    folder = build_folder(row.app_id, row.id)
    for part in parts:
        async with contextlib.aclosing(
            read_bytes(stores.objects, folder + part.stored_as, 0, part.size_bytes)
        ) as pieces:
            async for piece in pieces:
                yield piece


async def _is_stored(stores: Stores, row: Row) -> bool:
    async with stores.database.reading() as connection:
        current = await find_row(connection.execute, row.app_id, row.id)
    return current is not None and current.stored_at is not None


def _are_of(row: Row) -> tuple[Any, Any]:
    return _columns.app_id == row.app_id, _columns.file_id == row.id
