"""The wire of Recall.ai, version 1.11: its words are those of the contract."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import quote

from pydantic_core import from_json

from baobab.runtime.meetings.provider import (
    ATTEMPT,
    BOT_ID,
    LEAVES,
    Artifact,
    ArtifactState,
    BotGone,
    BotOrder,
    BotReport,
    HookRefused,
    Passage,
    ProviderBusy,
    ProviderEvent,
    Status,
    StatusChange,
    Word,
    parse_instant,
    read_names,
)
from baobab.runtime.meetings.wire import Wire
from baobab.runtime.net.webhooks import is_signed
from baobab.tools.core.services import HttpClient

URL = "https://us-east-1.recall.ai"
_STATUSES: Mapping[str, Status] = {
    "ready": "joining",
    "joining_call": "joining",
    "in_waiting_room": "waiting_room",
    "in_call_not_recording": "in_call",
    "recording_permission_allowed": "in_call",
    "recording_permission_denied": "in_call",
    "in_call_recording": "recording",
    "call_ended": "ended",
    "recording_done": "ended",
    "done": "done",
    "analysis_done": "done",
    "analysis_failed": "done",
    "media_expired": "done",
    "fatal": "fatal",
}
_KEPT_HOURS = 168
_ARTIFACTS: Mapping[str, ArtifactState] = {"done": "ready", "failed": "failed"}


class Recall:
    """Recall.ai, which records and transcribes in Zoom, Google Meet, Teams and Webex."""

    name = "recall"
    is_simulated = False
    records = True
    leaves = LEAVES

    def __init__(self, http_client: HttpClient, key: str, url: str, webhook_secret: str) -> None:
        self._wire = Wire(http_client, f"{url or URL}/api/v1", {"authorization": f"Token {key}"})
        self._secret = webhook_secret

    def find_fault(self, meeting_url: str) -> str | None:
        del meeting_url
        return None

    async def create(self, order: BotOrder) -> str:
        body = {
            "meeting_url": order.meeting_url,
            "bot_name": order.bot_name,
            "metadata": {**order.metadata, BOT_ID: order.id, ATTEMPT: str(order.attempt)},
            "recording_config": _build_recording(order),
            "automatic_leave": _build_leave(order.automatic_leave),
        }
        answer = await self._send("POST", "/bot/", body, starts=True)
        return _require_id(answer)

    async def find(self, order: BotOrder) -> str | None:
        query = f"metadata__{BOT_ID}={quote(order.id)}&metadata__{ATTEMPT}={order.attempt}"
        answer = await self._send("GET", f"/bot/?{query}")
        results = answer.get("results") or []
        # What the filter means is the provider's affair; whose bot it is, we look at ourselves.
        own = [bot for bot in results if _get_metadata(bot) == (order.id, str(order.attempt))]
        return _require_id(own[0]) if own else None

    async def read(self, order: BotOrder, provider_id: str) -> BotReport:
        del order
        bot = await self._send("GET", f"/bot/{quote(provider_id)}/")
        changes = [
            _read_change(change.get("code"), change.get("created_at"), change.get("sub_code"))
            for change in bot.get("status_changes") or []
        ]
        recordings = [recording for recording in bot.get("recordings") or [] if isinstance(recording, dict)]
        return BotReport(
            changes=tuple(change for change in changes if change is not None),
            recording=_find_artifact(recordings, "video_mixed", "audio_mixed"),
            transcript=_find_artifact(recordings, "transcript"),
            recorded_seconds=_measure(recordings),
        )

    async def read_transcript(self, order: BotOrder, provider_id: str) -> list[Passage]:
        report = await self.read(order, provider_id)
        if report.transcript.url is None:
            raise BotGone
        return read_passages(await self._wire.fetch(report.transcript.url))

    async def list_participants(self, order: BotOrder, provider_id: str) -> tuple[str, ...]:
        del order
        bot = await self._send("GET", f"/bot/{quote(provider_id)}/")
        names: list[str] = []
        for recording in bot.get("recordings") or []:
            events = (recording.get("media_shortcuts") or {}).get("participant_events") or {}
            url = (events.get("data") or {}).get("participants_download_url")
            people = await self._wire.fetch(url) if isinstance(url, str) else []
            names += read_names(people)
        return tuple(names)

    async def leave(self, order: BotOrder, provider_id: str) -> None:
        del order
        await self._wire.send("POST", f"/bot/{quote(provider_id)}/leave_call/")

    def find_next(self, order: BotOrder) -> datetime | None:
        del order
        return None

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> ProviderEvent | None:
        # A workspace without a secret does not sign at all: everybody could send its events.
        if not self._secret or not is_signed(self._secret, headers, body, now):
            raise HookRefused
        try:
            content = from_json(body)
        except ValueError:
            return None
        data = content.get("data") if isinstance(content, dict) else None
        bot = data.get("bot") if isinstance(data, dict) else None
        if not isinstance(data, dict) or not isinstance(bot, dict) or not isinstance(bot.get("id"), str):
            return None
        event, status = str(content.get("event")), data.get("data")
        status = status if isinstance(status, dict) else {}
        code, at = status.get("code"), status.get("updated_at")
        is_state = event.startswith("bot.")
        return ProviderEvent(
            id=f"{event}:{bot['id']}:{code}:{at}",
            provider_id=bot["id"],
            bot_id=_get_metadata(bot)[0],
            change=_read_change(code, at, status.get("sub_code")) if is_state else None,
        )

    async def _send(self, method: str, path: str, body: Any = None, *, starts: bool = False) -> dict[str, Any]:
        answer = await self._wire.send(method, path, body, starts=starts)
        if not isinstance(answer, dict):
            raise ProviderBusy("The provider's answer is no object.")
        return answer


def read_passages(content: Any) -> list[Passage]:
    """Returns a transcript of the provider's in the contract's shape."""
    passages: list[Passage] = []
    for passage in content if isinstance(content, list) else []:
        speaker = passage.get("participant") or {}
        words: list[Word] = []
        for word in passage.get("words") or []:
            start = _read_seconds(word.get("start_timestamp"))
            end = _read_seconds(word.get("end_timestamp"), start)
            words.append({"text": str(word.get("text") or ""), "start": start, "end": end})
        name = str(speaker.get("name") or "Unknown")
        passages.append({"participant": {"id": str(speaker.get("id") or name), "name": name}, "words": words})
    return passages


def _read_seconds(stamp: Any, otherwise: float = 0.0) -> float:
    relative = stamp.get("relative") if isinstance(stamp, dict) else stamp
    return float(relative) if isinstance(relative, (int, float)) else otherwise


def _build_recording(order: BotOrder) -> dict[str, Any]:
    config: dict[str, Any] = {"retention": {"type": "timed", "hours": _KEPT_HOURS}}
    # The video is on unless it is said to be off.
    config["video_mixed_mp4"] = {} if order.recording == "mp4" else None
    if order.recording == "audio_only":
        config["audio_mixed_mp3"] = {}
    if order.transcript:
        config["transcript"] = {"provider": {"meeting_captions": {}}}
    return config


def _build_leave(asked: Mapping[str, int]) -> dict[str, Any]:
    leave: dict[str, Any] = {}
    names = {
        "waitingRoomTimeoutSec": "waiting_room_timeout",
        "noOneJoinedTimeoutSec": "noone_joined_timeout",
        "inCallNotRecordingTimeoutSec": "in_call_not_recording_timeout",
    }
    leave |= {theirs: asked[ours] for ours, theirs in names.items() if ours in asked}
    if "everyoneLeftTimeoutSec" in asked:
        leave["everyone_left_timeout"] = {"timeout": asked["everyoneLeftTimeoutSec"]}
    return leave


def _require_id(bot: Mapping[str, Any]) -> str:
    bot_id = bot.get("id")
    if not isinstance(bot_id, str) or not bot_id:
        raise ProviderBusy("The provider's answer names no bot.")
    return bot_id


def _get_metadata(bot: Mapping[str, Any]) -> tuple[str | None, str | None]:
    metadata = bot.get("metadata")
    if not isinstance(metadata, dict):
        return None, None
    return metadata.get(BOT_ID), metadata.get(ATTEMPT)


def _read_change(code: Any, at: Any, sub_code: Any) -> StatusChange | None:
    instant = parse_instant(at)
    if not isinstance(code, str) or instant is None:
        return None
    return StatusChange(code, instant, _STATUSES.get(code), sub_code if isinstance(sub_code, str) else None)


def _find_artifact(recordings: list[dict[str, Any]], *kinds: str) -> Artifact:
    """Returns the first artifact of a kind that is ready, else the state of the last one."""
    best_artifact = Artifact()
    for recording in recordings:
        for kind in kinds:
            artifact = (recording.get("media_shortcuts") or {}).get(kind)
            if not isinstance(artifact, dict):
                continue
            state = _ARTIFACTS.get(str((artifact.get("status") or {}).get("code")), "pending")
            url = (artifact.get("data") or {}).get("download_url")
            best_artifact = Artifact(state, artifact.get("id"), url if isinstance(url, str) else None)
            if state == "ready":
                return best_artifact
    return best_artifact


def _measure(recordings: list[dict[str, Any]]) -> int | None:
    """Returns the seconds of all recordings that are complete; None if there is none."""
    seconds = []
    for recording in recordings:
        start, end = parse_instant(recording.get("started_at")), parse_instant(recording.get("completed_at"))
        if start is not None and end is not None:
            seconds.append((end - start).total_seconds())
    return max(0, round(sum(seconds))) if seconds else None
