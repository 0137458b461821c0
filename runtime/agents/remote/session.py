"""One session with a tool server, with the MCP library. `tool_server_client.py` imports it when it is first needed."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, TypeVar

import httpx2
import mcp_types as types
from mcp.client.client import Client
from mcp.client.session import ClientSession
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from baobab.runtime.agents.remote.errors import ToolServerFailed, ToolServerTimeout
from baobab.runtime.agents.remote.server import ToolServer
from baobab.runtime.agents.remote.tokens import TokenCache
from baobab.runtime.agents.remote.tool_description import (
    MOST_TOOLS,
    ToolDescription,
    ToolListing,
    build_listing,
    describe_tool,
)
from baobab.runtime.agents.remote.transport import MOST_BYTES, GuardedTransport
from baobab.runtime.net.egress import Egress, EgressTimeout
from baobab.tools.core.errors import BaobabError

_MOST_PAGES = 20
_LONGEST_MESSAGE = 500
_SELF = types.Implementation(name="Baobab", version="1")
# The exceptions that the library may raise because of a server's answers. Task groups wrap them.
_LIBRARY_ERRORS = (MCPError, ValueError, RuntimeError, OSError, httpx2.HTTPError, BaobabError, ExceptionGroup)

# Their log messages contain texts and addresses of strangers; failures are reported here instead.
for _name in ("mcp.client", "httpx2"):
    logging.getLogger(_name).setLevel(logging.CRITICAL)

# Errors and messages of the library itself, where the server sent no message or one that could not be parsed.
_NO_WORDS = (types.PARSE_ERROR, types.CONNECTION_CLOSED)
_STAND_INS = ("Server returned an error response", "Not Found", "Session terminated")

T = TypeVar("T")


class Session:
    """A session with a tool server, to be used once. seconds: the time limit of the whole session.

    Its methods raise ToolServerFailed and its subclasses, and EgressError.
    """

    def __init__(
        self, egress: Egress, tokens: TokenCache, server: ToolServer, auth: Mapping[str, Any] | None, *, seconds: float
    ) -> None:
        listens = server.transport == "sse"
        self._transport = GuardedTransport(
            egress, tokens, server.id, server.url, auth, seconds=seconds, listens=listens
        )
        self._url = server.url
        self._listens = listens
        self._seconds = seconds

    async def list_tools(self) -> ToolListing:
        """Lists the tools of the server."""

        async def work(session: ClientSession) -> list[types.Tool]:
            tools: list[types.Tool] = []
            async for page in _list_pages(session):
                tools += page
                if len(tools) > MOST_TOOLS:
                    break
            return tools

        tools = await self._run_in_session(work)
        return build_listing((tool.name, tool.description, tool.input_schema, _is_read_only(tool)) for tool in tools)

    async def call_tool(
        self, tool: ToolDescription, arguments: Mapping[str, Any], idempotency_key: str
    ) -> types.CallToolResult | None:
        """Calls a tool. Returns None, without a call, if its description has changed or the tool no longer exists."""

        async def work(session: ClientSession) -> types.CallToolResult | None:
            async for page in _list_pages(session):
                for listed_tool in page:
                    if listed_tool.name == tool.name:
                        description = describe_tool(
                            listed_tool.name,
                            listed_tool.description,
                            listed_tool.input_schema,
                            read_only=_is_read_only(listed_tool),
                        )
                        is_unchanged = description is not None and description.digest == tool.digest
                        return (
                            await _request_call(session, tool.name, arguments, idempotency_key)
                            if is_unchanged
                            else None
                        )
            return None

        return await self._run_in_session(work)

    def hide_credential(self, text: str) -> str:
        """Removes the credential from a text of the server."""
        return self._transport.hide_credential(text)

    async def _run_in_session(self, work: Callable[[ClientSession], Awaitable[T]]) -> T:
        # The transport has a deadline of its own.
        http = httpx2.AsyncClient(transport=self._transport, trust_env=False, timeout=None)
        wire: Any = (
            sse_client(self._url, httpx_client_factory=lambda *_, **__: http)
            if self._listens
            else streamable_http_client(self._url, http_client=http, max_sse_event_size=MOST_BYTES)
        )
        mode = "legacy" if self._listens else "auto"
        try:
            async with asyncio.timeout(self._seconds), Client(wire, mode=mode, cache=None, client_info=_SELF) as client:
                return await work(client.session)
        except TimeoutError as exc:
            raise self._transport.failure or ToolServerTimeout() from exc
        except _LIBRARY_ERRORS as exc:
            raise self._translate_error(exc) from exc

    def _translate_error(self, error: Exception) -> BaobabError:
        if isinstance(self._transport.failure, EgressTimeout):
            return ToolServerTimeout()
        if self._transport.failure is not None:
            return self._transport.failure
        while isinstance(error, ExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, MCPError) and error.code not in _NO_WORDS and error.message not in _STAND_INS:
            # The server's own words, which readers must treat as data.
            return ToolServerFailed(
                f"The tool server refused: {self.hide_credential(error.message)[:_LONGEST_MESSAGE]}"
            )
        if self._transport.refusal:
            return ToolServerFailed(f"The tool server answered {self._transport.refusal}.")
        return ToolServerFailed()


async def _request_call(
    session: ClientSession, name: str, arguments: Mapping[str, Any], idempotency_key: str
) -> types.CallToolResult:
    meta: Any = {"idempotencyKey": idempotency_key}
    params = types.CallToolRequestParams(name=name, arguments=dict(arguments), _meta=meta)
    # Not `session.call_tool`, which checks results against the server's schema: a pattern could block this process.
    return await session.send_request(types.CallToolRequest(params=params), types.CallToolResult)


async def _list_pages(session: ClientSession) -> AsyncIterator[list[types.Tool]]:
    cursor: str | None = None
    for _ in range(_MOST_PAGES):
        params = None if cursor is None else types.PaginatedRequestParams(cursor=cursor)
        page = await session.list_tools(params=params)
        yield page.tools
        cursor = page.next_cursor
        if cursor is None:
            return


def _is_read_only(tool: types.Tool) -> bool:
    return tool.annotations is not None and tool.annotations.read_only_hint is True
