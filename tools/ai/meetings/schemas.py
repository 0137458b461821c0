"""The types that requests and answers about meeting bots share."""

from datetime import datetime
from typing import Annotated, Any, Literal, NotRequired

from pydantic import ConfigDict, Field, with_config
from typing_extensions import TypedDict

from baobab.runtime.meetings.provider import Passage, Status
from baobab.tools.core import NameText, NotSecret, Text, Uuid
from baobab.tools.core.simulators import Simulated

MeetingUrl = Annotated[
    str,
    Text(2048, min_length=1),
    Field(
        description="The full link of the meeting, as its invitation has it.",
        examples=["https://meet.google.com/abc-defg-hij"],
    ),
]
Recording = Annotated[Literal["mp4", "audio_only", False], Field(description="`mp4`, `audio_only`, or false for none.")]
_Key = Annotated[str, Text(100, min_length=1)]
_Value = Annotated[str, Text(500)]
Metadata = Annotated[
    dict[_Key, _Value],
    Field(max_length=20, description="Texts of yours by key, which come back with the bot and its events."),
]
BotName = Annotated[str, NameText(64, min_length=1), Field(description="The name that the others in the call see.")]
Leave = Annotated[int, Field(ge=1, le=86_400, strict=True)]


@with_config(ConfigDict(extra="forbid"))
class AutomaticLeave(TypedDict):
    """After how many seconds the bot leaves by itself; the provider's own default for what is left out."""

    waitingRoomTimeoutSec: NotRequired[Annotated[Leave, Field(description="In the waiting room.")]]
    noOneJoinedTimeoutSec: NotRequired[Annotated[Leave, Field(description="Nobody else has ever joined.")]]
    everyoneLeftTimeoutSec: NotRequired[Annotated[Leave, Field(description="Everybody else has left.")]]
    inCallNotRecordingTimeoutSec: NotRequired[Annotated[Leave, Field(description="In the call without recording.")]]


BotId = Annotated[Uuid, Field(description="The bot's id.")]
StatusFilter = Annotated[Status | None, Field(description="Only bots in this state.")]
BotLimit = Annotated[int, Field(ge=1, le=100, description="Bots in one page.")]
Minutes = Annotated[int, Field(ge=1, le=1440, description="The length of the meeting.", examples=[60])]


class MeetingBot(Simulated):
    id: str
    status: Status
    startedAt: Annotated[datetime | None, Field(description="When it began to record.")]
    completedAt: Annotated[datetime | None, Field(description="When the call ended for it.")]
    durationSeconds: Annotated[int | None, Field(description="The seconds that it recorded.")]
    recordingUrl: Annotated[str | None, Field(description="Good for a short while; read the bot for another one.")]
    transcriptUrl: Annotated[str | None, Field(description="Good for a short while; read the bot for another one.")]
    botName: str
    metadata: dict[str, str]
    participants: Annotated[list[str], Field(description="Who was seen in the call.")]
    reason: Annotated[str | None, Field(description="Why it ended, or did not get in, in words.")]
    retryable: Annotated[bool, Field(description="For `fatal`: whether another bot may get in now.")]
    chargedUsd: Annotated[float | None, Field(description="What it cost in all; null until nothing more is due.")]


class Bots(TypedDict):
    bots: list[MeetingBot]
    nextCursor: Annotated[str | None, Field(description="Send it as `cursor` for the next page.")]


class Estimate(Simulated):
    usd: float


class Availability(Simulated):
    available: bool


class UsageRow(Simulated):
    id: str
    dimension: Literal["recording", "transcription"]
    seconds: int
    usd_charged: Annotated[str, Field(description="Dollars, exactly.")]
    created_at: datetime
    bot_id: str


class UsageRows(TypedDict):
    rows: Annotated[list[UsageRow], Field(description="The last 100, newest first.")]


class Transcript(TypedDict):
    passages: Annotated[list[Passage], Field(description="What each participant said, in order.")]


ForwardUrl = Annotated[
    str, Text(2048, min_length=1), Field(description="Where events are sent.", examples=["https://example.com/hook"])
]


class WebhookSet(TypedDict):
    ok: Literal[True]
    app_id: str | None
    forward_url: str
    secret: Annotated[str | None, Field(description="Signs events. Only in the answer that creates or rotates it.")]
    webhook_secret: Annotated[
        str | None, Field(description="The same secret in the form that libraries of standardwebhooks.com take.")
    ]


class Webhook(TypedDict):
    app_id: str | None
    forward_url: str | None
    key_id: Annotated[str | None, NotSecret("an id"), Field(description="The first 16 characters of the secret.")]
    updated_at: datetime | None


CollectionName = Annotated[str, Text(64, min_length=1), Field(description="A collection of the app.")]
AgentName = Annotated[str, Text(64, min_length=1), Field(description="An agent of the app.")]


class TranscriptFailure(TypedDict):
    bot_id: str
    at: datetime
    message: str


class TranscriptSettings(TypedDict):
    collection: Annotated[str | None, Field(description="The collection in which each becomes a document.")]
    agent: Annotated[str | None, Field(description="The agent that is started with each.")]
    substrate: Annotated[bool, Field(description="Whether each becomes a source artifact of the substrate.")]
    failure: Annotated[
        TranscriptFailure | None, Field(description="The last transcript with which this failed since it was set.")
    ]


class Delivery(TypedDict):
    id: str
    bot_id: str
    event: str
    url: str
    status: Literal["pending", "delivered", "failed"]
    attempts: int
    answer_status: int | None
    error: str | None
    created_at: datetime
    delivered_at: datetime | None
    next_attempt_at: datetime | None


class Deliveries(TypedDict):
    deliveries: list[Delivery]
    next_cursor: str | None


CalendarToolkit = Annotated[
    Literal["google-calendar", "outlook"], Field(description="The service that has the calendar.")
]
CalendarUser = Annotated[Uuid, Field(description="The user of the app whose calendar it is.")]
CalendarId = Annotated[Uuid, Field(description="The calendar's id.")]
CalendarAccount = Annotated[str, Text(300, min_length=1)]
TitleText = Annotated[str, Text(200, min_length=1)]
MostADay = Annotated[int, Field(ge=1, le=50, strict=True)]


class MeetingCalendar(TypedDict):
    id: str
    user_id: str
    toolkit: str
    account: str | None
    enabled: bool
    reason: Annotated[str | None, Field(description="Why it was switched off by itself.")]
    title_contains: str | None
    unanswered: bool
    recording: Recording
    transcript: bool
    bot_name: str
    most_a_day: int
    account_id: Annotated[str | None, Field(description="The account whose right is used.")]
    key_id: Annotated[str | None, NotSecret("an id"), Field(description="The key by which it was set, if it was one.")]
    read_at: Annotated[datetime | None, Field(description="When the calendar was read last.")]
    failure: Annotated[str | None, Field(description="Why it could not be read last.")]
    created_at: datetime
    updated_at: datetime


class MeetingCalendars(TypedDict):
    calendars: list[MeetingCalendar]


class CalendarEventView(TypedDict):
    id: str
    calendar_id: str
    title: str
    meeting_url: str
    starts_at: datetime
    ends_at: datetime
    status: Annotated[
        Literal["planned", "sent", "cancelled", "failed", "missed"],
        Field(description="`cancelled`: moved, cancelled or declined. `missed`: over before a bot could be sent."),
    ]
    bot_id: str | None
    message: Annotated[str | None, Field(description="Why no bot was sent, or it was told to leave.")]


class CalendarEvents(TypedDict):
    events: Annotated[list[CalendarEventView], Field(description="The 100 that begin last, latest first.")]


class CalendarDeleted(TypedDict):
    id: str
    deleted: Literal[True]


class Empty(TypedDict):
    """An answer that says nothing but that a webhook was taken."""

    ok: Literal[True]


Row = Any
"""A row of `meeting_bots`."""
