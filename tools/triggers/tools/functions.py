"""The triggers of functions: they follow what the functions of the app say (tools/functions)."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, insert, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, JsonObject, Mcp, Text, Uuid
from baobab.tools.core.app_events import HOUR
from baobab.tools.triggers.functions import CRON, UPLOAD, build_name
from baobab.tools.triggers.rows import find_row
from baobab.tools.triggers.schedules import parse_schedule
from baobab.tools.triggers.schemas import FunctionFollowed
from baobab.tools.triggers.subscriptions import NOTICE
from baobab.tools.triggers.tables import FREEZES, deliveries, triggers_table
from baobab.tools.triggers.toolset import triggers
from baobab.tools.triggers.waiting import begin_waiting, follow_events

_STORED = "file.stored"
_columns = triggers_table.c
FunctionName = Annotated[str, Text(100, min_length=1)]
Config = Annotated[JsonObject, Field(description="The trigger of the function; null if it has none of this kind.")]


@triggers.tool(
    access=AppOwner("admin"),
    effect="write",
    audit=Audit("trigger.follow", category="app", action="update", resource="trigger"),
    mcp=Mcp(offered=False),
    guard=Guard(grants=True, overwrites=True),
)
async def triggers_follow_function(
    call: Call,
    app_id: AppId,
    function: FunctionName,
    function_id: Uuid,
    cron: Config | None = None,
    storage_upload: Config | None = None,
) -> FunctionFollowed:
    """Have the triggers of a function be what the function says."""
    schedule = cron["schedule"] if cron is not None else None
    names: list[str] = []
    call.audit.nothing_done = True
    async with FREEZES.writing(call) as unit:
        for kind, config in ((CRON, cron), (UPLOAD, storage_upload)):
            name = build_name(function_id, kind)
            row = await find_row(unit.execute, app_id, name)
            if config is None:
                if row is not None:
                    await _remove(unit, app_id, row.id)
                    call.audit.nothing_done = False
                continue
            names.append(name)
            action: dict[str, Any] = {"function": function, "function_id": function_id, "kind": kind}
            values: dict[str, Any] = {
                "event": HOUR if kind == CRON else _STORED,
                "table_name": None,
                "filter": None,
                "schedule": schedule if kind == CRON else None,
                "time_zone": config["timezone"] if kind == CRON else "UTC",
                "catch_up": config["catch_up"] if kind == CRON else False,
                "tells_failures": True,
                "secret": None,
            }
            if kind == UPLOAD:
                action |= {"prefix": config["prefix"], "types": config["contentTypes"]}
            wanted_values = {**values, "action": action}
            if row is not None and all(getattr(row, field) == value for field, value in wanted_values.items()):
                # A deployment that changes only the code moves no tick, and resumes nothing that was paused.
                continue
            call.audit.nothing_done = False
            cron_schedule = parse_schedule(values["schedule"], values["time_zone"]) if kind == CRON else None
            values |= {"action": action, **begin_waiting(call, cron_schedule, 0)}
            if row is None:
                trigger_id = call.services.ids.uuid()
                new_row = {"app_id": app_id, "id": trigger_id, "name": name, "created_at": call.now}
                await unit.execute(insert(triggers_table), {**new_row, **values})
            else:
                trigger_id = row.id
                is_it = (_columns.app_id == app_id, _columns.id == trigger_id)
                await unit.execute(update(triggers_table).where(*is_it).values(**values))
            await follow_events(call, unit, trigger_id, 0)
    await call.services.notices.publish(call.unit, NOTICE, app_id)
    call.audit.resource_id = function
    return {"triggers": names}


async def _remove(unit: Unit, app_id: str, trigger_id: str) -> None:
    of_trigger = (deliveries.c.app_id == app_id, deliveries.c.trigger_id == trigger_id)
    await unit.execute(delete(deliveries).where(*of_trigger))
    await unit.execute(delete(triggers_table).where(_columns.app_id == app_id, _columns.id == trigger_id))
