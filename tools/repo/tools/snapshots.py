"""/v1/{app_id}/repo/snapshots: prepare, commit, list and read snapshots; remove the repository."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, func, select, update

from baobab.storage.sql.database import Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppId, Audit, Call, Guard, Rest
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.signed_urls import build_signed_url
from baobab.tools.repo.access import READERS, WRITERS, build_blob_path
from baobab.tools.repo.contents import find_blobs, prune, read_total, remove_blobs
from baobab.tools.repo.deploying import request_deployment
from baobab.tools.repo.errors import BlobsMissing, ManifestInvalid, RepoFileTooLarge, RepoFull, SnapshotNotFound
from baobab.tools.repo.schemas import (
    MOST_FILE_BYTES,
    MOST_SNAPSHOT_BYTES,
    Committed,
    Manifest,
    Message,
    Prepared,
    Removed,
    RepoFile,
    RepoFiles,
    Snapshot,
    SnapshotId,
    Snapshots,
)
from baobab.tools.repo.tables import FREEZES, repo_blobs, repo_snapshots
from baobab.tools.repo.toolset import repo

_UPLOAD_SECONDS = 600
_KEPT = 5
_MOST_BYTES = 2**30
_MOST_BODY = 8 * 2**20
_EXAMPLE = {
    "path": "README.md",
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "size": 0,
}
_columns = repo_snapshots.c


@repo.tool(
    "POST /snapshots/prepare",
    access=WRITERS,
    effect="write",
    raises=(ManifestInvalid, RepoFileTooLarge, RepoFull),
    audit=Audit("app.repo.prepare", action="update", resource="snapshot"),
    rest=Rest(max_body=_MOST_BODY, examples={"files": [_EXAMPLE]}),
)
async def repo_prepare(call: Call, app_id: AppId, files: RepoFiles, message: Message = "") -> Prepared:
    """Begin a snapshot: returns which blobs the repository lacks, and where to upload them within ten minutes.

    Then commit it with op:repo_commit. A blob is the bytes of a file; each is uploaded and stored once.

    message: what has changed, in words, so that you can send the whole manifest here. The one of the commit is kept.
    """
    total = _check_files(files)
    sizes = {file["sha256"]: file["size"] for file in files}
    async with FREEZES.writing(call) as unit:
        existing = await find_blobs(unit.execute, app_id, sizes)
        missing = [digest for digest in sizes if digest not in existing]
        # Contents that are there already are kept until the commit.
        await _touch(unit, call, app_id, list(existing))
        await prune(call, unit, app_id)
        stored_bytes = await read_total(unit.execute, app_id)
        if stored_bytes + sum(sizes[digest] for digest in missing) > _MOST_BYTES:
            raise RepoFull(details={"current_usage_bytes": stored_bytes, "limit_bytes": _MOST_BYTES})
    snapshot_id = _compute_id(files)
    call.audit.resource_id = snapshot_id
    return {
        "snapshot_id": snapshot_id,
        "total_bytes": total,
        "file_count": len(files),
        "missing_blobs": [
            {
                "sha256": digest,
                "uploadUrl": build_signed_url(
                    call, "PUT", build_blob_path(app_id, digest), _UPLOAD_SECONDS, size=sizes[digest]
                ),
            }
            for digest in missing
        ],
    }


@repo.tool(
    "POST /snapshots/commit",
    access=WRITERS,
    effect="write",
    raises=(ManifestInvalid, RepoFileTooLarge, BlobsMissing),
    audit=Audit("app.repo.commit", action="create", resource="snapshot"),
    rest=Rest(max_body=_MOST_BODY, examples={"manifest": {"files": [], "message": "Begin"}}),
    guard=Guard(overwrites=True),
)
async def repo_commit(call: Call, app_id: AppId, manifest: Manifest) -> Committed:
    """Complete a snapshot whose blobs have all been uploaded, and make it the latest. The last five are kept.

    If the app is set to it (op:repo_settings_update), functions whose files have changed are then deployed, with the
    right of whoever commits.

    manifest: the files that were prepared, and perhaps a message.
    """
    files, now = manifest["files"], call.now
    total, snapshot_id = _check_files(files), _compute_id(files)
    async with FREEZES.writing(call) as unit:
        existing = await find_blobs(unit.execute, app_id, (file["sha256"] for file in files))
        missing = sorted({file["sha256"] for file in files} - existing.keys())
        differing = [
            {"sha256": file["sha256"], "declared": file["size"], "actual": existing[file["sha256"]].size_bytes}
            for file in files
            if file["sha256"] in existing and existing[file["sha256"]].size_bytes != file["size"]
        ]
        if missing or differing:
            raise BlobsMissing(details={"missing_shas": missing, "size_mismatches": differing})
        highest = select(func.coalesce(func.max(_columns.position), 0)).where(_columns.app_id == app_id)
        position = (await unit.execute(highest)).scalar_one() + 1
        values = {"manifest": dict(manifest), "position": position, "created_at": now}
        insertion = build_upsert(unit.database.dialect, repo_snapshots).values(app_id=app_id, id=snapshot_id, **values)
        await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id", "id"], set_=values))
        await _keep_latest(unit, app_id)
        await prune(call, unit, app_id)
        await request_deployment(call, unit, snapshot_id)
    await _set_latest(call, app_id, snapshot_id)
    call.audit.resource_id = snapshot_id
    return {"snapshot_id": snapshot_id, "total_bytes": total, "file_count": len(files), "created_at": now}


@repo.tool(
    "GET /snapshots",
    access=READERS,
    effect="read",
)
async def repo_snapshots_list(call: Call, app_id: AppId) -> Snapshots:
    """List the snapshots of an app's repository, newest first."""
    query = select(_columns.id, _columns.created_at).where(_columns.app_id == app_id)
    async with call.reading() as execute:
        rows = (await execute(query.order_by(_columns.position.desc()))).all()
    return {"snapshots": [{"snapshot_id": row.id, "created_at": row.created_at} for row in rows]}


@repo.tool(
    "GET /snapshots/latest",
    access=READERS,
    effect="read",
    raises=(SnapshotNotFound,),
    taints=True,
)
async def repo_latest(call: Call, app_id: AppId) -> Snapshot:
    """Read which files the latest snapshot has; op:repo_blobs returns the addresses of their bytes."""
    query = select(repo_snapshots).where(_columns.app_id == app_id).order_by(_columns.position.desc()).limit(1)
    async with call.reading() as execute:
        row = (await execute(query)).first()
    if row is None:
        raise SnapshotNotFound
    return {"snapshot_id": row.id, "manifest": row.manifest}


@repo.tool(
    "GET /snapshots/{snapshot_id}",
    access=READERS,
    effect="read",
    raises=(SnapshotNotFound,),
    taints=True,
)
async def repo_snapshot(call: Call, app_id: AppId, snapshot_id: SnapshotId) -> Snapshot:
    """Read which files a snapshot has; op:repo_blobs returns the addresses of their bytes."""
    async with call.reading() as execute:
        query = select(repo_snapshots).where(_columns.app_id == app_id, _columns.id == snapshot_id)
        row = (await execute(query)).first()
    if row is None:
        raise SnapshotNotFound
    return {"snapshot_id": row.id, "manifest": row.manifest}


async def _preview_removal(call: Call, app_id: str) -> str:
    async with call.reading() as execute:
        snapshot_count = (await execute(select(func.count()).where(_columns.app_id == app_id))).scalar_one()
        total = await read_total(execute, app_id)
    return f"Deletes the repository of the app for ever: {snapshot_count} snapshots and {total} bytes of contents."


@repo.tool(
    "DELETE /",
    access=WRITERS,
    effect="destructive",
    audit=Audit("app.repo.delete", action="delete", resource="app"),
    guard=Guard(preview=_preview_removal),
)
async def repo_delete(call: Call, app_id: AppId) -> Removed:
    """Delete the repository of an app for ever: every snapshot and every blob."""
    async with FREEZES.writing(call) as unit:
        await unit.execute(delete(repo_snapshots).where(_columns.app_id == app_id))
        rows = (await unit.execute(select(repo_blobs).where(repo_blobs.c.app_id == app_id))).all()
        await remove_blobs(call, unit, app_id, rows)
    await _set_latest(call, app_id, None)
    call.audit.resource_id = app_id
    return {"message": "The repository was deleted.", "app_id": app_id}


def _check_files(files: Sequence[RepoFile]) -> int:
    """Returns the bytes of all files. Raises ManifestInvalid, RepoFileTooLarge."""
    paths: set[str] = set()
    sizes: dict[str, int] = {}
    for file in files:
        if file["path"] in paths:
            raise ManifestInvalid(f"The path `{file['path'][:200]}` is named twice.")
        paths.add(file["path"])
        if sizes.setdefault(file["sha256"], file["size"]) != file["size"]:
            raise ManifestInvalid(f"The blob {file['sha256']} is named with two sizes.")
        if file["size"] > MOST_FILE_BYTES:
            raise RepoFileTooLarge(
                f"`{file['path'][:200]}` has {file['size']} bytes; a file has at most {MOST_FILE_BYTES}.",
                details={"file_size_bytes": file["size"], "max_file_size_bytes": MOST_FILE_BYTES},
            )
    total = sum(file["size"] for file in files)
    if total > MOST_SNAPSHOT_BYTES:
        raise RepoFileTooLarge(
            f"The snapshot has {total} bytes; it has at most {MOST_SNAPSHOT_BYTES}.",
            details={"snapshot_size_bytes": total, "max_snapshot_size_bytes": MOST_SNAPSHOT_BYTES},
        )
    return total


def _compute_id(files: Sequence[RepoFile]) -> str:
    """Returns the digest of the files in the order of their paths: the same files are the same snapshot."""
    sorted_files = sorted(files, key=lambda file: file["path"])
    canonical = [{"path": file["path"], "sha256": file["sha256"], "size": file["size"]} for file in sorted_files]
    return hashlib.sha256(json.dumps({"files": canonical}, separators=(",", ":")).encode()).hexdigest()


async def _touch(unit: Unit, call: Call, app_id: str, digests: list[str]) -> None:
    for start in range(0, len(digests), 500):
        conditions = (repo_blobs.c.app_id == app_id, repo_blobs.c.sha256.in_(digests[start : start + 500]))
        await unit.execute(update(repo_blobs).where(*conditions).values(used_at=call.now))


async def _keep_latest(unit: Unit, app_id: str) -> None:
    """Deletes all snapshots but the latest: a commit of one that was there has moved it to the front."""
    newest = select(_columns.id).where(_columns.app_id == app_id).order_by(_columns.position.desc()).limit(_KEPT)
    ids: list[Any] = list((await unit.execute(newest)).scalars())
    await unit.execute(delete(repo_snapshots).where(_columns.app_id == app_id, _columns.id.not_in(ids)))


async def _set_latest(call: Call, app_id: str, snapshot_id: str | None) -> None:
    await call.execute(update(apps).where(apps.c.id == app_id).values(repo_latest_snapshot=snapshot_id))
