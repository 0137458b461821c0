"""The wire of Attendee, by its HTTP API."""

import base64
import binascii
import hmac
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlsplit

from baobab.runtime.meetings.provider import (
    ATTEMPT,
    BOT_ID,
    Artifact,
    ArtifactState,
    BotGone,
    BotOrder,
    BotReport,
    HookRefused,
    HookTooInvolved,
    Passage,
    ProviderBusy,
    ProviderEvent,
    ProviderRefused,
    Status,
    StatusChange,
    Word,
    parse_instant,
    read_names,
)
from baobab.runtime.meetings.wire import Wire
from baobab.tools.core.services import HttpClient

URL = "https://app.attendee.dev"
_EVENTS: Mapping[str, tuple[str, Status]] = {
    "join_requested": ("joining_call", "joining"),
    "put_in_waiting_room": ("in_waiting_room", "waiting_room"),
    "joined_meeting": ("in_call_not_recording", "in_call"),
    "recording_permission_granted": ("in_call_recording", "recording"),
    "recording_resumed": ("in_call_recording", "recording"),
    "recording_paused": ("in_call_not_recording", "in_call"),
    "left_meeting": ("call_ended", "ended"),
    "meeting_ended": ("call_ended", "ended"),
    "post_processing_completed": ("done", "done"),
    "recording_permission_denied": ("recording_permission_denied", "in_call"),
    "could_not_join_meeting": ("fatal", "fatal"),
    "fatal_error": ("fatal", "fatal"),
}
_SUB_CODES: Mapping[str, str] = {
    "waiting_room_timeout_exceeded": "timeout_exceeded_waiting_room",
    "request_to_join_denied": "bot_kicked_from_waiting_room",
    "meeting_not_found": "meeting_not_found",
    "meeting_not_started_waiting_for_host": "meeting_not_started",
    "login_required": "meeting_requires_sign_in",
    "auto_leave_only_participant_in_meeting": "timeout_exceeded_everyone_left",
    "auto_leave_silence": "timeout_exceeded_silence_detected",
    "auto_leave_max_uptime_exceeded": "timeout_exceeded_max_duration",
    "bot_login_attempt_failed": "bot_sign_in_failed",
    "out_of_credits": "provider_unpaid",
    "heartbeat_timeout": "bot_errored",
    "attendee_internal_error": "bot_errored",
    "ui_element_not_found": "bot_errored",
    "bot_not_launched": "failed_to_launch_in_time",
    "user_requested": "bot_received_leave_call",
    "process_terminated": "failed_to_launch_in_time",
}
_TRANSCRIPTS: Mapping[str, ArtifactState] = {"complete": "ready", "failed": "failed", "not_started": "none"}
_FORMATS = {"mp4": "mp4", "audio_only": "mp3", None: "none"}
_LEAVES = {
    "waitingRoomTimeoutSec": "waiting_room_timeout_seconds",
    "noOneJoinedTimeoutSec": "wait_for_host_to_start_meeting_timeout_seconds",
    "everyoneLeftTimeoutSec": "only_participant_in_meeting_timeout_seconds",
}
_ASKED_TO_LEAVE = "leave_requested"
_MOST_NAMES = 1000
_THOUSAND = 1000
_MOST_PARTS, _LONGEST_NUMBER = 1000, 40
"""Of a webhook. With them, 64 KiB of JSON from anybody cost about two milliseconds."""
_SIGNATURE = re.compile(r"[A-Za-z0-9+/]{43}=")
"""A SHA-256 digest in base64."""


class Attendee:
    """Attendee, which records and transcribes in Zoom, Google Meet and Teams."""

    name = "attendee"
    is_simulated = False
    records = True
    leaves = frozenset(_LEAVES)

    def __init__(self, http_client: HttpClient, key: str, url: str, webhook_secret: str) -> None:
        self._wire = Wire(http_client, f"{url or URL}/api/v1", {"authorization": f"Token {key}"})
        self._secret = webhook_secret

    def find_fault(self, meeting_url: str) -> str | None:
        return "Attendee's bots cannot join Webex" if ".webex.com/" in meeting_url else None

    async def create(self, order: BotOrder) -> str:
        body: dict[str, Any] = {
            "meeting_url": order.meeting_url,
            "bot_name": order.bot_name,
            "metadata": {**order.metadata, BOT_ID: order.id, ATTEMPT: str(order.attempt)},
            "deduplication_key": _build_key(order),
            "recording_settings": {"format": _FORMATS[order.recording]},
            "automatic_leave_settings": _build_leave(order.automatic_leave),
        }
        return _require_id(await self._wire.send("POST", "/bots", body, starts=True))

    async def find(self, order: BotOrder) -> str | None:
        answer = await self._wire.send("GET", f"/bots?deduplication_key={quote(_build_key(order))}")
        results = answer.get("results") if isinstance(answer, dict) else None
        # A server that does not know the filter lists all bots.
        own = [bot for bot in results or [] if bot.get("deduplication_key") == _build_key(order)]
        return _require_id(own[0]) if own else None

    async def read(self, order: BotOrder, provider_id: str) -> BotReport:
        path = f"/bots/{quote(provider_id)}"
        bot = await self._wire.send("GET", path)
        if not isinstance(bot, dict):
            raise ProviderBusy("The provider's answer is no object.")
        changes = _read_events(bot.get("events"))
        recording = Artifact()
        if order.recording is not None and bot.get("recording_state") == "complete" and _is_over(changes):
            recording = await self._find_recording(path, provider_id)
        transcript = Artifact()
        if order.transcript:
            state = str(bot.get("transcription_state"))
            transcript = Artifact(_TRANSCRIPTS.get(state, "pending"), f"transcript_{provider_id}")
        return BotReport(changes, recording, transcript)

    async def _find_recording(self, path: str, provider_id: str) -> Artifact:
        try:
            answer = await self._wire.send("GET", f"{path}/recording")
        except (BotGone, ProviderRefused):
            return Artifact("pending", f"recording_{provider_id}")
        url = answer.get("url") if isinstance(answer, dict) else None
        return Artifact("ready" if url else "pending", f"recording_{provider_id}", url)

    async def read_transcript(self, order: BotOrder, provider_id: str) -> list[Passage]:
        del order
        return read_passages(await self._wire.send("GET", f"/bots/{quote(provider_id)}/transcript"))

    async def list_participants(self, order: BotOrder, provider_id: str) -> tuple[str, ...]:
        del order
        names: list[str] = []
        cursor: str | None = ""
        while cursor is not None and len(names) < _MOST_NAMES:
            answer = await self._wire.send("GET", f"/bots/{quote(provider_id)}/participants{cursor}")
            names += read_names(answer.get("results") if isinstance(answer, dict) else None)
            next_page = answer.get("next") if isinstance(answer, dict) else None
            # Of its address, only the place in the list is taken: it is the provider's to say where that is.
            cursor = f"?{urlsplit(next_page).query}" if isinstance(next_page, str) and "?" in next_page else None
        return tuple(names)

    async def leave(self, order: BotOrder, provider_id: str) -> None:
        del order
        await self._wire.send("POST", f"/bots/{quote(provider_id)}/leave")

    def find_next(self, order: BotOrder) -> datetime | None:
        del order
        return None

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> ProviderEvent | None:
        del now
        sent_signature = headers.get("x-webhook-signature", "")
        # First what costs nothing: the content must be read before anybody knows who has sent it.
        if not self._secret or not _SIGNATURE.fullmatch(sent_signature):
            raise HookRefused
        # Texts are read quickly, whatever their length, but each part of a list or an object costs something.
        if sum(map(body.count, (b",", b"[", b"{"))) > _MOST_PARTS:
            raise HookTooInvolved
        try:
            content = json.loads(body, parse_int=_read_int, parse_float=_read_float)
            # What is signed is the content in one certain spelling, and not the bytes as they came.
            text = json.dumps(content, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
            key = base64.b64decode(self._secret)
        except (ValueError, RecursionError, binascii.Error) as exc:
            raise HookRefused from exc
        signature = base64.b64encode(hmac.digest(key, text.encode(errors="replace"), sha256)).decode()
        if not hmac.compare_digest(signature.encode(), sent_signature.encode()):
            raise HookRefused
        if not isinstance(content, dict) or not isinstance(content.get("bot_id"), str):
            return None
        metadata, data = content.get("bot_metadata"), content.get("data")
        data = data if isinstance(data, dict) else {}
        event = {"type": data.get("event_type"), "sub_type": data.get("event_sub_type")}
        change = _read_event({**event, "created_at": data.get("created_at")})
        key_text = change.id if change is not None else str(content.get("idempotency_key"))
        bot_id = metadata.get(BOT_ID) if isinstance(metadata, dict) else None
        return ProviderEvent(
            f"{content.get('trigger')}:{content['bot_id']}:{key_text}", content["bot_id"], bot_id, change
        )


def read_passages(content: Any) -> list[Passage]:
    """Returns a transcript of the provider's in the contract's shape; its times begin with the first passage."""
    utterances = [each for each in content if isinstance(each, dict)] if isinstance(content, list) else []
    began_at = min((_read_number(each.get("timestamp_ms")) for each in utterances), default=0)
    passages: list[Passage] = []
    for utterance in utterances:
        start = (_read_number(utterance.get("timestamp_ms")) - began_at) / _THOUSAND
        end = start + _read_number(utterance.get("duration_ms")) / _THOUSAND
        speech = utterance.get("transcription")
        text = speech.get("transcript") if isinstance(speech, dict) else speech
        name = str(utterance.get("speaker_name") or "Unknown")
        words: list[Word] = [{"text": str(text or ""), "start": round(start, 3), "end": round(end, 3)}]
        passages.append(
            {"participant": {"id": str(utterance.get("speaker_uuid") or name), "name": name}, "words": words}
        )
    return passages


def _read_int(digits: str) -> int:
    return int(_require_short(digits))


def _read_float(digits: str) -> float:
    return float(_require_short(digits))


def _require_short(digits: str) -> str:
    if len(digits) > _LONGEST_NUMBER:
        raise ValueError("such a number takes long to read")
    return digits


def _read_number(value: Any) -> float:
    return float(value) if isinstance(value, (int, float)) else 0.0


def _build_key(order: BotOrder) -> str:
    return f"{order.id}-{order.attempt}"


def _build_leave(asked: Mapping[str, int]) -> dict[str, int]:
    return {theirs: asked[ours] for ours, theirs in _LEAVES.items() if ours in asked}


def _require_id(bot: Any) -> str:
    bot_id = bot.get("id") if isinstance(bot, dict) else None
    if not isinstance(bot_id, str) or not bot_id:
        raise ProviderBusy("The provider's answer names no bot.")
    return bot_id


def _read_events(events: Any) -> tuple[StatusChange, ...]:
    """Returns the changes of a bot. Why it leaves is said when it is asked to, and not again when it has left."""
    changes: list[StatusChange] = []
    why: str | None = None
    for event in events or []:
        change = _read_event(event)
        if change is None:
            continue
        if change.code == _ASKED_TO_LEAVE:
            why = change.sub_code
        elif change.status == "ended" and change.sub_code is None:
            change = replace(change, sub_code=why)
        changes.append(change)
    return tuple(changes)


def _read_event(event: Any) -> StatusChange | None:
    kind = event.get("type") if isinstance(event, dict) else None
    instant = parse_instant(event.get("created_at")) if isinstance(event, dict) else None
    if not isinstance(kind, str) or instant is None:
        return None
    code, status = _EVENTS.get(kind, (kind, None))
    sub_code = event.get("sub_type")
    return StatusChange(
        code, instant, status, _SUB_CODES.get(sub_code, sub_code) if isinstance(sub_code, str) else None
    )


def _is_over(changes: tuple[StatusChange, ...]) -> bool:
    return any(change.status in ("done", "fatal") for change in changes)
