"""/storage/{app_id}/uploads: uploads that go on after a broken connection, by the protocol tus 1.0 (tus.io)."""

import base64
import binascii
from datetime import datetime
from email.utils import format_datetime
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from baobab.tools.core import AppId, Audit, Call, Mcp, Rest, Text
from baobab.tools.core.errors import AlreadyExists
from baobab.tools.core.stream import Body
from baobab.tools.files.access import OF_RUNNING_APP, is_own
from baobab.tools.files.errors import (
    BodyTypeRefused,
    FileNotFound,
    FileTooLarge,
    LengthDiffers,
    MetadataInvalid,
    OffsetDiffers,
    QuotaExceeded,
    StoreFailed,
    TusVersionRefused,
)
from baobab.tools.files.parts import BEGUN_SECONDS, append, complete, read_offset, say_length
from baobab.tools.files.schemas import ContentType, FileId, Filename, Metadata, Progress, SizeBytes
from baobab.tools.files.serving import add_headers
from baobab.tools.files.storing import find_row, reserve
from baobab.tools.files.tables import FREEZES
from baobab.tools.files.tools.objects import RESERVING
from baobab.tools.files.toolset import TUS, files

Version = Annotated[str, Text(20), Field(description="The version of tus: 1.0.0.")]
Length = Annotated[str, Text(13, pattern="^[0-9]*$"), Field(description="The length of the file in bytes.")]
Deferral = Annotated[Literal["", "1"], Field(description="1 if the length is not known yet.")]
Offset = Annotated[str, Text(13, pattern="^[0-9]*$"), Field(description="How many bytes have arrived before.")]
SentMetadata = Annotated[
    str,
    # It is sent back as a header.
    Text(4096, pattern="^[ -~]*$"),
    Field(description="Pairs of a name and a value in base64: filename, filetype, public, and metadata as JSON."),
]
_FILENAME, _CONTENT_TYPE, _SIZE = TypeAdapter(Filename), TypeAdapter(ContentType), TypeAdapter(SizeBytes)
_METADATA: TypeAdapter[dict[str, str]] = TypeAdapter(Metadata)
_BODY = "application/offset+octet-stream"
_HEADERS = {"tus_resumable": "tus-resumable"}
_QUIET = Mcp(offered=False)


@files.tool(
    "POST /uploads",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(*RESERVING, MetadataInvalid, TusVersionRefused, StoreFailed, BodyTypeRefused, LengthDiffers, OffsetDiffers),
    audit=Audit("storage.upload", category="storage", action="create", resource="file"),
    rest=Rest(
        status=201,
        raw_body="content",
        query=("upload_length", "upload_defer_length", "upload_metadata", "tus_resumable"),
        headers={
            **TUS,
            "tus-version": "1.0.0",
            "tus-extension": "creation,creation-with-upload,creation-defer-length,expiration,termination",
        },
        from_headers={
            **_HEADERS,
            "upload_length": "upload-length",
            "upload_defer_length": "upload-defer-length",
            "upload_metadata": "upload-metadata",
        },
    ),
    mcp=_QUIET,
)
async def files_upload_begin(
    call: Call,
    app_id: AppId,
    content: Body,
    upload_length: Length = "",
    upload_defer_length: Deferral = "",
    upload_metadata: SentMetadata = "",
    tus_resumable: Version = "",
) -> Progress:
    """Begin a resumable upload (tus 1.0). The header Location says where to send its bytes.

    content: the first bytes of the file, or nothing.
    upload_defer_length: `1` in place of the length, which one of the requests that send bytes says then.
    """
    _require_version(tus_resumable)
    filename, content_type, public, metadata = _read_metadata(upload_metadata)
    is_deferred = bool(upload_defer_length)
    if is_deferred and upload_length:
        raise MetadataInvalid("Send Upload-Length or Upload-Defer-Length, and not both.")
    size = 0 if is_deferred else _read_length(upload_length)
    if public and call.caller.limits is not None:
        raise MetadataInvalid("A key with limits cannot make a file public.")
    if content.size and content.content_type != _BODY:
        raise BodyTypeRefused
    if content.size and content.size > size and not is_deferred:
        raise LengthDiffers(details={"expected_bytes": size})
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        row, _ = await reserve(
            call,
            unit,
            filename=filename,
            content_type=content_type,
            size=size,
            public=public,
            seconds=BEGUN_SECONDS,
            metadata=metadata,
            sent_metadata=upload_metadata or None,
            length_deferred=is_deferred or None,
        )
    received_bytes = 0
    if size == 0 and not is_deferred:
        # Nothing will arrive that could complete it.
        await complete(call.services, call.require_app(), call.stores, row)
    elif content.content_type == _BODY:
        received_bytes = await append(call, row, 0, content.chunks)
    call.audit.resource_id = row.id
    call.audit.data |= {"filename": filename, "size_bytes": size, "public": public}
    # Relative to the address of this request, which may be one on the app's own host.
    add_headers(
        call,
        location=f"uploads/{row.id}",
        upload_offset=str(received_bytes),
        upload_expires=_write_time(row.reserved_until),
    )
    return {"id": row.id, "received_bytes": received_bytes, "size_bytes": None if is_deferred else size}


@files.tool(
    "GET /uploads/{object_id}",
    access=OF_RUNNING_APP,
    effect="read",
    raises=(FileNotFound, TusVersionRefused),
    rest=Rest(headers={**TUS, "cache-control": "no-store"}, from_headers=_HEADERS),
    mcp=_QUIET,
)
async def files_upload_status(call: Call, app_id: AppId, object_id: FileId, tus_resumable: Version = "") -> Progress:
    """Read how many bytes of an upload have arrived. Clients of tus send HEAD."""
    if call.context.method == "HEAD":
        _require_version(tus_resumable)
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, *is_own(call.caller))
        if row is None:
            raise FileNotFound
        received_bytes = await read_offset(execute, row)
    add_headers(
        call,
        upload_offset=str(received_bytes),
        **({"upload_defer_length": "1"} if row.length_deferred else {"upload_length": str(row.size_bytes)}),
        upload_expires=_write_time(row.reserved_until),
        **({} if row.sent_metadata is None else {"upload_metadata": row.sent_metadata}),
    )
    size = None if row.length_deferred else row.size_bytes
    return {"id": row.id, "received_bytes": received_bytes, "size_bytes": size}


@files.tool(
    "PATCH /uploads/{object_id}",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(
        FileNotFound,
        OffsetDiffers,
        LengthDiffers,
        MetadataInvalid,
        FileTooLarge,
        QuotaExceeded,
        StoreFailed,
        BodyTypeRefused,
        AlreadyExists,
        TusVersionRefused,
    ),
    audit=Audit("storage.append", category="storage", action="update", resource="file", tallied=True),
    rest=Rest(
        status=204,
        raw_body="content",
        query=("upload_offset", "upload_length", "tus_resumable"),
        headers=TUS,
        from_headers={**_HEADERS, "upload_offset": "upload-offset", "upload_length": "upload-length"},
    ),
    mcp=_QUIET,
)
async def files_upload_append(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    content: Body,
    upload_offset: Offset = "",
    upload_length: Length = "",
    tus_resumable: Version = "",
) -> None:
    """Send the next bytes of an upload. The last ones complete the file.

    If the connection breaks, the bytes that have arrived stay.

    content: the bytes.
    upload_length: where the upload began without one: once, with any of its requests, also one without bytes.
    """
    _require_version(tus_resumable)
    if content.content_type != _BODY:
        raise BodyTypeRefused
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, *is_own(call.caller))
        if row is None:
            raise FileNotFound
        received_bytes = await read_offset(execute, row)
    if not upload_offset or int(upload_offset) != received_bytes:
        raise OffsetDiffers.at(received_bytes)
    if upload_length and row.stored_at is None:
        row = await say_length(call, row, _read_length(upload_length))
    is_bounded = not row.length_deferred
    if is_bounded and content.size is not None and received_bytes + content.size > row.size_bytes:
        raise LengthDiffers(details={"expected_bytes": row.size_bytes})
    if row.stored_at is None:
        received_bytes = await append(call, row, received_bytes, content.chunks)
    call.audit.resource_id = object_id
    add_headers(call, upload_offset=str(received_bytes))


def _read_length(text: str) -> int:
    try:
        return _SIZE.validate_python(int(text))
    except ValueError as exc:
        raise MetadataInvalid("Upload-Length is missing or too large.") from exc


def _require_version(version: str) -> None:
    if version != "1.0.0":
        raise TusVersionRefused(headers={"tus-version": "1.0.0"})


def _read_metadata(text: str) -> tuple[str, str, bool, dict[str, str] | None]:
    """Returns the file's name, its content type, whether it is public, and the texts stored with it. Raises
    MetadataInvalid.
    """
    values = {}
    try:
        for pair in filter(None, (pair.strip() for pair in text.split(","))):
            name, _, value = pair.partition(" ")
            values[name] = base64.b64decode(value, validate=True).decode()
        filename = _FILENAME.validate_python(values.get("filename") or values.get("name") or "file")
        content_type = _CONTENT_TYPE.validate_python(
            values.get("filetype") or values.get("contentType") or "application/octet-stream"
        )
        metadata = _METADATA.validate_json(values["metadata"]) if "metadata" in values else None
    except (binascii.Error, UnicodeDecodeError) as exc:
        raise MetadataInvalid("A value in Upload-Metadata is not the base64 of a text.") from exc
    except ValidationError as exc:
        raise MetadataInvalid(f"Upload-Metadata: {exc.errors()[0]['msg']}.") from exc
    return filename, content_type, values.get("public") == "true", metadata


def _write_time(moment: datetime) -> str:
    return format_datetime(moment, usegmt=True)
