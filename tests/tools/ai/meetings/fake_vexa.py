"""Vexa on loopback, from its public documents: the pages of its API, and the contract of its webhooks."""

import hmac
import json
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any

from aiohttp import web

from tests.tools.ai.meetings.fake_provider import KEY, FakeProvider

SECRET = "vexa-secret"
_LAST_STATES = ("completed", "failed")
_PAGE = 50


@dataclass
class FakeVexa(FakeProvider):
    """meetings: newest last, as `GET /meetings/{id}` shows them."""

    meetings: list[dict[str, Any]] = field(default_factory=list)

    async def answer(self, request: web.BaseRequest, body: Any) -> web.StreamResponse:
        if self.outages and request.path != "/bots":
            return web.json_response({"detail": "It is out of order."}, status=self.outages.pop(0))
        if request.headers.get("x-api-key") != KEY:
            return web.json_response({"detail": "Invalid API key"}, status=401)
        if request.path == "/bots" and request.method == "POST":
            return self._create(request, body)
        return self._show(request)

    def _show(self, request: web.BaseRequest) -> web.StreamResponse:
        match request.path.strip("/").split("/"):
            case ["meetings"]:
                rows = [{**each, "data": {}} for each in reversed(self.meetings)]
                return web.json_response({"meetings": rows[:_PAGE]})
            case ["meetings", number] if int(number) < len(self.meetings):
                return web.json_response(self.meetings[int(number)])
            case ["transcripts", platform, native_id]:
                return self._show_transcript(platform, native_id, request.query.get("meeting_id"))
            case ["bots", platform, native_id] if active := self._find_active(platform, native_id):
                self.left.append(f"{platform}/{native_id}/{active['id']}")
                return web.json_response({"message": "The bot is told to leave."}, status=202)
        return web.json_response({"detail": "not found"}, status=404)

    def _show_transcript(self, platform: str, native_id: str, number: str | None) -> web.StreamResponse:
        meeting = self.meetings[int(number or 0)]
        if (meeting["platform"], meeting["native_meeting_id"]) != (platform, native_id):
            return web.json_response({"detail": "not found"}, status=404)
        words = [{"word": "Ship", "start": 1.5, "end": 1.8}, {"word": "it.", "start": 1.8, "end": 2.25}]
        segment = {"segment_id": "s:1", "speaker": "Grace Hopper", "text": "Ship it.", "start": 1.5, "end": 2.25}
        segments = [{**segment, "language": "en", "completed": True, "words": words}]
        return web.json_response({**meeting, "segments": segments})

    def _create(self, request: web.BaseRequest, body: dict[str, Any]) -> web.StreamResponse:
        refusal = self.refuse(body)
        if refusal is not None:
            return refusal
        if self._find_active(body["platform"], body["native_meeting_id"]) is not None:
            return web.json_response({"detail": "A bot is active on that link."}, status=409)
        at = self.clock.now().isoformat()
        meeting = {"id": len(self.meetings), "user_id": 7, "status": "requested", "data": {}, "bot_container_id": "c1"}
        meeting |= {name: body[name] for name in ("platform", "native_meeting_id")}
        meeting |= {"start_time": None, "end_time": None, "created_at": at, "updated_at": at}
        self.meetings.append(meeting)
        self.lose_answer(request)
        return web.json_response(meeting, status=201)

    def _find_active(self, platform: str, native_id: str) -> dict[str, Any] | None:
        for meeting in self.meetings:
            is_same = (meeting["platform"], meeting["native_meeting_id"]) == (platform, native_id)
            if is_same and meeting["status"] not in _LAST_STATES:
                return meeting
        return None

    def move(self, number: int, status: str, reason: str | None = None) -> dict[str, Any]:
        """Makes a meeting change its state now, and returns the webhook that tells it."""
        meeting, at = self.meetings[number], self.clock.now().isoformat()
        earlier_status = meeting["status"]
        meeting |= {"status": status, "updated_at": at}
        if status == "active":
            meeting["start_time"] = at
        if status in _LAST_STATES:
            meeting |= {"end_time": at, "data": {"completion_reason": reason}}
        event_type = {"completed": "meeting.completed", "failed": "bot.failed"}.get(status, "meeting.status_change")
        change = {"from": earlier_status, "to": status, "reason": reason, "timestamp": at}
        data = {"meeting": {**meeting, "completion_reason": reason}, "status_change": change}
        return build_envelope(event_type, data, at)


def build_envelope(event_type: str, data: dict[str, Any], at: str) -> dict[str, Any]:
    event_id = "evt_" + sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:32]
    return {"event_id": event_id, "event_type": event_type, "api_version": "2026-03-01", "created_at": at, "data": data}


def sign(event: Any, at: datetime, secret: str = SECRET) -> dict[str, Any]:
    """The request with a webhook, as the provider sends it."""
    body, stamp = json.dumps(event).encode(), str(int(at.timestamp()))
    digest = hmac.new(secret.encode(), f"{stamp}.".encode() + body, sha256).hexdigest()
    headers = {"content-type": "application/json", "authorization": f"Bearer {secret}"}
    headers |= {"x-webhook-timestamp": stamp, "x-webhook-signature": f"sha256={digest}"}
    return {"content": body, "headers": headers}
