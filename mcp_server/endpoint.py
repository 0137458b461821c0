"""The MCP endpoint: identifies the caller and the toolsets of the connection, and lets the fast path or the protocol
server answer.
"""

import contextlib
from collections.abc import MutableMapping, Sequence
from typing import Any

from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS, SUPPORTED_PROTOCOL_VERSIONS
from pydantic_core import to_json

from baobab.http.answer import error_headers, reply_to, send_error
from baobab.http.hosts import Addresses
from baobab.http.request import Request
from baobab.mcp_server.batches import MOST, ResponseCapture, is_batch, render_invalid_part
from baobab.mcp_server.catalogue import Catalogue
from baobab.mcp_server.changes import ListChanges
from baobab.mcp_server.errors import BatchTooLong, NoMessage, ToolsetsClosed, UnknownSession, ViewInvalid
from baobab.mcp_server.extension import Extension
from baobab.mcp_server.fast_path import FastPath
from baobab.mcp_server.mcp_client import McpClient
from baobab.mcp_server.protocol import Protocol
from baobab.mcp_server.refusals import JsonRpcEnvelope, RefusalExplainer, refuse, refuse_version
from baobab.mcp_server.sessions import Sessions
from baobab.mcp_server.view import Views
from baobab.tools.core.auth.access import find_role
from baobab.tools.core.auth.callers import Anonymous, Caller, EndUser
from baobab.tools.core.auth.user_tools import (
    UserToolsClosed,
    build_resource,
    get_open_app,
    hold_to_user_tools,
    is_user,
)
from baobab.tools.core.context import RequestContext
from baobab.tools.core.envelopes import STRUCTURED, Envelope
from baobab.tools.core.errors import (
    AppNotFound,
    BaobabError,
    BodyTooLarge,
    MethodNotAllowed,
    RateLimited,
    Unauthenticated,
)
from baobab.tools.core.limits.limits import CALLER_REQUESTS
from baobab.tools.core.limits.rate_limits import resolve_answer
from baobab.tools.core.registry import Registry
from baobab.tools.core.stream import ClientGone
from baobab.tools.core.types import parse_json

Scope = MutableMapping[str, Any]

MAX_BODY = 4 * 2**20
_JSON_RPC = JsonRpcEnvelope()
_MODERN = frozenset(version.encode() for version in MODERN_PROTOCOL_VERSIONS)
_LISTS = ("tools/list", "prompts/list", "resources/templates/list")
"""Methods that call no tool, so that nothing else counts them against the caller's rate limit. For a user of an app
every message counts, because calls use the bucket of the whole app, which one user must not empty.
"""
_SUPPORTED = frozenset(version.encode() for version in SUPPORTED_PROTOCOL_VERSIONS)


class McpEndpoint:
    """The ASGI endpoint for /mcp. It is stateless: any worker can answer any request of a client.

    sessions: keep SDK sessions for the protocols before 2026. Only for the conformance run, whose fixtures send
    requests back to the client during a call; none of our tools does.
    """

    def __init__(
        self, registry: Registry, version: str, extensions: Sequence[Extension] = (), *, sessions: bool = False
    ) -> None:
        services = registry.services
        self._registry = registry
        foreign = [tool for extension in extensions for tool in extension.tools]
        self._catalogue = catalogue = Catalogue(registry, foreign)
        self._changes = ListChanges(registry)
        self._own_sessions = Sessions(services)
        protocol = Protocol(registry, catalogue, self._changes, self._own_sessions, extensions)
        server = protocol.build_server(version)
        self._fast_path = FastPath(
            registry,
            catalogue,
            protocol.calls,
            server.server_info_stamp,
            frozenset(tool.name for tool in foreign),
            self._own_sessions,
        )
        self._sessions = sessions
        self.manager = StreamableHTTPSessionManager(
            server,
            stateless=not sessions,
            # The RestApp has already checked Host and Origin, by the same lists as for every other path.
            security_settings=TransportSecuritySettings(enable_dns_rebinding_protection=False),
            max_request_body_size=MAX_BODY,
        )
        self._credentials = services.credentials
        self._views = Views(toolset.name for toolset in registry.toolsets)
        self._base_url = services.options.base_url
        self._addresses = Addresses(self._base_url, services.options.allowed_hosts)

    async def __call__(self, scope: Scope, receive: Any, respond: Any) -> None:
        # uvicorn's parser keeps trailing blanks, which do not belong to the value (RFC 9110, 5.5).
        scope["headers"] = [(name, value.rstrip(b" \t")) for name, value in scope["headers"]]
        request = Request(scope, reply_to(scope, respond))
        try:
            client = await self._identify_client(request)
        except BaobabError as error:
            error.naming = self._registry.name_by_tool
            envelope: Envelope = _JSON_RPC
            if error.status == 401:
                # Clients of OAuth go by the header; to a person with a wrong key the body says what it says over REST.
                envelope, error.headers["www-authenticate"] = STRUCTURED, await self._build_challenge(request)
            await send_error(request.reply, error, envelope, f"{self._base_url}/docs", [])
            return
        client.attach_to(scope)
        if request.method == "POST":
            await self._handle_message(request, client, scope, receive, respond)
        elif self._sessions:
            await self.manager.handle_request(scope, receive, respond)
        elif request.header(b"mcp-session-id") is not None and client.session is None:
            await refuse(respond, 404, UnknownSession())
        elif request.method == "GET":
            await self._changes.stream(client, scope, receive, respond)
        elif request.method == "DELETE":
            # A client may end its session, but there is no state to remove.
            await request.reply(204, [], b"")
        else:
            await refuse(respond, 405, MethodNotAllowed(), [(b"allow", b"DELETE, GET, POST")])

    async def _identify_client(self, request: Request) -> McpClient:
        app_id = self._find_app_id(request)
        audience = None if app_id is None else build_resource(self._base_url, app_id)
        caller = self._credentials.find_cached(request.authorization, audience) if request.plain else None
        if caller is None:
            caller = await self._credentials.caller(
                request.authorization, organisation=request.organisation, as_user=request.as_user, audience=audience
            )
        if isinstance(caller, Anonymous):
            raise Unauthenticated("MCP needs a credential.")
        if isinstance(caller, EndUser) and is_user(caller):
            caller = hold_to_user_tools(caller, await self._registry.services.directory.app(caller.app_id), app_id)
        context = RequestContext("mcp", request.id, request.ip, request.user_agent, self._base_url, request.path)
        context.counts_lists = True
        context.trace = request.trace
        view, session = self._views.get_view(request.query), self._find_session(request, caller)
        directory = self._registry.services.directory
        # An app that does not exist is said at once, and not by each call.
        app = None if app_id is None else await directory.app(app_id)
        role = await find_role(directory, caller, app)
        client = McpClient(caller, view, context, request.header, role, session)
        self._require_tools(client)
        return client

    def _require_tools(self, client: McpClient) -> None:
        """Raises ToolsetsClosed if the address names only toolsets that have no tool for the caller, because an empty
        list would not say why. An app may give its users tools at any time, so their lists may be empty.
        """
        if client.view.toolsets is None or isinstance(client.caller, EndUser):
            return
        closed_toolsets = self._catalogue.find_closed(client)
        if len(closed_toolsets) == len(client.view.toolsets):
            reasons = " ".join(f"`{name}`: {reason}" for name, reason in closed_toolsets.items())
            details = {"closed": sorted(closed_toolsets), "open": self._catalogue.list_open(client)}
            raise ToolsetsClosed(f"{ToolsetsClosed.summary} {reasons}", details=details)

    def _find_app_id(self, request: Request) -> str | None:
        """Returns the app that the address names; None also for an address that is not valid."""
        try:
            return self._views.get_view(request.query).app_id
        except ViewInvalid:
            return None

    def _find_session(self, request: Request, caller: Caller) -> str | None:
        """Returns the session id that a request names, if it belongs to the caller."""
        header = request.header(b"mcp-session-id")
        if header is None or self._sessions:
            return None
        session_id = header.decode("latin-1")
        return session_id if self._own_sessions.is_session_of(session_id, caller) else None

    async def _build_challenge(self, request: Request) -> str:
        """Builds the WWW-Authenticate header, which tells a client how to get a credential (RFC 9728, RFC 6750).

        At the address of an app that lets its users in, it names the app's own sign-in. A client that came with a key,
        such as a program whose access token has expired, is sent to the platform's sign-in, which issued the key.
        """
        error = ', error="invalid_token"' if request.authorization is not None else ""
        metadata = f"{self._addresses.find(request.host)}/.well-known/oauth-protected-resource/mcp"
        app_id = self._find_app_id(request)
        if app_id is not None and not _is_key(request.authorization):
            with contextlib.suppress(AppNotFound, UserToolsClosed):
                await get_open_app(self._registry.services.directory, app_id)
                metadata += f"?app_id={app_id}"
        return f'Bearer resource_metadata="{metadata}", scope="mcp"{error}'

    async def _handle_message(
        self, request: Request, client: McpClient, scope: Scope, receive: Any, respond: Any
    ) -> None:
        version = request.header(b"mcp-protocol-version")
        modern = version in _MODERN
        has_session_id = request.header(b"mcp-session-id") is not None
        if not modern and not self._sessions and has_session_id and client.session is None:
            await refuse(respond, 404, UnknownSession())
            return
        try:
            raw = await _read_body(request, receive)
        except BodyTooLarge as error:
            await refuse(respond, 413, error, [(b"connection", b"close")])
            return
        except ClientGone:
            return
        try:
            message = parse_json(raw)
        except ValueError:
            # The SDK answers, as if nothing had been sent: it would accept NaN and numbers that are too large.
            message, raw = None, b""
        if is_batch(message, version) and not self._sessions:
            await self._handle_batch(message, request, client, scope, receive, respond)
        else:
            await self._handle_single(message, raw, request, client, scope, receive, respond)

    async def _handle_single(
        self, message: Any, raw: bytes, request: Request, client: McpClient, scope: Scope, receive: Any, respond: Any
    ) -> None:
        """Answers one message."""
        if not _has_valid_id(message):
            await refuse(respond, 400, NoMessage())
            return
        version = request.header(b"mcp-protocol-version")
        if version is not None and version not in _SUPPORTED:
            request_id = message.get("id") if isinstance(message, dict) else None
            await refuse_version(respond, request_id, version.decode("latin-1")[:40], MODERN_PROTOCOL_VERSIONS)
            return
        method = message.get("method") if isinstance(message, dict) else None
        if method == "notifications/cancelled" and client.session is not None:
            params = message.get("params")
            if isinstance(params, dict) and type(params.get("requestId")) in (int, str):
                await self._own_sessions.cancel_call(client.session, params["requestId"])
        if method in _LISTS or is_user(client.caller):
            try:
                await resolve_answer(
                    CALLER_REQUESTS.spend_of(client.caller, request.ip, self._registry.services.limits)
                )
            except RateLimited as error:
                wait = [(b"retry-after", error_headers(error)["retry-after"].encode())]
                await refuse(respond, 429, error, wait, request_id=message.get("id"))
                return
        if method == "initialize" and not self._sessions:
            respond = _add_session_header(respond, self._own_sessions.create_session(client.caller))
        if not self._sessions and _accepts_plain_json(request):
            answer = await self._fast_path.answer(message, scope["headers"], client)
            if answer is not None:
                await request.reply(
                    200,
                    [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(answer))],
                    answer,
                )
                return
        await self.manager.handle_request(scope, _replay_body(raw, receive), RefusalExplainer(respond))

    async def _handle_batch(
        self, parts: list[Any], request: Request, client: McpClient, scope: Scope, receive: Any, respond: Any
    ) -> None:
        """Answers the messages of a batch one after the other, and sends all answers together."""
        if len(parts) > MOST:
            await refuse(respond, 400, BatchTooLong(details={"limit": MOST}))
            return
        answers = []
        for part in parts:
            if not isinstance(part, dict) or part.get("method") == "initialize":
                answers.append(render_invalid_part("A batch may hold only messages other than `initialize`."))
                continue
            capture = ResponseCapture()
            single = Request(scope, reply_to(scope, capture))
            await self._handle_single(part, to_json(part), single, client, scope, receive, capture)
            if capture.answer is not None:
                answers.append(capture.answer)
        content = to_json(answers) if answers else b""
        headers = [(b"content-type", b"application/json")] if answers else []
        await request.reply(200 if answers else 202, [*headers, (b"content-length", b"%d" % len(content))], content)


def _is_key(authorization: bytes | None) -> bool:
    """Returns whether a credential is a key of the platform, and not a user's token."""
    return authorization is not None and authorization.partition(b" ")[2].strip().startswith(b"bb_")


async def _read_body(request: Request, receive: Any) -> bytes:
    """Reads the whole body. Raises BodyTooLarge as soon as it is too large, and ClientGone."""
    parts, size, has_more = [], max(0, request.content_length), True
    if size <= MAX_BODY:
        size = 0
        while has_more and size <= MAX_BODY:
            message = await receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            has_more = message.get("more_body", False)
    if size > MAX_BODY:
        raise BodyTooLarge(f"The body is larger than {MAX_BODY} bytes.", details={"max_bytes": MAX_BODY})
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _add_session_header(respond: Any, session_id: str) -> Any:
    """Returns a `send` that adds the session id to the answer of `initialize`."""

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            message["headers"] = [*message["headers"], (b"mcp-session-id", session_id.encode())]
        await respond(message)

    return send


def _replay_body(raw: bytes, receive: Any) -> Any:
    """Returns a `receive` that returns the body once more, and then whatever follows it."""
    messages = [{"type": "http.request", "body": raw, "more_body": False}]

    async def receive_replayed() -> Any:
        return messages.pop() if messages else await receive()

    return receive_replayed


def _accepts_plain_json(request: Request) -> bool:
    """Returns whether the request sends JSON, and accepts JSON as well as a stream."""
    media = request.header(b"content-type") or b""
    accepted_types = request.header(b"accept") or b""
    takes_both = b"application/json" in accepted_types and b"text/event-stream" in accepted_types
    return takes_both and media.startswith(b"application/json")


def _has_valid_id(message: Any) -> bool:
    """Returns whether the id, if there is one, is an integer or a string. The SDK would take a message with any other
    id for a notification.
    """
    return not isinstance(message, dict) or "id" not in message or type(message["id"]) in (int, str)
