"""Speaking MCP in tests: one message of either era and its answer, and streams that are read while they are open."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import httpx
from mcp.shared.inbound import NAME_BEARING_METHODS, encode_header_value
from mcp_types import CLIENT_CAPABILITIES_META_KEY, CLIENT_INFO_META_KEY, PROTOCOL_VERSION_META_KEY

from baobab.mcp_server.results import ERROR
from tests.conftest import Baobab

EARLIER = "2025-06-18"
MODERN = "2026-07-28"
ERAS = (EARLIER, MODERN)

TIMEOUT_SECONDS = 180.0
"""Seconds to wait for what is about to happen, on a machine that has much else to do."""

_CLIENT = {"name": "test", "version": "1"}
_ACCEPT = "application/json, text/event-stream"


@dataclass(frozen=True)
class Answer:
    """The answer to one message: its last JSON-RPC message, and the notifications that came before."""

    status: int
    headers: httpx.Headers
    message: dict[str, Any]
    notifications: list[dict[str, Any]] = field(default_factory=list)

    @property
    def result(self) -> dict[str, Any]:
        assert "result" in self.message, self.message
        result: dict[str, Any] = self.message["result"]
        return result

    @property
    def error(self) -> dict[str, Any]:
        assert "error" in self.message, self.message
        error: dict[str, Any] = self.message["error"]
        return error


def build_message(
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    era: str = EARLIER,
    capabilities: Mapping[str, Any] | None = None,
    request_id: int | str = 1,
) -> tuple[dict[str, Any], dict[str, str]]:
    """The body and the headers of one request. `capabilities`: what a client of 2026 says it can, with each request."""
    body: dict[str, Any] = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": dict(params or {})}
    headers = {"accept": _ACCEPT, "mcp-protocol-version": era}
    if era == MODERN:
        envelope = {
            PROTOCOL_VERSION_META_KEY: era,
            CLIENT_INFO_META_KEY: _CLIENT,
            CLIENT_CAPABILITIES_META_KEY: dict(capabilities or {}),
        }
        body["params"]["_meta"] = {**envelope, **body["params"].get("_meta", {})}
        headers["mcp-method"] = method
        bearing = NAME_BEARING_METHODS.get(method)
        if bearing is not None and bearing in body["params"]:
            headers["mcp-name"] = encode_header_value(body["params"][bearing])
    return body, headers


async def send_message(
    baobab: Baobab,
    method: str,
    params: Mapping[str, Any] | None = None,
    *,
    era: str = EARLIER,
    by: Mapping[str, str] | None = None,
    path: str = "/mcp",
    capabilities: Mapping[str, Any] | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """Send one message and parse what comes back, JSON or SSE.

    by: headers with a credential; the first account's key when left out. path: with a query for another view.
    headers: sent beside those of the protocol, or instead of them where they have one name.
    """
    body, all_headers = build_message(method, params, era=era, capabilities=capabilities)
    all_headers |= {**(baobab.owner if by is None else by), **(headers or {})}
    answer = await baobab.client.post(path, json=body, headers=all_headers)
    *before, last = list(parse_messages(answer)) or [{}]
    return Answer(answer.status_code, answer.headers, last, before)


async def call_tool(
    baobab: Baobab,
    tool: str,
    arguments: Mapping[str, Any] | None = None,
    **how: Any,
) -> dict[str, Any]:
    """The result of a tool. `how`: as `say` takes it."""
    return (await send_message(baobab, "tools/call", {"name": tool, "arguments": dict(arguments or {})}, **how)).result


def read_refusal(result: Mapping[str, Any]) -> dict[str, Any]:
    """The error that a result says: as data, and in words that a model sees."""
    error: dict[str, Any] = result["_meta"][ERROR]
    text = result["content"][0]["text"]
    assert result["isError"] is True
    assert "structuredContent" not in result
    assert all(error[part] in text for part in ("code", "message", "remediation"))
    return error


def parse_messages(answer: httpx.Response) -> Iterator[dict[str, Any]]:
    """The JSON-RPC messages of a whole answer."""
    if answer.headers.get("content-type", "").startswith("text/event-stream"):
        for line in answer.text.splitlines():
            if line.startswith("data: {"):
                yield json.loads(line.removeprefix("data: "))
    elif answer.content:
        yield answer.json()


class Stream:
    """An answer that is read while it is open. What it waits for must come within PATIENCE."""

    def __init__(self) -> None:
        self.status = 0
        self.headers = httpx.Headers()
        self.given_up = asyncio.Event()
        """Set once the server does no more about it."""
        self._part_queue: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._text = ""
        self._disconnection = asyncio.Event()
        self._is_over = False

    async def read_start(self) -> None:
        start = await self._next_part()
        self.status, self.headers = start["status"], httpx.Headers(start["headers"])

    async def read_message(self) -> dict[str, Any]:
        """The next JSON-RPC message."""
        while True:
            line, newline, rest = self._text.partition("\n")
            if newline:
                self._text = rest
                if line.startswith("data: {"):
                    message: dict[str, Any] = json.loads(line.removeprefix("data: "))
                    return message
            else:
                assert not self._is_over, "the stream has ended"
                await self._read()

    async def read_body(self) -> str:
        """All that is left, once the answer has ended."""
        while not self._is_over:
            await self._read()
        return self._text

    async def read_rest(self) -> list[dict[str, Any]]:
        """Wait for the end; the messages that still came."""
        text = await self.read_body()
        return [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]

    def disconnect(self) -> None:
        self._disconnection.set()

    async def receive(self, body: bytes) -> AsyncIterator[dict[str, Any]]:
        yield {"type": "http.request", "body": body, "more_body": False}
        await self._disconnection.wait()
        while True:
            yield {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        self._part_queue.put_nowait(message)

    async def _read(self) -> None:
        part = await self._next_part()
        self._text += part.get("body", b"").decode().replace("\r\n", "\n")
        self._is_over = not part.get("more_body", False)

    async def _next_part(self) -> dict[str, Any]:
        async with asyncio.timeout(TIMEOUT_SECONDS):
            return await self._part_queue.get()


@contextlib.asynccontextmanager
async def open_exchange(
    serve: Any, scope: dict[str, Any], body: bytes = b"", stream: Stream | None = None
) -> AsyncIterator[Stream]:
    """An exchange with an ASGI application whose answer may not end by itself; leaving it disconnects the client.

    stream: one that reads in a way of its own.
    """
    stream = stream or Stream()
    request_parts = stream.receive(body)
    serving = asyncio.create_task(serve(scope, request_parts.__anext__, stream.send))
    try:
        serving.add_done_callback(lambda _: stream.given_up.set())
        await stream.read_start()
        yield stream
    finally:
        stream.disconnect()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await serving


@contextlib.asynccontextmanager
async def open_stream(
    baobab: Baobab,
    *,
    era: str,
    by: Mapping[str, str] | None = None,
    path: str = "/mcp",
    stream: Stream | None = None,
    **notifications: bool,
) -> AsyncIterator[Stream]:
    """A stream of change notifications: `subscriptions/listen` of 2026, or the GET stream of the protocols before.

    notifications: what a client of 2026 asks for, such as toolsListChanged=True; an earlier one hears everything.
    """
    if era == MODERN:
        kinds = notifications or {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
        body, headers = build_message("subscriptions/listen", {"notifications": kinds}, era=era)
        content, method = json.dumps(body).encode(), "POST"
        headers |= {"content-type": "application/json", "content-length": str(len(content))}
    else:
        content, method = b"", "GET"
        headers = {"accept": "text/event-stream", "mcp-protocol-version": era}
    scope = build_scope(baobab, method, path, {**headers, **(baobab.owner if by is None else by)})
    async with open_exchange(baobab.client._transport.app, scope, content, stream) as exchange:  # type: ignore[attr-defined]
        if era == MODERN and exchange.headers["content-type"].startswith("text/event-stream"):
            message = await exchange.read_message()
            assert message["method"] == "notifications/subscriptions/acknowledged", message
        yield exchange


async def give_tools(baobab: Baobab, app_id: str, names: list[str]) -> None:
    """Gives tools to the users of an app."""
    body = {"tools": names}
    response = await baobab.client.patch(f"/v1/{app_id}/config/user-tools", json=body, headers=baobab.owner)
    assert response.status_code == 200, response.text


def build_scope(baobab: Baobab, method: str, path: str, headers: Mapping[str, str]) -> dict[str, Any]:
    """The ASGI scope of a request."""
    url = urlsplit(f"{baobab.client.base_url}".rstrip("/") + path)
    all_headers = {"host": url.netloc, **headers}
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.path.encode(),
        "query_string": url.query.encode(),
        "root_path": "",
        "headers": [(name.lower().encode(), value.encode("latin-1")) for name, value in all_headers.items()],
        "client": ("127.0.0.1", 50000),
        "server": ("127.0.0.1", 8000),
    }
