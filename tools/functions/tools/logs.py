"""/v1/{app_id}/functions/{name}/logs: what calls of a function did, as a list and as it happens."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, cast

from pydantic import Field
from pydantic_core import to_json
from sqlalchemy import or_, select

from baobab.storage.sql.database import Execute
from baobab.tools.core import AppId, AppOwner, Call, Mcp, Rest, Text
from baobab.tools.core.stream import Stream
from baobab.tools.functions.errors import FunctionNotFound
from baobab.tools.functions.invocations import FAILED
from baobab.tools.functions.rows import write_counts
from baobab.tools.functions.schemas import LogLevel, LogLimit, LogRow, Logs, Name, Since
from baobab.tools.functions.tables import functions_table, invocations
from baobab.tools.functions.toolset import functions

_columns, _functions = invocations.c, functions_table.c
POLL_SECONDS, KEEP_ALIVE_SECONDS = 2.0, 15.0
_OVERLAP = timedelta(seconds=5)
"""Another process may write a row this much later than the row says."""
_MOST_AT_ONCE = 200
LastEventId = Annotated[str, Text(100), Field(description="The id of the last row that you have.")]


async def _list_ids(execute: Execute, app_id: str, name: str, *, include_deleted: bool) -> list[str]:
    """Returns the ids of the functions of a name. Raises FunctionNotFound."""
    query = select(_functions.id).where(_functions.app_id == app_id, _functions.name == name)
    if not include_deleted:
        query = query.where(_functions.deleted_at.is_(None))
    ids = list((await execute(query)).scalars().all())
    if not ids:
        raise FunctionNotFound(f"The app has no function named `{name[:100]}`.")
    return ids


def _select(app_id: str, ids: Sequence[str], level: LogLevel) -> Any:
    query = select(invocations).where(_columns.app_id == app_id, _columns.function_id.in_(ids))
    return query if level == "all" else query.where(or_(_columns.status_code >= FAILED, _columns.error.is_not(None)))


@functions.tool("GET /functions/{name}/logs", access=AppOwner(), effect="read", raises=(FunctionNotFound,), taints=True)
async def functions_logs(
    call: Call,
    app_id: AppId,
    name: Name,
    limit: LogLimit = 100,
    since: Since | None = None,
    level: LogLevel = "all",
    include_deleted: bool = False,
) -> Logs:
    """List the calls of a function, newest first, with what it printed. Kept for 14 days, at most 10000 an app.

    level: `error` for calls that failed only.
    include_deleted: whether to list those of functions of this name that were deleted, too.
    """
    await write_counts(call)
    async with call.reading() as execute:
        ids = await _list_ids(execute, app_id, name, include_deleted=include_deleted)
        query = _select(app_id, ids, level)
        if since is not None:
            query = query.where(_columns.started_at >= since)
        query = query.order_by(_columns.logged_at.desc(), _columns.id.desc()).limit(limit + 1)
        rows = (await execute(query)).all()
    return {"logs": [_describe(row) for row in rows[:limit]], "hasMore": len(rows) > limit}


def _describe(row: Any) -> LogRow:
    return {
        "timestamp": row.started_at,
        "method": row.method,
        "path": row.path,
        "statusCode": row.status_code,
        "duration": round(row.duration_ms, 3),
        "memoryUsed": row.memory_mb,
        "error": row.error,
        "stack": row.stack,
        "consoleLogs": [
            {"level": each["level"], "message": each["message"], "timestamp": datetime.fromisoformat(each["at"])}
            for each in row.console_logs
        ],
        "version": row.version,
        "request_id": row.request_id,
        "shutdown_reason": row.shutdown_reason,
        "trigger": row.trigger,
    }


@functions.tool(
    "GET /functions/{name}/logs/stream",
    access=AppOwner(),
    effect="read",
    raises=(FunctionNotFound,),
    rest=Rest(media_type="text/event-stream", from_headers={"last_event_id": "last-event-id"}),
    mcp=Mcp(offered=False),
)
async def functions_logs_stream(
    call: Call,
    app_id: AppId,
    name: Name,
    since: Since | None = None,
    level: LogLevel = "all",
    last_event_id: LastEventId = "",
) -> str:
    """Follow the calls of a function: an event `log` for each, about two seconds after it has ended.

    since: begin with what happened from this moment on; left out, with what happens from now on.
    """
    async with call.reading() as execute:
        ids = await _list_ids(execute, app_id, name, include_deleted=False)
    begin, is_known = since or call.now, False
    if last_event_id:
        # Anything that is no time is ignored, as elsewhere.
        with contextlib.suppress(ValueError):
            begin, is_known = datetime.fromisoformat(last_event_id), True
        if begin.tzinfo is None:
            begin, is_known = call.now, False
    pieces = _follow(call, ids, level, begin, includes_begin=not is_known)
    return cast(str, Stream(pieces, subject=f"function-logs:{app_id}:{name}"))


async def _follow(
    call: Call, ids: Sequence[str], level: LogLevel, begin: datetime, *, includes_begin: bool
) -> AsyncGenerator[bytes, None]:
    app_id = call.require_app().id
    sent_rows: dict[str, datetime] = {}
    position, quiet_seconds = begin, 0.0
    yield b": follows\n\n"
    while True:
        await write_counts(call)
        moment = max(begin, position - _OVERLAP)
        is_later = _columns.logged_at >= moment if includes_begin or moment > begin else _columns.logged_at > moment
        query = _select(app_id, ids, level).where(is_later, _columns.id.not_in(list(sent_rows)))
        query = query.order_by(_columns.logged_at, _columns.id).limit(_MOST_AT_ONCE)
        app = await call.services.directory.app(app_id)
        async with call.services.stores_of(app.region).database.reading() as connection:
            rows: Any = (await connection.execute(query)).all()
        for row in rows:
            sent_rows[row.id] = row.logged_at
            position = max(position, row.logged_at)
            data = to_json(_describe(row))
            yield b"id: %b\nevent: log\ndata: %b\n\n" % (row.logged_at.isoformat().encode(), data)
        sent_rows = {id_: at for id_, at in sent_rows.items() if at >= position - _OVERLAP}
        if len(rows) == _MOST_AT_ONCE:
            continue
        quiet_seconds = 0.0 if rows else quiet_seconds + POLL_SECONDS
        if quiet_seconds >= KEEP_ALIVE_SECONDS:
            quiet_seconds = 0.0
            yield b": keep-alive\n\n"
        await asyncio.sleep(POLL_SECONDS)
