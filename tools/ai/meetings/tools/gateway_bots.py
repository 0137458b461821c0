"""The tools of bots that belong to no app."""

from baobab.runtime.meetings.opening import Meetings
from baobab.tools.ai.access import GATEWAY_CALLERS
from baobab.tools.ai.meetings import bots
from baobab.tools.ai.meetings.schemas import (
    Availability,
    BotId,
    BotLimit,
    Bots,
    Estimate,
    MeetingBot,
    MeetingUrl,
    Metadata,
    Minutes,
    Recording,
    StatusFilter,
    Transcript,
)
from baobab.tools.ai.meetings.starting import start_bot
from baobab.tools.ai.meetings.tools.app_bots import EXAMPLE, STARTED, STOPPED, estimate, is_over, mark_if_simulated
from baobab.tools.ai.meetings.toolset import LISTING, READING, STARTING, TRANSCRIBED, gateway_meetings
from baobab.tools.ai.metered_call import payer_of
from baobab.tools.core import EVERYBODY, Call, Cursor, Rest
from baobab.tools.core.waiting import Waits


@gateway_meetings.tool(
    "POST /",
    access=GATEWAY_CALLERS,
    effect="external",
    raises=STARTING,
    audit=STARTED,
    rest=Rest(status=201, examples=EXAMPLE),
)
async def gateway_meetings_start(
    call: Call,
    meetingUrl: MeetingUrl,
    transcript: bool = True,
    recording: Recording = "mp4",
    metadata: Metadata | None = None,
) -> MeetingBot:
    """Send a bot of your organisation into a video call, which records and transcribes it.

    The answer comes at once. Read the bot (op:gateway_meetings_get) until its status is `done` or `fatal`. For a bot of
    an app, use op:meetings_start.

    transcript: whether what is said is transcribed.
    """
    payer = payer_of(call)
    row = await start_bot(call, payer, meetingUrl, recording=recording, transcript=transcript, metadata=metadata or {})
    return bots.describe_bot(call, row)


@gateway_meetings.tool("GET /{bot_id}", access=GATEWAY_CALLERS, effect="read", raises=READING, waits=Waits(is_over))
async def gateway_meetings_get(call: Call, bot_id: BotId) -> MeetingBot:
    """Read what a bot of your organisation does now, and once it is `done`, where its recording and transcript are."""
    return await bots.show_bot(call, payer_of(call), bot_id)


@gateway_meetings.tool(
    "DELETE /{bot_id}",
    access=GATEWAY_CALLERS,
    effect="external",
    raises=READING,
    audit=STOPPED,
    rest=Rest(status=204),
)
async def gateway_meetings_stop(call: Call, bot_id: BotId) -> None:
    """Make a bot of your organisation leave its call. What it has recorded until then is kept, and charged."""
    await bots.stop_bot(call, payer_of(call), bot_id)


@gateway_meetings.tool("GET /", access=GATEWAY_CALLERS, effect="read", raises=LISTING)
async def gateway_meetings_list(
    call: Call, status: StatusFilter = None, limit: BotLimit = 20, cursor: Cursor | None = None
) -> Bots:
    """List the bots of your organisation that belong to no app, newest first."""
    return await bots.list_bots(call, payer_of(call), status, limit, cursor)


@gateway_meetings.tool("GET /_estimate", access=GATEWAY_CALLERS, effect="read")
async def gateway_meetings_estimate(call: Call, durationMinutes: Minutes, transcript: bool = True) -> Estimate:
    """Estimate what the recording of a meeting costs your organisation.

    transcript: whether it is transcribed too.
    """
    return estimate(call, durationMinutes, transcript=transcript)


@gateway_meetings.tool("GET /_status", access=EVERYBODY, effect="read")
async def gateway_meetings_status(call: Call) -> Availability:
    """Tell whether this server has bots that join video calls, and whether they are only simulated."""
    availability: Availability = {"available": call.services.part(Meetings).current is not None}
    return mark_if_simulated(call, availability)


@gateway_meetings.tool(
    "GET /{bot_id}/transcript", access=GATEWAY_CALLERS, effect="read", raises=TRANSCRIBED, taints=True
)
async def gateway_meetings_transcript(call: Call, bot_id: BotId) -> Transcript:
    """Read what was said in a call of your organisation's bot: by whom, and each word with its seconds."""
    row = await bots.get_bot(call, payer_of(call), bot_id)
    return {"passages": await bots.read_transcript(call, row)}
