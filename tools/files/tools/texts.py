"""/storage/{app_id}/texts: small files as a part of the call, for models and for scripts."""

from typing import Annotated, Any

from pydantic import Field

from baobab.tools.core import AppId, Audit, Call, Guard, Mcp, Rest, Text, one_of
from baobab.tools.core.call import Preview
from baobab.tools.core.errors import Damaged
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.files.access import OF_RUNNING_APP, is_readable, note_files
from baobab.tools.files.errors import ContentInvalid, FileNotFound, NotText, StoreFailed
from baobab.tools.files.foresight import list_addition
from baobab.tools.files.schemas import (
    LONGEST_INLINE,
    MOST_READ,
    ContentType,
    Encoding,
    FileId,
    Filename,
    FileText,
    LocatedFile,
    Metadata,
    StoredFile,
    decode_content,
)
from baobab.tools.files.serving import read_bytes
from baobab.tools.files.storing import describe, find_row, iterate, receive, reserve
from baobab.tools.files.tables import FREEZES, PENDING, build_folder
from baobab.tools.files.tools.content import STORING
from baobab.tools.files.tools.objects import RESERVING
from baobab.tools.files.toolset import files

Content = Annotated[str, Text(LONGEST_INLINE), Field(description="The content: text, or bytes as base64.")]


async def _preview_put(
    call: Call, app_id: AppId, filename: Filename, content: Content, encoding: Encoding, **_arguments: Any
) -> Preview:
    del call, app_id
    return Preview(changes=list_addition(filename, content, encoding))


@files.tool(
    "POST /objects",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(*RESERVING, ContentInvalid, *STORING),
    audit=Audit("storage.put", category="storage", action="create", resource="file"),
    rest=Rest(
        status=201,
        max_body=2 * LONGEST_INLINE,
        examples={"filename": "notes/today.md", "contentType": "text/markdown", "content": "# Today"},
    ),
    guard=Guard(
        overwrites=True,
        widens={"public": one_of([True])},
        preview=_preview_put,
        as_app=AsApp(literal=("contentType", "encoding"), fills=("filename", "content"), names=("filename",)),
    ),
)
async def files_put(
    call: Call,
    app_id: AppId,
    filename: Filename,
    contentType: ContentType,
    content: Content,
    encoding: Encoding = "text",
    public: bool = False,
    metadata: Metadata | None = None,
) -> StoredFile:
    """Store a file of up to 1 MiB whose content is in the call. For larger files, use op:files_upload.

    encoding: `text` stores the content as UTF-8; `base64` decodes it first.
    public: whether every signed-in user of the app may download it.
    metadata: texts that are stored with it; null for none.
    """
    raw = decode_content(content, encoding)
    # Committed before the bytes are stored: whatever happens then, the sweep finds what is left of them.
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        row, _ = await reserve(
            call,
            unit,
            filename=filename,
            content_type=contentType,
            size=len(raw),
            public=public,
            metadata=metadata,
        )
    await receive(call, row, iterate(raw))
    call.audit.resource_id = row.id
    call.audit.data |= {"filename": filename, "size_bytes": len(raw), "public": public}
    return describe(call, row)


@files.tool(
    "GET /objects/{object_id}/text",
    access=OF_RUNNING_APP,
    effect="read",
    raises=(FileNotFound, NotText, StoreFailed, Damaged),
    taints=True,
)
async def files_read(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    offset: Annotated[int, Field(ge=0, le=2**40)] = 0,
    limit: Annotated[int, Field(ge=4, le=MOST_READ)] = MOST_READ,
) -> FileText:
    """Read a text file in UTF-8, up to 64 KiB at a time.

    offset: the byte to begin at; continue with `next_offset` of the previous part.
    limit: the most bytes to read.
    """
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING, *is_readable(call))
    if row is None:
        raise FileNotFound
    end = min(offset + limit, row.size_bytes)
    key = build_folder(row.app_id, row.id) + row.stored_as
    raw = b"".join([piece async for piece in read_bytes(call.stores.objects, key, min(offset, end), end)])
    await note_files(call, row)
    text, length = _decode_text(raw, is_end=end >= row.size_bytes)
    following = offset + length
    return {
        "id": row.id,
        "filename": row.filename,
        "content_type": row.content_type,
        "size_bytes": row.size_bytes,
        "text": text,
        "next_offset": following if following < row.size_bytes else None,
    }


@files.tool(access=OF_RUNNING_APP, effect="read", raises=(FileNotFound,), limit=None, mcp=Mcp(offered=False))
async def files_locate(call: Call, app_id: AppId, object_id: FileId) -> LocatedFile:
    """Tell other domains where the bytes of a file are, if the caller may read it."""
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING, *is_readable(call))
    if row is None:
        raise FileNotFound
    return {
        "id": row.id,
        "filename": row.filename,
        "content_type": row.content_type,
        "size_bytes": row.size_bytes,
        "sha256": row.sha256,
        "writer": "outside" if row.user_id is not None else row.writer,
        "store_key": build_folder(row.app_id, row.id) + row.stored_as,
    }


def _decode_text(raw: bytes, *, is_end: bool) -> tuple[str, int]:
    """Returns the text and its length in bytes, without a character that the part cuts off. Raises NotText."""
    try:
        return raw.decode(), len(raw)
    except UnicodeDecodeError as exc:
        if is_end or exc.start < len(raw) - 3 or exc.reason != "unexpected end of data":
            raise NotText from exc
        return raw[: exc.start].decode(), exc.start
