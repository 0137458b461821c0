"""The HTTP transport of the MCP library, with the rules of outgoing requests. Each session reaches only one origin.

The library uses httpx2. `session.py` imports this file together with it.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from typing import Any
from urllib.parse import urljoin

import httpx2

from baobab.runtime.agents.remote.errors import ToolServerDenied
from baobab.runtime.agents.remote.tokens import TokenCache
from baobab.runtime.net.addresses import Target, UrlRefused
from baobab.runtime.net.egress import Egress, EgressStream
from baobab.tools.core.errors import BaobabError

MOST_BYTES = 2**20
"""The size limit of one answer."""
_LEAVING_SECONDS = 2.0
# Headers that are not sent on: Egress does the framing, and cookies are not used.
_UNSENT_HEADERS = frozenset(["host", "connection", "accept-encoding", "content-length", "transfer-encoding", "cookie"])
_HIDDEN_HEADERS = frozenset(["content-encoding", "content-length", "transfer-encoding", "set-cookie"])


class GuardedTransport(httpx2.AsyncBaseTransport):
    """The transport of one session with one server. seconds: the time limit of the session.

    failure: the error that ended a request, which the library's own errors do not show.
    listens: whether the server may send events without a request, which the transport `sse` needs.
    """

    def __init__(
        self,
        egress: Egress,
        tokens: TokenCache,
        server_id: str,
        url: str,
        auth: Mapping[str, Any] | None,
        *,
        seconds: float,
        listens: bool,
    ) -> None:
        self._egress = egress
        self._tokens = tokens
        self._server_id = server_id
        self._target = Target.parse(url, https_only=False)
        self._auth = auth
        self._deadline = asyncio.get_running_loop().time() + seconds
        self._listens = listens
        self.failure: BaobabError | None = None
        self.refusal = 0
        """The status of the last answer if it was an error, else 0."""
        self._authorization: str | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if request.method == "GET" and not self._listens:
            # Events without a request are not accepted.
            return httpx2.Response(405, request=request)
        try:
            return await self._send_request(request)
        except BaobabError as exc:
            self.failure = self.failure or exc
            raise

    def hide_credential(self, text: str) -> str:
        """Removes the credential from a text of the server: some servers repeat it in errors."""
        return text if self._authorization is None else text.replace(self._authorization.rpartition(" ")[2], "***")

    async def _send_request(self, request: httpx2.Request) -> httpx2.Response:
        url = str(request.url)
        if Target.parse(url, https_only=False).origin != self._target.origin:
            raise UrlRefused("The server sends requests to another host.")
        body = await request.aread()
        answer, stack = await self._open_stream(request, url, body)
        # A cached token may have been revoked, so a new one is tried, once.
        if answer.status == 401 and self._tokens.forget_token(self._server_id):
            await stack.aclose()
            answer, stack = await self._open_stream(request, url, body)
        try:
            self._check_answer(answer, request.method, url)
        except BaobabError:
            await stack.aclose()
            raise
        headers = [(name, value) for name, value in answer.headers.items() if name.lower() not in _HIDDEN_HEADERS]
        return httpx2.Response(answer.status, headers=headers, stream=_Body(self, answer, stack), request=request)

    async def _open_stream(self, request: httpx2.Request, url: str, body: bytes) -> tuple[EgressStream, AsyncExitStack]:
        """Sends a request. Returns the answer, and the stack that closes it."""
        stack = AsyncExitStack()
        sending = self._egress.stream(
            request.method,
            url,
            headers=await self._build_headers(request),
            body=body or None,
            max_bytes=MOST_BYTES,
            timeout=self._get_timeout(request.method),
        )
        return await stack.enter_async_context(sending), stack

    def _check_answer(self, answer: EgressStream, method: str, url: str) -> None:
        location = answer.headers.get("Location")
        if 300 <= answer.status < 400 and location is not None:
            try:
                onward = Target.parse(urljoin(url, location), https_only=False)
            except ValueError as exc:
                raise UrlRefused from exc
            if onward.origin != self._target.origin:
                raise UrlRefused("The server redirects to another host.")
        if answer.status in (401, 403):
            raise ToolServerDenied(f"The tool server answered {answer.status}.")
        if method != "DELETE":
            self.refusal = answer.status if answer.status >= 400 else 0

    async def _build_headers(self, request: httpx2.Request) -> dict[str, str]:
        headers = {name: value for name, value in request.headers.items() if name not in _UNSENT_HEADERS}
        self._authorization = await self._tokens.get_authorization(self._server_id, self._target.url, self._auth)
        return headers if self._authorization is None else {**headers, "authorization": self._authorization}

    def _get_timeout(self, method: str) -> float:
        seconds_left = max(self._deadline - asyncio.get_running_loop().time(), 0.0)
        # Ending the session at the server is a courtesy, which nobody waits for.
        return _LEAVING_SECONDS if method == "DELETE" else seconds_left


class _Body(httpx2.AsyncByteStream):
    def __init__(self, transport: GuardedTransport, answer: EgressStream, stack: AsyncExitStack) -> None:
        self._transport = transport
        self._answer = answer
        self._stack = stack

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._answer:
                yield piece
        except BaobabError as exc:
            self._transport.failure = self._transport.failure or exc
            raise

    async def aclose(self) -> None:
        await self._stack.aclose()
