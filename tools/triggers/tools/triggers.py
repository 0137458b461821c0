"""/v1/{app_id}/triggers: what waits for events of an app."""

from typing import Any

from sqlalchemy import delete, func, insert, select, update

from baobab.runtime.net.webhooks import new_secret
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest
from baobab.tools.triggers.actions import seal_context
from baobab.tools.triggers.checks import check_action, check_event
from baobab.tools.triggers.errors import TooManyTriggers, TriggerInvalid, TriggerNotFound, TriggerOfFunction
from baobab.tools.triggers.functions import PREFIX, require_own
from baobab.tools.triggers.rows import describe_triggers, find_row, get_row, name_makers
from baobab.tools.triggers.schedules import parse_schedule
from baobab.tools.triggers.schemas import (
    AgentName,
    EventName,
    Filter,
    InputTemplate,
    Name,
    Prefix,
    Schedule,
    TableName,
    TimeZone,
    Trigger,
    TriggerDeleted,
    TriggerMade,
    Triggers,
    TriggerState,
    WebhookUrl,
)
from baobab.tools.triggers.subscriptions import NOTICE
from baobab.tools.triggers.tables import FREEZES, deliveries, triggers_table
from baobab.tools.triggers.toolset import triggers
from baobab.tools.triggers.waiting import begin_waiting, follow_events

MOST = 100
"""The most triggers of an app."""
_columns = triggers_table.c
_EXAMPLES = {"name": "morning", "event": "schedule", "schedule": "0 7 * * *", "webhook": "https://example.com/hook"}


@triggers.tool("GET /triggers", access=AppOwner(), effect="read")
async def triggers_list(call: Call, app_id: AppId) -> Triggers:
    """List the triggers of an app: what each waits for, what it starts, and how its deliveries go."""
    async with call.reading() as execute:
        rows = (await execute(select(triggers_table).where(_columns.app_id == app_id).order_by(_columns.name))).all()
        descriptions = await describe_triggers(call, execute, rows)
    await name_makers(call, rows, descriptions)
    return {"triggers": descriptions}


@triggers.tool("GET /triggers/{name}", access=AppOwner(), effect="read", raises=(TriggerNotFound,))
async def triggers_get(call: Call, app_id: AppId, name: Name) -> Trigger:
    """Read a trigger, and when its schedule is due next."""
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
        descriptions = await describe_triggers(call, execute, [row])
    await name_makers(call, [row], descriptions)
    return descriptions[0]


@triggers.tool(
    "PUT /triggers/{name}",
    access=AppOwner("admin"),
    effect="write",
    raises=(TriggerInvalid, TooManyTriggers, TriggerOfFunction),
    audit=Audit("trigger.set", category="app", action="update", resource="trigger"),
    rest=Rest(examples=_EXAMPLES),
    guard=Guard(grants=True),
)
async def triggers_set(
    call: Call,
    app_id: AppId,
    name: Name,
    event: EventName,
    table: TableName | None = None,
    prefix: Prefix | None = None,
    filter: Filter | None = None,
    schedule: Schedule | None = None,
    time_zone: TimeZone = "UTC",
    catch_up: bool = False,
    agent: AgentName | None = None,
    input: InputTemplate | None = None,
    webhook: WebhookUrl | None = None,
    tells_failures: bool = True,
    rotate_secret: bool = False,
) -> TriggerMade:
    """Make or replace a trigger: when an event happens, or at an hour, an agent starts or a signed webhook is sent.

    It acts with your rights, as they are each time. What users, visitors or texts from outside caused is tainted: what
    the agent writes then waits for a person.

    table: for events of rows.
    prefix: for `key.changed`: how the keys begin that it waits for.
    filter: a rule of JSON-Logic, such as {"==": [{"var": "event.data.row.status"}, "open"]}; null for every event.
    agent: the agent that starts; null for a webhook.
    input: what the agent gets, such as {"ticket": "{{ event.data.row }}"}; null for the event itself.
    schedule: for the event `schedule`, such as `0 7 * * *`.
    catch_up: whether one tick is made up for that was missed while no server ran.
    tells_failures: whether you get a mail after five failures in a row.
    rotate_secret: whether a new secret replaces the one that signs its webhooks.
    """
    if name.startswith(PREFIX):
        raise TriggerInvalid(f"`name` begins with `{PREFIX}`, as those of functions do; choose another.")
    cron = check_event(call, event, table, prefix, schedule, time_zone)
    check_action(call, filter, agent, input, webhook)
    await _require(call, "schema_describe", table=table)
    await _require(call, "agents_get", name=agent)
    change = await _find_last_change(call) if table is not None else 0
    action = {"webhook": webhook} if webhook is not None else {"agent": agent, "input": input}
    values: dict[str, Any] = {
        "event": event,
        "table_name": table,
        "prefix": prefix,
        "filter": filter,
        "schedule": schedule,
        "time_zone": time_zone,
        "catch_up": catch_up,
        "action": action,
        "tells_failures": tells_failures,
    }
    secret: str | None = None
    async with FREEZES.writing(call) as unit:
        row = await find_row(unit.execute, app_id, name)
        require_own(row)
        trigger_id = call.services.ids.uuid() if row is None else row.id
        if webhook is None:
            values["secret"] = None
        elif row is None or row.secret is None or rotate_secret:
            secret = new_secret(call.services.ids)
            values["secret"] = call.services.vault.seal(secret.encode(), seal_context(trigger_id))
        values |= begin_waiting(call, cron, change)
        if row is None:
            # Those of functions have a bound of their own: that of functions.
            is_own = (_columns.app_id == app_id, _columns.name.not_like(f"{PREFIX}%"))
            count = (await unit.execute(select(func.count()).where(*is_own))).scalar_one()
            if count >= MOST:
                raise TooManyTriggers(details={"limit": MOST})
            new_row = {"app_id": app_id, "id": trigger_id, "name": name, "created_at": call.now}
            await unit.execute(insert(triggers_table), {**new_row, **values})
        else:
            of_row = (_columns.app_id == app_id, _columns.id == trigger_id)
            await unit.execute(update(triggers_table).where(*of_row).values(**values))
        await follow_events(call, unit, trigger_id, change)
        row = await get_row(unit.execute, app_id, name)
        descriptions = await describe_triggers(call, unit.execute, [row])
    await name_makers(call, [row], descriptions)
    await call.services.notices.publish(call.unit, NOTICE, app_id)
    call.audit.resource_id = name
    call.audit.data |= {"event": event, "agent": agent, "webhook": webhook}
    return {"trigger": descriptions[0], "secret": secret}


async def _preview_delete(call: Call, app_id: AppId, name: Name) -> str:
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
    return f"It would delete the trigger {name}, which waits for {row.event}, with the history of its deliveries."


@triggers.tool(
    "DELETE /triggers/{name}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(TriggerNotFound, TriggerOfFunction),
    audit=Audit("trigger.delete", category="app", action="delete", resource="trigger"),
    guard=Guard(preview=_preview_delete),
)
async def triggers_delete(call: Call, app_id: AppId, name: Name) -> TriggerDeleted:
    """Delete a trigger with its deliveries. What waits is not started any more."""
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        require_own(row)
        of_trigger = (deliveries.c.app_id == app_id, deliveries.c.trigger_id == row.id)
        await unit.execute(delete(deliveries).where(*of_trigger))
        await unit.execute(delete(triggers_table).where(_columns.app_id == app_id, _columns.id == row.id))
    await call.services.notices.publish(call.unit, NOTICE, app_id)
    call.audit.resource_id = name
    return {"name": name, "deleted": True}


@triggers.tool(
    "POST /triggers/{name}/pause",
    access=AppOwner(),
    effect="write",
    raises=(TriggerNotFound,),
    audit=Audit("trigger.pause", category="app", action="update", resource="trigger"),
)
async def triggers_pause(call: Call, app_id: AppId, name: Name) -> TriggerState:
    """Pause a trigger. What happens meanwhile starts nothing, and what waits is skipped."""
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        of_trigger = (_columns.app_id == app_id, _columns.id == row.id)
        values = {"status": "paused", "reason": None, "next_at": None, "updated_at": call.now}
        await unit.execute(update(triggers_table).where(*of_trigger).values(**values))
    await call.services.notices.publish(call.unit, NOTICE, app_id)
    call.audit.resource_id = name
    return {"name": name, "status": "paused"}


@triggers.tool(
    "POST /triggers/{name}/resume",
    access=AppOwner("admin"),
    effect="write",
    raises=(TriggerNotFound,),
    audit=Audit("trigger.resume", category="app", action="update", resource="trigger"),
    guard=Guard(grants=True),
)
async def triggers_resume(call: Call, app_id: AppId, name: Name) -> TriggerState:
    """Resume a trigger that is paused: from now on it acts with your rights. What happened meanwhile is not made up."""
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
    change = await _find_last_change(call) if row.table_name is not None else 0
    cron = None if row.schedule is None else parse_schedule(row.schedule, row.time_zone)
    async with FREEZES.writing(call) as unit:
        row = await get_row(unit.execute, app_id, name)
        of_trigger = (_columns.app_id == app_id, _columns.id == row.id)
        await unit.execute(update(triggers_table).where(*of_trigger).values(**begin_waiting(call, cron, change)))
        await follow_events(call, unit, row.id, change)
    await call.services.notices.publish(call.unit, NOTICE, app_id)
    call.audit.resource_id = name
    return {"name": name, "status": "active"}


async def _find_last_change(call: Call) -> int:
    """Returns the number of the last change of the app's rows; 0 if there is none."""
    arguments = {"app_id": call.require_app().id, "limit": 1}
    tool = call.registry.find("data_changes")
    answer, _ = await call.registry.run(tool, arguments, call.caller, call.context, unit=call.unit)
    return answer["changes"][0]["id"] if answer["changes"] else 0


async def _require(call: Call, reader: str, **names: str | None) -> None:
    """Raises the error of the tool that reads it if the app has no such thing."""
    if None not in names.values():
        arguments = {"app_id": call.require_app().id, **names}
        await call.registry.run(call.registry.find(reader), arguments, call.caller, call.context, unit=call.unit)
