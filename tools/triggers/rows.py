"""The rows of triggers, as the tools read and show them."""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import func, select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Call
from baobab.tools.triggers.errors import TriggerNotFound
from baobab.tools.triggers.schedules import parse_schedule
from baobab.tools.triggers.schemas import Trigger
from baobab.tools.triggers.tables import deliveries, triggers_table

_SHOWN_TIMES = 5
_triggers, _deliveries = triggers_table.c, deliveries.c


async def find_row(execute: Execute, app_id: str, name: str) -> Any:
    """Returns the row of a trigger; None if there is none."""
    return (await execute(select(triggers_table).where(_triggers.app_id == app_id, _triggers.name == name))).first()


async def get_row(execute: Execute, app_id: str, name: str) -> Any:
    """Returns the row of a trigger. Raises TriggerNotFound."""
    row = await find_row(execute, app_id, name)
    if row is None:
        raise TriggerNotFound
    return row


async def describe_triggers(call: Call, execute: Execute, rows: Sequence[Any]) -> list[Trigger]:
    """Shows triggers with the counts of their deliveries, and the names of those who made them."""
    counts: dict[str, Any] = {}
    if rows:
        of_rows = (_deliveries.app_id == rows[0].app_id, _deliveries.trigger_id.in_([row.id for row in rows]))
        waiting = func.count().filter(_deliveries.status == "pending")
        columns = (_deliveries.trigger_id, waiting.label("waiting"), func.max(_deliveries.created_at).label("last_at"))
        query = select(*columns).where(*of_rows).group_by(_deliveries.trigger_id)
        counts = {row.trigger_id: row for row in await execute(query)}
    return [_describe(call, row, counts.get(row.id)) for row in rows]


def _describe(call: Call, row: Any, counts: Any) -> Trigger:
    return {
        "name": row.name,
        "event": row.event,
        "table": row.table_name,
        "prefix": row.prefix,
        "filter": row.filter,
        "schedule": row.schedule,
        "time_zone": row.time_zone,
        "catch_up": row.catch_up,
        "next_at": row.next_at,
        "next_times": _list_times(row, call.now),
        "agent": row.action.get("agent"),
        "input": row.action.get("input"),
        "webhook": row.action.get("webhook"),
        "function": row.action.get("function"),
        "tells_failures": row.tells_failures,
        "status": row.status,
        "reason": row.reason,
        "remark": row.remark,
        "failures": row.failures,
        "waiting": 0 if counts is None else counts.waiting,
        "made_by": None,
        "last_event_at": None if counts is None else counts.last_at,
        "created_at": row.created_at,
        "updated_at": row.updated_at,
    }


def _list_times(row: Any, now: datetime) -> list[datetime]:
    if row.next_at is None:
        return []
    schedule, times = parse_schedule(row.schedule, row.time_zone), [row.next_at]
    while len(times) < _SHOWN_TIMES:
        times.append(schedule.find_next(max(times[-1], now)))
    return times


async def name_makers(call: Call, rows: Sequence[Any], shown: Sequence[Trigger]) -> None:
    """Adds the names of those who made the triggers."""
    for row, trigger in zip(rows, shown, strict=True):
        key_id, account_id = row.maker.get("key_id"), row.maker.get("account_id")
        trigger["made_by"] = await call.services.directory.name(f"key:{key_id}" if key_id else f"account:{account_id}")
