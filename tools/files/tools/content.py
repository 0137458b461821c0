"""/storage/{app_id}/content/{object_id}: the bytes of a file, at signed addresses."""

from typing import Annotated, Unpack

from pydantic import Field

from baobab.runtime.documents.thumbnails import PictureKind
from baobab.tools.core import AppId, Audit, Call, Mcp, PerAddress, Rest, Text
from baobab.tools.core.errors import AlreadyExists, Damaged
from baobab.tools.core.signed_urls import Expires, Signature
from baobab.tools.core.stream import Body, Stream
from baobab.tools.files.access import BY_DOWNLOAD_URL, BY_PICTURE_URL, BY_THUMBNAIL_URL, BY_UPLOAD_URL
from baobab.tools.files.conditions import HEADERS as CONDITIONS
from baobab.tools.files.errors import (
    AlreadyStored,
    ContentTypeDiffers,
    FileNotFound,
    LengthDiffers,
    NoThumbnail,
    QuotaExceeded,
    RangeNotSatisfiable,
    StoreFailed,
    UploadRunning,
)
from baobab.tools.files.schemas import (
    Bytes,
    Conditions,
    FileId,
    Filename,
    PictureShape,
    PictureSize,
    SizeBytes,
    StoredFile,
    normalise_type,
)
from baobab.tools.files.serving import HEADERS, build_cache_control, serve
from baobab.tools.files.storing import describe, find_row, receive
from baobab.tools.files.tables import PENDING
from baobab.tools.files.thumbnails import SMALL, choose_drawing, serve_picture
from baobab.tools.files.toolset import files

AcceptHeader = Annotated[str, Text(2000), Field(description="The media types that the reader takes.")]
RangeHeader = Annotated[str, Text(200), Field(description="One range of bytes, such as `bytes=0-1023`.")]

# An address counts by itself, so that nobody spends what the app's other calls need.
_UPLOADS, DOWNLOADS = PerAddress(600, 60, per_app=True), PerAddress(3000, 60, per_app=True)
PICTURES = PerAddress(300, 60, per_app=True)
# Without a format in the address, the answer follows from what the reader takes.
PICTURE_HEADERS = {**HEADERS, "vary": "Origin, Accept"}
STORING = (FileNotFound, AlreadyStored, UploadRunning, AlreadyExists, LengthDiffers, QuotaExceeded, StoreFailed)


@files.tool(
    "PUT /content/{object_id}",
    access=BY_UPLOAD_URL,
    effect="write",
    raises=(ContentTypeDiffers, *STORING),
    limit=_UPLOADS,
    audit=Audit("storage.store", category="storage", action="create", resource="file"),
    rest=Rest(raw_body="content", query=("type", "size", "expires", "signature")),
    mcp=Mcp(offered=False),
)
async def files_store(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    content: Body,
    type: Annotated[str, Text(255)] = "",
    size: SizeBytes = 0,
    expires: Expires = 0,
    signature: Signature = "",
) -> StoredFile:
    """Send the bytes of a file to the address from op:files_upload, once.

    The type and the length must be those that were announced. If the connection breaks before the last byte, nothing is
    stored, and you can use the same address again until it expires.

    content: the bytes.
    type: the announced content type.
    size: the announced length in bytes.
    """
    sent_type = normalise_type(content.content_type or "application/octet-stream")
    # Browsers add the charset to the type of a text by themselves. What is kept is the announced type.
    if type not in (sent_type, sent_type.partition(";")[0].rstrip()):
        raise ContentTypeDiffers(details={"expected_type": type, "received_type": content.content_type[:200]})
    if content.size is not None and content.size != size:
        raise LengthDiffers(details={"expected_bytes": size, "received_bytes": content.size})
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id)
    if row is None:
        raise FileNotFound
    if row.stored_at is not None:
        raise AlreadyStored
    await receive(call, row, content.chunks)
    call.audit.resource_id = object_id
    call.audit.actor, call.audit.actor_id = "signed_url", row.user_id
    return describe(call, row)


def choose_status(stream: Stream) -> int:
    if stream.is_unchanged:
        return 304
    return 206 if stream.is_part else 200


@files.tool(
    "GET /content/{object_id}",
    access=BY_DOWNLOAD_URL,
    effect="read",
    raises=(FileNotFound, RangeNotSatisfiable, StoreFailed, Damaged),
    limit=DOWNLOADS,
    rest=Rest(
        status=choose_status,
        statuses=(200, 206, 304),
        media_type="application/octet-stream",
        headers=HEADERS,
        from_headers={"range": "range", **CONDITIONS},
        apart=True,
    ),
    mcp=Mcp(offered=False),
)
async def files_content(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    expires: Expires = 0,
    signature: Signature = "",
    download: Filename | None = None,
    range: RangeHeader = "",
    **conditions: Unpack[Conditions],
) -> Bytes:
    """Read the bytes of a file, or one range of them, at the address from op:files_download.

    A browser may show PNG, JPEG, GIF, WebP and AVIF pictures, audio, video and plain text. It saves everything else.

    download: the name under which a browser saves it, whatever it is; null: as its type has it.
    """
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING)
    if row is None:
        raise FileNotFound
    cache_control = build_cache_control(row, expires - int(call.services.clock.time()))
    stream, _ = await serve(call, row, range, conditions, cache_control=cache_control, download=download)
    return stream


@files.tool(
    "GET /content/{object_id}/thumbnail",
    access=BY_THUMBNAIL_URL,
    effect="read",
    raises=(FileNotFound, NoThumbnail, StoreFailed, Damaged),
    limit=PICTURES,
    rest=Rest(
        status=choose_status,
        statuses=(200, 304),
        media_type=SMALL.media_type,
        headers=HEADERS,
        from_headers=CONDITIONS,
        apart=True,
    ),
    mcp=Mcp(offered=False),
)
async def files_thumbnail(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    expires: Expires = 0,
    signature: Signature = "",
    **conditions: Unpack[Conditions],
) -> Bytes:
    """Read a small copy of a picture or of a PDF's first page, in WebP, at the thumbnailUrl from op:files_download."""
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING)
    if row is None:
        raise FileNotFound
    cache_control = build_cache_control(row, expires - int(call.services.clock.time()))
    stream, _ = await serve_picture(call, row, SMALL, conditions, cache_control=cache_control)
    return stream


@files.tool(
    "GET /content/{object_id}/picture",
    access=BY_PICTURE_URL,
    effect="read",
    raises=(FileNotFound, NoThumbnail, StoreFailed, Damaged),
    limit=PICTURES,
    rest=Rest(
        status=choose_status,
        statuses=(200, 304),
        media_type="image/*",
        headers=PICTURE_HEADERS,
        from_headers={"accept": "accept", **CONDITIONS},
        apart=True,
    ),
    mcp=Mcp(offered=False),
)
async def files_picture(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    size: PictureSize = 640,
    shape: PictureShape = "whole",
    format: PictureKind | None = None,
    expires: Expires = 0,
    signature: Signature = "",
    accept: AcceptHeader = "",
    **conditions: Unpack[Conditions],
) -> Bytes:
    """Read a copy of a picture or of a PDF's first page, at the pictureUrl from op:files_download.

    size: the most pixels of a side; a picture never becomes larger than it is.
    shape: `whole`, or `square` for its middle.
    format: null for the smallest that the reader takes.
    """
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING)
    if row is None:
        raise FileNotFound
    drawing = choose_drawing(row, size, shape, format, accept)
    cache_control = build_cache_control(row, expires - int(call.services.clock.time()))
    stream, _ = await serve_picture(call, row, drawing, conditions, cache_control=cache_control)
    return stream
