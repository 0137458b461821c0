"""/storage/{app_id}/content/{object_id}: the bytes of a file, at signed addresses."""

from typing import Annotated, Unpack

from pydantic import Field

from baobab.runtime.documents.thumbnails import MEDIA_TYPE
from baobab.tools.core import AppId, Audit, Call, Mcp, PerAddress, Rest, Text
from baobab.tools.core.errors import AlreadyExists, Damaged
from baobab.tools.core.signed_urls import Expires, Signature
from baobab.tools.core.stream import Body, Stream
from baobab.tools.files.access import BY_DOWNLOAD_URL, BY_THUMBNAIL_URL, BY_UPLOAD_URL
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
from baobab.tools.files.schemas import Bytes, Conditions, FileId, SizeBytes, StoredFile, normalise_type
from baobab.tools.files.serving import HEADERS, serve
from baobab.tools.files.storing import describe, find_row, receive
from baobab.tools.files.tables import PENDING
from baobab.tools.files.thumbnails import serve_thumbnail
from baobab.tools.files.toolset import files

RangeHeader = Annotated[str, Text(200), Field(description="One range of bytes, such as `bytes=0-1023`.")]

# An address counts by itself, so that nobody spends what the app's other calls need.
_UPLOADS, _DOWNLOADS = PerAddress(600, 60, per_app=True), PerAddress(3000, 60, per_app=True)
_THUMBNAILS = PerAddress(300, 60, per_app=True)
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
    return describe(row)


def _choose_status(stream: Stream) -> int:
    if stream.is_unchanged:
        return 304
    return 206 if stream.is_part else 200


@files.tool(
    "GET /content/{object_id}",
    access=BY_DOWNLOAD_URL,
    effect="read",
    raises=(FileNotFound, RangeNotSatisfiable, StoreFailed, Damaged),
    limit=_DOWNLOADS,
    rest=Rest(
        status=_choose_status,
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
    range: RangeHeader = "",
    **conditions: Unpack[Conditions],
) -> Bytes:
    """Read the bytes of a file, or one range of them, at the address from op:files_download.

    A browser may show PNG, JPEG, GIF, WebP and AVIF pictures, audio, video and plain text. It saves everything else.
    """
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING)
    if row is None:
        raise FileNotFound
    return await serve(call, row, range, conditions, lifetime=expires - int(call.services.clock.time()))


@files.tool(
    "GET /content/{object_id}/thumbnail",
    access=BY_THUMBNAIL_URL,
    effect="read",
    raises=(FileNotFound, NoThumbnail, StoreFailed, Damaged),
    limit=_THUMBNAILS,
    rest=Rest(
        status=_choose_status,
        statuses=(200, 304),
        media_type=MEDIA_TYPE,
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
    """Read a small copy of a picture, in WebP, at the thumbnailUrl that op:files_download answered."""
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING)
    if row is None:
        raise FileNotFound
    return await serve_thumbnail(call, row, conditions, lifetime=expires - int(call.services.clock.time()))
