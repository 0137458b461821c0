"""/storage/{app_id}/named/{key}: files by their names. Graphs know these as `read_storage` and `write_storage`."""

import base64
from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from baobab.tools.core.app_rights import AsApp
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call, GraphName
from baobab.tools.core.changes import Change
from baobab.tools.core.errors import Damaged
from baobab.tools.core.secret import NotSecret
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import AppId, Text
from baobab.tools.files.access import OF_RUNNING_APP, is_readable, note_files
from baobab.tools.files.errors import ContentInvalid, FileNotFound, StoreFailed
from baobab.tools.files.foresight import list_replacement
from baobab.tools.files.schemas import (
    LONGEST_INLINE,
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
Base64 = Annotated[str, Text(LONGEST_INLINE), Field(description="The bytes as base64, up to 1 MiB of them.")]


async def _list_changes(
    call: Call, app_id: AppId, key: FileKey, content_base64: Base64, content_type: ContentType
) -> list[Change]:
    del content_type
    return await list_replacement(call, app_id, key, content_base64, "base64")


@files.tool(
    "PUT /named/{key:path}",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(*RESERVING, ContentInvalid, *STORING),
    audit=Audit("storage.put", category="storage", action="update", resource="file"),
    rest=Rest(
        max_body=2 * LONGEST_INLINE, examples={"content_base64": "IyBUb2RheQ==", "content_type": "text/markdown"}
    ),
    mcp=Mcp(graph_names=(GraphName("write_storage", for_users=False),)),
    guard=Guard(
        changes=_list_changes,
        as_app=AsApp(literal=("content_type",), fills=("key", "content_base64"), names=("key",)),
    ),
)
async def files_write_named(
    call: Call,
    app_id: AppId,
    key: FileKey,
    content_base64: Base64,
    content_type: ContentType = "application/octet-stream",
) -> StoredFile:
    """Store a file under a name, in place of your earlier files with this name: the app's own, or the user's.

    The earlier file stays until the new one is stored, so both need space for a moment. Of two calls at once, the last
    one stays.

    key: the file's name; slashes may divide it.
    """
    raw = decode_content(content_base64, "base64")
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        row, _ = await reserve(call, unit, filename=key, content_type=content_type, size=len(raw), public=False)
    await receive(call, row, iterate(raw), replaces=True)
    call.audit.resource_id = row.id
    call.audit.data |= {"filename": key, "size_bytes": len(raw)}
    return describe(row)


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
    content = None
    if row.size_bytes <= MOST_NAMED:
        object_key = build_folder(row.app_id, row.id) + row.stored_as
        pieces = [piece async for piece in read_bytes(call.stores.objects, object_key, 0, row.size_bytes)]
        content = base64.b64encode(b"".join(pieces)).decode()
    return {
        "id": row.id,
        "key": row.filename,
        "content_type": row.content_type,
        "size_bytes": row.size_bytes,
        "content_base64": content,
    }
