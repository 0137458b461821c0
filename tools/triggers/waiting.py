"""What it takes for a trigger to begin to wait for its events."""

from typing import Any

from sqlalchemy import select, update

from baobab.runtime.jobs.cron import Cron
from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import Call
from baobab.tools.core.auth import proposers
from baobab.tools.triggers.jobs import triggers_catch_up
from baobab.tools.triggers.subscriptions import create_position
from baobab.tools.triggers.tables import positions, triggers_table

_CATCH_UP_SECONDS = 3.0
"""After so long, every process knows of a new trigger."""
_columns = triggers_table.c


def begin_waiting(call: Call, cron: Cron | None, change: int) -> dict[str, Any]:
    """Returns the columns of a trigger that begins to wait now, with the caller's rights."""
    return {
        "maker": proposers.encode_caller(call.caller),
        "status": "active",
        "reason": None,
        "remark": None,
        "failures": 0,
        "since": call.now,
        "since_change": change,
        "next_at": None if cron is None else cron.find_next(call.now),
        "updated_at": call.now,
    }


async def follow_events(call: Call, unit: Unit, trigger_id: str, change: int) -> None:
    """Has the events followed for which a trigger waits from now on."""
    app_id = call.require_app().id
    await create_position(unit, app_id, change)
    if change and not await _waits_for_rows(unit.execute, app_id, trigger_id):
        # Nobody has followed the changes before this one.
        behind = (positions.c.app_id == app_id, positions.c.change < change)
        await unit.execute(update(positions).where(*behind).values(change=change))
    arguments = {"app_id": app_id, "trigger_id": trigger_id}
    tenant = call.require_app().organisation_id
    await call.services.jobs.enqueue(
        unit, triggers_catch_up.__name__, arguments, delay=_CATCH_UP_SECONDS, tenant=tenant
    )


async def _waits_for_rows(execute: Execute, app_id: str, trigger_id: str) -> bool:
    """Returns whether another trigger waits for rows."""
    conditions = (_columns.app_id == app_id, _columns.table_name.is_not(None), _columns.status == "active")
    query = select(_columns.id).where(*conditions, _columns.id != trigger_id).limit(1)
    return (await execute(query)).first() is not None
