"""The tools of an app's bots."""

from collections.abc import Mapping
from typing import Any, TypeVar

from sqlalchemy import select

from baobab.runtime.meetings.opening import Meetings
from baobab.tools.ai.meetings import bots
from baobab.tools.ai.meetings.schemas import (
    AutomaticLeave,
    BotId,
    BotLimit,
    BotName,
    Bots,
    Estimate,
    MeetingBot,
    MeetingUrl,
    Metadata,
    Minutes,
    Recording,
    StatusFilter,
    Transcript,
    UsageRow,
    UsageRows,
)
from baobab.tools.ai.meetings.starting import DEFAULT_NAME, start_bot
from baobab.tools.ai.meetings.tables import is_of, meeting_usage
from baobab.tools.ai.meetings.toolset import LISTING, READING, STARTING, TRANSCRIBED, meeting_accounts, meetings
from baobab.tools.ai.metered_call import payer_of
from baobab.tools.core import AppId, AppOwner, Audit, Call, Cursor, Rest
from baobab.tools.core.limits.money import dollars
from baobab.tools.core.simulators import mark_simulated
from baobab.tools.core.waiting import Waits

T = TypeVar("T", bound=Mapping[str, Any])
_LAST_ROWS = 100
EXAMPLE = {"meetingUrl": "https://meet.google.com/abc-defg-hij"}
STARTED = Audit("ai_meetings.start", category="ai", action="create", resource="meeting_bot")
STOPPED = Audit("ai_meetings.stop", category="ai", action="update", resource="meeting_bot")


def is_over(bot: MeetingBot) -> bool:
    # A transcript may come after the call's end; what the call costs is known with it.
    return bot["status"] == "fatal" or (bot["status"] == "done" and bot["chargedUsd"] is not None)


@meetings.tool(
    "POST /",
    access=AppOwner(),
    effect="external",
    raises=STARTING,
    audit=STARTED,
    rest=Rest(examples=EXAMPLE),
)
async def meetings_start(
    call: Call,
    app_id: AppId,
    meetingUrl: MeetingUrl,
    transcript: bool = True,
    recording: Recording = "mp4",
    metadata: Metadata | None = None,
    botName: BotName = DEFAULT_NAME,
    automaticLeave: AutomaticLeave | None = None,
) -> MeetingBot:
    """Send a bot into a video call, which records and transcribes it.

    The answer comes at once. Read the bot (op:meetings_get) until its status is `done` or `fatal`, or have its events
    sent to you (op:meetings_webhook_set).

    transcript: whether what is said is transcribed.
    """
    del app_id
    payer = payer_of(call)
    row = await start_bot(
        call,
        payer,
        meetingUrl,
        recording=recording,
        transcript=transcript,
        metadata=metadata or {},
        bot_name=botName,
        automatic_leave=dict(automaticLeave or {}),  # type: ignore[arg-type]
    )
    return bots.describe_bot(call, row)


@meetings.tool("GET /{bot_id}", access=AppOwner(), effect="read", raises=READING, waits=Waits(is_over))
async def meetings_get(call: Call, app_id: AppId, bot_id: BotId) -> MeetingBot:
    """Read what a bot does now, and once it is `done`, where its recording and its transcript are.

    The addresses are good for some minutes. Files are kept for 7 days after the call.
    """
    del app_id
    return await bots.show_bot(call, payer_of(call), bot_id)


@meetings.tool(
    "DELETE /{bot_id}",
    access=AppOwner(),
    effect="external",
    raises=READING,
    audit=STOPPED,
    rest=Rest(status=204),
)
async def meetings_stop(call: Call, app_id: AppId, bot_id: BotId) -> None:
    """Make a bot leave its call. What it has recorded until then is kept, and charged."""
    del app_id
    await bots.stop_bot(call, payer_of(call), bot_id)


@meetings.tool("GET /", access=AppOwner(), effect="read", raises=LISTING)
async def meetings_list(
    call: Call, app_id: AppId, status: StatusFilter = None, limit: BotLimit = 20, cursor: Cursor | None = None
) -> Bots:
    """List an app's bots, newest first. Addresses of files are only in op:meetings_get."""
    del app_id
    return await bots.list_bots(call, payer_of(call), status, limit, cursor)


@meetings.tool("GET /_estimate", access=AppOwner(), effect="read")
async def meetings_estimate(call: Call, app_id: AppId, durationMinutes: Minutes, transcript: bool = True) -> Estimate:
    """Estimate what the recording of a meeting costs.

    transcript: whether it is transcribed too.
    """
    del app_id
    return estimate(call, durationMinutes, transcript=transcript)


def estimate(call: Call, minutes: int, *, transcript: bool) -> Estimate:
    """Returns the price of a meeting."""
    usd = bots.estimate_price(call, minutes, transcript=transcript)
    estimate: Estimate = {"usd": usd}
    return mark_if_simulated(call, estimate)


def mark_if_simulated(call: Call, result: T) -> T:
    """Returns a result, marked where new bots would only be simulated."""
    provider = call.services.part(Meetings).current
    return mark_simulated(call, result) if provider is not None and provider.is_simulated else result


@meetings.tool("GET /{bot_id}/transcript", access=AppOwner(), effect="read", raises=TRANSCRIBED, taints=True)
async def meetings_transcript(call: Call, app_id: AppId, bot_id: BotId) -> Transcript:
    """Read what was said in a call: by whom, and each word with its seconds from the beginning."""
    del app_id
    row = await bots.get_bot(call, payer_of(call), bot_id)
    return {"passages": await bots.read_transcript(call, row)}


@meeting_accounts.tool("GET /{app_id}/ai/meetings/usage", access=AppOwner(), effect="read")
async def meetings_usage(call: Call, app_id: AppId) -> UsageRows:
    """Read what an app's bots were charged for: one row for each bot and dimension, the last 100."""
    del app_id
    payer, columns = payer_of(call), meeting_usage.c
    of_app = is_of(meeting_usage, payer.organisation_id, payer.app_id or "")
    query = select(meeting_usage).where(of_app).order_by(columns.created_at.desc(), columns.id.desc())
    async with call.services.database.reading() as connection:
        usage = (await connection.execute(query.limit(_LAST_ROWS))).all()
    return {"rows": [_describe(call, row) for row in usage]}


def _describe(call: Call, row: Any) -> UsageRow:
    usage_row: UsageRow = {
        "id": row.id,
        "dimension": row.dimension,
        "seconds": row.seconds,
        "usd_charged": dollars(row.price),
        "created_at": row.created_at,
        "bot_id": row.bot_id,
    }
    return usage_row if row.charged == row.price else mark_simulated(call, usage_row)
