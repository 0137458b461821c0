"""/storage/{app_id}/objects/{object_id}/copy: a file of its own with the bytes of another."""

import contextlib
import hashlib

from sqlalchemy import select

from baobab.storage.sql.database import Unit
from baobab.tools.core import AppId, Audit, Call, Guard, Rest, one_of
from baobab.tools.core.errors import Damaged
from baobab.tools.files.access import OF_RUNNING_APP, is_readable
from baobab.tools.files.errors import AlreadyStored, CopyKeyReused, FileNotFound
from baobab.tools.files.schemas import KEY_HEADER, FileId, Filename, IdempotencyKey, Metadata, StoredFile
from baobab.tools.files.serving import read_bytes
from baobab.tools.files.storing import Row, choose_writer, describe, find_row, receive, reserve
from baobab.tools.files.tables import FREEZES, PENDING, build_folder, files_table
from baobab.tools.files.tools.content import STORING
from baobab.tools.files.tools.objects import RESERVING
from baobab.tools.files.toolset import files

_columns = files_table.c


@files.tool(
    "POST /objects/{object_id}/copy",
    access=OF_RUNNING_APP,
    effect="write",
    raises=(*RESERVING, *STORING, CopyKeyReused, Damaged),
    audit=Audit("storage.copy", category="storage", action="create", resource="file"),
    rest=Rest(
        status=201, query=("idempotency_key",), from_headers=KEY_HEADER, examples={"filename": "archive/baobab.png"}
    ),
    guard=Guard(widens={"public": one_of([True])}, overwrites=False),
)
async def files_copy(
    call: Call,
    app_id: AppId,
    object_id: FileId,
    filename: Filename | None = None,
    public: bool = False,
    metadata: Metadata | None = None,
    idempotency_key: IdempotencyKey | None = None,
) -> StoredFile:
    """Copy a file that you may download. The copy is a file of its own: it is yours, takes room, and is not published.

    filename: null for the name of the file.
    public: whether every signed-in user of the app may download the copy.
    metadata: null for that of the file.
    idempotency_key: null if each call is to make another copy.
    """
    request_key = request_digest = None
    if idempotency_key is not None:
        request_key = _digest(type(call.caller).__name__, str(call.caller.actor_id), idempotency_key)
        request_digest = _digest(object_id, repr((filename, public, metadata and sorted(metadata.items()))))
    async with FREEZES.writing(call) as unit:
        row = None if request_key is None else await _find_earlier(unit, app_id, request_key, request_digest)
        source = await find_row(unit.execute, app_id, object_id, ~PENDING, *is_readable(call))
        if source is None and (row is None or row.stored_at is None):
            raise FileNotFound
        if row is None:
            row, _ = await reserve(
                call,
                unit,
                filename=filename or source.filename,
                content_type=source.content_type,
                size=source.size_bytes,
                public=public,
                writer=await choose_writer(call, unit.execute, source),
                metadata=source.metadata if metadata is None else metadata,
                request_key=request_key,
                request_digest=request_digest,
            )
    if row.stored_at is None:
        content = read_bytes(call.stores.objects, build_folder(app_id, source.id) + source.stored_as, 0, row.size_bytes)
        # Another call with this key may have just made it.
        with contextlib.suppress(AlreadyStored):
            await receive(call, row, content)
    call.audit.resource_id = row.id
    call.audit.data |= {"filename": row.filename, "size_bytes": row.size_bytes, "public": public, "copy_of": object_id}
    return describe(call, row)


async def _find_earlier(unit: Unit, app_id: str, request_key: str, request_digest: str | None) -> Row:
    """Returns the row that an earlier call with this key has made; None if there is none. Raises CopyKeyReused."""
    query = select(files_table).where(_columns.app_id == app_id, _columns.request_key == request_key)
    row = (await unit.execute(query)).first()
    if row is not None and row.request_digest != request_digest:
        raise CopyKeyReused
    return row


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode()).hexdigest()
