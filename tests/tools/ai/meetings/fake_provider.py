"""What the fakes of providers of meeting bots share: they listen on loopback, and do as a test tells them.

async with start_fake(FakeRecall(clock)) as fake:
    fake.refusals = [(507, {"Retry-After": "30"}, {"code": "adhoc_pool_depleted"})]  # of the next requests to create
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

from aiohttp import web

from baobab.storage.clock import Clock

KEY = "provider-key"
"""The key that every fake accepts."""


@dataclass
class FakeProvider:
    """creations: the bodies of all requests to create a bot, refused or not."""

    clock: Clock
    url: str = ""
    refusals: list[tuple[int, dict[str, str], Any]] = field(default_factory=list)
    outages: list[int] = field(default_factory=list)
    """Statuses of the next requests about a bot."""
    lost_answers: int = 0
    """So many bots are created without an answer."""
    creations: list[dict[str, Any]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)
    """No answer is sent before it is set."""
    arrival: asyncio.Event = field(default_factory=asyncio.Event)

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        body = await request.json() if request.can_read_body else None
        self.arrival.set()
        await self.gate.wait()
        return await self.answer(request, body)

    async def answer(self, request: web.BaseRequest, body: Any) -> web.StreamResponse:
        raise NotImplementedError

    def refuse(self, body: dict[str, Any]) -> web.StreamResponse | None:
        """Notes a request to create a bot, and returns the refusal that a test wants."""
        self.creations.append(body)
        if not self.refusals:
            return None
        status, headers, content = self.refusals.pop(0)
        return web.json_response(content, status=status, headers=headers)

    def lose_answer(self, request: web.BaseRequest) -> None:
        """Ends the connection without an answer, if a test wants that."""
        if self.lost_answers:
            self.lost_answers -= 1
            assert request.transport is not None
            request.transport.close()


F = TypeVar("F", bound=FakeProvider)


@contextlib.asynccontextmanager
async def start_fake(fake: F) -> AsyncIterator[F]:
    fake.gate.set()
    runner = web.ServerRunner(web.Server(fake.handle, access_log=None), shutdown_timeout=0.1)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        fake.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        yield fake
    finally:
        await runner.cleanup()
