"""/storage/{app_id}/published/{object_id}: a file at its permanent address, for everybody while it is published."""

from typing import Unpack

from baobab.runtime.documents.thumbnails import PictureKind
from baobab.tools.core import AppId, Call, Mcp, Rest
from baobab.tools.core.errors import Damaged
from baobab.tools.core.traffic import BandwidthExceeded, TrafficCounter, require_bandwidth
from baobab.tools.files.access import VISITORS
from baobab.tools.files.conditions import HEADERS as CONDITIONS
from baobab.tools.files.errors import FileNotFound, NoThumbnail, RangeNotSatisfiable, StoreFailed
from baobab.tools.files.schemas import Bytes, Conditions, FileId, PictureShape, PictureSize
from baobab.tools.files.serving import serve
from baobab.tools.files.storing import find_row
from baobab.tools.files.tables import FREEZES, PENDING, file_traffic, files_table
from baobab.tools.files.thumbnails import choose_drawing, serve_picture
from baobab.tools.files.tools.content import DOWNLOADS, PICTURE_HEADERS, AcceptHeader, RangeHeader, choose_status
from baobab.tools.files.toolset import files

_CACHED = "public, no-cache"
"""Caches may keep it, but ask each time whether it is still published."""


class FileTraffic(TrafficCounter):
    """What published files have sent, as far as this process has not written it yet."""

    table, freezes = file_traffic, FREEZES


@files.tool(
    "GET /published/{object_id}",
    access=VISITORS,
    effect="read",
    raises=(FileNotFound, NoThumbnail, RangeNotSatisfiable, StoreFailed, Damaged, BandwidthExceeded),
    limit=DOWNLOADS,
    rest=Rest(
        status=choose_status,
        statuses=(200, 206, 304, 307),
        media_type="application/octet-stream",
        headers={**PICTURE_HEADERS, "cross-origin-resource-policy": "cross-origin"},
        from_headers={"range": "range", "accept": "accept", **CONDITIONS},
        apart=True,
        off_platform=True,
    ),
    mcp=Mcp(offered=False),
)
async def files_published(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    size: PictureSize | None = None,
    shape: PictureShape = "whole",
    format: PictureKind | None = None,
    download: bool = False,
    range: RangeHeader = "",
    accept: AcceptHeader = "",
    **conditions: Unpack[Conditions],
) -> Bytes:
    """Read a published file, without a credential, at the `published_url` of op:files_update.

    size: for a copy of a picture or of a PDF's first page, the most pixels of a side; null for the file itself.
    shape: of the copy: `whole`, or `square` for the middle.
    format: of the copy; null for the smallest that the reader takes.
    download: whether a browser saves it, whatever it is.
    """
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING, files_table.c.published_at.is_not(None))
        if row is None:
            raise FileNotFound
        await require_bandwidth(call, execute, file_traffic)
    if size is None:
        name = row.filename.rpartition("/")[2] if download else None
        stream, sent_bytes = await serve(
            call,
            row,
            range,
            conditions,
            cache_control=_CACHED,
            download=name,
            media_type=_choose_type(row.content_type),
        )
    else:
        drawing = choose_drawing(row, size, shape, format, accept)
        stream, sent_bytes = await serve_picture(call, row, drawing, conditions, cache_control=_CACHED)
    call.services.of(FileTraffic).add(app_id, call.now, sent_bytes)
    return stream


def _choose_type(content_type: str) -> str | None:
    """Returns the type of what must not be a script of a page on the same host; None for that of the file."""
    return "application/octet-stream" if "script" in content_type.partition(";")[0] else None
