"""/v1/{app_id}/triggers/{name}/deliveries: what triggers have started; and a test of one."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import literal, select, tuple_, update

from baobab.runtime.agents.spec.templates import TemplateError
from baobab.tools.core import AppId, AppOwner, Audit, Call, Cursor, Guard, Rest, decode_cursor, encode_cursor
from baobab.tools.core.app_events import Occurrence
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.triggers.actions import render_input
from baobab.tools.triggers.errors import DeliveryNotFound, TriggerNotFound, TriggerPaused
from baobab.tools.triggers.jobs import subscriptions_of
from baobab.tools.triggers.rows import get_row
from baobab.tools.triggers.schemas import Deliveries, Delivery, DeliveryId, EventData, Name, Status, Tested
from baobab.tools.triggers.subscriptions import build_payload, enqueue_delivery, find_misfit, write_delivery
from baobab.tools.triggers.tables import FREEZES, deliveries
from baobab.tools.triggers.toolset import triggers

_LIST = "trigger deliveries"
_columns = deliveries.c
_ORDER = (_columns.created_at, _columns.sequence, _columns.id)
Limit = Annotated[int, Field(ge=1, le=100, description="Deliveries in one page.")]


@triggers.tool(
    "GET /triggers/{name}/deliveries",
    access=AppOwner(),
    effect="read",
    raises=(TriggerNotFound, CursorInvalid),
    taints=True,
)
async def triggers_deliveries(
    call: Call,
    app_id: AppId,
    name: Name,
    status: Status | None = None,
    limit: Limit = 20,
    cursor: Cursor | None = None,
) -> Deliveries:
    """List what a trigger has started, is to start, or has not started and why; newest first, of 30 days.

    status: only deliveries with this status; null for all.
    """
    vault = call.services.vault
    async with call.reading() as execute:
        row = await get_row(execute, app_id, name)
        query = select(deliveries).where(_columns.app_id == app_id, _columns.trigger_id == row.id)
        if status is not None:
            query = query.where(_columns.status == status)
        if cursor is not None:
            at, sequence, last_id = decode_cursor(vault, f"{_LIST}:{row.id}:{status}", cursor)
            last = (datetime.fromisoformat(at), int(sequence), last_id)
            query = query.where(tuple_(*_ORDER) < tuple_(*map(literal, last, (each.type for each in _ORDER))))
        query = query.order_by(*(each.desc() for each in _ORDER)).limit(limit + 1)
        rows = (await execute(query)).all()
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        position = (last.created_at.isoformat(), str(last.sequence), last.id)
        following = encode_cursor(vault, f"{_LIST}:{row.id}:{status}", *position)
    return {"deliveries": [_describe(each) for each in rows[:limit]], "next_cursor": following}


@triggers.tool(
    "POST /triggers/{name}/deliveries/{delivery_id}/send-again",
    access=AppOwner(),
    effect="external",
    raises=(TriggerNotFound, DeliveryNotFound, TriggerPaused),
    audit=Audit("trigger.send_again", category="app", action="invoke", resource="trigger"),
    rest=Rest(status=202),
)
async def triggers_send_again(call: Call, app_id: AppId, name: Name, delivery_id: DeliveryId) -> Delivery:
    """Start what a trigger starts once more for an event: a new run of the agent, or the same webhook with its id."""
    async with FREEZES.writing(call) as unit:
        trigger = await get_row(unit.execute, app_id, name)
        if trigger.status == "paused":
            raise TriggerPaused
        is_it = (_columns.app_id == app_id, _columns.trigger_id == trigger.id, _columns.id == delivery_id)
        values = {"status": "pending", "attempts": 0, "error": None, "run_id": None, "answer_status": None}
        values |= {"delivered_at": None, "next_attempt_at": call.now, "rounds": _columns.rounds + 1}
        change = update(deliveries).where(*is_it).values(**values)
        row: Any = (await unit.execute(change.returning(deliveries))).first()
        if row is None:
            raise DeliveryNotFound
        await enqueue_delivery(unit, call.services, call.require_app(), row.id, row.rounds)
    call.audit.resource_id = name
    call.audit.data["delivery_id"] = delivery_id
    return _describe(row)


@triggers.tool(
    "POST /triggers/{name}/test",
    access=AppOwner("admin"),
    effect="external",
    raises=(TriggerNotFound, TriggerPaused),
    audit=Audit("trigger.test", category="app", action="invoke", resource="trigger"),
    guard=Guard(grants=True),
)
async def triggers_test(
    call: Call, app_id: AppId, name: Name, data: EventData | None = None, run: bool = False
) -> Tested:
    """Try a trigger with a sample event: whether its filter lets it through, and what it would start with.

    data: what the event's `data` holds; null for the example of triggers_events.
    run: true to really start it, with the trigger's rights; what it starts is tainted.
    """
    async with call.reading() as execute:
        trigger = await get_row(execute, app_id, name)
    kind = subscriptions_of(call.services).events.get(trigger.event)
    sample = dict(data) if data is not None else {} if kind is None else dict(kind.sample)
    if data is None and trigger.table_name is not None:
        sample["table"] = trigger.table_name
    if data is None and kind is not None and trigger.prefix is not None:
        sample[kind.subject] = f"{trigger.prefix}1"
    occurrence = Occurrence(f"test:{call.services.ids.uuid()}", trigger.event, call.now, "test", sample)
    payload = build_payload(app_id, occurrence, 0)
    fits, problem = find_misfit(trigger.filter, {"event": payload})
    agent, webhook, agent_input = trigger.action.get("agent"), trigger.action.get("webhook"), None
    if agent is not None and problem is None:
        try:
            agent_input = render_input(trigger.action, payload)
        except TemplateError as exc:
            problem = f"The input cannot be made: {exc}."
    delivery_id = None
    if run and fits and problem is None:
        if trigger.status == "paused":
            raise TriggerPaused
        async with FREEZES.writing(call) as unit:
            trigger = await get_row(unit.execute, app_id, name)
            delivery_id = await write_delivery(unit, call.services, call.require_app(), trigger, occurrence, (0, True))
    call.audit.resource_id = name
    call.audit.nothing_done = delivery_id is None
    return {
        "fits": fits,
        "problem": problem,
        "event": payload,
        "agent": agent,
        "input": agent_input,
        "webhook": webhook,
        "delivery_id": delivery_id,
    }


def _describe(row: Any) -> Delivery:
    return {
        "id": row.id,
        "event_id": row.event_id,
        "event": row.event,
        "subject": row.subject,
        "sequence": row.sequence,
        "status": row.status,
        "attempts": row.attempts,
        "error": row.error,
        "run_id": row.run_id,
        "answer_status": row.answer_status,
        "tainted": row.tainted,
        "created_at": row.created_at,
        "delivered_at": row.delivered_at,
        "next_attempt_at": row.next_attempt_at,
        "payload": row.payload,
    }
