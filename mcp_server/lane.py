"""The lane: the two requests that agents make all day, `tools/call` and `tools/list`, answered without the SDK's
machinery around them: by the same catalogue, the same rules and the same words.

It takes only what is plainly right and short. Whatever is not (another method, a header that disagrees, an unknown
tool, a call that may take long or may need approval) is left to the protocol server.
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
from baobab.mcp_server.calls import Calls, unexpected
from baobab.mcp_server.catalogue import Catalogue, Offer
from baobab.mcp_server.protocol import FRESH_MS
from baobab.mcp_server.sessions import Sessions
from baobab.mcp_server.visitor import Visitor
from baobab.tools.core.errors import BaobabError, ToolNotFound
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.core.registry import Registry

_MODERN = "2026-07-28"
# Those before know no structured results, and their lists are sieved by the SDK.
_VERSIONS = {version.encode(): version for version in ("2025-06-18", "2025-11-25", _MODERN)}


Said = tuple[bytes, ...]
"""The parts of an answer between its id and the members of its `_meta`, which come last."""


class Lane:
    def __init__(
        self,
        registry: Registry,
        catalogue: Catalogue,
        calls: Calls,
        server_info: dict[str, Any],
        foreign: frozenset[str],
        sessions: Sessions,
    ) -> None:
        """foreign: names of tools that are not the registry's."""
        self._registry = registry
        self._catalogue = catalogue
        self._calls = calls
        self._sessions = sessions
        self._foreign = foreign | {meta_tools.SEARCH}
        # Every answer of the 2026 protocol says which server gave it.
        self._server_info = to_json({SERVER_INFO_META_KEY: server_info})[1:-1]

    async def answer(self, message: Any, headers: Headers, who: Visitor) -> bytes | None:
        """The answer to a message; None where it is not for the lane."""
        if not isinstance(message, dict):
            return None
        method, params, request_id = message.get("method"), message.get("params", {}), message.get("id")
        if method not in ("tools/call", "tools/list") or message.get("jsonrpc") != "2.0":
            return None
        if type(request_id) not in (int, str) or not isinstance(params, dict):
            return None
        version = _spoken(method, params, headers)
        if version is None:
            return None
        offer = self._catalogue.offer(who)
        if method == "tools/list":
            said = self._listed(params, offer, version)
        else:
            said = await self._called(params, offer, who, version, request_id)
        if said is None:
            return None
        *parts, meta = said
        return b"".join((b'{"jsonrpc":"2.0","id":', to_json(request_id), *parts, *self._end(meta, version)))

    def _end(self, meta: bytes, version: str) -> Said:
        """The end of an answer. meta: members of its `_meta`, without braces."""
        if version == _MODERN:
            comma = b"," if meta else b""
            return b',"resultType":"complete","_meta":{', meta, comma, self._server_info, b"}}}"
        return (b',"_meta":{', meta, b"}}}") if meta else (b"}}",)

    def _listed(self, params: dict[str, Any], offer: Offer, version: str) -> Said | None:
        cursor = params.get("cursor")
        if params.keys() - {"_meta", "cursor"} or not isinstance(cursor, str | None):
            return None
        try:
            page = offer.page(cursor)
        except CursorInvalid:
            return None
        more = b"" if page.next_cursor is None else b',"nextCursor":' + to_json(page.next_cursor)
        fresh = b',"ttlMs":%d,"cacheScope":"private"' % FRESH_MS if version == _MODERN else b""
        return b',"result":{"tools":', page.tools, more, fresh, b""

    async def _called(
        self, params: dict[str, Any], offer: Offer, who: Visitor, version: str, request_id: Any
    ) -> Said | None:
        name: Any = params.get("name")
        arguments = params.get("arguments", {})
        simple = isinstance(name, str) and isinstance(arguments, dict)
        meta = params.get("_meta")
        # Who wants to hear of progress needs a stream.
        hears = isinstance(meta, dict) and "progressToken" in meta
        if not simple or hears or name in self._foreign or params.keys() - {"_meta", "name", "arguments"}:
            return None
        limits = who.caller.limits
        try:
            tool, arguments = await self._calls.chosen(who, offer, name, arguments)
            whole = tool.long_running or tool.failure is not None
            if whole or (limits is not None and limits.approval != "none"):
                return None
            if who.session is None:
                result, _ = await self._registry.run(tool, arguments, who.caller, who.door)
            else:
                with self._sessions.running(who.session, request_id):
                    result, _ = await self._registry.run(tool, arguments, who.caller, who.door)
        except ToolNotFound:
            return None
        except BaobabError as error:
            return _refused(results.failed(error))
        except Exception:  # noqa: BLE001 - as in calls.py
            return _refused(unexpected(who, name))
        return _succeeded(results.render(tool, result, who, version))


def _succeeded(rendered: results.Rendered) -> Said:
    text = to_json(rendered.text)
    meta = to_json(rendered.meta)[1:-1] if rendered.meta else b""
    if rendered.structured is None:
        return b',"result":{"content":[{"type":"text","text":', text, b'}],"isError":false', meta
    structured = (b'}],"structuredContent":', rendered.structured)
    return b',"result":{"content":[{"type":"text","text":', text, *structured, b',"isError":false', meta


def _refused(refusal: types.CallToolResult) -> Said:
    said = refusal.model_dump_json(by_alias=True, exclude_none=True, exclude={"result_type", "meta"})
    return b',"result":', said.encode()[:-1], to_json(refusal.meta)[1:-1]


def _spoken(method: str, params: dict[str, Any], pairs: Headers) -> str | None:
    """The version that a request speaks, where its headers and its envelope are as that version wants them."""
    headers = dict(pairs)
    version = _VERSIONS.get(headers.get(b"mcp-protocol-version", b""))
    if (
        version is None
        or len(headers) != len(pairs)
        or (version == _MODERN and not _enveloped(method, params, headers))
    ):
        return None
    return version


def _enveloped(method: str, params: dict[str, Any], headers: Mapping[bytes, bytes]) -> bool:
    """Whether headers and envelope are whole and agree, as the 2026 protocol asks of each request.

    Only what is so to the letter goes on here; other spellings (a header in base64, one that stands twice) and the
    inner shape of what the client tells of itself are the protocol server's to judge.
    """
    meta = params.get("_meta")
    if not isinstance(meta, dict):
        return False
    named = method == "tools/list" or headers.get(b"mcp-name", b"").decode("latin-1") == params.get("name")
    info = meta.get(CLIENT_INFO_META_KEY)
    return (
        named
        and headers.get(b"mcp-method") == method.encode()
        and meta.get(PROTOCOL_VERSION_META_KEY) == _MODERN
        and (info is None or (isinstance(info, dict) and {"name", "version"} <= info.keys()))
        and isinstance(meta.get(CLIENT_CAPABILITIES_META_KEY), dict)
    )
