"""Small copies of pictures and of the first pages of PDFs, drawn when they are first asked for and then kept beside the
file's bytes.

Only few sizes, shapes and kinds can be asked for, so that a file has few copies. They are not counted in the app's
quota, and go with their file.
"""

import asyncio
import contextlib
import hashlib
import tempfile
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import IO, Any

from baobab.runtime.documents.document import UnreadableDocument
from baobab.runtime.documents.thumbnails import MOST_DRAWN, MOST_SOURCE, PictureKind, draw_picture
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.storage.objects.store import ObjectStore
from baobab.tools.core import Call, Services
from baobab.tools.core.stream import Stream
from baobab.tools.files.conditions import Version
from baobab.tools.files.errors import FileNotFound, NoThumbnail
from baobab.tools.files.schemas import Conditions, PictureShape, PictureSize
from baobab.tools.files.serving import add_headers, build_unchanged, read_bytes, translate_errors
from baobab.tools.files.storing import find_row
from baobab.tools.files.tables import PICTURE, THUMBNAIL, build_folder

_PDF = "application/pdf"
_LARGEST_AVIF = 640
"""Larger ones take seconds to draw, so that a reader gets them only where the address says so."""
_PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp", "image/avif", "image/tiff", _PDF)


@dataclass(frozen=True, slots=True)
class Drawing:
    """A small copy: the most pixels of a side, whether it is a square, and its kind. name: in the object store."""

    side: int
    is_square: bool
    kind: PictureKind
    name: str

    @property
    def media_type(self) -> str:
        return f"image/{self.kind}"


class Drawers:
    """The files of which this process draws copies: one at a time of each, however many readers ask."""

    def __init__(self, services: Services) -> None:
        self.slots = KeyedSemaphore(1)


SMALL = Drawing(side=320, is_square=False, kind="webp", name=THUMBNAIL)


def choose_drawing(
    row: Any, size: PictureSize, shape: PictureShape, kind: PictureKind | None, accepted_types: str
) -> Drawing:
    """Returns the copy of a file that is asked for.

    kind: None for the smallest of those that the reader takes. accepted_types: the reader's header Accept.
    """
    if kind is None:
        is_drawn = row.content_type.partition(";")[0] not in ("image/jpeg", "image/avif", "image/webp")
        other: PictureKind = "png" if is_drawn else "jpeg"
        takes_avif = "image/avif" in accepted_types and size <= _LARGEST_AVIF
        kind = "avif" if takes_avif else "webp" if "image/webp" in accepted_types else other
    return Drawing(size, shape == "square", kind, f"{PICTURE}{size}-{shape}.{kind}")


def may_have_thumbnail(row: Any) -> bool:
    return row.content_type.partition(";")[0] in _PICTURES and 0 < row.size_bytes <= MOST_SOURCE


async def serve_picture(
    call: Call, row: Any, drawing: Drawing, conditions: Conditions, *, cache_control: str
) -> tuple[Stream, int]:
    """Returns a small copy of a file that is stored, unless the reader has it, and how many bytes are sent.

    Raises NoThumbnail, FileNotFound where the file is deleted meanwhile, StoreFailed, Damaged, Unavailable.
    """
    if not may_have_thumbnail(row):
        raise NoThumbnail
    picture = await _read_kept(call.stores.objects, row, drawing)
    if picture is None:
        async with call.services.of(Drawers).slots.acquire_slot(row.id):
            picture = await _draw_once(call, row, drawing)
    if not picture:
        raise NoThumbnail("No small copy can be drawn of this file: it is damaged or too large.")
    version = Version(f'"{hashlib.sha256(picture).hexdigest()}"', row.stored_at)
    add_headers(call, **version.headers, cache_control=cache_control)
    if version.is_known(conditions):
        return build_unchanged(drawing.media_type), 0
    add_headers(call, content_length=str(len(picture)), content_disposition="inline")
    content = picture if call.context.method != "HEAD" else b""
    return Stream(_iterate(content), drawing.media_type), len(content)


async def _draw_once(call: Call, row: Any, drawing: Drawing) -> bytes:
    """Returns a copy that another request has drawn meanwhile, or draws it."""
    picture = await _read_kept(call.stores.objects, row, drawing)
    if picture is None:
        # What cannot be drawn in one size is not tried in others.
        is_refused = await _read_kept(call.stores.objects, row, SMALL) == b""
        picture = b"" if is_refused else await _draw(call, row, drawing)
    return picture


async def _read_kept(objects: ObjectStore, row: Any, drawing: Drawing) -> bytes | None:
    """Returns a copy that was drawn before; no bytes where it could not be drawn."""
    with translate_errors():
        reader = await objects.get(build_folder(row.app_id, row.id) + drawing.name)
        if reader is None:
            return None
        async with contextlib.aclosing(reader):
            return b"".join([piece async for piece in reader])


async def _draw(call: Call, row: Any, drawing: Drawing) -> bytes:
    """Draws a copy and keeps it. What cannot be drawn is kept as no bytes, so that it is tried once."""
    folder = build_folder(row.app_id, row.id)
    objects = call.stores.objects
    file = await asyncio.to_thread(_make_file)
    try:
        async for piece in read_bytes(objects, folder + row.stored_as, 0, row.size_bytes):
            await asyncio.to_thread(_write, file, piece)
        await asyncio.to_thread(file.seek, 0)
        is_pdf = row.content_type.partition(";")[0] == _PDF
        picture = await draw_picture(file, drawing.side, drawing.kind, is_square=drawing.is_square, is_pdf=is_pdf)
    except UnreadableDocument:
        picture = b""
    finally:
        await asyncio.to_thread(file.close)
    with translate_errors():
        await objects.put(
            folder + drawing.name, _iterate(picture), content_type=drawing.media_type, max_bytes=MOST_DRAWN
        )
    async with call.reading() as execute:
        is_there = await find_row(execute, row.app_id, row.id) is not None
    if not is_there:
        # Its bytes may have been deleted before this was put.
        await objects.delete(folder + drawing.name)
        raise FileNotFound
    return picture


def _make_file() -> IO[bytes]:
    """Returns a file without a name, which vanishes with the process."""
    return tempfile.TemporaryFile()


def _write(file: IO[bytes], piece: bytes) -> None:
    file.write(piece)


async def _iterate(picture: bytes) -> AsyncGenerator[bytes, None]:
    yield picture
