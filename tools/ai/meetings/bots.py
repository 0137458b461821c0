"""Reads, lists and stops bots, for the gateway and for apps alike."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal

from sqlalchemy import func, select

from baobab.runtime.meetings.provider import (
    TERMINAL,
    BotGone,
    Passage,
    ProviderBusy,
    ProviderRefused,
)
from baobab.runtime.meetings.reasons import explain, is_transient
from baobab.tools.ai.meetings import charges
from baobab.tools.ai.meetings.errors import BotNotFound, NotKept
from baobab.tools.ai.meetings.following import find_provider
from baobab.tools.ai.meetings.progress import build_order
from baobab.tools.ai.meetings.schemas import Bots, MeetingBot, Row
from baobab.tools.ai.meetings.tables import is_of, meeting_bots, meeting_usage
from baobab.tools.ai.metered_call import Payer
from baobab.tools.core import Call, Unavailable, decode_cursor, encode_cursor
from baobab.tools.core.limits.money import usd
from baobab.tools.core.signed_urls import build_signed_url
from baobab.tools.core.simulators import mark_simulated

KEPT = timedelta(days=7)
"""How long after the call its recording and its transcript can be had."""
_URL_SECONDS = 900
_LEAVE = "meetings_leave"
_OUR_REASONS = ("credits_exhausted", "app_deleted")
_columns = meeting_bots.c


async def get_bot(call: Call, payer: Payer, bot_id: str) -> Row:
    """Returns the row of a bot. Raises BotNotFound for one of another app or organisation."""
    of_owner = is_of(meeting_bots, payer.organisation_id, payer.app_id or "")
    query = select(meeting_bots).where(of_owner, _columns.id == bot_id)
    async with call.services.database.reading() as connection:
        row = (await connection.execute(query)).first()
    if row is None:
        raise BotNotFound
    return row


async def show_bot(call: Call, payer: Payer, bot_id: str) -> MeetingBot:
    """Returns a bot with fresh addresses of what it has recorded."""
    row = await get_bot(call, payer, bot_id)
    [bot] = await describe_bots(call, [row])
    if row.status not in TERMINAL or not _is_kept(call, row):
        return bot
    bot["recordingUrl"] = await _find_recording(call, row)
    if row.transcript_state == "ready":
        bot["transcriptUrl"] = build_content_url(call, row, "transcript")
    return bot


async def list_bots(call: Call, payer: Payer, status: str | None, limit: int, cursor: str | None) -> Bots:
    """Returns a page of bots, newest first. Those in a list have no addresses: each takes a request to the provider."""
    of_owner = is_of(meeting_bots, payer.organisation_id, payer.app_id or "")
    list_name = f"meetings:{payer.organisation_id}:{payer.app_id}:{status}"
    query = select(meeting_bots).where(of_owner).order_by(_columns.created_at.desc(), _columns.id.desc())
    if status is not None:
        query = query.where(_columns.status == status)
    if cursor is not None:
        (last_id,) = decode_cursor(call.services.vault, list_name, cursor)
        query = query.where(_columns.id < last_id)
    async with call.services.database.reading() as connection:
        rows = (await connection.execute(query.order_by(None).order_by(_columns.id.desc()).limit(limit + 1))).all()
    following = encode_cursor(call.services.vault, list_name, rows[limit - 1].id) if len(rows) > limit else None
    return {"bots": await describe_bots(call, rows[:limit]), "nextCursor": following}


async def stop_bot(call: Call, payer: Payer, bot_id: str) -> None:
    """Makes a bot leave its call. Does nothing for one that is over, or is leaving already."""
    row = await get_bot(call, payer, bot_id)
    call.audit.resource_id = bot_id
    if row.status in TERMINAL or row.left_at is not None:
        call.audit.nothing_done = True
        return
    arguments = {"bot_id": bot_id, "because": "bot_received_leave_call"}
    job_id = f"{_LEAVE}:{bot_id}"
    await call.services.jobs.enqueue(call.unit, _LEAVE, arguments, job_id=job_id, tenant=row.organisation_id)


async def read_transcript(call: Call, row: Row) -> list[Passage]:
    """Returns the transcript of a bot. Raises NotKept, and Unavailable while the provider does not answer."""
    provider = find_provider(call.services, row)
    if row.transcript_state != "ready" or not _is_kept(call, row) or provider is None:
        raise NotKept
    try:
        return await provider.read_transcript(build_order(row), row.provider_id)
    except ProviderBusy as busy:
        raise Unavailable("The provider of meetings does not answer at the moment.", retry_after=busy.seconds) from busy
    except (BotGone, ProviderRefused) as exc:
        raise NotKept from exc


def build_content_url(call: Call, row: Row, kind: Literal["recording", "transcript"]) -> str:
    """Returns an address of this server at which a file of a bot can be read for some minutes."""
    return build_signed_url(call, "GET", content_path(row.id, kind), _URL_SECONDS)


def content_path(bot_id: str, kind: str) -> str:
    return f"/v1/ai/meetings/{bot_id}/content/{kind}"


async def describe_bots(call: Call, rows: Sequence[Row]) -> list[MeetingBot]:
    """Returns bots as answers show them, without addresses."""
    usage = meeting_usage.c
    sums = select(usage.bot_id, func.sum(usage.price).label("price"))
    query = sums.where(usage.bot_id.in_([row.id for row in rows])).group_by(usage.bot_id)
    async with call.services.database.reading() as connection:
        prices = {cost.bot_id: int(cost.price) for cost in await connection.execute(query)} if rows else {}
    return [describe_bot(call, row, prices.get(row.id, 0)) for row in rows]


def describe_bot(call: Call, row: Row, price: int = 0) -> MeetingBot:
    """Returns a bot as answers show it, without addresses. price: what it has cost, in nano-dollars."""
    provider = find_provider(call.services, row)
    code = row.sub_code if row.status in TERMINAL or row.status == "ended" else None
    if row.left_because in _OUR_REASONS and code is not None:
        # The provider knows only that the bot was told to leave.
        code = row.left_because
    bot: MeetingBot = {
        "id": row.id,
        "status": row.status,
        "startedAt": row.started_at,
        "completedAt": row.completed_at,
        "durationSeconds": row.seconds,
        "recordingUrl": None,
        "transcriptUrl": None,
        "botName": row.bot_name,
        "metadata": row.metadata,
        "participants": row.participants,
        "reason": row.refusal or explain(code),
        "retryable": row.status == "fatal" and is_transient(row.sub_code),
        "chargedUsd": None if row.settled_at is None else usd(price),
    }
    if provider is not None and provider.is_simulated:
        bot = mark_simulated(call, bot)
    return bot


def estimate_price(call: Call, minutes: int, *, transcript: bool) -> float:
    """Returns the price of a meeting of some minutes that is recorded, in dollars."""
    dimensions = charges.list_dimensions(recording=True, transcript=transcript)
    markup = call.services.options.ai_markup
    return usd(sum(charges.compute_price(dimension, 60 * minutes, markup) for dimension in dimensions))


def _is_kept(call: Call, row: Row) -> bool:
    return row.completed_at is None or call.now - row.completed_at < KEPT


async def _find_recording(call: Call, row: Row) -> str | None:
    """Returns a fresh address of a recording; None, with a warning, while the provider does not answer."""
    provider = find_provider(call.services, row)
    if row.recording is None or row.recording_state != "ready" or provider is None:
        return None
    if provider.is_simulated:
        return build_content_url(call, row, "recording")
    try:
        report = await provider.read(build_order(row), row.provider_id)
    except (ProviderBusy, ProviderRefused, BotGone):
        call.warn("The provider does not answer, so recordingUrl is null. Read the bot again in a minute.")
        return None
    url = report.recording.url
    # It becomes a link of the console: whatever a provider answers, it must not be a script.
    if url is not None and not url.startswith(("https://", "http://")):
        call.warn("The provider's address of the recording is no web address, so recordingUrl is null.")
        return None
    return url
