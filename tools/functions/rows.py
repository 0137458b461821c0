"""The rows of functions, as the tools read and show them."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Select, func, select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Call
from baobab.tools.functions.env import open_env
from baobab.tools.functions.errors import FunctionNotFound
from baobab.tools.functions.invocations import TOTAL, InvocationLog
from baobab.tools.functions.live import build_urls
from baobab.tools.functions.schemas import FunctionRow
from baobab.tools.functions.tables import functions_table, invocations, usage, versions

_functions, _usage, _invocations = functions_table.c, usage.c, invocations.c
_DAY = timedelta(days=1)
_ERROR_RATE = 0.1
"""The part of the calls of a day that may fail while a function is `active`."""


async def find_row(execute: Execute, app_id: str, name: str) -> Any:
    """Returns the row of a function that is not deleted; None if there is none."""
    is_it = (_functions.app_id == app_id, _functions.name == name, _functions.deleted_at.is_(None))
    return (await execute(select(functions_table).where(*is_it))).first()


async def get_row(execute: Execute, app_id: str, name: str) -> Any:
    """Returns the row of a function. Raises FunctionNotFound."""
    row = await find_row(execute, app_id, name)
    if row is None:
        raise FunctionNotFound(f"The app has no function named `{name[:100]}`.")
    return row


async def describe_functions(call: Call, execute: Execute, rows: Sequence[Any]) -> list[FunctionRow]:
    """Shows functions with the counts of their calls."""
    app_id = call.require_app().id
    since = (call.now - _DAY).strftime("%Y-%m-%dT%H")
    of_app = _usage.app_id == app_id
    totals = {row.function_id: row for row in await execute(select(usage).where(of_app, _usage.hour == TOTAL))}
    sums = (func.sum(_usage.invocations), func.sum(_usage.errors), func.sum(_usage.duration_ms))
    of_day = (of_app, _usage.hour >= since, _usage.hour < TOTAL)
    day_query = select(_usage.function_id, *sums).where(*of_day).group_by(_usage.function_id)
    days = {row[0]: (int(row[1]), int(row[2]), float(row[3])) for row in await execute(day_query)}
    slow = {row.function_id: row.slowest for row in await execute(_find_slow(app_id, call.now - _DAY))}
    query = select(versions.c.function_id, versions.c.number, versions.c.language).where(versions.c.app_id == app_id)
    languages = {(row.function_id, row.number): row.language for row in await execute(query)}
    return [
        _describe(
            call,
            row,
            totals.get(row.id),
            days.get(row.id),
            slow.get(row.id),
            languages.get((row.id, row.version), "typescript"),
        )
        for row in rows
    ]


def _find_slow(app_id: str, since: datetime) -> Select[Any]:
    """Selects how long 95 of 100 calls of each function took at most: of those in the log since a moment."""
    function = _invocations.function_id
    position = func.row_number().over(partition_by=function, order_by=_invocations.duration_ms)
    count = func.count().over(partition_by=function)
    columns = (_invocations.function_id, _invocations.duration_ms, position.label("position"), count.label("count"))
    is_new = (_invocations.app_id == app_id, _invocations.logged_at >= since)
    calls = select(*columns).where(*is_new).subquery()
    is_within = (calls.c.position - 1) * 100 < calls.c.count * 95
    slowest = func.max(calls.c.duration_ms).label("slowest")
    return select(calls.c.function_id, slowest).where(is_within).group_by(calls.c.function_id)


def _describe(
    call: Call, row: Any, total: Any, day: tuple[int, int, float] | None, slowest: float | None, language: str
) -> FunctionRow:
    count, errors, milliseconds = day or (0, 0, 0.0)
    rate = errors / count if count else 0.0
    url, _ = build_urls(call.services, call.require_app(), row)
    return {
        "id": row.id,
        "name": row.name,
        "description": row.description,
        "triggers": [
            {"type": each["type"], "config": show_config(each), "enabled": each["enabled"]} for each in row.triggers
        ],
        "url": url,
        "status": "error" if rate > _ERROR_RATE else "active",
        "deployedAt": row.deployed_at,
        "lastInvoked": None if total is None else total.last_at,
        "lastStatus": None if total is None else total.last_status,
        "invocationCount": 0 if total is None else total.invocations,
        "errorRate": round(rate, 4),
        "avgDuration": round(milliseconds / count, 3) if count else None,
        "p95Duration": None if slowest is None else round(slowest, 3),
        "agent_tool": row.agent_tool,
        "agent_tool_description": row.agent_tool_description,
        "agent_tool_mode": row.agent_tool_mode,
        "agent_tool_exposed_to": row.agent_tool_exposed_to,
        "allow_service_key_impersonation": row.allow_service_key_impersonation,
        "version": row.version,
        "language": language,
    }


def show_config(trigger: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the config of a trigger without what was left out."""
    return {name: value for name, value in trigger["config"].items() if value not in (None, "", [])}


def list_env_keys(call: Call, row: Any) -> list[str]:
    return sorted(open_env(call.services.vault, row.id, row.env))


async def count_errors(execute: Execute, row: Any) -> int:
    """Returns how often a function has failed."""
    is_total = (_usage.app_id == row.app_id, _usage.function_id == row.id, _usage.hour == TOTAL)
    return int((await execute(select(_usage.errors).where(*is_total))).scalar() or 0)


async def write_counts(call: Call) -> None:
    """Has what this process has counted written, so that whoever asks now sees it."""
    await call.services.of(InvocationLog).flush()
