"""The HTTP/1.1 protocol of the server: limits on the shape, the size and the time of a request.

uvicorn's parser takes 8 MiB of headers, any number of Host headers and clients that never finish. Here a request is
checked before the application sees it, and refused with the platform's error format. A request that arrives in one
piece costs one look at its header names; timers and counters start only if a piece leaves something unfinished.

    uvicorn.Config(app, http=FileProtocol)
"""

import asyncio
import json
import re
from collections import deque
from functools import partial
from typing import Any, ClassVar

import httptools
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from baobab.http.answer import ON_STOP, TAKE_BODY, WHOLE
from baobab.http.refusal_log import RefusalLog
from baobab.http.request import new_request_id
from baobab.http.whole_answer import send_whole
from baobab.tools.core.errors import BadRequest, BaobabError

_AUTHORITY_END = re.compile(rb"[/?#]")


class MalformedRequest(BadRequest):
    code = "HTTP_MALFORMED_REQUEST"
    summary = "The request is not valid HTTP/1.1."
    remediation = "Send a request of RFC 9112; check the client or the proxy in front of this server."


class HostHeaderRequired(BadRequest):
    code = "HTTP_HOST_REQUIRED"
    summary = "A request needs exactly one Host header."
    remediation = "Send one Host header that names this server."


class TransferCodingRefused(BadRequest):
    code = "HTTP_TRANSFER_CODING"
    summary = "The transfer coding of the body is not supported."
    remediation = "Send the body with Content-Length, or over HTTP/1.1 with `Transfer-Encoding: chunked` alone."


class UpgradeWithBody(BadRequest):
    code = "HTTP_UPGRADE_WITH_BODY"
    summary = "A request that asks for an upgrade cannot carry a body."
    remediation = "Send the request without the Upgrade header; set the client to HTTP/1.1."


class HeadersTooLarge(BaobabError):
    code = "HTTP_HEADERS_TOO_LARGE"
    status = 431
    summary = "The headers of the request are too large or too many."
    remediation = "Send at most 100 header lines and 64 KiB of headers; put data into the body."


class TargetTooLong(BaobabError):
    code = "HTTP_TARGET_TOO_LONG"
    status = 414
    summary = "The path and query of the request are too long."
    remediation = "Send at most 16 KiB of path and query; put data into the body."


class TargetElsewhere(BaobabError):
    code = "HTTP_TARGET_HOST"
    status = 400
    summary = "The target of the request names another host than the header Host."
    remediation = "Send the path alone as the target, or the same host in both."


class RequestTimeout(BaobabError):
    code = "HTTP_REQUEST_TIMEOUT"
    status = 408
    summary = "The request did not arrive in time."
    remediation = "Send the request again on a new connection, without pauses."


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with limits on size, shape and time.

    Sizes are bytes, times are seconds. A refusal waits for the answers to earlier pipelined requests, is one JSON body
    and one warning, and closes the connection. A connection that never sends a byte of a request is closed silently:
    browsers open such connections in advance and would take a 408 for the answer to their next request.
    """

    # uvicorn keeps 28 attributes; past 30, CPython 3.11 stores an object's attributes in a slower way, all of them.
    __slots__ = (
        "_barren",
        "_deadline",
        "_earlier",
        "_has_body_bytes",
        "_held_back",
        "_parting",
        "_read",
        "_refusal",
        "_refused_id",
        "_timed",
        "_timer",
        "_upload",
    )

    max_head: ClassVar[int] = 64 * 1024
    max_lines: ClassVar[int] = 100
    max_target: ClassVar[int] = 16 * 1024
    head_seconds: ClassVar[float] = 5.0
    body_seconds: ClassVar[float] = 10.0
    upload_idle_seconds: ClassVar[float] = 10.0
    linger_seconds: ClassVar[float] = 2.0
    refusals: ClassVar[RefusalLog] = RefusalLog()

    @staticmethod
    def is_upload(method: str, raw_path: bytes) -> bool:  # noqa: ARG004 - subclasses use them
        """Returns whether the body has no total time limit, as long as bytes keep arriving. `raw_path` is undecoded and
        includes the root path.
        """
        return False

    # -- connection ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        # Bytes since the current head began, and bytes without body content while a body is being read.
        self._read = 0
        self._barren = 0
        self._has_body_bytes = False
        # Requests with others queued behind them; the oldest unanswered one is running.
        self._earlier: deque[RequestResponseCycle] = deque()
        self._refusal: BaobabError | None = None
        self._parting = False
        # The head (its scope) or body (its cycle) that the deadline is for.
        self._timed_part: object = None
        self._upload = False
        self._held_back = False
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._set_deadline(self.head_seconds)

    def connection_lost(self, exc: Exception | None) -> None:
        self._drop_timer()
        # uvicorn notifies only the newest request; with pipelining an older one is running, and would go on streaming
        # to nobody.
        for cycle in self._earlier:
            cycle.disconnected = True
            cycle.message_event.set()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._parting:
            self.transport.close()
            return
        super().shutdown()
        for cycle in (*self._earlier, self.cycle):
            end: Any = cycle and cycle.scope.get(ON_STOP)
            if end is not None:
                end()

    def handle_websocket_upgrade(self) -> None:
        self._drop_timer()
        super().handle_websocket_upgrade()

    # -- bytes --------------------------------------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        if self._refusal is not None:
            return
        before = self.cycle
        self._read += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserError as exc:
            self._refuse(_parse_reason(exc))
            return
        except httptools.HttpParserUpgrade:
            if self._should_upgrade():
                self.handle_websocket_upgrade()
                return
            self._unsupported_upgrade_warning()
        cycle = self.cycle
        if cycle is None or cycle.scope is not self.scope:
            self._watch_head(before)
        elif cycle.more_body:
            self._watch_body(cycle, len(data))
        else:
            self._read = 0
            if not cycle.response_complete:
                # Nothing is being read any more.
                self._timed_part = self._deadline = None
            elif self._timed_part is not None:
                # The answer came before the end of the body.
                self._await_next_request()

    def _watch_head(self, before: RequestResponseCycle | None) -> None:
        if self.scope is None:
            return
        if self.cycle is not before or (before is not None and self._timed_part is before):
            # The head began inside this piece, after another request: count from the next piece on.
            self._read = 0
        if len(self.url) > self.max_target:
            self._refuse(TargetTooLong())
        elif self._read > self.max_head or len(self.headers) > self.max_lines:
            self._refuse(HeadersTooLarge())
        elif self._timed_part is not self.scope:
            self._timed_part = self.scope
            if self.cycle is not None:
                # For the first head, the time began with the connection.
                self._set_deadline(self.head_seconds)

    def _watch_body(self, cycle: RequestResponseCycle, size: int) -> None:
        self._read = 0
        # Bytes without body content are trailers or chunk extensions, which nobody reads.
        self._barren = 0 if self._has_body_bytes or self._timed_part is not cycle else self._barren + size
        self._has_body_bytes = False
        if self._barren > self.max_head or len(self.headers) > self.max_lines:
            self._refuse(HeadersTooLarge())
        elif self._timed_part is not cycle:
            self._timed_part = cycle
            self._upload = self.is_upload(self.scope["method"], self.scope["raw_path"])
            self._set_deadline(self.upload_idle_seconds if self._upload else self.body_seconds)
        elif self._upload and not cycle.response_complete:
            self._set_deadline(self.upload_idle_seconds)
        if self.flow.read_paused:
            self._held_back = True

    def on_response_complete(self) -> None:
        """Starts the next pipelined request; without one, the time for which the connection may stay idle.

        uvicorn sets a timer for each answer, and cancels it at the next request.
        """
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        elif self._timed_part is None:
            self._await_next_request()

    def _await_next_request(self) -> None:
        self._timed_part = None
        self._set_deadline(self.timeout_keep_alive)

    # -- the parser's callbacks ---------------------------------------------------------------------------------------

    def on_headers_complete(self) -> None:
        names = dict(self.headers)
        # This runs for every request. A usual request repeats no header, and is too short for its target or head to
        # exceed the limits.
        is_unusual = (
            b"host" not in names
            or b"transfer-encoding" in names
            or b"upgrade" in names
            or len(names) != len(self.headers)
            or len(names) > self.max_lines
            or not self.url.startswith(b"/")
            or self._read > self.max_target
        )
        if is_unusual:
            self._check_head()
        before = self.cycle
        super().on_headers_complete()
        if self.cycle is not before:
            self.scope[WHOLE] = partial(send_whole, self.cycle)  # type: ignore[literal-required]  # a key of ours
            if b"content-length" in names:
                self.scope[TAKE_BODY] = partial(_take_body, self.cycle)  # type: ignore[literal-required]
        if is_unusual and self.cycle is not before:
            # The parser reports trailers as headers. Without a new list they would be added to the headers that the
            # application reads, perhaps a second Host or Authorization. (A WebSocket has no cycle and keeps its list.)
            self.headers = []
        if self.pipeline:
            self._queue_behind(before)

    def on_body(self, body: bytes) -> None:
        self._has_body_bytes = True
        super().on_body(body)

    def _check_head(self) -> None:
        names = [name for name, _ in self.headers]
        if len(self.url) > self.max_target:
            raise TargetTooLong
        # The bytes read are an upper bound: the piece may hold other requests too.
        if len(names) > self.max_lines or (self._read > self.max_head and self._head_size() > self.max_head):
            raise HeadersTooLarge
        hosts = names.count(b"host")
        if hosts != 1 and (hosts or self.parser.get_http_version() != "1.0"):
            raise HostHeaderRequired
        if not self.url.startswith(b"/"):
            self._check_target()
        # The parser itself refuses Content-Length twice, or beside Transfer-Encoding.
        if b"transfer-encoding" in names:
            self._check_transfer_coding()
        if self.parser.should_upgrade():
            self._check_upgrade(names)

    def _check_target(self) -> None:
        # A cache in front of the server may go by the target of `GET http://host/path`, and the server by Host.
        scheme, separator, remainder = bytes(self.url).partition(b"://")
        if not separator:
            return
        default_port = b":443" if scheme.lower() == b"https" else b":80"
        authorities = [_AUTHORITY_END.split(remainder, maxsplit=1)[0]]
        authorities += [value.strip() for name, value in self.headers if name == b"host"]
        if len({authority.lower().removesuffix(default_port) for authority in authorities}) != 1:
            raise TargetElsewhere

    def _head_size(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _check_transfer_coding(self) -> None:
        # The parser accepts `gzip, chunked` and passes the gzip on as the body; it reports `gzip` alone only after the
        # application has started; and proxies may not understand chunks in HTTP/1.0.
        codings = [value.lower() for name, value in self.headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or self.parser.get_http_version() == "1.0":
            raise TransferCodingRefused

    def _check_upgrade(self, names: list[bytes]) -> None:
        # The parser takes what follows for another protocol or the next request: a body would be request smuggling.
        lengths = [value for name, value in self.headers if name == b"content-length"]
        if b"transfer-encoding" in names or any(length.strip(b"0") for length in lengths):
            raise UpgradeWithBody

    def _queue_behind(self, cycle: RequestResponseCycle) -> None:
        while self._earlier and self._earlier[0].response_complete:
            self._earlier.popleft()
        self._earlier.append(cycle)

    # -- refusals -----------------------------------------------------------------------------------------------------

    def _find_unanswered(self) -> RequestResponseCycle | None:
        """Returns the newest request, if it has not been answered completely."""
        return None if self.cycle is None or self.cycle.response_complete else self.cycle

    def _is_in_body(self) -> bool:
        return self.cycle is not None and self.cycle.scope is self.scope and self.cycle.more_body

    def _refuse(self, reason: BaobabError) -> None:
        self._refusal = reason
        self._deadline = None
        client = ":".join(map(str, self.client)) if self.client else "a local socket"
        # The query is left out: it may hold a token.
        path = bytes(self.url).partition(b"?")[0] if self.scope is not None else b""
        self._refused_id = new_request_id()
        self.refusals.write(client, reason.status, reason.code, self._refused_id, path)
        last = self._abandon(self.cycle) if self._is_in_body() else self._find_unanswered()
        if last is None:
            self._start_closing(reason)
        else:
            last.on_response = self._on_last_response

    def _abandon(self, cycle: RequestResponseCycle) -> RequestResponseCycle | None:
        """Abandons the request with the faulty body. Returns the one before it if that has not been answered yet."""
        cycle.disconnected = True
        cycle.message_event.set()
        if self.pipeline and self.pipeline[0][0] is cycle:
            self.pipeline.popleft()
            return self._earlier[-1]
        if cycle.response_started:
            # It is too late for another status.
            self.transport.close()
        return None

    def _on_last_response(self) -> None:
        self.on_response_complete()
        if self._refusal is not None:
            self._start_closing(self._refusal)

    def _start_closing(self, reason: BaobabError) -> None:
        if self.transport.is_closing():
            return
        self._parting = True
        self.transport.write(_render(reason, self._refused_id, self.server_state.default_headers))
        # Closing at once, with unread bytes of the client, resets the connection and may destroy the answer on its
        # way. Send EOF instead, and keep reading for a moment.
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.flow.resume_reading()
        self._set_deadline(self.linger_seconds)

    # -- time ---------------------------------------------------------------------------------------------------------

    def _set_deadline(self, seconds: float) -> None:
        """Moves the deadline. The timer is only replaced if it would fire too late."""
        self._deadline = deadline = self.loop.time() + seconds
        self._held_back = self._is_held_back()
        if self._timer is not None and self._timer.when() > deadline:
            self._drop_timer()
        if self._timer is None:
            self._timer = self.loop.call_at(deadline, self._on_timer)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timer(self) -> None:
        self._timer = None
        if self._deadline is None or self.transport.is_closing():
            return
        if self.loop.time() < self._deadline:
            self._timer = self.loop.call_at(self._deadline, self._on_timer)
        else:
            self._deadline = None
            self._on_deadline()

    def _on_deadline(self) -> None:
        if self._parting or self._timed_part is None:
            # The client has had its answer, or has never sent anything.
            self.transport.close()
        elif self._is_in_body() and self.cycle.response_complete:
            # The answer came early, and now the rest of the body or the next request is late.
            self.transport.close()
        elif self._held_back or self._is_held_back():
            self._set_deadline(self.body_seconds if self._is_in_body() else self.head_seconds)
        else:
            self._refuse(RequestTimeout())

    def _is_held_back(self) -> bool:
        """Returns whether the server itself keeps the client from sending, by back-pressure or because it has not sent
        `100 Continue` yet. Such time does not count.
        """
        return self.flow.read_paused or (self._is_in_body() and self.cycle.waiting_for_100_continue)


def _take_body(cycle: RequestResponseCycle) -> bytes | None:
    """Takes the body of a request, as its `receive` would return it; None if that would have to wait."""
    if cycle.more_body or cycle.disconnected:
        return None
    cycle.message_event.clear()
    return bytes(cycle.body)


_BYTES = re.compile(
    rb"/storage/(?:app_[0-9a-z]+/)?(?:content|uploads)/[0-9a-f-]{36}$|/repo/blobs/[0-9a-f]{64}/content$"
)
"""The paths that take the bytes of a file; on the host of an app without its id."""


class FileProtocol(GuardedProtocol):
    """The protocol of the server. The transfer of a file may take any time, as long as some bytes arrive."""

    @staticmethod
    def is_upload(method: str, raw_path: bytes) -> bool:
        return method in ("PUT", "PATCH") and _BYTES.search(raw_path) is not None and b"/kv/" not in raw_path


def _parse_reason(error: httptools.HttpParserError) -> BaobabError:
    """Returns the error that our own callback raised, or one with the parser's message, which never holds the client's
    bytes.
    """
    if isinstance(error, httptools.HttpParserCallbackError):
        error_of_callback = error.__context__
        return error_of_callback if isinstance(error_of_callback, BaobabError) else MalformedRequest()
    return MalformedRequest(f"The request is not valid HTTP/1.1: {error}.")


def _render(reason: BaobabError, request_id: str, default_headers: list[tuple[bytes, bytes]]) -> bytes:
    error = {"code": reason.code, "message": reason.message, "remediation": reason.remedy}
    body = json.dumps({"error": error}).encode()
    headers = [
        *default_headers,
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        (b"x-request-id", request_id.encode()),
        (b"connection", b"close"),
    ]
    lines = b"".join(b"%b: %b\r\n" % header for header in headers)
    return STATUS_LINE[reason.status] + lines + b"\r\n" + body
