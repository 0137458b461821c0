"""What an app may store: its settings, and the room that files and begun uploads take."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select

from baobab.storage.database import Execute, Unit
from baobab.storage.tables import build_upsert
from baobab.tools.core.auth.directory import App
from baobab.tools.core.plans import GB, MB
from baobab.tools.files.errors import ContentTypeRefused, FileTooLarge, QuotaExceeded, TooManyUploads
from baobab.tools.files.schemas import ResourceInfo
from baobab.tools.files.tables import PENDING, file_usage, files_table

_DEFAULT_BYTES = GB
_DEFAULT_FILE_MB = 10
_MOST_PENDING = 1000
"""Uploads without bytes that one user, or the app itself, may have begun."""
_columns = files_table.c


@dataclass(frozen=True, slots=True)
class Usage:
    """used: bytes of files. files: how many. reserved: bytes of begun uploads."""

    used: int
    files: int
    reserved: int


def require_allowed(app: App, content_type: str, size: int) -> None:
    """Raises ContentTypeRefused or FileTooLarge by the app's settings."""
    allowed = app.storage_config.get("allowedContentTypes") or []
    kind = content_type.partition(";")[0]
    if allowed and not any(_matches(pattern.lower(), kind) for pattern in allowed):
        raise ContentTypeRefused(f"The app takes no files of the type {kind}.", details={"allowed_types": allowed})
    most = app.storage_config.get("maxFileSizeMb", _DEFAULT_FILE_MB) * MB
    if size > most:
        raise FileTooLarge(
            f"The file has {size} bytes; the app takes files up to {most}.",
            details={"file_size_bytes": size, "max_file_size_bytes": most},
        )


def compute_limit(app: App) -> int:
    """Returns the bytes that all files of an app may have: as it is set, up to what the plan gives."""
    limit: int = app.storage_config.get("storageLimitBytes", _DEFAULT_BYTES)
    return limit if app.plan.file_bytes is None else min(limit, app.plan.file_bytes)


async def read_usage(execute: Execute, app_id: str, now: datetime) -> Usage:
    kept = (await execute(select(file_usage).where(file_usage.c.app_id == app_id))).first()
    holding = (_columns.app_id == app_id, PENDING, _columns.reserved_until > now)
    reserved = (await execute(select(func.coalesce(func.sum(_columns.size_bytes), 0)).where(*holding))).scalar_one()
    return Usage(kept.used_bytes if kept else 0, kept.files_count if kept else 0, int(reserved))


async def require_room(execute: Execute, app: App, size: int, now: datetime) -> Usage:
    """Returns the usage. Raises QuotaExceeded. Exact in a transaction that holds the app's lock."""
    usage, limit = await read_usage(execute, app.id, now), compute_limit(app)
    taken = usage.used + usage.reserved
    if taken + size > limit:
        raise QuotaExceeded(
            f"{taken} of {limit} bytes are taken; {size} more do not fit.",
            details={"current_usage_bytes": taken, "limit_bytes": limit},
        )
    return usage


async def require_few_pending(execute: Execute, app_id: str, user_id: str | None, now: datetime) -> None:
    """Raises TooManyUploads if the user, or the app itself, has too many uploads without bytes."""
    pending = (
        _columns.app_id == app_id,
        PENDING,
        _columns.reserved_until > now,
        _columns.user_id.is_not_distinct_from(user_id),
    )
    if (await execute(select(func.count()).where(*pending))).scalar_one() >= _MOST_PENDING:
        raise TooManyUploads(details={"limit": _MOST_PENDING})


async def count_file(unit: Unit, app_id: str, size: int, files: int = 1) -> None:
    """Adds a file to the usage of an app; takes one away with -1, and its size negative."""
    insertion = build_upsert(unit.database.dialect, file_usage).values(
        app_id=app_id, used_bytes=size, files_count=files
    )
    kept = file_usage.c
    changes = {"used_bytes": kept.used_bytes + size, "files_count": kept.files_count + files}
    await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id"], set_=changes))


def describe_usage(app: App, usage: Usage) -> ResourceInfo:
    limit = compute_limit(app)
    return {
        "storage_used_bytes": usage.used,
        "storage_limit_bytes": limit,
        "storage_used_percent": round(100 * usage.used / limit, 2) if limit else 100.0,
        "files_count": usage.files,
    }


def _matches(pattern: str, kind: str) -> bool:
    return kind.startswith(pattern[:-1]) if pattern.endswith("/*") else kind == pattern
