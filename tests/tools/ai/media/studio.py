"""A provider of images and videos on loopback, by OpenAI's wire, which does as a test tells it.

async with studio() as fake:
    fake.refusals = [500, 429]  # of the next requests to begin something
    fake.videos = "in_progress"  # what every video is by now: queued, in_progress, completed, failed
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
MP4 = b"\x00\x00\x00\x18ftypisom\x00\x00\x02\x00isomiso2" + bytes(200_000)


@dataclass
class Studio:
    """submissions: what was asked for, oldest first, with its idempotency key as `key`."""

    url: str = ""
    videos: str = "completed"
    error: Any = None
    refusals: list[int] = field(default_factory=list)
    pictures: int | None = None
    """So many images, however many are asked for."""
    cut: int = 0
    """So many downloads end in the middle."""
    submissions: list[dict[str, Any]] = field(default_factory=list)
    looks: int = 0
    file: bytes = MP4
    arrival: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when something is being begun; it is answered once `going` is set."""
    going: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        path = request.path.removeprefix("/v1")
        if request.method == "POST" and path in ("/images/generations", "/videos"):
            return await self._begin(request, path)
        if path.endswith("/content"):
            return await self._send(request)
        self.looks += 1
        if self.refusals:
            return _refusal_response(self.refusals.pop(0))
        return web.json_response(self._video(path.rpartition("/")[2]))

    async def _begin(self, request: web.BaseRequest, path: str) -> web.StreamResponse:
        raw = await request.read()
        body: dict[str, Any] = json.loads(raw) if raw[:1] == b"{" else {"form": raw.decode(errors="replace")}
        self.submissions.append({"path": path, "key": request.headers.get("idempotency-key"), **body})
        self.arrival.set()
        await self.going.wait()
        if self.refusals:
            return _refusal_response(self.refusals.pop(0))
        if path == "/videos":
            return web.json_response({**self._video("video_0123456789"), "status": "queued"})
        picture = {"b64_json": base64.b64encode(PNG).decode()}
        count = body.get("n", 1) if self.pictures is None else self.pictures
        usage = {"input_tokens": 10, "output_tokens": 500 * count, "total_tokens": 10 + 500 * count}
        details = {"input_tokens_details": {"text_tokens": 10, "image_tokens": 0}}
        return web.json_response({"created": 1, "data": [picture] * count, "usage": {**usage, **details}})

    def _video(self, video_id: str) -> dict[str, Any]:
        video = {"id": video_id, "object": "video", "model": "sora-2", "created_at": 1, "progress": 0}
        return {**video, "status": self.videos, "seconds": "4", "size": "1280x720", "error": self.error}

    async def _send(self, request: web.BaseRequest) -> web.StreamResponse:
        answer = web.StreamResponse(headers={"content-type": "video/mp4", "content-length": str(len(self.file))})
        await answer.prepare(request)
        if self.cut:
            self.cut -= 1
            await answer.write(self.file[:1000])
            assert request.transport is not None
            request.transport.abort()
            return answer
        await answer.write(self.file)
        return answer


def _refusal_response(status: int) -> web.Response:
    error = {"message": f"The studio says {status} for sk-vendor-0123456789.", "type": "error", "code": None}
    return web.json_response({"error": error}, status=status)


@contextlib.asynccontextmanager
async def start_studio() -> AsyncIterator[Studio]:
    fake = Studio()
    fake.going.set()
    runner = web.ServerRunner(web.Server(fake.handle, handler_cancellation=True, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield fake
    finally:
        await runner.cleanup()
