"""/v1/{app_id}/events: what triggers can wait for, and the app's own events."""

from typing import Annotated

from pydantic import Field

from baobab.tools.core import AppId, AppOwner, Audit, Call, NotSecret, Rest, Text
from baobab.tools.core.app_events import CUSTOM, Occurrence
from baobab.tools.core.guard.texts import find_origin
from baobab.tools.triggers.jobs import subscriptions_of
from baobab.tools.triggers.schemas import Emitted, EventData, EventKind, EventKinds, OwnName
from baobab.tools.triggers.subscriptions import CUSTOM_TYPE, build_payload
from baobab.tools.triggers.toolset import triggers

_OWN: EventKind = {
    "name": f"{CUSTOM}NAME",
    "description": "An event of the app's own, which op:events_emit emits.",
    "example": {},
}
EventId = Annotated[
    str,
    Text(60, min_length=1),
    NotSecret("a name of the caller's own"),
    Field(description="Of two events with one id, only the first starts something."),
]
Subject = Annotated[str, Text(300, min_length=1), Field(description="What it is about; those of one have an order.")]


@triggers.tool("GET /events", access=AppOwner(), effect="read")
async def triggers_events(call: Call, app_id: AppId) -> EventKinds:
    """List the events for which triggers of an app can wait, each with an example."""
    kinds: list[EventKind] = []
    for event in sorted(subscriptions_of(call.services).events.values(), key=lambda each: each.name):
        sample = Occurrence("5f0c…", event.name, call.now, f"{event.name.partition('.')[0]}:…", event.sample)
        example = build_payload(app_id, sample, 1)
        kinds.append({"name": event.name, "description": event.description, "example": example})
    return {"events": [*kinds, _OWN]}


@triggers.tool(
    "POST /events",
    access=AppOwner(),
    effect="write",
    audit=Audit("event.emit", category="app", action="create", resource="event", tallied=True),
    rest=Rest(status=202, examples={"name": "order-paid", "data": {"order": 17}}),
)
async def events_emit(
    call: Call,
    app_id: AppId,
    name: OwnName,
    data: EventData,
    subject: Subject | None = None,
    id: EventId | None = None,
) -> Emitted:
    """Emit an event of the app's own, `custom.NAME`: triggers that wait for it start what they start.

    data: at most 64 kB as JSON. What a run of an agent emits after it has read text from outside is tainted.
    """
    services, app = call.services, call.require_app()
    event = {"name": name, "data": data, "subject": subject, "id": id}
    event_id = await services.jobs.emit(
        call.unit,
        CUSTOM_TYPE,
        app_id=app_id,
        data=event,
        tenant=app.organisation_id,
        origin=find_origin(call),
    )
    assert event_id is not None
    is_awaited = await services.subscriptions.waits_for(app_id, CUSTOM_TYPE, call.unit)
    call.audit.resource_id = name
    return {"event_id": id or event_id, "awaited": is_awaited}
