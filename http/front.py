"""The front of the REST door: pure ASGI, in front of FastAPI. Host, route, origin, answer; whatever else passes on."""

import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from baobab.http.answer import WHOLE, Headers, Reply, Send, reply_to, send, send_error
from baobab.http.endpoint import Endpoint
from baobab.http.hosts import Hosts, inside
from baobab.http.origins import Origins
from baobab.http.request import ClientGone, Request, Scope
from baobab.http.trie import Captured, Methods, Trie, decoded
from baobab.storage.database import DatabaseUnavailable
from baobab.tools.envelopes import STRUCTURED, Envelope
from baobab.tools.errors import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Internal,
    MethodNotAllowed,
    RouteNotFound,
    Unavailable,
    WrongHost,
)
from baobab.tools.registry import Registry
from baobab.tools.tool import Tool

ASGI = Callable[[Scope, Any, Any], Awaitable[None]]

_log = logging.getLogger(__name__)
_access = logging.getLogger("baobab.access")

_SECURITY: Headers = [(b"x-content-type-options", b"nosniff")]


class Front:
    def __init__(self, registry: Registry, behind: ASGI, *, hosts: Iterable[str], access_log: float = 0.0) -> None:
        options = registry.services.options
        self._registry = registry
        self._behind = behind
        self._trie = Trie(registry.tools.values())
        self._endpoints = {tool.name: Endpoint(registry, tool) for tool in registry.tools.values() if tool.rest}
        self._hosts = Hosts(hosts, options.base_domain)
        self._origins = Origins(self._hosts, registry.services.directory)
        self._base_url = options.base_url
        self._docs = f"{options.base_url}/docs"
        self._sample = access_log

    async def __call__(self, scope: Scope, receive: Any, respond: Send) -> None:
        if scope["type"] == "http":
            await self._request(scope, receive, respond)
        elif scope["type"] == "websocket" and self._hosts.find(Request(scope).host) is None:
            await receive()
            await respond({"type": "websocket.close", "code": 1008})
        else:
            await self._behind(scope, receive, respond)

    async def _request(self, scope: Scope, receive: Any, respond: Send) -> None:
        started = time.perf_counter()
        request = Request(scope)
        reply = reply_to(scope, respond)
        headers: Headers = [(b"x-request-id", request.id.encode()), *_SECURITY]
        envelope: Envelope = STRUCTURED
        tool: Tool | None = None
        captured: Captured = ()
        try:
            host = self._hosts.find(request.host)
            if host is None:
                raise WrongHost
            if host.subdomain is not None:
                await self._enter_app(scope, request, host.subdomain)
            found = self._trie.find(request.path)
            if found is None:
                headers += await self._origins.headers(request, None)
                if request.preflight:
                    status = await self._options(reply, {}, headers)
                else:
                    status = await self._pass_on(scope, receive, respond, headers)
            else:
                methods, captured = found
                tool = _tool_for(methods, request.method)
                envelope = tool.toolset.envelope
                if request.origin is not None:
                    headers += await self._origins.headers(request, _app_id(tool, captured))
                if request.method == "OPTIONS":
                    status = await self._options(reply, methods, headers)
                elif request.method not in methods and not (request.method == "HEAD" and "GET" in methods):
                    raise MethodNotAllowed(headers={"allow": _allow(methods)})
                else:
                    endpoint = self._endpoints[tool.name]
                    status = await endpoint.answer(request, captured, receive, reply, self._base_url, headers)
        except ClientGone:
            return
        except BaobabError as error:
            status = await self._refuse(reply, request, error, envelope, headers, tool, captured)
        except DatabaseUnavailable:
            error = Unavailable("The database does not answer.")
            status = await self._refuse(reply, request, error, envelope, headers, tool, captured)
        except Exception:  # noqa: BLE001 - the one place where this door turns what nobody expected into an answer
            _log.exception("unexpected error", extra={"request_id": request.id, "tool": tool and tool.name})
            status = await self._refuse(reply, request, Internal(), envelope, headers, tool, captured)
        if status >= 500 or (self._sample and random.random() < self._sample):  # noqa: S311 - a sample, not a secret
            self._log_access(request, tool, status, started)

    async def _enter_app(self, scope: Scope, request: Request, subdomain: str) -> None:
        """Give a path on an app's own host the app id that it leaves out."""
        app_id = await self._registry.services.directory.app_id_at(subdomain)
        if app_id is None:
            raise AppNotFound(f"No app has the subdomain `{subdomain[:63]}`.")
        request.path = inside(request.path, app_id)
        scope["raw_path"] = request.path.encode("latin-1")

    async def _pass_on(self, scope: Scope, receive: Any, respond: Send, headers: Headers) -> int:
        """What FastAPI serves: pages, streams, MCP. It gets our headers; its 404 becomes ours."""
        sent = 0

        async def send_on(message: dict[str, Any]) -> None:
            nonlocal sent
            if message["type"] == "http.response.start":
                sent = message["status"]
                known = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(pair for pair in headers if pair[0] not in known)]
            await respond(message)

        # A whole answer would pass by the headers added here.
        scope.pop(WHOLE, None)
        await self._behind(scope, receive, send_on)
        return sent

    async def _options(self, reply: Reply, methods: Methods, headers: Headers) -> int:
        await send(reply, 204, b"", [(b"allow", _allow(methods).encode()), *headers])
        return 204

    async def _refuse(
        self,
        reply: Reply,
        request: Request,
        error: BaobabError,
        envelope: Envelope,
        headers: Headers,
        tool: Tool | None,
        captured: Captured,
    ) -> int:
        if tool is not None and tool.toolset.keeps_failures:
            await self._keep(request, error, tool, captured)
        await send_error(reply, error, envelope, self._docs, headers)
        return error.status

    async def _keep(self, request: Request, error: BaobabError, tool: Tool, captured: Captured) -> None:
        """Keep a refusal for the app's developer; for an app that there is, else anybody could fill the table."""
        services = self._registry.services
        try:
            app = await services.directory.app(_app_id(tool, captured))
        except (AppNotFound, DatabaseUnavailable):
            return
        services.failures.record(
            app.id,
            tool.toolset.name,
            request.method,
            request.path,
            error.status,
            tool.toolset.envelope.code(type(error)),
            _subject(tool, captured, tool.toolset.keeps_failures),
        )

    def _log_access(self, request: Request, tool: Tool | None, status: int, started: float) -> None:
        _access.info(
            "request",
            extra={
                "request_id": request.id,
                "method": request.method,
                "path": request.path[:300],
                "status": status,
                "ms": round((time.perf_counter() - started) * 1000, 2),
                "tool": tool and tool.name,
                "ip": request.ip,
            },
        )


async def not_found(scope: Scope, _receive: Any, respond: Send) -> None:
    """What stands behind everything: no route."""
    await send_error(reply_to(scope, respond), RouteNotFound(), STRUCTURED, "/docs", [])


def _tool_for(methods: Methods, method: str) -> Tool:
    """The tool of a method; for one that the path does not take, any, since its family words the refusal."""
    return methods.get(method) or methods.get("GET") or next(iter(methods.values()))


def _app_id(tool: Tool, captured: Captured) -> str | None:
    return _captured(tool, captured, tool.app_parameter) if tool.app_parameter else None


def _captured(tool: Tool, captured: Captured, name: str) -> str | None:
    names = tool.rest.path_parameters if tool.rest else ()
    return captured[names.index(name)] if name in names else None


def _subject(tool: Tool, captured: Captured, name: str | None) -> str | None:
    """What a parameter of the path says; as it was sent, where that is no printable text."""
    raw = _captured(tool, captured, name or "")
    if raw is None:
        return None
    try:
        text = decoded(tool, captured)[name or ""]
    except BadRequest:
        return raw
    return text if text.isprintable() else raw


def _allow(methods: Methods) -> str:
    named = {*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}
    return ", ".join(sorted(named))
