"""/storage/{app_id}/named/{key}: files by their names. Graphs know these as `read_storage` and `write_storage`."""

import base64
from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from baobab.tools.core import AppId, Audit, Call, Guard, Mcp, NotSecret, Rest, Text
from baobab.tools.core.call import GraphName, Preview
from baobab.tools.core.errors import Damaged
from baobab.tools.core.guard.app_rights import AsApp
from baobab.tools.files.access import OF_RUNNING_APP, is_readable, note_files
from baobab.tools.files.errors import ContentAmbiguous, ContentInvalid, FileNotFound, StoreFailed
from baobab.tools.files.foresight import list_replacement
from baobab.tools.files.schemas import (
    LONGEST_INLINE,
    MOST_INLINE,
    MOST_NAMED,
    ContentType,
    Filename,
    NamedFile,
    StoredFile,
    decode_content,
)
from baobab.tools.files.serving import read_bytes
from baobab.tools.files.storing import describe, iterate, receive, reserve
from baobab.tools.files.tables import FREEZES, PENDING, build_folder, files_table
from baobab.tools.files.tools.content import STORING
from baobab.tools.files.tools.objects import RESERVING
from baobab.tools.files.toolset import files

_columns = files_table.c
FileKey = Annotated[Filename, NotSecret("the name that the caller gave a file")]
Base64 = Annotated[
    str, Text(LONGEST_INLINE), Field(description="The bytes as base64, up to 1 MiB of them. Send this or `content`.")
]
PlainText = Annotated[str, Text(MOST_INLINE), Field(description="A text, which is stored as UTF-8: up to 1 MiB.")]


def _decode(content: str | None, content_base64: str | None) -> bytes:
    if (content is None) == (content_base64 is None):
        raise ContentAmbiguous
    return decode_content(content, "text") if content is not None else decode_content(content_base64 or "", "base64")


async def _preview(
    call: Call,
    app_id: AppId,
    key: FileKey,
    content_base64: Base64 | None,
    content: PlainText | None,
    content_type: ContentType | None,
) -> Preview:
    del content_type
    return Preview(changes=await list_replacement(call, app_id, key, _decode(content, content_base64)))


@files.tool(
    "PUT /named/{key:path}",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(*RESERVING, ContentInvalid, ContentAmbiguous, *STORING),
    audit=Audit("storage.put", category="storage", action="update", resource="file"),
    rest=Rest(
        max_body=2 * LONGEST_INLINE, examples={"content_base64": "IyBUb2RheQ==", "content_type": "text/markdown"}
    ),
    mcp=Mcp(graph_names=(GraphName("write_storage", for_users=False),)),
    guard=Guard(
        preview=_preview,
        as_app=AsApp(literal=("content_type",), fills=("key", "content_base64", "content"), names=("key",)),
    ),
)
async def files_write_named(
    call: Call,
    app_id: AppId,
    key: FileKey,
    content_base64: Base64 | None = None,
    content: PlainText | None = None,
    content_type: ContentType | None = None,
) -> StoredFile:
    """Store a file under a name, in place of your earlier files with this name: the app's own, or the user's.

    The earlier file stays until the new one is stored, so both need space for a moment. Of two calls at once, the last
    one stays.

    key: the file's name; slashes may divide it.
    content_type: by default `text/plain; charset=utf-8` for `content`, and `application/octet-stream` for bytes.
    """
    raw = _decode(content, content_base64)
    if content_type is None:
        content_type = "application/octet-stream" if content is None else "text/plain; charset=utf-8"
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        row, _ = await reserve(call, unit, filename=key, content_type=content_type, size=len(raw), public=False)
    await receive(call, row, iterate(raw), replaces=True)
    call.audit.resource_id = row.id
    call.audit.data |= {"filename": key, "size_bytes": len(raw)}
    return describe(call, row)


def _read_text(raw: bytes) -> str | None:
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return None


@files.tool(
    "GET /named/{key:path}",
    access=OF_RUNNING_APP,
    effect="read",
    raises=(FileNotFound, StoreFailed, Damaged),
    taints=True,
    mcp=Mcp(graph_names=(GraphName("read_storage"),)),
)
async def files_read_named(call: Call, app_id: AppId, key: FileKey) -> NamedFile:
    """Read a file by its name: the latest that you may see. Up to 256 KiB, its bytes are in the answer.

    key: the file's name.
    """
    conditions = (_columns.app_id == app_id, _columns.filename == key, ~PENDING, *is_readable(call))
    query = select(files_table).where(*conditions).order_by(_columns.id.desc()).limit(1)
    async with call.reading() as execute:
        row = (await execute(query)).first()
    if row is None:
        raise FileNotFound
    await note_files(call, row)
    content, text = None, None
    if row.size_bytes <= MOST_NAMED:
        object_key = build_folder(row.app_id, row.id) + row.stored_as
        pieces = [piece async for piece in read_bytes(call.stores.objects, object_key, 0, row.size_bytes)]
        raw = b"".join(pieces)
        content, text = base64.b64encode(raw).decode(), _read_text(raw)
    return {
        "id": row.id,
        "key": row.filename,
        "content_type": row.content_type,
        "size_bytes": row.size_bytes,
        "content_base64": content,
        "content": text,
    }
