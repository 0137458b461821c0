"""What a clone of an app has of its repository: the latest snapshot with its contents."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from sqlalchemy import select

from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core.app_clones import ClonedStore, CloneRefused, CloneRule, Cloning, Place, never_clone
from baobab.tools.core.app_data import copy_object
from baobab.tools.repo.contents import find_blobs
from baobab.tools.repo.tables import build_key, repo_blobs, repo_settings, repo_snapshots

_MOST_READ = 2**20
"""The bytes of a file that are searched for secrets."""


async def _find_latest(execute: Execute, app_id: str) -> Any:
    columns = repo_snapshots.c
    query = select(repo_snapshots).where(columns.app_id == app_id).order_by(columns.position.desc()).limit(1)
    return (await execute(query)).first()


async def _read_latest(place: Place) -> tuple[Any, Mapping[str, Any]]:
    """Returns the latest snapshot and the rows of its contents by digest; None and nothing if there is none."""
    async with place.stores.database.reading() as connection:
        snapshot = await _find_latest(connection.execute, place.app_id)
        if snapshot is None:
            return None, {}
        digests = [file["sha256"] for file in snapshot.manifest["files"]]
        return snapshot, await find_blobs(connection.execute, place.app_id, digests)


async def _copy_latest(cloning: Cloning) -> None:
    source, dest = cloning.source, cloning.dest
    snapshot, blobs = await _read_latest(source)
    if snapshot is None:
        raise CloneRefused("The template's repository was emptied meanwhile.")
    dialect = dest.stores.database.dialect
    blob_rows = []
    for sha256, blob in blobs.items():
        stored_as = cloning.derive_id(repo_blobs.name, sha256)
        await copy_object(
            source.stores.objects,
            build_key(source.app_id, sha256, blob.stored_as),
            dest.stores.objects,
            build_key(dest.app_id, sha256, stored_as),
        )
        size = {"sha256": sha256, "size_bytes": blob.size_bytes}
        blob_rows.append({"app_id": dest.app_id, **size, "stored_as": stored_as, "used_at": cloning.started_at})
    snapshot_row = {"app_id": dest.app_id, "id": snapshot.id, "manifest": snapshot.manifest, "position": 1}
    async with dest.stores.database.writing(lock=dest.app_id, bulk=True) as connection:
        if blob_rows:
            await connection.execute(build_upsert(dialect, repo_blobs).on_conflict_do_nothing(), blob_rows)
        snapshot_insert = build_upsert(dialect, repo_snapshots).on_conflict_do_nothing()
        await connection.execute(snapshot_insert, {**snapshot_row, "created_at": cloning.started_at})


async def _read_texts(place: Place) -> AsyncIterator[tuple[str, str]]:
    snapshot, blobs = await _read_latest(place)
    for file in () if snapshot is None else snapshot.manifest["files"]:
        blob = blobs.get(file["sha256"])
        key = None if blob is None else build_key(place.app_id, file["sha256"], blob.stored_as)
        reader = None if key is None else await place.stores.objects.get(key, start=0, end=_MOST_READ)
        if reader is None:
            continue
        try:
            content = b"".join([chunk async for chunk in reader])
        finally:
            await reader.aclose()
        if b"\0" not in content:
            yield file["path"], content.decode(errors="replace")


CLONES: tuple[CloneRule, ...] = (
    ClonedStore(
        "repository",
        "the latest snapshot of the repository",
        {"copying_repo": _copy_latest},
        tables=(repo_snapshots.name, repo_blobs.name),
        read_texts=_read_texts,
        is_code=True,
    ),
    *never_clone("you switch on yourself what a push deploys", repo_settings.name),
)
