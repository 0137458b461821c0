"""The contents of a repository: each is stored once, and goes when no snapshot refers to it any more."""

import hashlib
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select

from baobab.storage.objects.errors import StoreUnavailable, TooLarge
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import BaobabError, Call
from baobab.tools.repo.errors import BlobDiffers, BlobStoreFailed
from baobab.tools.repo.tables import FREEZES, build_key, repo_blobs, repo_snapshots

ERASE = "repo_erase"
_UNUSED = timedelta(hours=1)
"""How long a content is kept that no snapshot refers to: somebody may be about to commit one that does."""
_AT_ONCE = 500
_columns = repo_blobs.c


async def find_blobs(execute: Execute, app_id: str, digests: Iterable[str]) -> dict[str, Any]:
    """Returns the rows of those contents that are there, by digest."""
    unique_digests = list(dict.fromkeys(digests))
    blob_rows: dict[str, Any] = {}
    for start in range(0, len(unique_digests), _AT_ONCE):
        some_digests = unique_digests[start : start + _AT_ONCE]
        rows = await execute(select(repo_blobs).where(_columns.app_id == app_id, _columns.sha256.in_(some_digests)))
        blob_rows |= {row.sha256: row for row in rows.all()}
    return blob_rows


async def read_total(execute: Execute, app_id: str) -> int:
    query = select(func.coalesce(func.sum(_columns.size_bytes), 0)).where(_columns.app_id == app_id)
    return int((await execute(query)).scalar_one())


async def store_blob(call: Call, app_id: str, sha256: str, size: int, chunks: AsyncIterator[bytes]) -> None:
    """Stores a content if it is what it is called. Raises BlobDiffers, BlobStoreFailed, AppMigrating."""
    attempt, objects = call.services.ids.uuid(), call.stores.objects
    key = build_key(app_id, sha256, attempt)
    try:
        await objects.put(key, _check(chunks, sha256, size), content_type="application/octet-stream", max_bytes=size)
        async with call.stores.database.writing_unit(lock=app_id) as unit:
            await FREEZES.require_thawed(unit.execute, app_id)
            existing = await find_blobs(unit.execute, app_id, [sha256])
            if not existing:
                row = {"app_id": app_id, "sha256": sha256, "size_bytes": size, "stored_as": attempt}
                await unit.execute(insert(repo_blobs), {**row, "used_at": call.now})
        if existing:
            await objects.delete(key)
    except TooLarge as exc:
        raise BlobDiffers(details={"expected_bytes": size}) from exc
    except StoreUnavailable as exc:
        raise BlobStoreFailed from exc
    except BaobabError:
        await objects.delete(key)
        raise


async def prune(call: Call, unit: Unit, app_id: str) -> None:
    """Removes contents that no snapshot refers to, and that nobody has used for a while. unit: holds the app's lock."""
    rows = (await unit.execute(select(repo_snapshots.c.manifest).where(repo_snapshots.c.app_id == app_id))).all()
    used_digests = {file["sha256"] for row in rows for file in row.manifest["files"]}
    is_old = (_columns.app_id == app_id, _columns.used_at < call.now - _UNUSED)
    old = (await unit.execute(select(repo_blobs).where(*is_old))).all()
    await remove_blobs(call, unit, app_id, [row for row in old if row.sha256 not in used_digests])


async def remove_blobs(call: Call, unit: Unit, app_id: str, rows: Sequence[Any]) -> None:
    """Removes contents, whose bytes a job deletes once the unit is committed."""
    for start in range(0, len(rows), _AT_ONCE):
        some_rows = rows[start : start + _AT_ONCE]
        digests = [row.sha256 for row in some_rows]
        await unit.execute(delete(repo_blobs).where(_columns.app_id == app_id, _columns.sha256.in_(digests)))
        keys = [build_key(app_id, row.sha256, row.stored_as) for row in some_rows]
        arguments = {"app_id": app_id, "keys": keys}
        await call.services.jobs.enqueue(unit, ERASE, arguments, tenant=call.require_app().organisation_id)


async def _check(chunks: AsyncIterator[bytes], sha256: str, size: int) -> AsyncIterator[bytes]:
    """Passes the chunks on. At their end it raises BlobDiffers unless they are the content, before it is stored."""
    digest, received_bytes = hashlib.sha256(), 0
    async for chunk in chunks:
        digest.update(chunk)
        received_bytes += len(chunk)
        yield chunk
    if received_bytes != size or digest.hexdigest() != sha256:
        raise BlobDiffers(
            details={"expected_bytes": size, "received_bytes": received_bytes, "sha256": digest.hexdigest()}
        )
