"""The REST interface of this process, for code that the server itself runs: requests to it open no socket."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from baobab.tools.core.errors import Unavailable

Asgi = Callable[[Any, Any, Any], Awaitable[None]]

HOPS: ContextVar[int] = ContextVar("hops", default=0)
"""How many functions have called each other before the present request; what they call gets one more."""


@dataclass(frozen=True, slots=True)
class OwnAnswer:
    """An answer of the own interface. The body is read once, and closed if it is not read to its end."""

    status: int
    headers: list[tuple[str, str]]
    body: AsyncGenerator[bytes, None]


class OwnDoor:
    """A part of the application. The server sets `app` once its interfaces are there."""

    def __init__(self) -> None:
        self.app: Asgi | None = None

    async def request(
        self,
        method: str,
        path: str,
        query: str,
        headers: Sequence[tuple[str, str]],
        body: AsyncIterator[bytes] | None,
        *,
        host: str,
        ip: str,
        hops: int,
    ) -> OwnAnswer:
        """Makes a request, and returns its answer as soon as its headers are there. Raises Unavailable.

        path: as it is on the wire, percent-encoded. host: the own name of the server.
        """
        if self.app is None:
            raise Unavailable("The server is starting.")
        messages: asyncio.Queue[Any] = asyncio.Queue(2)
        is_left = asyncio.Event()
        token = HOPS.set(hops)
        try:
            raw_headers = [(name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in headers]
            raw_headers = [pair for pair in raw_headers if pair[0] not in (b"host", b"content-length", b"expect")]
            scope = {
                "type": "http",
                "asgi": {"version": "3.0"},
                "http_version": "1.1",
                "method": method,
                "scheme": "http",
                "path": path,
                "raw_path": path.encode("latin-1"),
                "query_string": query.encode("latin-1"),
                "headers": [(b"host", host.encode()), *raw_headers],
                "client": (ip, 0),
                "server": (host, 0),
            }
            task = asyncio.create_task(self._serve(scope, body, messages, is_left))
        finally:
            HOPS.reset(token)
        try:
            start = await messages.get()
        except BaseException:
            await _end(task, is_left)
            raise
        if start is None or start["type"] != "http.response.start":
            await _end(task, is_left)
            raise Unavailable
        answer_headers = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in start["headers"]]
        return OwnAnswer(start["status"], answer_headers, _read(messages, task, is_left))

    async def _serve(
        self, scope: Any, body: AsyncIterator[bytes] | None, messages: "asyncio.Queue[Any]", is_left: asyncio.Event
    ) -> None:
        assert self.app is not None
        is_complete = False

        async def receive() -> Any:
            nonlocal is_complete
            if not is_complete and body is not None:
                async for piece in body:
                    return {"type": "http.request", "body": piece, "more_body": True}
            if not is_complete:
                is_complete = True
                return {"type": "http.request", "body": b"", "more_body": False}
            await is_left.wait()
            return {"type": "http.disconnect"}

        try:
            await self.app(scope, receive, messages.put)
        finally:
            # Whoever reads must learn that nothing more comes, also after a failure.
            if not is_left.is_set():
                await messages.put(None)


async def _read(
    messages: "asyncio.Queue[Any]", task: "asyncio.Task[None]", is_left: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    try:
        while (message := await messages.get()) is not None:
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body"):
                return
    finally:
        await _end(task, is_left)


async def _end(task: "asyncio.Task[None]", is_left: asyncio.Event) -> None:
    is_left.set()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
