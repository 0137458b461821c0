"""An MCP server on loopback, made with the official library, which misbehaves as it is told.

behaviour   what every request to /mcp gets
""          what MCP asks for
"500"       this status; any other, too
"silent"    no answer until the client goes away
"huge"      a JSON answer of two megabytes
"endless"   events without end, and no answer among them
"malformed" half of a JSON text
"page"      HTML
"away"      a redirect to another host
"moved"     a redirect to /moved, on the same host, where it behaves
"legacy"    what MCP asked for before 2026
"""

import asyncio
import base64
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote_plus

import mcp_types as types
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import MCPError

from tests.tools.ai.conftest import serve_app

SEARCH = types.Tool(
    name="search",
    description="Search the documents.",
    input_schema={"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    annotations=types.ToolAnnotations(read_only_hint=True),
)
SEND = types.Tool(
    name="send",
    description="Send a letter.",
    input_schema={"type": "object", "properties": {"to": {"type": "string"}, "text": {"type": "string"}}},
)


@dataclass(frozen=True)
class ReceivedCall:
    """A call that was made."""

    tool: str
    arguments: dict[str, Any]
    meta: dict[str, Any]


@dataclass
class FakeToolServer:
    """bearer: what must be shown at /mcp, where anything must. clients: who gets a token at /token.

    fails, answer, complaint: what calls answer: that they failed, this, or an error of the protocol with this message.
    """

    url: str = ""
    tools: list[types.Tool] = field(default_factory=lambda: [SEARCH, SEND])
    behaviour: str = ""
    bearer: str | None = None
    fails: bool = False
    answer: types.CallToolResult | None = None
    complaint: str = ""
    calls: list[ReceivedCall] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    token_requests: list[dict[str, str]] = field(default_factory=list)
    clients: dict[str, str] = field(default_factory=lambda: {"baobab": "client:secret/1"})

    @property
    def mcp(self) -> str:
        return f"{self.url}/mcp"

    def redescribe(self, tool: types.Tool, **changes: Any) -> None:
        """Describe a tool otherwise from now on."""
        self.tools = [each.model_copy(update=changes) if each.name == tool.name else each for each in self.tools]


@contextlib.asynccontextmanager
async def start_tool_server() -> AsyncIterator[FakeToolServer]:
    fake = FakeToolServer()
    manager = StreamableHTTPSessionManager(
        _build_server(fake), security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False)
    )
    ready, over = asyncio.Event(), asyncio.Event()

    async def stand() -> None:
        async with manager.run():
            ready.set()
            await over.wait()

    # The manager must be left by the task that entered it.
    standing = asyncio.create_task(stand())
    await ready.wait()
    try:
        async with serve_app(_ToolServerApp(fake, manager)) as address:
            fake.url = address
            yield fake
    finally:
        over.set()
        await standing


def _build_server(fake: FakeToolServer) -> Server[Any]:
    async def list_tools(ctx: Any, params: Any) -> types.ListToolsResult:
        # A page each, so that whoever lists them must turn pages.
        at = int(params.cursor or 0) if params is not None else 0
        onward = str(at + 1) if at + 1 < len(fake.tools) else None
        return types.ListToolsResult(tools=fake.tools[at : at + 1], next_cursor=onward)

    async def call_tool(ctx: Any, params: Any) -> types.CallToolResult:
        fake.calls.append(ReceivedCall(params.name, params.arguments or {}, dict(ctx.meta or {})))
        if fake.complaint:
            raise MCPError(types.INVALID_PARAMS, fake.complaint)
        if fake.answer is not None:
            return fake.answer
        text = types.TextContent(type="text", text="It is full." if fake.fails else f"{params.name} done")
        structured_content = None if fake.fails else {"got": params.arguments}
        return types.CallToolResult(content=[text], structured_content=structured_content, is_error=fake.fails)

    return Server("fake", on_list_tools=list_tools, on_call_tool=call_tool)


class _ToolServerApp:
    def __init__(self, fake: FakeToolServer, manager: StreamableHTTPSessionManager) -> None:
        self._fake = fake
        self._manager = manager
        self._sse = SseServerTransport("/messages", TransportSecuritySettings(enable_dns_rebinding_protection=False))

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        path = scope["path"]
        if path == "/token":
            await self._token(headers, receive, send)
            return
        self._fake.headers.append({**headers, ":path": path})
        if self._fake.bearer is not None and headers.get("authorization") != f"Bearer {self._fake.bearer}":
            await _send_answer(send, 401)
        elif self._fake.behaviour == "legacy" and headers.get("mcp-method") == "server/discover":
            await _send_answer(send, 404)
        elif path == "/mcp" and self._fake.behaviour not in ("", "legacy"):
            await self._misbehave(receive, send)
        elif path == "/sse":
            await self._stream(scope, receive, send)
        elif path == "/messages":
            await self._sse.handle_post_message(scope, receive, send)
        else:
            await self._manager.handle_request(scope, receive, send)

    async def _stream(self, scope: Any, receive: Any, send: Any) -> None:
        server = _build_server(self._fake)
        async with self._sse.connect_sse(scope, receive, send) as (read, write):
            await server.run(read, write, server.create_initialization_options())

    async def _misbehave(self, receive: Any, send: Any) -> None:
        match self._fake.behaviour:
            case "silent":
                await _wait_for_disconnect(receive)
            case "huge":
                await _send_answer(send, 200, b'{"jsonrpc": "2.0", "id": 1, "result": "' + b"x" * 2**21 + b'"}')
            case "endless":
                head = {
                    "type": "http.response.start",
                    "status": 200,
                    "headers": [(b"content-type", b"text/event-stream")],
                }
                await send(head)
                with contextlib.suppress(OSError):
                    while True:
                        await send(
                            {"type": "http.response.body", "body": b": still here\n\n" * 1000, "more_body": True}
                        )
                        await asyncio.sleep(0)
            case "malformed":
                await _send_answer(send, 200, b'{"jsonrpc": "2.0", "id": 1, "resu')
            case "page":
                await _send_answer(send, 200, b"<html></html>", kind=b"text/html")
            case "away":
                await _send_answer(send, 307, location=b"http://other.example/mcp")
            case "moved":
                await _send_answer(send, 307, location=b"/moved")
            case status:
                await _send_answer(send, int(status), b"{}")

    async def _token(self, headers: dict[str, str], receive: Any, send: Any) -> None:
        form = {name: values[0] for name, values in parse_qs((await receive())["body"].decode()).items()}
        pair = base64.b64decode(headers["authorization"].removeprefix("Basic ")).decode()
        client_id, _, secret = pair.partition(":")
        self._fake.token_requests.append(form)
        if self._fake.clients.get(unquote_plus(client_id)) != unquote_plus(secret):
            await _send_answer(send, 401, b'{"error": "invalid_client"}')
            return
        body = {"access_token": self._fake.bearer, "token_type": "Bearer", "expires_in": 600}
        await _send_answer(send, 200, json.dumps(body).encode())


async def _wait_for_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _send_answer(
    send: Any, status: int, body: bytes = b"", *, kind: bytes = b"application/json", location: bytes | None = None
) -> None:
    headers = [(b"content-type", kind), *([] if location is None else [(b"location", location)])]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
