"""Streams the files of a completed generation job to the caller that submitted it."""

import re
from collections.abc import AsyncGenerator
from typing import Any

from baobab.storage.objects.errors import ObjectDamaged
from baobab.storage.objects.store import ObjectStore
from baobab.tools.ai.media.errors import ContentUnavailable, IndexOutOfRange, InvalidIndex, JobNotCompleted
from baobab.tools.ai.media.job_status import acknowledge_job, get_job_row
from baobab.tools.ai.media.submission import Kind, job_url
from baobab.tools.ai.media.submitters import require_submitter
from baobab.tools.core import Call
from baobab.tools.core.stream import Stream

_INDEX = re.compile(r"[0-9]{1,9}")


async def stream_content(call: Call, app_id: str, kind: Kind, job_id: str, index: int | str) -> Any:
    """Returns the file as a Stream, or for a caller without streams a text that says where the file is."""
    number = _number(index)
    row = await get_job_row(call, app_id, kind, job_id)
    require_submitter(call.caller, row)
    if row.status != "completed":
        raise JobNotCompleted(details={"current_status": row.status})
    await acknowledge_job(call, row)
    if number >= len(row.files):
        raise IndexOutOfRange(details={"files": len(row.files)})
    if row.emptied_at is not None:
        raise ContentUnavailable
    file = row.files[number]
    if not call.context.streams:
        url = f"{job_url(call, kind, row.app_id, row.id)}/content?index={number}"
        return (
            f"{file['content_type']}, {file['bytes']} bytes. "
            f"GET {url} with the credential of this call answers the bytes themselves."
        )
    objects = call.stores.objects
    if await _read_size(objects, file["key"]) != file["bytes"]:
        raise ContentUnavailable
    call.headers = [*(call.headers or ()), (b"content-length", b"%d" % file["bytes"])]
    return Stream(_pieces(objects, file["key"]), file["content_type"])


def _number(index: int | str) -> int:
    if isinstance(index, int) and index >= 0:
        return index
    if isinstance(index, str) and _INDEX.fullmatch(index):
        return int(index)
    raise InvalidIndex


async def _read_size(objects: ObjectStore, key: str) -> int | None:
    try:
        object_info = await objects.head(key)
    except ObjectDamaged:
        return None
    return object_info and object_info.size


async def _pieces(objects: ObjectStore, key: str) -> AsyncGenerator[bytes, None]:
    # Opened with the first piece, so that an unread stream has nothing to close.
    reader = await objects.get(key)
    if reader is None:
        raise ContentUnavailable
    try:
        async for piece in reader:
            yield piece
    finally:
        await reader.aclose()
