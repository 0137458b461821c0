"""The door: finds the caller of a request and hands it to the protocol server."""

from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from pydantic_core import to_json

from baobab.http.answer import reply_to, send_error
from baobab.http.request import Request
from baobab.mcp_server.protocol import CALLER, DOOR
from baobab.tools.call import Door
from baobab.tools.callers import Anonymous
from baobab.tools.envelopes import STRUCTURED
from baobab.tools.errors import BaobabError, Unauthenticated
from baobab.tools.registry import Registry

Scope = dict[str, Any]


class McpDoor:
    """An ASGI endpoint for /mcp."""

    def __init__(self, registry: Registry, manager: StreamableHTTPSessionManager) -> None:
        self._registry = registry
        self._manager = manager
        self._base_url = registry.services.options.base_url

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        reply = reply_to(scope, respond)
        request = Request(scope, reply)
        try:
            caller = await self._registry.services.credentials.caller(
                request.authorization, organisation=request.organisation
            )
            if isinstance(caller, Anonymous):
                raise Unauthenticated("MCP needs a credential.")
        except BaobabError as error:
            await send_error(reply, error, STRUCTURED, f"{self._base_url}/docs", [])
            return
        if request.method == "GET":
            await _refuse_stream(respond)
            return
        scope[CALLER] = caller
        scope[DOOR] = Door("mcp", request.id, request.ip, request.user_agent, self._base_url, request.path)
        await self._manager.handle_request(scope, receive, respond)


async def _refuse_stream(respond: Any) -> None:
    """Stateless: there is no session whose stream could be opened. The protocol's answer is 405."""
    error = {"code": -32000, "message": "This endpoint is stateless: use POST."}
    body = to_json({"jsonrpc": "2.0", "id": None, "error": error})
    headers = [(b"content-type", b"application/json"), (b"allow", b"POST, DELETE")]
    await respond({"type": "http.response.start", "status": 405, "headers": headers})
    await respond({"type": "http.response.body", "body": body})
