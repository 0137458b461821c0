"""The REST application: pure ASGI, in front of FastAPI. It checks host and origin, finds the tool of the route and
answers; other paths go to the fallback.
"""

import logging
import random
import re
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any
from urllib.parse import unquote

from baobab.http.answer import WHOLE, Headers, Send, reply_to, send_error
from baobab.http.endpoint import Endpoint
from baobab.http.hosts import APP_ID, Host, Hosts, is_api_path, platform_path
from baobab.http.open_streams import OpenStreams, StreamLimits
from baobab.http.origins import Origins
from baobab.http.request import LargeBodyParser, Request, Scope
from baobab.http.socket import serve_socket
from baobab.http.trie import Methods, PathValues, RouteTrie, decode_parameter
from baobab.http.visitor_page import send_visitor_page, wants_page
from baobab.tools.core.call import Tool
from baobab.tools.core.context import RequestContext
from baobab.tools.core.envelopes import STRUCTURED
from baobab.tools.core.errors import (
    AppNotFound,
    BadRequest,
    BaobabError,
    Internal,
    MethodNotAllowed,
    NoSocket,
    OnlyFilesHere,
    RouteNotFound,
    WrongHost,
)
from baobab.tools.core.outages import STORE_OUTAGES, translate_outage
from baobab.tools.core.registry import Registry
from baobab.tools.core.stream import ClientGone
from baobab.tools.system.missing_routes import find_unbuilt
from baobab.tools.system.unbuilt import Unbuilt

ASGI = Callable[[Scope, Any, Any], Awaitable[None]]

_log = logging.getLogger(__name__)
_access = logging.getLogger("baobab.access")
# Secrets that may be in a path: invitations, and keys that somebody put there by mistake.
_TOKENS = re.compile(r"\b(inv|bb_sk|bb_sub|bb_rt)_[A-Za-z0-9]{8,}")
_CALLBACKS = re.compile(r"(/people/email-callback/[^/]*/).+")
_MOST_NAMED = 8
"""Operations that the error for a wrong method names."""


class RestApp:
    def __init__(
        self,
        registry: Registry,
        fallback: ASGI,
        *,
        hosts: Iterable[str],
        access_log: float = 0.0,
        stream_limits: StreamLimits | None = None,
    ) -> None:
        """fallback: serves every path that is not a tool's. stream_limits: how many streams may be open, if not as many
        as usual.
        """
        options = registry.services.options
        self._registry = registry
        self._options = options
        self._fallback = fallback
        self._trie = RouteTrie(registry.tools.values())
        streams = OpenStreams(registry.services.notices, stream_limits)
        parser = LargeBodyParser()
        self._endpoints = {
            tool.name: Endpoint(registry, tool, streams, parser) for tool in registry.tools.values() if tool.rest
        }
        self._hosts = Hosts(
            hosts,
            options.base_domain,
            options.files_domain,
            options.sites_domain,
            find_app=registry.services.directory.app_id_at_domain,
        )
        self._origins = Origins(self._hosts, registry.services.directory, options.base_url)
        pages = [tool for tool in registry.tools.values() if tool.rest is not None and tool.rest.site]
        self._pages = {tool.rest.path_parameters: tool for tool in pages if tool.rest is not None}
        self._base_url = options.base_url
        self._docs = f"{options.base_url}/docs"
        self._sample = access_log

    async def __call__(self, scope: Scope, receive: Any, respond: Send) -> None:
        if scope["type"] != "http":
            await self._handle_other_scope(scope, receive, respond)
            return
        started_at = time.perf_counter()
        request = Request(scope, reply_to(scope, respond))
        try:
            status = await self._answer(scope, receive, respond, request)
        except ClientGone:
            return
        except BaobabError as error:
            status = await self._refuse(request, error)
        except STORE_OUTAGES as exc:
            tool_name = None if request.tool is None else request.tool.name
            status = await self._refuse(request, translate_outage(exc, request.id, tool_name))
        except Exception:  # noqa: BLE001 - the one place where REST answers unexpected errors
            name = request.tool and request.tool.name
            _log.exception("unexpected error", extra={"request_id": request.id, "tool": name})
            status = await self._refuse(request, Internal())
        if status >= 500 or (self._sample and random.random() < self._sample):  # noqa: S311 - a sample, not a secret
            _log_access(request, status, started_at)

    async def _handle_other_scope(self, scope: Scope, receive: Any, respond: Send) -> None:
        if scope["type"] != "websocket":
            await self._fallback(scope, receive, respond)
            return
        request = Request(scope, reply_to(scope, _deny_websocket(scope, receive, respond)))
        try:
            tool = await self._find_socket_tool(scope, request)
        except BaobabError as error:
            await send_error(request.reply, error, STRUCTURED, self._docs, request.headers)
            return
        except STORE_OUTAGES as exc:
            await send_error(request.reply, translate_outage(exc, request.id), STRUCTURED, self._docs, request.headers)
            return
        await serve_socket(self._endpoints[tool.name], request, receive, respond, self._base_url)

    async def _find_socket_tool(self, scope: Scope, request: Request) -> Tool:
        """Returns the tool of a WebSocket's path. Raises NoSocket, WrongHost, OriginRefused."""
        host = await self._hosts.find(request.host)
        if host is None:
            raise WrongHost
        if host.files_of is not None:
            raise OnlyFilesHere
        if host.is_of_app:
            await self._enter_app(scope, request, host)
        match = self._trie.find(request.path)
        tool = match[0].get("GET") if match else None
        if match is None or tool is None or tool.rest is None or not tool.rest.socket:
            raise NoSocket
        request.tool, request.path_values = tool, match[1]
        if request.origin is not None:
            await self._origins.cors_headers(request, request.get_captured(tool.app_parameter))
        return tool

    async def _answer(self, scope: Scope, receive: Any, respond: Send, request: Request) -> int:
        """Answers the request and returns the status that was sent."""
        host = await self._hosts.find(request.host)
        if host is None:
            raise WrongHost
        request.is_at_app = host.is_of_app
        site_path = request.path[1:]
        app_id = await self._enter_app(scope, request, host) if host.is_of_app else None
        match = self._trie.find(request.path)
        if app_id is not None and _is_of_site(request, site_path, match):
            return await self._answer_page(request, receive, respond, host, app_id, site_path)
        if host.files_of is not None and not (match and _is_file_of(host.files_of, *match)):
            raise OnlyFilesHere
        if match is None or _is_of_rows(match[0]) or request.method not in (*match[0], "HEAD", "OPTIONS"):
            unbuilt = find_unbuilt(request.path)
            if unbuilt is not None or match is None:
                return await self._answer_without_tool(scope, receive, respond, request, unbuilt, app_id)
        methods, request.path_values = match
        method = request.method = _read_method(request, methods)
        tool = request.tool = _select_tool(methods, method)
        is_navigation = tool.rest is not None and tool.rest.form
        if request.origin is not None and not is_navigation:
            request.headers += await self._origins.cors_headers(request, request.get_captured(tool.app_parameter))
        if method == "OPTIONS":
            return await _answer_options(request, methods)
        if method not in methods and not (method == "HEAD" and "GET" in methods):
            raise MethodNotAllowed(
                remediation=self._find_instead(request.path, tool, method), headers={"allow": _allow_header(methods)}
            )
        if tool.rest is not None and tool.rest.site:
            page_path = request.path_values[-1]
            return await self._redirect_to_page(request, decode_parameter(request.path_values[0]), page_path)
        if host.files_of is None and (base_url := await self._find_host_of_files(request, tool, host)) is not None:
            return await _redirect(request, base_url)
        if host.files_of is not None and not (tool.rest is not None and tool.rest.apart):
            raise OnlyFilesHere
        return await self._endpoints[tool.name].answer(request, receive, respond, self._base_url)

    async def _answer_page(
        self, request: Request, receive: Any, respond: Send, host: Host, app_id: str, site_path: str
    ) -> int:
        """Answers a path of an app's site. Where sites have a domain of their own, it sends a browser there."""
        if not host.has_site:
            return await self._redirect_to_page(request, app_id, site_path)
        path_values = (app_id, site_path) if host.preview_of is None else (*host.preview_of, site_path)
        names = ("app_id", "path") if host.preview_of is None else ("app_id", "deployment_id", "path")
        request.tool, request.path_values = self._pages[names], path_values
        return await self._endpoints[request.tool.name].answer(request, receive, respond, self._base_url)

    async def _redirect_to_page(self, request: Request, app_id: str, page_path: str) -> int:
        """Sends a browser to the host where a page of an app's site is."""
        app = await self._registry.services.directory.app(app_id)
        request.path = f"/{page_path}"
        return await _redirect(request, self._options.build_site_address(app.subdomain))

    async def _find_host_of_files(self, request: Request, tool: Tool, host: Host) -> str | None:
        """Returns the address at which the app's files are answered, if it is not the host of the request."""
        if tool.rest is None or not tool.rest.apart:
            return None
        app_id = decode_parameter(request.get_captured(tool.app_parameter) or "")
        if self._options.files_domain:
            return self._options.build_files_address(app_id) if APP_ID.fullmatch(app_id) else None
        if not tool.rest.off_platform or host.is_of_app:
            return None
        # On the app's own host, the path leaves the app out.
        app = await self._registry.services.directory.app(app_id)
        request.path = request.path.replace(f"/{request.get_captured(tool.app_parameter)}/", "/", 1)
        return self._options.build_site_address(app.subdomain)

    async def _answer_without_tool(
        self,
        scope: Scope,
        receive: Any,
        respond: Send,
        request: Request,
        unbuilt: Unbuilt | None,
        own_app_id: str | None,
    ) -> int:
        """Answers a path that no tool has.

        unbuilt: the missing feature that it belongs to. own_app_id: of the app on whose own host the request arrived.
        The pages of this server are not there: a site's scripts could read what is typed into them.
        """
        if own_app_id is not None and unbuilt is None and not request.path.startswith("/mcp"):
            if request.method in ("GET", "HEAD") and request.path.startswith(f"/auth/{own_app_id}/"):
                return await _redirect(request, self._base_url)
            raise RouteNotFound
        app_id = own_app_id if unbuilt is None else _find_app_id(request.path)
        request.headers += await self._origins.cors_headers(request, app_id)
        if request.is_preflight:
            return await _answer_options(request, {})
        if unbuilt is None:
            return await self._forward(scope, receive, respond, request)
        error = unbuilt.build_error(request.path)
        error.naming = self._registry.name_by_route
        await send_error(request.reply, error, unbuilt.envelope, self._docs, request.headers)
        return error.status

    async def _enter_app(self, scope: Scope, request: Request, host: Host) -> str:
        """Adds the app id to the path of a request on an app's own host, where the path leaves it out. Returns it."""
        directory, subdomain = self._registry.services.directory, host.subdomain or ""
        if host.domain_of is not None:
            app_id: str | None = host.domain_of
        elif host.preview_of is not None:
            app_id = (await directory.app(host.preview_of[0])).id
        else:
            app_id = await directory.app_id_at(subdomain)
        if app_id is None:
            raise AppNotFound(f"No app has the subdomain `{subdomain[:63]}`.")
        request.path = platform_path(request.path, app_id)
        scope["raw_path"] = request.path.encode("latin-1")
        if request.path.startswith(f"/auth/{app_id}/"):
            # The pages of the fallback are found by this one.
            scope["path"] = unquote(request.path)
        return app_id

    def _find_instead(self, path: str, tool: Tool, method: str) -> str | None:
        """Returns what to do instead of sending a method that a path does not take; None for the error's own remedy."""
        instead = tool.rest.instead.get(method) if tool.rest is not None else None
        beside = self._trie.list_beside(path, method) if instead is not None else []
        if not beside:
            return instead
        return _name_beside(beside)

    def _explain_refusal(self, request: Request, error: BaobabError) -> BaobabError:
        """Returns the error to answer with: for a path that leaves out the app, another than that there is no such app.

        `/v1/images/completions`, for example, matches `/v1/{app_id}/{table}`.
        """
        app_id = request.get_captured(request.tool.app_parameter) if request.tool is not None else None
        if not isinstance(error, AppNotFound) or app_id is None or APP_ID.fullmatch(app_id):
            return error
        before, _, after = request.path.partition(f"/{app_id}/")
        in_app = self._trie.list_beside(f"{before}/-/{app_id}/{after}", request.method)
        beside = [*self._trie.list_beside(request.path, request.method), *in_app] if in_app else []
        return RouteNotFound(remediation=_name_beside(beside)) if beside else error

    async def _forward(self, scope: Scope, receive: Any, respond: Send, request: Request) -> int:
        """Passes the request to the fallback, and adds our headers to its answer."""
        sent_status = 0

        def merge_headers(status: int, headers: Headers) -> Headers:
            nonlocal sent_status
            sent_status = status
            names = {name for name, _ in headers}
            return [*headers, *(pair for pair in request.headers if pair[0] not in names)]

        async def send_on(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = merge_headers(message["status"], message["headers"])
            await respond(message)

        async def reply_on(status: int, headers: Headers, body: bytes) -> None:
            await request.reply(status, merge_headers(status, headers), body)

        # The fallback must use the request id that the answer gives, because audit rows name it.
        request_id_header = (b"x-request-id", request.id.encode())
        scope["headers"] = [*(pair for pair in scope["headers"] if pair[0] != b"x-request-id"), request_id_header]
        scope[WHOLE] = reply_on
        try:
            await self._fallback(scope, receive, send_on)
        finally:
            # As in reply_to: left in the scope, it would form a reference cycle with it.
            scope.pop(WHOLE, None)
        return sent_status

    async def _refuse(self, request: Request, error: BaobabError) -> int:
        tool, error = request.tool, self._explain_refusal(request, error)
        error.naming = self._registry.name_by_route
        if tool is not None and tool.toolset.keeps_failures and not request.is_dispatched:
            context = RequestContext("rest", request.id, request.ip, path=request.path, method=request.method)
            await self._registry.record_refusal(tool, _path_arguments(request, tool), context, error)
        envelope = tool.toolset.envelope if tool else STRUCTURED
        if tool is not None and tool.toolset.refusal_headers is not None:
            refusal_headers = tool.toolset.refusal_headers(self._registry.services, tool.name)
            request.headers += [(name.encode(), value.encode()) for name, value in refusal_headers.items()]
        if wants_page(request):
            code = envelope.code(type(error))
            await send_visitor_page(request.reply, error, code, request, request.headers)
            return error.status
        await send_error(request.reply, error, envelope, self._docs, request.headers)
        return error.status


def _is_of_rows(methods: Methods) -> bool:
    """Returns whether a path is a table's short one, which any name can have."""
    tool = next(iter(methods.values()))
    return tool.rest is not None and tool.rest.path.startswith("/v1/{app_id}/{table}")


def _is_of_site(request: Request, site_path: str, match: tuple[Methods, PathValues] | None) -> bool:
    """Returns whether a request on an app's own host is for its site.

    Beside the paths that are always the API's, others are too if a program asks for them, with a credential.
    """
    if request.method not in ("GET", "HEAD") or is_api_path(f"/{site_path}"):
        return False
    is_program = request.authorization is not None or request.anon_key is not None
    return not is_program or match is None or _is_of_rows(match[0])


def _find_app_id(path: str) -> str | None:
    """Returns the app's id in a path that begins with it, as far as one can tell."""
    app_id = path[1:].split("/")[1]
    return app_id if APP_ID.fullmatch(app_id) else None


def _name_beside(names: Sequence[str]) -> str:
    return f"Correct the path. Similar paths: {', '.join(f'op:{name}' for name in names[:_MOST_NAMED])}."


def _deny_websocket(scope: Scope, receive: Any, respond: Send) -> Send:
    """Returns a `send` that answers over HTTP instead of opening the WebSocket, if the server supports that."""
    is_supported = "websocket.http.response" in scope.get("extensions", {})

    async def send(message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            await receive()
        if is_supported:
            await respond({**message, "type": f"websocket.{message['type']}"})
        elif message["type"] == "http.response.start":
            # Without the extension, the server can only answer 403.
            await respond({"type": "websocket.close", "code": 1008})

    return send


def _is_file_of(app_id: str, methods: Methods, path_values: Sequence[str]) -> bool:
    """Returns whether a path leads to the content of a file of the app."""
    tool = methods.get("GET")
    if tool is None or tool.rest is None or not tool.rest.apart:
        return False
    path_app_id = dict(zip(tool.rest.path_parameters, path_values, strict=False)).get(tool.app_parameter or "", "")
    return decode_parameter(path_app_id) == app_id


async def _redirect(request: Request, base_url: str) -> int:
    """Sends a browser to the same path at another host of this server."""
    query = f"?{request.query.decode('latin-1')}" if request.query else ""
    location = f"{base_url}{request.path}{query}".encode("latin-1")
    headers = [(b"location", location), (b"cache-control", b"no-store"), (b"content-length", b"0")]
    await request.reply(307, [*headers, *request.headers], b"")
    return 307


async def _answer_options(request: Request, methods: Methods) -> int:
    # Headers of every answer of the path, such as the version of its protocol.
    constant = {name: value for tool in methods.values() if tool.rest for name, value in tool.rest.headers.items()}
    tus_headers = [(name.encode(), value.encode()) for name, value in constant.items() if name.startswith("tus-")]
    await request.reply(204, [(b"allow", _allow_header(methods).encode()), *tus_headers, *request.headers], b"")
    return 204


def _read_method(request: Request, methods: Methods) -> str:
    """Returns the method of a request. Where a path speaks tus, a client behind a proxy that blocks others sends POST,
    and names the method that it means in a header.
    """
    named_method = (request.header(b"x-http-method-override") or b"").decode("latin-1").upper()
    tool = methods.get(named_method)
    speaks_tus = tool is not None and tool.rest is not None and "tus-resumable" in tool.rest.headers
    return named_method if request.method == "POST" and speaks_tus else request.method


def _select_tool(methods: Methods, method: str) -> Tool:
    """Returns the tool of a method. For a method that the path does not have, returns any of its tools, whose toolset
    formats the error.
    """
    return methods.get(method) or methods.get("GET") or next(iter(methods.values()))


def _path_arguments(request: Request, tool: Tool) -> dict[str, str]:
    """Returns the parameters of the path by name, decoded where that is possible."""
    names = tool.rest.path_parameters if tool.rest else ()
    return {name: _decode_or_keep(raw) for name, raw in zip(names, request.path_values, strict=False)}


def _decode_or_keep(raw: str) -> str:
    try:
        return decode_parameter(raw)
    except BadRequest:
        return raw


def _allow_header(methods: Methods) -> str:
    names = {*methods, "OPTIONS", *(["HEAD"] if "GET" in methods else [])}
    return ", ".join(sorted(names))


def _log_access(request: Request, status: int, started_at: float) -> None:
    _access.info(
        "request",
        extra={
            "request_id": request.id,
            "method": request.method,
            "path": _CALLBACKS.sub(r"\1(hidden)", _TOKENS.sub(r"\1_(hidden)", request.path[:300])),
            "status": status,
            "ms": round((time.perf_counter() - started_at) * 1000, 2),
            "tool": request.tool and request.tool.name,
            "ip": request.ip,
        },
    )
