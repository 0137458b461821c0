"""The tool that reads an app's audit log: GET /v1/{app_id}/audit-logs."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from sqlalchemy import func, select
from typing_extensions import TypedDict

from baobab.tools.audit_logs.toolset import audit_logs
from baobab.tools.core import AppId, AppOwner, Call, Mcp, Text
from baobab.tools.core.audit import audit_logs as table
from baobab.tools.core.auth.names import load_account_names, load_key_names
from baobab.tools.core.types import DefaultBy, Moment

Word = Annotated[str, Text(200, min_length=1)]
Category = Literal["auth", "admin", "function", "ai", "data", "agents"]
Action = Literal["create", "update", "delete", "invoke", "enable", "disable"]
ActorType = Literal["platform_user", "app_user", "api_key", "operator", "system", "anonymous"]


class AuditLog(TypedDict):
    id: str
    app_id: str | None
    category: str
    event_type: str
    action: str
    resource_type: str | None
    resource_id: str | None
    actor_type: ActorType
    actor_id: str | None
    actor_name: Annotated[str | None, Field(description="The name of the account or key that acted.")]
    event_data: dict[str, Any]
    ip_address: str | None
    user_agent: str | None
    success: bool
    error_message: str | None
    correlation_id: str | None
    created_at: datetime


class AuditLogs(TypedDict):
    logs: list[AuditLog]
    total: int
    limit: int
    offset: int
    nextOffset: int | None


_COLUMNS = tuple(table.c[name] for name in AuditLog.__annotations__ if name != "actor_name")


@audit_logs.tool(
    "GET /audit-logs",
    access=AppOwner("admin"),
    effect="read",
    taints=True,
    mcp=Mcp(defaults={"limit": 20}),
)
async def audit_logs_list(
    call: Call,
    app_id: AppId,
    category: Category | None = None,
    event_type: Word | None = None,
    action: Action | None = None,
    resource_type: Word | None = None,
    resource_id: Word | None = None,
    actor_id: Word | None = None,
    user_id: Word | None = None,
    success: bool | None = None,
    since: Annotated[Moment | None, Field(alias="from")] = None,
    to: Moment | None = None,
    limit: Annotated[int, Field(ge=1, le=500), DefaultBy(mcp=20, agent=20)] = 100,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> AuditLogs:
    """Query the audit log of an app, newest first.

    Writes of data (kv) are counted: one row for each tool, caller and second, with the count in `event_data`.

    category: which part of the log.
    event_type: such as `app.config.cors` or `kv.write`.
    action: what was done to the resource.
    resource_type: what kind of thing it was done to, such as `app`, `agent` or `api_key`.
    resource_id: the id of that thing.
    actor_id: id of the account, key or user that acted.
    user_id: the same as actor_id.
    success: true for what was done, false for what was refused or failed.
    since: rows from this moment on; ISO 8601, UTC if it names no zone.
    to: rows before this moment; ISO 8601, UTC if it names no zone.
    limit: how many rows at most.
    offset: how many of the newest rows to skip, for the next page.
    """
    filters = (
        (table.c.category, category),
        (table.c.event_type, event_type),
        (table.c.action, action),
        (table.c.resource_type, resource_type),
        (table.c.resource_id, resource_id),
        (table.c.actor_id, actor_id),
        (table.c.actor_id, user_id),
        (table.c.success, success),
    )
    conditions = [table.c.app_id == app_id]
    conditions += [column == value for column, value in filters if value is not None]
    if since is not None:
        conditions.append(table.c.created_at >= since)
    if to is not None:
        conditions.append(table.c.created_at < to)
    if not call.unit.writes:
        # A call that writes holds the write lock; it then misses the latest counts.
        await call.services.audit_log.flush()
    total = (await call.execute(select(func.count()).select_from(table).where(*conditions))).scalar_one()
    newest_first = select(*_COLUMNS).where(*conditions).order_by(table.c.created_at.desc(), table.c.id)
    rows: Any = [dict(row) for row in (await call.execute(newest_first.limit(limit).offset(offset))).mappings()]
    names = await _load_names(call, rows)
    logs: Any = [{**row, "actor_name": names.get(row["actor_id"])} for row in rows]
    next_offset = offset + limit
    return {
        "logs": logs,
        "total": total,
        "limit": limit,
        "offset": offset,
        "nextOffset": next_offset if next_offset < total else None,
    }


async def _load_names(call: Call, rows: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Returns the names of the accounts and keys that acted, by id."""
    ids = {
        kind: [row["actor_id"] for row in rows if row["actor_type"] == kind] for kind in ("platform_user", "api_key")
    }
    names = await load_account_names(call.execute, ids["platform_user"])
    return names | await load_key_names(call.execute, ids["api_key"])
