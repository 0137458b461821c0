"""Tells clients that a list has changed, over the 2026 subscription and the older GET stream.

Notices carry the changes to every worker. A notice of the topic `tools`, `prompts` or `resources` has a subject: a
credential as `proposers.proposer_name` writes it, `organisation:<id>`, `app:<id>` for its users, or `*` for everybody.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Iterator, MutableMapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import mcp_types as types
from mcp.server.streamable_http import check_accept_headers
from mcp.server.subscriptions import (
    InMemorySubscriptionBus,
    ListenHandler,
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import event_to_notification
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic_core import to_json
from sse_starlette.sse import AppStatus, EventSourceResponse, SendTimeoutError
from starlette.requests import Request
from starlette.responses import Response

from baobab.http.answer import ON_STOP
from baobab.mcp_server.mcp_client import McpClient, get_client
from baobab.mcp_server.refusals import RefusalExplainer, refuse
from baobab.mcp_server.results import render_error_data
from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.callers import Account, Caller, EndUser
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.user_sessions import USER_TOPIC, user_subject
from baobab.tools.core.errors import BaobabError, MethodNotAllowed, TooManyStreams
from baobab.tools.core.registry import Registry

_PING_SECONDS = 15
_MOST_UNSENT = 16
_EVENTS: dict[str, ServerEvent] = {
    "tools": ToolsListChanged(),
    "prompts": PromptsListChanged(),
    "resources": ResourcesListChanged(),
}


@dataclass(frozen=True)
class StreamLimits:
    """How many streams a worker holds open, how often it checks each one's credential, and how long a send may take."""

    per_credential: int = 8
    per_worker: int = 1024
    recheck_seconds: float = 30.0
    send_seconds: float = 20.0


class OpenStream:
    """An open stream. Its pending events are at most one of each kind."""

    def __init__(self, client: McpClient, headers: dict[bytes, bytes], recheck_seconds: float) -> None:
        self.name = proposers.proposer_name(client.caller)
        self.subjects = {"*", self.name}
        if isinstance(client.caller, Account):
            self.subjects.add(f"organisation:{client.caller.organisation_id}")
        if isinstance(client.caller, EndUser):
            self.subjects.add(f"app:{client.caller.app_id}")
        self._audience = client.caller.audience
        self.user = _name_user(client.caller)
        self._authorization = headers[b"authorization"]
        self._organisation = headers.get(b"x-organization-id")
        self._as_user = headers.get(b"x-platform-as-user")
        self.key_digest = digest_token(self._authorization.partition(b" ")[2].strip().decode("latin-1"))
        self._recheck_seconds = recheck_seconds
        self._pending_events: dict[ServerEvent, None] = {}
        self._woken = asyncio.Event()
        self._is_stopped = False

    def notify(self, event: ServerEvent) -> None:
        """Queues an event, unless one of its kind is already pending."""
        self._pending_events[event] = None
        self._woken.set()

    def recheck(self) -> None:
        """Checks the credential again at once."""
        self._woken.set()

    def stop(self) -> None:
        """Ends the stream."""
        self._is_stopped = True
        self._woken.set()

    async def events(self, credentials: Credentials) -> AsyncIterator[ServerEvent]:
        """Yields the events as long as the credential is valid."""
        while not self._is_stopped:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._recheck_seconds):
                    await self._woken.wait()
            self._woken.clear()
            if self._is_stopped or not await self._is_credential_valid(credentials):
                return
            pending_events, self._pending_events = self._pending_events, {}
            for event in pending_events:
                yield event

    async def _is_credential_valid(self, credentials: Credentials) -> bool:
        try:
            await credentials.caller(
                self._authorization,
                organisation=self._organisation,
                as_user=self._as_user,
                audience=self._audience,
            )
        except (BaobabError, DatabaseUnavailable):
            # Also end it if the check itself fails: the client can connect again.
            return False
        return True


class ListChanges:
    def __init__(self, registry: Registry, limits: StreamLimits | None = None) -> None:
        self._credentials = registry.services.credentials
        self._limits = limits or StreamLimits()
        self._open: set[OpenStream] = set()
        # At the stop, our streams end by ON_STOP and calls may finish; sse_starlette would cut them off.
        AppStatus.enable_automatic_graceful_drain = False
        notices = registry.services.notices
        for topic, event in _EVENTS.items():
            notices.subscribe(topic, partial(self._notify_streams, event))
        notices.subscribe("key", self._recheck_streams)
        notices.subscribe(USER_TOPIC, self._recheck_streams_of_user)

    async def listen(self, ctx: Any, params: types.SubscriptionsListenRequestParams) -> types.SubscriptionsListenResult:
        """Serves one `subscriptions/listen` stream until its client leaves or its credential ends."""
        # Single resources are not watched, so the acknowledgement must not promise it.
        notifications = params.notifications.model_copy(update={"resource_subscriptions": None})
        params = params.model_copy(update={"notifications": notifications})
        try:
            with self._open_stream(get_client(ctx), ctx.request.scope) as stream:
                # Each client has its own bus and handler, so that it alone receives what is published there.
                bus = InMemorySubscriptionBus()
                handler = ListenHandler(bus, max_buffered_events=_MOST_UNSENT)
                forwarding = asyncio.create_task(self._forward(stream, bus), name="mcp changes")
                forwarding.add_done_callback(lambda _: handler.close())
                try:
                    return await handler(ctx, params)
                finally:
                    forwarding.cancel()
        except TooManyStreams as error:
            raise MCPError(types.INTERNAL_ERROR, error.message, render_error_data(error)) from None

    async def stream(self, client: McpClient, scope: MutableMapping[str, Any], receive: Any, respond: Any) -> None:
        """Serves one GET stream of the protocols before 2026."""
        request = Request(scope)
        version = request.headers.get("mcp-protocol-version")
        if version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            instead = MethodNotAllowed(remediation="Send subscriptions/listen by POST: this version has no GET stream.")
            await refuse(respond, 405, instead, [(b"allow", b"DELETE, POST")])
            return
        if not check_accept_headers(request)[1]:
            await Response(status_code=406)(scope, receive, RefusalExplainer(respond))
            return
        try:
            with self._open_stream(client, scope) as stream:
                answer = EventSourceResponse(
                    self._render_messages(stream), ping=_PING_SECONDS, send_timeout=self._limits.send_seconds
                )
                with contextlib.suppress(SendTimeoutError):
                    await answer(scope, receive, respond)
        except TooManyStreams as error:
            # Clients of these protocols take 405 for "no such stream"; after any other status they try again.
            await refuse(respond, 405, error, [(b"allow", b"DELETE, POST")])

    @contextlib.contextmanager
    def _open_stream(self, client: McpClient, scope: Any) -> Iterator[OpenStream]:
        """Yields a stream and counts it while it is open. Raises TooManyStreams."""
        limits = self._limits
        stream = OpenStream(client, dict(scope["headers"]), limits.recheck_seconds)
        if sum(open_stream.name == stream.name for open_stream in self._open) >= limits.per_credential:
            raise TooManyStreams(details={"limit": limits.per_credential, "of": "credential"})
        if len(self._open) >= limits.per_worker:
            raise TooManyStreams(details={"limit": limits.per_worker, "of": "worker"})
        self._open.add(stream)
        scope[ON_STOP] = stream.stop
        try:
            yield stream
        finally:
            self._open.discard(stream)

    async def _forward(self, stream: OpenStream, bus: InMemorySubscriptionBus) -> None:
        async for event in stream.events(self._credentials):
            await bus.publish(event)

    async def _render_messages(self, stream: OpenStream) -> AsyncIterator[dict[str, str]]:
        async for event in stream.events(self._credentials):
            message = {"jsonrpc": "2.0", "method": event_to_notification(event, {}).method}
            yield {"event": "message", "data": to_json(message).decode()}

    def _notify_streams(self, event: ServerEvent, subject: str) -> None:
        for stream in self._open:
            if subject in stream.subjects:
                stream.notify(event)

    def _recheck_streams(self, key_digest: str) -> None:
        for stream in self._open:
            if stream.key_digest == key_digest:
                stream.recheck()

    def _recheck_streams_of_user(self, user: str) -> None:
        for stream in self._open:
            if stream.user == user:
                stream.recheck()


def _name_user(caller: Caller) -> str | None:
    """Returns the subject of notices about a caller who is a user of an app."""
    return user_subject(caller.app_id, caller.user_id) if isinstance(caller, EndUser) else None
