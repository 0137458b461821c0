"""Recall.ai on loopback, from its public documents: its bots do as a test tells them. Nobody else's client knows it.

async with start_recall(clock) as fake:
    fake.refusals = [(507, {"Retry-After": "30"}, {"code": "adhoc_pool_depleted"})]  # of the next requests to create
    fake.move(bot_id, "in_call_recording")
"""

import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from aiohttp import web

from baobab.runtime.net.webhooks import build_headers
from baobab.storage.clock import Clock
from tests.tools.ai.meetings.fake_provider import KEY, FakeProvider, start_fake

SECRET = "whsec_cmVjYWxsIHNlY3JldCBvZiAzMiBieXRlcyBsb25nIQ=="
TRANSCRIPT = [
    {
        "participant": {"id": 100, "name": "Grace Hopper", "is_host": True},
        "words": [{"text": "Ship it.", "start_timestamp": {"relative": 1.5}, "end_timestamp": {"relative": 2.25}}],
    }
]
PARTICIPANTS = [
    {"id": 100, "name": "Grace Hopper", "is_host": True, "platform": "desktop", "extra_data": None, "email": None},
    {"id": 101, "name": None, "is_host": False, "platform": "dial-in", "extra_data": None, "email": None},
    {"id": 102, "name": "Alan Turing", "is_host": False, "platform": "desktop", "extra_data": None, "email": None},
]


@dataclass
class FakeRecall(FakeProvider):
    """bots: as `GET /bot/{id}/` shows them."""

    bots: dict[str, dict[str, Any]] = field(default_factory=dict)

    async def answer(self, request: web.BaseRequest, body: Any) -> web.StreamResponse:
        path = request.path
        if path.startswith("/files/"):
            return web.json_response(PARTICIPANTS if "participants" in path else TRANSCRIPT)
        if request.headers.get("authorization") != f"Token {KEY}":
            return web.json_response({"detail": "Invalid token."}, status=401)
        if path == "/api/v1/bot/" and request.method == "POST":
            return self._create(request, body)
        return web.json_response({}, status=self.outages.pop(0)) if self.outages else self._answer(request)

    def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path
        if path == "/api/v1/bot/":
            bot_of_ours = request.query["metadata__bb_bot_id"]
            results = [bot for bot in self.bots.values() if bot["metadata"]["bb_bot_id"] == bot_of_ours]
            return web.json_response({"count": len(results), "next": None, "previous": None, "results": results})
        bot = self.bots.get(path.split("/")[4])
        if bot is None:
            return web.json_response({"detail": "Not found."}, status=404)
        if path.endswith("/leave_call/"):
            self.left.append(bot["id"])
            return web.json_response({})
        return web.json_response(bot)

    def _create(self, request: web.BaseRequest, body: dict[str, Any]) -> web.StreamResponse:
        refusal = self.refuse(body)
        if refusal is not None:
            return refusal
        bot_id = f"recall-{len(self.bots)}"
        self.bots[bot_id] = {"id": bot_id, "metadata": body["metadata"], "status_changes": [], "recordings": []}
        self.lose_answer(request)
        return web.json_response(self.bots[bot_id], status=201)

    def move(self, bot_id: str, code: str, sub_code: str | None = None) -> dict[str, Any]:
        """Makes a bot change its state now, and returns the webhook that tells it."""
        at = self.clock.now().isoformat()
        bot = self.bots[bot_id]
        change = {"code": code, "message": None, "sub_code": sub_code, "created_at": at}
        bot["status_changes"].append(change)
        if code == "in_call_recording":
            shortcuts = {
                kind: {"id": f"{kind}-{bot_id}", "status": {"code": "processing"}, "data": {"download_url": None}}
                for kind in ("video_mixed", "transcript")
            }
            people = {"participants_download_url": f"{self.url}/files/participants/{bot_id}"}
            shortcuts["participant_events"] = {"id": f"p-{bot_id}", "status": {"code": "done"}, "data": people}
            recording = {"id": f"r-{bot_id}", "started_at": at, "completed_at": None, "media_shortcuts": shortcuts}
            bot["recordings"].append(recording)
        if code in ("call_ended", "fatal"):
            for recording in bot["recordings"]:
                recording["completed_at"] = recording["completed_at"] or at
        if code in ("done", "fatal"):
            self.finish(bot_id, "video_mixed")
        status = {"code": code, "sub_code": sub_code, "updated_at": at}
        return {"event": f"bot.{code}", "data": {"data": status, "bot": {"id": bot_id, "metadata": bot["metadata"]}}}

    def finish(self, bot_id: str, kind: str, code: str = "done") -> dict[str, Any]:
        """Makes a file of a bot ready, or fail, and returns the webhook that tells it."""
        bot = self.bots[bot_id]
        for recording in bot["recordings"]:
            artifact = recording["media_shortcuts"][kind]
            artifact["status"] = {"code": code}
            artifact["data"] = {"download_url": f"{self.url}/files/{kind}/{self.clock.time()}"}
        status = {"code": code, "sub_code": None, "updated_at": self.clock.now().isoformat()}
        name = "transcript" if kind == "transcript" else "recording"
        return {"event": f"{name}.{code}", "data": {"data": status, "bot": {"id": bot_id, "metadata": bot["metadata"]}}}


def sign_webhook(event: dict[str, Any], at: datetime, secret: str = SECRET, family: str = "webhook") -> dict[str, Any]:
    """The request with a webhook, as the provider sends it."""
    body = json.dumps(event).encode()
    headers = build_headers("msg_1", at, body, [secret])
    return {"content": body, "headers": {name.replace("webhook", family): value for name, value in headers.items()}}


@contextlib.asynccontextmanager
async def start_recall(clock: Clock) -> AsyncIterator[FakeRecall]:
    async with start_fake(FakeRecall(clock)) as fake:
        yield fake
