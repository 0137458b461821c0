"""The door: authenticates a request and hands it to the protocol server, once that is loaded.

The protocol's package takes a second of CPU to import; it is imported after the server is ready, off the event loop.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

from pydantic_core import to_json

from baobab.http.answer import send_error
from baobab.http.request import Request
from baobab.tools.call import Door
from baobab.tools.callers import Anonymous
from baobab.tools.envelopes import STRUCTURED
from baobab.tools.errors import BaobabError, Unauthenticated, Unavailable
from baobab.tools.registry import Registry

CALLER = "baobab.caller"
DOOR = "baobab.door"

Scope = dict[str, Any]


class McpDoor:
    """An ASGI endpoint for /mcp; `open` holds the protocol server up for as long as it is entered."""

    def __init__(self, registry: Registry, version: str) -> None:
        self._registry = registry
        self._version = version
        self._base_url = registry.services.options.base_url
        self._manager: Any = None
        self._ready = asyncio.Event()

    @contextlib.asynccontextmanager
    async def open(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        # The protocol server's task group must be left by the task that entered it.
        task = asyncio.create_task(self._serve(stop), name="mcp")
        try:
            yield
        finally:
            stop.set()
            await task

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        request = Request(scope)
        try:
            caller = await self._registry.services.credentials.caller(
                request.authorization, organisation=request.organisation
            )
            if isinstance(caller, Anonymous):
                raise Unauthenticated("MCP needs a credential.")
            await self._loaded()
        except BaobabError as error:
            await send_error(respond, error, STRUCTURED, f"{self._base_url}/docs", [])
            return
        if request.method == "GET":
            await _refuse_stream(respond)
            return
        scope[CALLER] = caller
        scope[DOOR] = Door("mcp", request.id, request.ip, request.user_agent, self._base_url, request.path)
        await self._manager.handle_request(scope, receive, respond)

    async def _loaded(self) -> None:
        try:
            await asyncio.wait_for(self._ready.wait(), 30)
        except TimeoutError as exc:
            raise Unavailable("The MCP door is still opening.") from exc

    async def _serve(self, stop: asyncio.Event) -> None:
        protocol = await asyncio.to_thread(_load)
        self._manager = protocol.session_manager(self._registry, self._version)
        async with self._manager.run():
            self._ready.set()
            await stop.wait()
            self._ready.clear()


def _load() -> Any:
    from baobab.mcp_server import protocol

    return protocol


async def _refuse_stream(respond: Any) -> None:
    """Stateless: there is no session whose stream could be opened. The protocol's answer is 405."""
    body = to_json({"jsonrpc": "2.0", "id": None, "error": {"code": -32000, "message": "This endpoint is stateless: use POST."}})
    headers = [(b"content-type", b"application/json"), (b"allow", b"POST, DELETE")]
    await respond({"type": "http.response.start", "status": 405, "headers": headers})
    await respond({"type": "http.response.body", "body": body})
