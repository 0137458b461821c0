"""Attendee on loopback, from its public documents: the OpenAPI document and the guide to webhooks."""

import base64
import hmac
import json
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

from aiohttp import web

from tests.tools.ai.meetings.fake_provider import KEY, FakeProvider

SECRET = base64.b64encode(b"attendee secret of 32 bytes long").decode()
_STATES = {
    "join_requested": "joining",
    "put_in_waiting_room": "waiting_room",
    "joined_meeting": "joined_not_recording",
    "recording_permission_granted": "joined_recording",
    "leave_requested": "leaving",
    "left_meeting": "post_processing",
    "meeting_ended": "post_processing",
    "could_not_join": "fatal_error",
    "fatal_error": "fatal_error",
    "post_processing_completed": "ended",
}
_LAST_STATES = ("ended", "fatal_error")
_HAVING_ENDED = (*_LAST_STATES, "post_processing")


@dataclass
class FakeAttendee(FakeProvider):
    bots: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def answer(self, request: web.BaseRequest, body: Any) -> web.StreamResponse:
        if request.headers.get("authorization") != f"Token {KEY}":
            return web.json_response({"detail": "Invalid token."}, status=401)
        if request.path == "/api/v1/bots" and request.method == "POST":
            return self._create(request, body)
        if self.outages:
            return web.json_response({}, status=self.outages.pop(0))
        if request.path == "/api/v1/bots":
            key = request.query["deduplication_key"]
            results = [bot for bot in reversed(self.bots.values()) if bot["deduplication_key"] == key]
            return web.json_response({"next": None, "previous": None, "results": results})
        _, _, _, _, bot_id, *rest = request.path.split("/")
        bot = self.bots.get(bot_id)
        if bot is None:
            return web.json_response({"detail": "Not found."}, status=404)
        return self._answer_about(bot, rest[0] if rest else "")

    def _answer_about(self, bot: dict[str, Any], what: str) -> web.StreamResponse:
        if what == "leave":
            if bot["state"] in _HAVING_ENDED:
                return web.json_response({"error": f"A bot that is {bot['state']} cannot leave."}, status=400)
            self.left.append(bot["id"])
            self.move(bot["id"], "leave_requested", "user_requested")
        if what == "participants":
            people = [{"id": "par_1", "name": "Grace Hopper", "uuid": "u1", "user_uuid": None, "is_host": True}]
            return web.json_response({"next": None, "previous": None, "results": people})
        if what == "transcript":
            speech = {"transcript": "Ship it.", "words": None}
            utterance: dict[str, Any] = {
                "speaker_name": "Grace Hopper",
                "speaker_uuid": "u1",
                "speaker_user_uuid": None,
            }
            utterance |= {"timestamp_ms": 1_800_000_001_500, "duration_ms": 750}
            return web.json_response([{**utterance, "speaker_is_host": True, "transcription": speech}])
        if what == "recording":
            if bot["recording_state"] != "complete":
                return web.json_response({"error": "There is no recording."}, status=404)
            url = f"https://recordings.example/{bot['id']}.mp4?at={self.clock.time()}"
            return web.json_response({"url": url, "start_timestamp_ms": 1_800_000_000_000})
        return web.json_response(bot)

    def _create(self, request: web.BaseRequest, body: dict[str, Any]) -> web.StreamResponse:
        refusal = self.refuse(body)
        if refusal is not None:
            return refusal
        missing = [name for name in ("meeting_url", "bot_name") if name not in body]
        if missing:
            return web.json_response({name: ["This field is required."] for name in missing}, status=400)
        key = body["deduplication_key"]
        if any(bot["deduplication_key"] == key and bot["state"] not in _LAST_STATES for bot in self.bots.values()):
            return web.json_response({"deduplication_key": ["A bot with this key is under way."]}, status=400)
        bot_id = f"bot_{len(self.bots)}"
        bot = {"id": bot_id, "meeting_url": body["meeting_url"], "metadata": body["metadata"], "state": "ready"}
        bot |= {"events": [], "transcription_state": "not_started", "recording_state": "not_started"}
        self.bots[bot_id] = bot | {"join_at": None, "deduplication_key": key}
        self.lose_answer(request)
        return web.json_response(self.bots[bot_id], status=201)

    def move(self, bot_id: str, event: str, sub_type: str | None = None) -> dict[str, Any]:
        """Makes something happen to a bot now, and returns the webhook that tells it."""
        bot, at = self.bots[bot_id], self.clock.now().isoformat().replace("+00:00", "Z")
        state, bot["state"] = bot["state"], _STATES.get(event, bot["state"])
        bot["events"].append({"type": event, "sub_type": sub_type, "metadata": {}, "created_at": at})
        if event == "recording_permission_granted":
            bot |= {"recording_state": "in_progress", "transcription_state": "in_progress"}
        if bot["state"] in _LAST_STATES and bot["recording_state"] == "in_progress":
            bot["recording_state"] = "complete"
        data = {"new_state": bot["state"], "old_state": state, "created_at": at, "event_metadata": {}}
        data |= {"event_type": event, "event_sub_type": sub_type}
        return self._build_webhook(bot, "bot.state_change", data)

    def finish(self, bot_id: str, state: str = "complete") -> dict[str, Any]:
        """Makes the transcript of a bot ready, or fail, and returns the last webhook about it."""
        bot = self.bots[bot_id]
        bot["transcription_state"] = state
        return self._build_webhook(bot, "transcript.update", {"speaker_name": "Grace Hopper", "timestamp_ms": 1})

    def _build_webhook(self, bot: dict[str, Any], trigger: str, data: dict[str, Any]) -> dict[str, Any]:
        key = f"{trigger} {bot['id']} {len(bot['events'])}"
        names = {"idempotency_key": key, "bot_id": bot["id"], "bot_metadata": bot["metadata"]}
        return {**names, "trigger": trigger, "data": data}


def sign(event: Any, secret: str = SECRET) -> dict[str, Any]:
    """The request with a webhook, as the provider sends it: what is signed is spelt otherwise than what is sent."""
    canonical_text = json.dumps(event, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    digest = hmac.digest(base64.b64decode(secret), canonical_text.encode(), sha256)
    headers = {"content-type": "application/json", "x-webhook-signature": base64.b64encode(digest).decode()}
    return {"content": json.dumps(event, indent=1).encode(), "headers": headers}
