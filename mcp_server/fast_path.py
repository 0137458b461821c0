"""The fast path: answers `tools/call` and `tools/list`, the requests that agents make all day, without the SDK's
machinery.

It uses the same catalogue, rules and texts. It takes only requests that are plainly valid and short. Anything else
(another method, a header that disagrees, an unknown tool, a call that may take long or need approval) goes to the
protocol server.
"""

from collections.abc import Mapping
from typing import Any

import mcp_types as types
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from pydantic_core import to_json

from baobab.http.answer import Headers
from baobab.mcp_server import meta_tools, results
from baobab.mcp_server.calls import ToolCalls, report_unexpected
from baobab.mcp_server.catalogue import Catalogue, Offer
from baobab.mcp_server.mcp_client import McpClient
from baobab.mcp_server.protocol import FRESH_MS
from baobab.mcp_server.sessions import Sessions
from baobab.tools.core.errors import BaobabError, ToolNotFound
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.core.registry import Registry
from baobab.tools.core.waiting import WAIT

_MODERN = "2026-07-28"
# Earlier versions have no structured results, and the SDK filters their lists.
_VERSIONS = {version.encode(): version for version in ("2025-06-18", "2025-11-25", _MODERN)}


AnswerParts = tuple[bytes, ...]
"""The parts of an answer after its id. The last part holds the members of `_meta`."""


class FastPath:
    def __init__(
        self,
        registry: Registry,
        catalogue: Catalogue,
        calls: ToolCalls,
        server_info: dict[str, Any],
        foreign: frozenset[str],
        sessions: Sessions,
    ) -> None:
        """foreign: the names of tools that are not in the registry."""
        self._registry = registry
        self._catalogue = catalogue
        self._calls = calls
        self._sessions = sessions
        self._foreign = foreign | {meta_tools.SEARCH}
        # Every answer of the 2026 protocol names the server.
        self._server_info = to_json({SERVER_INFO_META_KEY: server_info})[1:-1]

    async def answer(self, message: Any, headers: Headers, client: McpClient) -> bytes | None:
        """Returns the answer to a message; None if the fast path does not take it."""
        if not isinstance(message, dict):
            return None
        method, params, request_id = message.get("method"), message.get("params", {}), message.get("id")
        if method not in ("tools/call", "tools/list") or message.get("jsonrpc") != "2.0":
            return None
        if type(request_id) not in (int, str) or not isinstance(params, dict):
            return None
        version = _find_version(method, params, headers)
        if version is None:
            return None
        offer = self._catalogue.get_offer(client)
        if method == "tools/list":
            answer_parts = await self._list_tools(params, offer, client, version)
        else:
            answer_parts = await self._call_tool(params, offer, client, version, request_id)
        if answer_parts is None:
            return None
        *parts, meta = answer_parts
        return b"".join((b'{"jsonrpc":"2.0","id":', to_json(request_id), *parts, *self._render_end(meta, version)))

    def _render_end(self, meta: bytes, version: str) -> AnswerParts:
        """Renders the end of an answer. meta: the members of its `_meta`, without braces."""
        if version == _MODERN:
            comma = b"," if meta else b""
            return b',"resultType":"complete","_meta":{', meta, comma, self._server_info, b"}}}"
        return (b',"_meta":{', meta, b"}}}") if meta else (b"}}",)

    async def _list_tools(
        self, params: dict[str, Any], offer: Offer, client: McpClient, version: str
    ) -> AnswerParts | None:
        cursor = params.get("cursor")
        if params.keys() - {"_meta", "cursor"} or not isinstance(cursor, str | None):
            return None
        try:
            page = await self._calls.list_page(client, offer, cursor)
        except CursorInvalid:
            return None
        next_cursor = b"" if page.next_cursor is None else b',"nextCursor":' + to_json(page.next_cursor)
        caching = b',"ttlMs":%d,"cacheScope":"private"' % FRESH_MS if version == _MODERN else b""
        return b',"result":{"tools":', page.tools, next_cursor, caching, b""

    async def _call_tool(
        self, params: dict[str, Any], offer: Offer, client: McpClient, version: str, request_id: Any
    ) -> AnswerParts | None:
        name: Any = params.get("name")
        arguments = params.get("arguments", {})
        simple = isinstance(name, str) and isinstance(arguments, dict)
        meta = params.get("_meta")
        # Progress notifications need a stream.
        wants_progress = isinstance(meta, dict) and "progressToken" in meta
        if not simple or wants_progress or name in self._foreign or params.keys() - {"_meta", "name", "arguments"}:
            return None
        limits = client.caller.limits
        try:
            tool, arguments = await self._calls.resolve_tool(client, offer, name, arguments)
            is_long = tool.long_running or (tool.waits is not None and bool(arguments.get(WAIT)))
            needs_protocol_server = is_long or tool.failure is not None
            if needs_protocol_server or (limits is not None and limits.asks):
                return None
            if client.session is None:
                result, call = await self._calls.run(tool, arguments, client, client.context)
            else:
                with self._sessions.track_call(client.session, request_id):
                    result, call = await self._calls.run(tool, arguments, client, client.context)
            return _render_result(results.render(call, arguments, result, client, version))
        except ToolNotFound:
            return None
        except BaobabError as error:
            return _render_refusal(results.render_failure(error))
        except Exception:  # noqa: BLE001 - as in calls.py, MCP answers unexpected errors here
            return _render_refusal(report_unexpected(client, name))


def _render_result(result: results.RenderedResult) -> AnswerParts:
    text = to_json(result.text)
    if result.warning_text is not None:
        text += b'},{"type":"text","text":' + to_json(result.warning_text)
    meta = to_json(result.meta)[1:-1] if result.meta else b""
    if result.structured_json is None:
        return b',"result":{"content":[{"type":"text","text":', text, b'}],"isError":false', meta
    structured_parts = (b'}],"structuredContent":', result.structured_json)
    return b',"result":{"content":[{"type":"text","text":', text, *structured_parts, b',"isError":false', meta


def _render_refusal(refusal: types.CallToolResult) -> AnswerParts:
    refusal_json = refusal.model_dump_json(by_alias=True, exclude_none=True, exclude={"result_type", "meta"})
    return b',"result":', refusal_json.encode()[:-1], to_json(refusal.meta)[1:-1]


def _find_version(method: str, params: dict[str, Any], pairs: Headers) -> str | None:
    """Returns the protocol version of a request, if its headers and envelope are valid for that version."""
    headers = dict(pairs)
    version = _VERSIONS.get(headers.get(b"mcp-protocol-version", b""))
    if (
        version is None
        or len(headers) != len(pairs)
        or (version == _MODERN and not _is_envelope_valid(method, params, headers))
    ):
        return None
    return version


def _is_envelope_valid(method: str, params: dict[str, Any], headers: Mapping[bytes, bytes]) -> bool:
    """Returns whether headers and envelope are complete and agree, as the 2026 protocol requires of each request.

    Only exact matches pass. The protocol server judges other spellings (a header in base64 or sent twice) and the inner
    shape of the client's information.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return False
    names_agree = method == "tools/list" or headers.get(b"mcp-name", b"").decode("latin-1") == params.get("name")
    info = meta.get(CLIENT_INFO_META_KEY)
    return (
        names_agree
        and headers.get(b"mcp-method") == method.encode()
        and meta.get(PROTOCOL_VERSION_META_KEY) == _MODERN
        and (info is None or (isinstance(info, dict) and {"name", "version"} <= info.keys()))
        and isinstance(meta.get(CLIENT_CAPABILITIES_META_KEY), dict)
    )
