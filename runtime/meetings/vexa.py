"""The wire of Vexa, which runs on machines of one's own. A bot has no metadata there: it is known by its meeting."""

import hmac
import re
from collections.abc import Mapping
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from pydantic_core import from_json

from baobab.runtime.meetings.provider import (
    ONE_BOT,
    Artifact,
    BotGone,
    BotOrder,
    BotReport,
    HookRefused,
    Passage,
    ProviderBusy,
    ProviderEvent,
    ProviderRefused,
    Status,
    StatusChange,
    Word,
    parse_instant,
)
from baobab.runtime.meetings.wire import Wire
from baobab.tools.core.services import HttpClient

URL = "https://api.cloud.vexa.ai"
_STATUSES: Mapping[str, tuple[str, Status]] = {
    "requested": ("joining_call", "joining"),
    "joining": ("joining_call", "joining"),
    "awaiting_admission": ("in_waiting_room", "waiting_room"),
    "needs_help": ("in_waiting_room", "waiting_room"),
    "needs_human_help": ("in_waiting_room", "waiting_room"),
    "active": ("in_call_recording", "recording"),
    "stopping": ("call_ended", "ended"),
    "completed": ("done", "done"),
    "failed": ("fatal", "fatal"),
}
_REASONS: Mapping[str, str] = {
    "stopped": "bot_received_leave_call",
    "stopped_before_admission": "bot_received_leave_call",
    "awaiting_admission_timeout": "timeout_exceeded_waiting_room",
    "awaiting_admission_rejected": "bot_kicked_from_waiting_room",
    "left_alone": "timeout_exceeded_everyone_left",
    "startup_alone": "timeout_exceeded_noone_joined",
    "evicted": "bot_kicked_from_call",
    "max_bot_time_exceeded": "timeout_exceeded_max_duration",
    "validation_error": "meeting_link_invalid",
    "auth_session_missing": "meeting_requires_sign_in",
    "join_failure": "bot_errored",
    "start_failed": "failed_to_launch_in_time",
}
_LEAVES = {
    "waitingRoomTimeoutSec": "max_wait_for_admission",
    "noOneJoinedTimeoutSec": "no_one_joined_timeout",
    "everyoneLeftTimeoutSec": "max_time_left_alone",
}
_THOUSAND = 1000
_TOLERANCE_SECONDS, _LONGEST_TIMESTAMP = 300, 16
_NOBODY = "Unknown"
_REUSED_SECONDS = 60
"""A bot that was there this long before ours was asked for is somebody else's."""


class Vexa:
    """Vexa, which transcribes in Google Meet, Teams and Zoom."""

    name = "vexa"
    is_simulated = False
    records = False
    leaves = frozenset(_LEAVES)

    def __init__(self, http_client: HttpClient, key: str, url: str, webhook_secret: str) -> None:
        self._wire = Wire(http_client, url or URL, {"x-api-key": key})
        self._secret = webhook_secret

    def find_fault(self, meeting_url: str) -> str | None:
        if parse_meeting(meeting_url) is not None:
            return None
        return "Vexa's bots join Google Meet, Zoom (`/j/NUMBER`) and Teams (`/meet/NUMBER?p=PASSCODE`)"

    async def create(self, order: BotOrder) -> str:
        meeting = parse_meeting(order.meeting_url)
        if meeting is None:
            raise ProviderRefused("meeting_link_invalid", "The link of the meeting is not valid.")
        platform, native_id, passcode = meeting
        body: dict[str, Any] = {
            "platform": platform,
            "native_meeting_id": native_id,
            "bot_name": order.bot_name,
            "transcribe_enabled": order.transcript,
            "recording_enabled": order.recording is not None,
        }
        body |= {"passcode": passcode} if passcode else {}
        seconds = order.automatic_leave
        leave = {theirs: _THOUSAND * seconds[ours] for ours, theirs in _LEAVES.items() if ours in seconds}
        body |= {"automatic_leave": leave} if leave else {}
        answer = await self._wire.send("POST", "/bots", body, starts=True, conflict=ONE_BOT)
        number = answer.get("id") if isinstance(answer, dict) else None
        if number is None:
            raise ProviderBusy("The provider's answer names no bot.")
        return f"{platform}/{native_id}/{number}"

    async def find(self, order: BotOrder) -> str | None:
        platform, native_id, _ = parse_meeting(order.meeting_url) or ("", "", "")
        for meeting in await self._list_meetings():
            created_at = parse_instant(meeting.get("created_at"))
            is_same = (meeting.get("platform"), meeting.get("native_meeting_id")) == (platform, native_id)
            if is_same and created_at and (order.created_at - created_at).total_seconds() < _REUSED_SECONDS:
                return f"{platform}/{native_id}/{meeting.get('id')}"
        return None

    async def read(self, order: BotOrder, provider_id: str) -> BotReport:
        _, _, number = provider_id.split("/")
        # Alone, since the list of meetings has only the newest ones.
        meeting = await self._wire.send("GET", f"/meetings/{quote(number)}")
        if not isinstance(meeting, dict):
            raise BotGone
        changes = _read_changes(meeting)
        is_over = any(change.status in ("done", "fatal") for change in changes)
        was_active = any(change.status == "recording" for change in changes)
        transcript = Artifact()
        if order.transcript and was_active:
            transcript = Artifact("ready" if is_over else "pending", f"transcript_{number}")
        return BotReport(tuple(changes), Artifact(), transcript, _measure(meeting) if is_over else None)

    async def read_transcript(self, order: BotOrder, provider_id: str) -> list[Passage]:
        del order
        platform, native_id, number = provider_id.split("/")
        content = await self._wire.send(
            "GET", f"/transcripts/{platform}/{quote(native_id, safe='')}?meeting_id={number}"
        )
        return read_passages(content)

    async def list_participants(self, order: BotOrder, provider_id: str) -> tuple[str, ...]:
        # It lists nobody, and knows those who have spoken.
        if not order.transcript:
            return ()
        passages = await self.read_transcript(order, provider_id)
        names = [passage["participant"]["name"] for passage in passages]
        return tuple(name for name in names if name != _NOBODY)

    async def leave(self, order: BotOrder, provider_id: str) -> None:
        del order
        platform, native_id, _ = provider_id.split("/")
        await self._wire.send("DELETE", f"/bots/{platform}/{quote(native_id, safe='')}")

    def find_next(self, order: BotOrder) -> datetime | None:
        del order
        return None

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> ProviderEvent | None:
        timestamp, sent_signature = headers.get("x-webhook-timestamp", ""), headers.get("x-webhook-signature", "")
        is_number = timestamp.isascii() and timestamp.isdigit() and len(timestamp) < _LONGEST_TIMESTAMP
        if not self._secret or not is_number or abs(now.timestamp() - int(timestamp)) > _TOLERANCE_SECONDS:
            raise HookRefused
        digest = hmac.new(self._secret.encode(), timestamp.encode() + b"." + body, sha256).hexdigest()
        if not hmac.compare_digest(f"sha256={digest}".encode(), sent_signature.encode(errors="replace")):
            raise HookRefused
        try:
            content = from_json(body)
        except ValueError:
            return None
        data = content.get("data") if isinstance(content, dict) else None
        meeting = data.get("meeting") if isinstance(data, dict) else None
        if not isinstance(meeting, dict) or meeting.get("id") is None:
            return None
        provider_id = f"{meeting.get('platform')}/{meeting.get('native_meeting_id')}/{meeting['id']}"
        # The event's own id is new with each emission: what happened is the key.
        return ProviderEvent(f"{content.get('event_type')}:{provider_id}:{meeting.get('status')}", provider_id, None)

    async def _list_meetings(self) -> list[dict[str, Any]]:
        answer = await self._wire.send("GET", "/meetings")
        meetings = answer.get("meetings") if isinstance(answer, dict) else answer
        return [each for each in meetings or [] if isinstance(each, dict)]


def parse_meeting(url: str) -> tuple[str, str, str] | None:
    """Returns a meeting's platform, its id there and its passcode; None for a link that has none of them."""
    parts = urlsplit(url)
    host, path, query = parts.hostname or "", parts.path, parse_qs(parts.query)
    if host == "meet.google.com" and (match := re.fullmatch(r"/([a-z]{3}-[a-z]{4}-[a-z]{3})", path)):
        return "google_meet", match[1], ""
    if host.endswith("zoom.us") and (match := re.fullmatch(r"/j/(\d{9,11})", path)):
        return "zoom", match[1], query.get("pwd", [""])[0]
    if host in ("teams.live.com", "teams.microsoft.com") and (match := re.fullmatch(r"/meet/(\d{10,15})", path)):
        return "teams", match[1], query.get("p", [""])[0]
    return None


def read_passages(content: Any) -> list[Passage]:
    """Returns a transcript of the provider's in the contract's shape."""
    passages: list[Passage] = []
    for segment in (content.get("segments") if isinstance(content, dict) else None) or []:
        start, end = (segment.get(name) for name in ("start", "end"))
        name = str(segment.get("speaker") or _NOBODY)
        word_start = float(start) if isinstance(start, (int, float)) else 0.0
        word_end = float(end) if isinstance(end, (int, float)) else word_start
        text = str(segment.get("text") or "").strip()
        words = _read_words(segment.get("words")) or [{"text": text, "start": word_start, "end": word_end}]
        passages.append({"participant": {"id": name, "name": name}, "words": words})
    return passages


def _read_words(content: Any) -> list[Word]:
    """Returns the words of a segment with their times; nothing unless each has them."""
    words: list[Word] = []
    for each in content if isinstance(content, list) else []:
        text, start, end = (each.get(name) if isinstance(each, dict) else None for name in ("word", "start", "end"))
        if not isinstance(text, str) or not isinstance(start, (int, float)) or not isinstance(end, (int, float)):
            return []
        words.append({"text": text.strip(), "start": float(start), "end": float(end)})
    return words


def _read_changes(meeting: Mapping[str, Any]) -> list[StatusChange]:
    """Returns the changes of a meeting, which says only its present state and when it began and ended."""
    created_at, started_at, ended_at = (
        parse_instant(meeting.get(name)) for name in ("created_at", "start_time", "end_time")
    )
    status = str(meeting.get("status"))
    details = meeting.get("data")
    reason = meeting.get("completion_reason") or (details.get("completion_reason") if isinstance(details, dict) else "")
    reason = _REASONS.get(reason, reason) if isinstance(reason, str) else None
    changes = [StatusChange("joining_call", created_at, "joining")] if created_at else []
    if started_at:
        changes.append(StatusChange("in_call_recording", started_at, "recording"))
    code, state = _STATUSES.get(status, (status, None))
    at = (ended_at if state in ("ended", "done", "fatal") else None) or parse_instant(meeting.get("updated_at"))
    if at is not None and state not in ("joining", "recording"):
        changes.append(StatusChange(code, at, state, reason or None))
    return changes


def _measure(meeting: Mapping[str, Any]) -> int | None:
    start, end = parse_instant(meeting.get("start_time")), parse_instant(meeting.get("end_time"))
    return None if start is None or end is None else max(0, round((end - start).total_seconds()))
