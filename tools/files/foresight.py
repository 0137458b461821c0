"""Shows the person who approves a call what storing or deleting a file would change."""

from typing import Any

from sqlalchemy import select

from baobab.tools.core import Call
from baobab.tools.core.guard.changes import NOTHING, Change, describe_change
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.files.access import is_own
from baobab.tools.files.schemas import Encoding, decode_content
from baobab.tools.files.serving import read_bytes
from baobab.tools.files.storing import find_row
from baobab.tools.files.tables import PENDING, build_folder, files_table

_MOST_COMPARED = 64 * 1024
"""The most bytes of a text that is shown line by line. For larger files and other types, only the size is shown."""


async def list_replacement(call: Call, app_id: str, filename: str, raw: bytes) -> list[Change]:
    """Lists how the caller's latest file of this name would change."""
    columns = files_table.c
    conditions = (columns.app_id == app_id, columns.filename == filename, ~PENDING, *is_own(call.caller))
    query = select(files_table).where(*conditions).order_by(columns.id.desc()).limit(1)
    async with call.reading() as execute:
        row = (await execute(query)).first()
    before = NOTHING if row is None else await _read(call, row)
    return [describe_change(filename, before, _show(raw))]


async def list_deletion(call: Call, app_id: str, object_id: str) -> list[Change]:
    async with call.reading() as execute:
        row = await find_row(execute, app_id, object_id, ~PENDING, *is_own(call.caller))
    return [] if row is None else [describe_change(row.filename, await _read(call, row), NOTHING)]


def list_addition(filename: str, content: str, encoding: Encoding) -> list[Change]:
    return [describe_change(filename, NOTHING, _show(decode_content(content, encoding)))]


async def _read(call: Call, row: Any) -> str | list[str]:
    if row.size_bytes > _MOST_COMPARED:
        return f"{row.size_bytes} bytes of {escape_name(row.content_type)}"
    key = build_folder(row.app_id, row.id) + row.stored_as
    return _show(b"".join([piece async for piece in read_bytes(call.stores.objects, key, 0, row.size_bytes)]))


def _show(raw: bytes) -> str | list[str]:
    """Returns the lines of a text; the size of anything else."""
    if len(raw) <= _MOST_COMPARED:
        try:
            lines = raw.decode().split("\n")
        except UnicodeDecodeError:
            pass
        else:
            return lines if len(lines) > 1 else lines[0]
    return f"{len(raw)} bytes"
