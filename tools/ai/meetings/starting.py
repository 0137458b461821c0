"""Starts a bot: checks the request, reserves the first minutes, and stores the bot with the job that follows it."""

import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID, uuid5

from sqlalchemy import func, insert, select

from baobab.runtime.meetings.opening import Meetings
from baobab.runtime.meetings.provider import MeetingProvider
from baobab.tools.ai.meetings import charges
from baobab.tools.ai.meetings.errors import (
    NothingToDo,
    ProviderUnavailable,
    ReservedMetadata,
    TooManySimulated,
    UnsupportedMeeting,
)
from baobab.tools.ai.meetings.following import FOLLOW
from baobab.tools.ai.meetings.schemas import Row
from baobab.tools.ai.meetings.tables import UNSETTLED, meeting_bots
from baobab.tools.ai.metered_call import Payer
from baobab.tools.core import Call

DEFAULT_NAME = "Baobab Notetaker"
MOST_SIMULATED = 20
"""How many simulated bots of an organisation are under way at once: they cost it nothing."""
_APPROVED = UUID("1f0c8a52-7a0e-4d0b-a6b7-6f1b6a5f2c11")
_HOSTS = re.compile(
    r"(meet\.google\.com|([a-z0-9-]+\.)*zoom\.us|([a-z0-9-]+\.)*zoomgov\.com|teams\.microsoft\.com"
    r"|teams\.live\.com|([a-z0-9-]+\.)+webex\.com)"
)
"""Google Meet, Zoom, Microsoft Teams and Webex."""
_UNSAFE = re.compile(r"[\s\\\x00-\x1f\x7f]")


def require_provider(call: Call) -> MeetingProvider:
    """Returns the provider of new bots. Raises ProviderUnavailable."""
    provider = call.services.part(Meetings).current
    if provider is None:
        raise ProviderUnavailable
    return provider


async def start_bot(
    call: Call,
    payer: Payer,
    meeting_url: str,
    *,
    recording: str | bool,
    transcript: bool,
    metadata: Mapping[str, str],
    bot_name: str = DEFAULT_NAME,
    automatic_leave: Mapping[str, int] | None = None,
) -> Row:
    """Starts a bot and returns its row. Raises the errors of STARTING (toolset.py)."""
    provider = require_provider(call)
    if recording and not provider.records:
        call.warn("This server's provider of meetings makes no recordings: there will be none, and none is charged.")
        recording = False
    ignored_leaves = sorted(set(automatic_leave or {}) - provider.leaves)
    if ignored_leaves:
        call.warn(f"The provider of meetings has no {', '.join(ignored_leaves)}: not used.")
    _check(provider, meeting_url, recording, transcript, metadata)
    services = call.services
    # The id is derived from the approval, so that a second attempt finds the bot of the first.
    attempt = call.approved_attempt
    bot_id = str(uuid5(_APPROVED, attempt.id)) if attempt else services.ids.uuid_at(call.now)
    if attempt is not None:
        # Not in the call's transaction: the ledger could not reserve anything while that holds the database.
        async with services.database.reading() as connection:
            earlier = (await connection.execute(select(meeting_bots).where(meeting_bots.c.id == bot_id))).first()
        if earlier is not None:
            return earlier
    leases: charges.Leases = {}
    if provider.is_simulated:
        await _require_room(call, provider, payer.organisation_id)
    else:
        dimensions = charges.list_dimensions(recording=recording, transcript=transcript)
        leases = await charges.reserve_start(call, payer, dimensions)
    worker = f"{FOLLOW}:{services.ids.uuid()}"
    row: dict[str, Any] = {
        "id": bot_id,
        "organisation_id": payer.organisation_id,
        "app_id": payer.app_id or "",
        "key_id": payer.key_id,
        "provider": provider.name,
        "is_asked": False,
        "attempt": 0,
        "meeting_url": meeting_url,
        "bot_name": bot_name,
        "recording": recording or None,
        "transcript": transcript,
        "automatic_leave": dict(automatic_leave or {}),
        "metadata": dict(metadata),
        "status": "joining",
        "changes": [],
        "participants": [],
        "recording_state": "none",
        "transcript_state": "none",
        "leases": leases,
        "spender": charges.build_spender(call.context.spender),
        "worker": worker,
        "created_at": call.now,
        "updated_at": call.now,
    }
    try:
        inserted_row = (await call.execute(insert(meeting_bots).values(row).returning(meeting_bots))).one()
        await services.jobs.enqueue(call.unit, FOLLOW, {"bot_id": bot_id}, job_id=worker, tenant=payer.organisation_id)
    except BaseException:
        await charges.release(services, payer.organisation_id, leases)
        raise
    call.audit.resource_id = bot_id
    return inserted_row


async def _require_room(call: Call, provider: MeetingProvider, organisation_id: str) -> None:
    """Raises TooManySimulated. Bots that start at the same time wait for each other."""
    await call.hold(organisation_id)
    columns = meeting_bots.c
    is_under_way = (UNSETTLED, columns.organisation_id == organisation_id, columns.provider == provider.name)
    count = (await call.execute(select(func.count()).where(*is_under_way))).scalar_one()
    if count >= MOST_SIMULATED:
        raise TooManySimulated(details={"limit": MOST_SIMULATED})


def check_url(provider: MeetingProvider, meeting_url: str) -> None:
    """Raises UnsupportedMeeting unless the provider's bots can join a meeting at this address."""
    problem = find_fault(meeting_url) or provider.find_fault(meeting_url)
    if problem is not None:
        raise _build_unsupported(problem)


def find_fault(meeting_url: str) -> str | None:
    """Returns why this is no address of a meeting, whoever sends the bot; None if it may be one."""
    try:
        parts = urlsplit(meeting_url)
        host = parts.hostname or ""
        has_own_port = parts.port not in (None, 443)
    except ValueError:
        return "it is not an address"
    # An address is parsed without the spaces and line ends that the provider would get with it.
    if _UNSAFE.search(meeting_url):
        return "it must have no spaces, line ends or backslashes"
    if parts.scheme != "https" or "@" in parts.netloc or has_own_port or not _HOSTS.fullmatch(host):
        return "it must be an https link of Google Meet, Zoom, Microsoft Teams or Webex"
    return "it names no meeting" if parts.path in ("", "/") else None


def _check(
    provider: MeetingProvider, meeting_url: str, recording: Any, transcript: bool, metadata: Mapping[str, str]
) -> None:
    reserved_keys = [key for key in metadata if key.startswith("bb_")]
    if reserved_keys:
        problem = "keys that begin with `bb_` are reserved"
        raise ReservedMetadata(
            details={"fields": [{"field": f"metadata.{key}", "problem": problem} for key in reserved_keys]}
        )
    if not recording and not transcript:
        raise NothingToDo
    check_url(provider, meeting_url)


def _build_unsupported(problem: str) -> UnsupportedMeeting:
    return UnsupportedMeeting(details={"fields": [{"field": "meetingUrl", "problem": problem}]})
