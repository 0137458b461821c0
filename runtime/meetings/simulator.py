"""A simulated provider: bots that pass through their states in seconds, by the installation's clock, in no real call.

The address of the meeting says how a bot fares: `?simulate=WORD` (the keys of `SCENES`) and `?simulate_seconds=20` for
the length of the call. Nothing is stored: what a bot does follows from its order and the time.
"""

import math
import struct
import wave
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import cache
from importlib.resources import files
from io import BytesIO
from urllib.parse import parse_qs, urlsplit

from baobab.runtime.meetings.provider import (
    LEAVES,
    TERMINAL,
    Artifact,
    ArtifactState,
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
)
from baobab.storage.clock import Clock

NAME = "simulator"
PARTICIPANTS = ("Ada Lovelace", "Charles Babbage")
_LINES = (
    (0, "Good morning. Shall we look at the engine first?"),
    (1, "Yes. The new cards arrive on Monday, and I will test them by Friday."),
    (0, "Then I write the notes for the translation this week."),
    (1, "Agreed. Let us meet again next Tuesday."),
)
_SECONDS, _LONGEST = 20, 86_400
_WORD_SECONDS = 0.4
_RATE = 8000


@dataclass(frozen=True, slots=True)
class Scene:
    """How a simulated call goes: when each code comes, in seconds from the start."""

    codes: tuple[tuple[float, str, Status | None, str | None], ...]
    first_attempt_only: bool = False
    busy_seconds: float = 0
    """For how long the provider has no free bot."""
    refusal: tuple[str, str] | None = None
    transcript_fails: bool = False
    transcript_seconds: float = 1
    """After how many seconds from the end of the call the transcript is ready."""


_JOIN: tuple[tuple[float, str, Status | None, str | None], ...] = (
    (0, "joining_call", "joining", None),
    (2, "in_waiting_room", "waiting_room", None),
)
_IN: tuple[tuple[float, str, Status | None, str | None], ...] = (
    *_JOIN,
    (4, "in_call_not_recording", "in_call", None),
    (5, "in_call_recording", "recording", None),
)
_RECORDING_FROM = 5.0
SCENES: Mapping[str, Scene] = {
    "": Scene(_IN),
    "waiting_room": Scene((*_JOIN, (10, "fatal", "fatal", "timeout_exceeded_waiting_room"))),
    "denied": Scene((*_JOIN, (5, "fatal", "fatal", "bot_kicked_from_waiting_room"))),
    "kicked": Scene((*_IN, (10, "fatal", "fatal", "bot_kicked_from_call"))),
    "not_found": Scene(((0, "joining_call", "joining", None), (2, "fatal", "fatal", "meeting_not_found"))),
    "crash": Scene(
        ((0, "joining_call", "joining", None), (2, "fatal", "fatal", "failed_to_launch_in_time")),
        first_attempt_only=True,
    ),
    "busy": Scene(_IN, busy_seconds=5),
    "refused": Scene((), refusal=("meeting_link_invalid", "The link of the meeting is not valid.")),
    "unknown_state": Scene((*_IN[:3], (4.5, "in_call_dancing", None, None), *_IN[3:])),
    "transcript_failed": Scene(_IN, transcript_fails=True),
    "late_transcript": Scene(_IN, transcript_seconds=120),
}
"""By the word in the meeting's address; the empty one is a call in which nothing goes wrong."""


class Simulator:
    """The provider of an installation without one."""

    name = NAME
    is_simulated = True
    records = True
    leaves = LEAVES

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def find_fault(self, meeting_url: str) -> str | None:
        word = parse_qs(urlsplit(meeting_url).query).get("simulate", [""])[0]
        return None if word in SCENES else f"`simulate` is one of {', '.join(filter(None, SCENES))}"

    async def create(self, order: BotOrder) -> str:
        scene, _ = _read_scene(order)
        if (self._clock.now() - order.created_at).total_seconds() < scene.busy_seconds:
            raise ProviderBusy("The simulated provider has no free bot.", scene.busy_seconds)
        if scene.refusal is not None:
            raise ProviderRefused(*scene.refusal)
        return f"sim_{order.id}_{order.attempt}"

    async def find(self, order: BotOrder) -> str | None:
        # Creating one again creates the same.
        del order
        return None

    async def read(self, order: BotOrder, provider_id: str) -> BotReport:
        del provider_id
        return simulate(order, self._clock.now())

    async def read_transcript(self, order: BotOrder, provider_id: str) -> list[Passage]:
        del provider_id
        return build_transcript(simulate(order, self._clock.now()).recorded_seconds or 0)

    async def list_participants(self, order: BotOrder, provider_id: str) -> tuple[str, ...]:
        # Its reports say so.
        del order, provider_id
        return ()

    async def leave(self, order: BotOrder, provider_id: str) -> None:
        # It leaves because its order says so.
        del order, provider_id

    def find_next(self, order: BotOrder) -> datetime | None:
        now = self._clock.now()
        return min((at for at in _plan(order).list_instants() if at > now), default=now)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> ProviderEvent | None:
        del headers, body, now
        raise HookRefused


@dataclass(frozen=True, slots=True)
class _Plan:
    """All that will become of a simulated bot."""

    changes: tuple[StatusChange, ...]
    recording_at: datetime | None
    end_at: datetime
    transcript_at: datetime
    transcript_fails: bool

    def list_instants(self) -> list[datetime]:
        """Returns when something new is to be heard of it."""
        return [*(change.at for change in self.changes), self.transcript_at]


def _plan(order: BotOrder) -> _Plan:
    scene, seconds = _read_scene(order)
    if scene.first_attempt_only and order.attempt:
        scene = SCENES[""]
    began_at = order.created_at + timedelta(seconds=scene.busy_seconds)
    changes = [
        StatusChange(code, began_at + timedelta(seconds=at), status, why) for at, code, status, why in scene.codes
    ]
    recording_at = next((change.at for change in changes if change.status == "recording"), None)
    end = next((change for change in changes if change.status in TERMINAL), None)
    if end is None:
        recorded_from = recording_at or began_at
        end_at, why = recorded_from + timedelta(seconds=seconds), "timeout_exceeded_everyone_left"
        if order.left_at is not None and order.left_at < end_at:
            end_at, why = max(order.left_at, began_at), "bot_received_leave_call"
        changes = [change for change in changes if change.at < end_at]
        changes += [
            StatusChange("call_ended", end_at, "ended", why),
            StatusChange("recording_done", end_at + timedelta(seconds=1), "ended"),
            StatusChange("done", end_at + timedelta(seconds=2), "done", why),
        ]
    elif order.left_at is not None and order.left_at < end.at:
        return _plan(replace(order, meeting_url=""))
    else:
        end_at = end.at
    transcript_at = end_at + timedelta(seconds=2 + scene.transcript_seconds)
    return _Plan(tuple(changes), recording_at, end_at, transcript_at, scene.transcript_fails)


def simulate(order: BotOrder, now: datetime) -> BotReport:
    """Returns the report of a simulated bot at a time."""
    plan = _plan(order)
    past_changes = tuple(change for change in plan.changes if change.at <= now)
    recorded_seconds = None
    if plan.recording_at is not None and plan.recording_at < plan.end_at:
        recorded_seconds = max(0, int((min(now, plan.end_at) - plan.recording_at).total_seconds()))
    is_over = any(change.status in TERMINAL for change in past_changes)
    recording = transcript = Artifact()
    if recorded_seconds:
        if order.recording is not None:
            recording = Artifact("ready" if is_over else "pending", f"rec_{order.id}")
        if order.transcript:
            ready: ArtifactState = "failed" if plan.transcript_fails else "ready"
            is_written = is_over and now >= plan.transcript_at
            transcript = Artifact(ready if is_written else "pending", f"tra_{order.id}")
    has_joined = any(change.status in ("in_call", "recording") for change in past_changes)
    return BotReport(past_changes, recording, transcript, recorded_seconds, PARTICIPANTS if has_joined else ())


def build_transcript(seconds: int) -> list[Passage]:
    """Returns the transcript of a simulated call, as much of it as fits into its length."""
    passages: list[Passage] = []
    at = 0.0
    for speaker, line in _LINES:
        words: list[Word] = []
        for text in line.split():
            if at + _WORD_SECONDS > seconds:
                break
            words.append({"text": text, "start": round(at, 2), "end": round(at + _WORD_SECONDS, 2)})
            at += _WORD_SECONDS
        if words:
            passages.append({"participant": {"id": str(speaker + 1), "name": PARTICIPANTS[speaker]}, "words": words})
    return passages


def read_film() -> bytes:
    """Returns the video of every simulated recording, an MP4 of some seconds."""
    return files("baobab.runtime.gateway.builtin").joinpath("film.mp4").read_bytes()


@cache
def build_sound() -> bytes:
    """Returns the sound of every simulated recording, a WAV of two seconds."""
    samples = (int(8000 * math.sin(math.tau * 330 * index / _RATE)) for index in range(2 * _RATE))
    target = BytesIO()
    with wave.open(target, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(_RATE)
        sound.writeframes(b"".join(struct.pack("<h", sample) for sample in samples))
    return target.getvalue()


def _read_scene(order: BotOrder) -> tuple[Scene, int]:
    query = parse_qs(urlsplit(order.meeting_url).query)
    seconds = query.get("simulate_seconds", [""])[0]
    length = min(int(seconds), _LONGEST) if seconds.isascii() and seconds.isdigit() else _SECONDS
    return SCENES.get(query.get("simulate", [""])[0], SCENES[""]), length
