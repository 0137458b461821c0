"""Small copies of pictures, drawn when they are first asked for and then kept beside the file's bytes.

They are not counted in the app's quota: each has a few KB, and goes with its file.
"""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncGenerator
from typing import IO, Any

from baobab.runtime.documents.document import UnreadableDocument
from baobab.runtime.documents.thumbnails import MEDIA_TYPE, MOST_SOURCE, draw_thumbnail
from baobab.storage.objects.store import ObjectStore
from baobab.tools.core import Call
from baobab.tools.core.stream import Stream
from baobab.tools.files.conditions import Version
from baobab.tools.files.errors import FileNotFound, NoThumbnail
from baobab.tools.files.schemas import Conditions
from baobab.tools.files.serving import (
    add_headers,
    build_cache_control,
    build_unchanged,
    read_bytes,
    translate_errors,
)
from baobab.tools.files.storing import find_row
from baobab.tools.files.tables import THUMBNAIL, build_folder

_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif")
_MOST_BYTES = 2**20


def may_have_thumbnail(row: Any) -> bool:
    return row.content_type.partition(";")[0] in _PICTURES and 0 < row.size_bytes <= MOST_SOURCE


async def serve_thumbnail(call: Call, row: Any, conditions: Conditions, *, lifetime: int) -> Stream:
    """Returns the thumbnail of a file that is stored, unless the reader has it. lifetime: as of `serve`.

    Raises NoThumbnail, FileNotFound where the file is deleted meanwhile, StoreFailed, Damaged, Unavailable.
    """
    if not may_have_thumbnail(row):
        raise NoThumbnail
    picture = await _read_kept(call.stores.objects, row)
    if picture is None:
        picture = await _draw(call, row)
    if not picture:
        raise NoThumbnail("No thumbnail can be drawn of this picture: it is damaged or too large.")
    version = Version(f'"{hashlib.sha256(picture).hexdigest()}"', row.stored_at)
    add_headers(call, **version.headers, cache_control=build_cache_control(row, lifetime))
    if version.is_known(conditions):
        return build_unchanged(MEDIA_TYPE)
    add_headers(call, content_length=str(len(picture)), content_disposition="inline")
    return Stream(_iterate(picture if call.context.method != "HEAD" else b""), MEDIA_TYPE)


async def _read_kept(objects: ObjectStore, row: Any) -> bytes | None:
    """Returns the thumbnail that was drawn before; no bytes where it could not be drawn."""
    with translate_errors():
        reader = await objects.get(build_folder(row.app_id, row.id) + THUMBNAIL)
        if reader is None:
            return None
        async with contextlib.aclosing(reader):
            return b"".join([piece async for piece in reader])


async def _draw(call: Call, row: Any) -> bytes:
    """Draws the thumbnail and keeps it. What cannot be drawn is kept as no bytes, so that it is tried once."""
    folder = build_folder(row.app_id, row.id)
    objects = call.stores.objects
    file = await asyncio.to_thread(_make_file)
    try:
        async for piece in read_bytes(objects, folder + row.stored_as, 0, row.size_bytes):
            await asyncio.to_thread(_write, file, piece)
        await asyncio.to_thread(file.seek, 0)
        picture = await draw_thumbnail(file)
    except UnreadableDocument:
        picture = b""
    finally:
        await asyncio.to_thread(file.close)
    with translate_errors():
        await objects.put(folder + THUMBNAIL, _iterate(picture), content_type=MEDIA_TYPE, max_bytes=_MOST_BYTES)
    async with call.reading() as execute:
        is_there = await find_row(execute, row.app_id, row.id) is not None
    if not is_there:
        # Its bytes may have been deleted before this was put.
        await objects.delete(folder + THUMBNAIL)
        raise FileNotFound
    return picture


def _make_file() -> IO[bytes]:
    """Returns a file without a name, which vanishes with the process."""
    return tempfile.TemporaryFile()


def _write(file: IO[bytes], piece: bytes) -> None:
    file.write(piece)


async def _iterate(picture: bytes) -> AsyncGenerator[bytes, None]:
    yield picture
