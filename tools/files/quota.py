"""How much may be stored: by an app, by each of its users, and by an organisation in all its apps.

A file counts once its bytes have arrived. A started upload counts as long as its room is reserved.
"""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, func, select

from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core.auth.directory import App
from baobab.tools.core.limits.plans import GB, MB
from baobab.tools.files.errors import ContentTypeRefused, FileTooLarge, QuotaExceeded, TooManyUploads
from baobab.tools.files.schemas import ResourceInfo
from baobab.tools.files.tables import PENDING, file_usage, file_usage_by_user, files_table

_DEFAULT_BYTES = GB
_DEFAULT_FILE_MB = 10
_SHARE_OF_USER = 10
"""One user may use this share of an app's room, one tenth, unless the app's settings say otherwise."""
_MOST_PENDING = 1000
"""The most uploads without bytes that one user, or the app itself, may have."""
_columns = files_table.c


@dataclass(frozen=True, slots=True)
class Usage:
    """used_bytes: of files. files: their number. reserved_bytes: of started uploads. organisation_id: as recorded."""

    used_bytes: int
    files: int
    reserved_bytes: int
    organisation_id: str | None

    @property
    def total(self) -> int:
        return self.used_bytes + self.reserved_bytes


def require_allowed(app: App, content_type: str, size: int) -> None:
    """Raises ContentTypeRefused or FileTooLarge by the app's settings."""
    patterns = app.storage_config.get("allowedContentTypes") or []
    kind = content_type.partition(";")[0]
    if patterns and not any(_matches(pattern.lower(), kind) for pattern in patterns):
        raise ContentTypeRefused(f"The app takes no files of the type {kind}.", details={"allowed_types": patterns})
    limit = _compute_file_limit(app)
    if size > limit:
        raise FileTooLarge(
            f"The file has {size} bytes; the app takes files up to {limit}.",
            details={"file_size_bytes": size, "max_file_size_bytes": limit},
        )


def compute_limit(app: App) -> int:
    """Returns the most bytes of all files of an app: its setting, at most what the plan allows."""
    limit: int = app.storage_config.get("storageLimitBytes", _DEFAULT_BYTES)
    return limit if app.plan.file_bytes is None else min(limit, app.plan.file_bytes)


def compute_user_limit(app: App) -> int:
    """Returns the most bytes of the files of one user. By default, one large file always fits."""
    limit = compute_limit(app)
    share: int | None = app.storage_config.get("userLimitBytes")
    return min(limit, max(limit // _SHARE_OF_USER, _compute_file_limit(app)) if share is None else share)


def _compute_file_limit(app: App) -> int:
    limit: int = app.storage_config.get("maxFileSizeMb", _DEFAULT_FILE_MB) * MB
    return limit


async def read_usage(execute: Execute, app_id: str, now: datetime) -> Usage:
    row = (await execute(select(file_usage).where(file_usage.c.app_id == app_id))).first()
    reserved_bytes = await _read_reserved(execute, now, _columns.app_id == app_id)
    if row is None:
        return Usage(0, 0, reserved_bytes, None)
    return Usage(row.used_bytes, row.files_count, reserved_bytes, row.organisation_id)


async def read_user_usage(execute: Execute, app_id: str, user_id: str, now: datetime) -> int:
    """Returns the bytes that one user takes, with files and started uploads."""
    columns = file_usage_by_user.c
    query = select(columns.used_bytes).where(columns.app_id == app_id, columns.user_id == user_id)
    reserved_bytes = await _read_reserved(execute, now, _columns.app_id == app_id, _columns.user_id == user_id)
    return ((await execute(query)).scalar_one_or_none() or 0) + reserved_bytes


async def require_room(unit: Unit, app: App, user_id: str | None, size: int, now: datetime) -> Usage:
    """Returns the usage of the app. Raises QuotaExceeded. It is exact, because the unit holds the app's lock."""
    usage = await read_usage(unit.execute, app.id, now)
    _require_below("The app's files and started uploads take", usage.total, size, compute_limit(app))
    if user_id is not None:
        used_bytes = await read_user_usage(unit.execute, app.id, user_id, now)
        remedy = "Have the app raise userLimitBytes, or delete files that you need no longer (op:files_delete)."
        _require_below(
            "Your files and started uploads in this app take",
            used_bytes,
            size,
            compute_user_limit(app),
            remediation=remedy,
        )
    if app.plan.file_bytes is not None:
        used_bytes = await _read_organisation_usage(unit, app, usage, now)
        if user_id is not None and used_bytes + size > app.plan.file_bytes:
            # A user of this app must not learn how much the organisation stores in its other apps.
            raise QuotaExceeded("The app has no room left for files.", remediation="Ask those who run the app.")
        remedy = "Ask for a larger plan. Delete files (op:files_delete) only if whoever runs the apps says which."
        _require_below(
            "The organisation's files and started uploads take",
            used_bytes,
            size,
            app.plan.file_bytes,
            remediation=remedy,
        )
    return usage


def _require_below(subject: str, used_bytes: int, size: int, limit: int, *, remediation: str | None = None) -> None:
    if used_bytes + size > limit:
        raise QuotaExceeded(
            f"{subject} {used_bytes} of {limit} bytes; {size} more do not fit.",
            details={"current_usage_bytes": used_bytes, "limit_bytes": limit},
            remediation=remediation,
        )


async def _read_organisation_usage(unit: Unit, app: App, usage: Usage, now: datetime) -> int:
    """Returns the bytes that files and started uploads of all apps of the organisation take in this region.

    From then on the unit holds the organisation's lock, so that its other apps wait.
    """
    await unit.hold(app.organisation_id)
    if usage.organisation_id != app.organisation_id:
        await name_organisation(unit, app)
    columns = file_usage.c
    of_organisation = columns.organisation_id == app.organisation_id
    query = select(func.coalesce(func.sum(columns.used_bytes), 0)).where(of_organisation)
    apps = select(columns.app_id).where(of_organisation)
    reserved_bytes = await _read_reserved(unit.execute, now, _columns.app_id.in_(apps))
    return int((await unit.execute(query)).scalar_one()) + reserved_bytes


async def name_organisation(unit: Unit, app: App) -> None:
    """Records the organisation to whose room the files of an app count."""
    insertion = build_upsert(unit.database.dialect, file_usage).values(
        app_id=app.id, organisation_id=app.organisation_id, used_bytes=0, files_count=0
    )
    changes = {"organisation_id": app.organisation_id}
    await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id"], set_=changes))


async def _read_reserved(execute: Execute, now: datetime, *conditions: ColumnElement[bool]) -> int:
    holding = (PENDING, _columns.reserved_until > now, *conditions)
    query = select(func.coalesce(func.sum(_columns.size_bytes), 0)).where(*holding)
    return int((await execute(query)).scalar_one())


async def require_few_pending(execute: Execute, app_id: str, user_id: str | None, now: datetime) -> None:
    """Raises TooManyUploads if the user, or the app itself, has too many uploads without bytes."""
    conditions = (
        _columns.app_id == app_id,
        PENDING,
        _columns.reserved_until > now,
        _columns.user_id.is_not_distinct_from(user_id),
    )
    if (await execute(select(func.count()).where(*conditions))).scalar_one() >= _MOST_PENDING:
        raise TooManyUploads(details={"limit": _MOST_PENDING})


async def count_file(unit: Unit, app_id: str, user_id: str | None, size: int, files: int = 1) -> None:
    """Adds a file to the usage of an app and of its owner; takes one away with -1, and its size negative."""
    insertion = build_upsert(unit.database.dialect, file_usage).values(
        app_id=app_id, used_bytes=size, files_count=files
    )
    columns = file_usage.c
    changes = {"used_bytes": columns.used_bytes + size, "files_count": columns.files_count + files}
    await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id"], set_=changes))
    if user_id is not None:
        of_user = build_upsert(unit.database.dialect, file_usage_by_user)
        of_user = of_user.values(app_id=app_id, user_id=user_id, used_bytes=size)
        user_changes = {"used_bytes": file_usage_by_user.c.used_bytes + size}
        await unit.execute(of_user.on_conflict_do_update(index_elements=["app_id", "user_id"], set_=user_changes))


def describe_usage(app: App, usage: Usage) -> ResourceInfo:
    limit = compute_limit(app)
    return {
        "storage_used_bytes": usage.used_bytes,
        "storage_reserved_bytes": usage.reserved_bytes,
        "storage_limit_bytes": limit,
        "storage_used_percent": round(100 * usage.used_bytes / limit, 2) if limit else 100.0,
        "files_count": usage.files,
    }


def _matches(pattern: str, kind: str) -> bool:
    return kind.startswith(pattern[:-1]) if pattern.endswith("/*") else kind == pattern
