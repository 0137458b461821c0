"""The shapes of what the tools of triggers take and answer."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints
from typing_extensions import TypedDict

from baobab.tools.core import JsonObject, NotSecret, Text, Uuid
from baobab.tools.core.types import Json

Name = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]*$", min_length=1, max_length=63),
    Field(description="The trigger, by its name in the app.", examples=["new-ticket"]),
]
EventName = Annotated[
    str,
    Text(100, min_length=1),
    Field(description="The event, as triggers_events lists them.", examples=["row.inserted"]),
]
OwnName = Annotated[
    str,
    StringConstraints(pattern=r"^[a-z0-9][a-z0-9_.-]*$", min_length=1, max_length=60),
    Field(description="The event's name; triggers wait for `custom.NAME`.", examples=["order-paid"]),
]
TableName = Annotated[str, Text(63, min_length=1), Field(description="The table whose rows it waits for.")]
Prefix = Annotated[
    str,
    Text(512),
    NotSecret("the beginning of names of entries"),
    Field(description="How the keys begin that it waits for.", examples=["order:"]),
]
Filter = Annotated[
    JsonObject,
    Field(
        description="A rule of JSON-Logic about `event`; null for every event.",
        examples=[{"==": [{"var": "event.data.row.status"}, "open"]}],
    ),
]
Schedule = Annotated[
    str, Text(200, min_length=1), Field(description="A cron expression of five fields.", examples=["0 7 * * *"])
]
TimeZone = Annotated[
    str, Text(60, min_length=1), Field(description="In which time zone its hours are.", examples=["Europe/Prague"])
]
AgentName = Annotated[str, Text(64, min_length=1), Field(description="The agent that it starts.")]
InputTemplate = Annotated[
    JsonObject,
    Field(
        description="What the agent gets, with placeholders such as {{ event.data.row.title }}; null for the event.",
        examples=[{"ticket": "{{ event.data.row }}"}],
    ),
]
WebhookUrl = Annotated[
    str, Text(2048, min_length=1), Field(description="Where it sends the event.", examples=["https://example.com/hook"])
]
EventData = Annotated[JsonObject, Field(description="What the event's `data` holds.")]
DeliveryId = Annotated[Uuid, Field(description="The delivery's id.")]
Status = Literal["pending", "delivered", "failed", "skipped"]


class Trigger(TypedDict):
    name: str
    event: str
    table: str | None
    prefix: str | None
    filter: Json
    schedule: str | None
    time_zone: str
    catch_up: bool
    next_at: datetime | None
    next_times: Annotated[list[datetime], Field(description="When its schedule is due next.")]
    agent: str | None
    input: Json
    webhook: str | None
    function: Annotated[str | None, Field(description="The function of the app that has it, and that it starts.")]
    tells_failures: bool
    status: Literal["active", "paused"]
    reason: Annotated[str | None, Field(description="Why it was paused, if a person did not pause it.")]
    remark: Annotated[str | None, Field(description="What went wrong beside its deliveries.")]
    failures: Annotated[int, Field(description="Deliveries that have failed since the last that did not.")]
    waiting: Annotated[int, Field(description="Deliveries that are still to be made.")]
    made_by: Annotated[str | None, Field(description="With whose rights it acts.")]
    last_event_at: datetime | None
    created_at: datetime
    updated_at: datetime


class Triggers(TypedDict):
    triggers: list[Trigger]


class TriggerMade(TypedDict):
    trigger: Trigger
    secret: Annotated[
        str | None, Field(description="Signs its webhooks, as standardwebhooks.com says; shown only where it is new.")
    ]


class FunctionFollowed(TypedDict):
    triggers: list[str]


class TriggerState(TypedDict):
    name: str
    status: Literal["active", "paused"]


class TriggerDeleted(TypedDict):
    name: str
    deleted: Literal[True]


class Delivery(TypedDict):
    id: str
    event_id: str
    event: str
    subject: str
    sequence: Annotated[int, Field(description="Orders the deliveries of one subject.")]
    status: Status
    attempts: int
    error: str | None
    run_id: str | None
    answer_status: int | None
    tainted: Annotated[bool, Field(description="Whether a user, a visitor or a text from outside caused it.")]
    created_at: datetime
    delivered_at: datetime | None
    next_attempt_at: datetime | None
    payload: Annotated[Json, Field(description="The event as it is passed on.")]


class Deliveries(TypedDict):
    deliveries: list[Delivery]
    next_cursor: str | None


class Tested(TypedDict):
    fits: Annotated[bool, Field(description="Whether the filter lets the event through.")]
    problem: Annotated[str | None, Field(description="Why it would fail.")]
    event: Json
    agent: str | None
    input: Annotated[Json, Field(description="What the agent would get.")]
    webhook: str | None
    delivery_id: Annotated[str | None, Field(description="What was started; null unless `run` was true.")]


class EventKind(TypedDict):
    name: str
    description: str
    example: Annotated[dict[str, Any], Field(description="The event as filters and receivers see it.")]


class EventKinds(TypedDict):
    events: list[EventKind]


class Emitted(TypedDict):
    event_id: str
    awaited: Annotated[bool, Field(description="Whether a trigger waits for events of this kind.")]
