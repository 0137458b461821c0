"""The toolsets of meeting bots: the gateway's, an app's, and those of usage and webhooks, whose errors are flat."""

from baobab.tools.ai.clones import MEETINGS
from baobab.tools.ai.meetings.errors import (
    FLAT_MEETINGS_ENVELOPE,
    GATEWAY_MEETINGS_ENVELOPE,
    MEETINGS_ENVELOPE,
    BotNotFound,
    CalendarNotConnected,
    NothingToDo,
    NotKept,
    ProviderUnavailable,
    ReservedMetadata,
    TooManyCalendars,
    TooManySimulated,
    UnsupportedMeeting,
)
from baobab.tools.core import RateLimited, Toolset, Unavailable
from baobab.tools.core.app_events import AppEvent
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.core.pagination import CursorInvalid

TRANSCRIPT_READY = "meetings.transcript_ready"
"""The event that a transcript can be read; its data have `bot_id`."""
STATUS_CHANGED = "meetings.status_changed"
"""The event that a bot is in its call, or that its work has ended; its data have `bot_id`, `status` and `sub_code`."""
_BOT = {"bot_id": "5b2f7c9e-0000-4000-8000-000000000000"}
STARTING = (
    ProviderUnavailable,
    UnsupportedMeeting,
    ReservedMetadata,
    NothingToDo,
    TooManySimulated,
    CreditsExhausted,
    BudgetExhausted,
)
READING, LISTING = (BotNotFound,), (CursorInvalid,)
TRANSCRIBED = (BotNotFound, NotKept)
CALENDARS = (ProviderUnavailable, CalendarNotConnected, TooManyCalendars)

_RAISES = (RateLimited, Unavailable)

gateway_meetings = Toolset(
    "gateway_meetings",
    "Bots that join, record and transcribe video calls, at the expense of the caller's organisation.",
    base="/v1/ai/meetings",
    envelope=GATEWAY_MEETINGS_ENVELOPE,
    raises=_RAISES,
)
meetings = Toolset(
    "meetings",
    "Bots of an app that join, record and transcribe video calls.",
    base="/v1/{app_id}/ai/meetings",
    envelope=MEETINGS_ENVELOPE,
    raises=_RAISES,
    clones=MEETINGS,
    events=(
        AppEvent(
            "meeting.transcript_ready",
            TRANSCRIPT_READY,
            "The transcript of a meeting can be read.",
            _BOT,
            "bot_id",
        ),
        AppEvent(
            "meeting.joined",
            STATUS_CHANGED,
            "A bot is in its call.",
            {**_BOT, "status": "in_call", "sub_code": None},
            "bot_id",
            lambda data: data["status"] in ("in_call", "recording"),
        ),
        AppEvent(
            "meeting.ended",
            STATUS_CHANGED,
            "A bot has done its work.",
            {**_BOT, "status": "done", "sub_code": "timeout_exceeded_everyone_left"},
            "bot_id",
            lambda data: data["status"] == "done",
        ),
        AppEvent(
            "meeting.failed",
            STATUS_CHANGED,
            "A bot could not do its work.",
            {**_BOT, "status": "fatal", "sub_code": "provider_lost"},
            "bot_id",
            lambda data: data["status"] == "fatal",
        ),
    ),
)
meeting_accounts = Toolset(
    "meeting_accounts",
    "What an app's meeting bots have cost, and where events about bots are sent.",
    base="/v1",
    envelope=FLAT_MEETINGS_ENVELOPE,
    raises=_RAISES,
)
