"""One connection to a model server that speaks HTTP/1.1, for one request at a time.

Most of the cost of relaying a short answer is that of the HTTP client; docs/decisions/0021-own-client.md has figures.
The bytes are parsed by httptools, like those of requests to this server.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MAX_NON_BODY = 64 * 1024
"""The most consecutive bytes that are not part of a body, such as those of the headers."""
_MAX_BUFFERED = 256 * 1024
"""The bytes of an answer that are buffered before reading from the server pauses."""
_PORTION = 256 * 1024
"""The part of a long request that is written at once; more would hold up other tasks."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class RequestNotSent(Exception):
    """Nothing of the request was sent: the connection had ended, or the request cannot be written as HTTP."""


class NoAnswer(Exception):
    """The server did not answer, or its answer is not HTTP. It may have begun to work on the request."""


class IncompleteAnswer(Exception):
    """The server broke off in the middle of its answer."""


class HttpAnswer:
    """A server's answer, whose headers have arrived. Iterate over its body once, and always `close` it."""

    __slots__ = ("_connection", "_first_piece", "_on_done", "headers", "status")

    def __init__(self, connection: "Connection", on_done: Callable[["Connection"], None]) -> None:
        self.status, self.headers = connection.status, connection.headers
        """headers: by their names in lower case; if a header is repeated, the last one."""
        self._connection: Connection | None = connection
        self._on_done = on_done
        self._first_piece = b""

    async def peek(self) -> bytes:
        """Returns the first piece of the body, and leaves it there. Raises IncompleteAnswer or TimeoutError."""
        if not self._first_piece and self._connection is not None:
            self._first_piece = await self._connection.read_piece()
        return self._first_piece

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """Yields the pieces of the body as they arrive. Raises IncompleteAnswer or TimeoutError."""
        first_piece, self._first_piece = self._first_piece, b""
        if first_piece:
            yield first_piece
        while self._connection is not None and (piece := await self._connection.read_piece()):
            yield piece

    def close(self) -> None:
        """Returns the connection to the pool if the answer is complete; otherwise ends it."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._on_done(connection)


class Connection(asyncio.Protocol):
    """The protocol of one connection, used on one event loop. Call `send_request` for one request at a time."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []
        self._buffered_bytes = self._non_body = 0
        self._silence = self._between = self._deadline = self._heard_at = 0.0
        # The state of the current exchange.
        self._is_request_written = self._has_head = self._is_complete = True
        self._reads_to_end = self._keeps_alive = False
        self._may_write = True
        self._is_paused = False

    @property
    def is_free(self) -> bool:
        """Whether a new request can be sent: the last answer is complete and read, and the server keeps it open."""
        return (
            self._transport is not None
            and self._is_request_written
            and self._is_complete
            and not self._pieces
            and not self._is_paused
        )

    async def send_request(self, head: bytes, content: bytes, *, first: float, between: float, seconds: float) -> None:
        """Sends a request and waits for the answer's `status` and `headers`.

        Raises RequestNotSent, NoAnswer or TimeoutError. After any error or a cancellation the connection has ended.
        first: the seconds that the server may be silent before the first byte of its answer's body. between: the same
        after that byte. seconds: the bound on the whole exchange.
        """
        self.status, self.headers = 0, {}
        self._is_request_written = self._has_head = self._is_complete = self._reads_to_end = self._keeps_alive = False
        self._heard_at = self._loop.time()
        self._silence, self._between, self._deadline = first, between, self._heard_at + seconds
        self._watch_deadline()
        try:
            await self._write_request(head, content)
            while not self._has_head:
                await self._wait_for_news()
        except BaseException:
            self.abort()
            raise

    async def read_piece(self) -> bytes:
        """Waits for the next bytes of the body and returns them; empty at its end."""
        while not self._pieces and not self._is_complete:
            await self._wait_for_news()
        if self._is_paused and self._transport is not None:
            self._is_paused, self._heard_at = False, self._loop.time()
            self._transport.resume_reading()
        pieces, self._pieces, self._buffered_bytes = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def abort(self) -> None:
        """Ends the connection; a waiting reader gets an error."""
        self._fail(IncompleteAnswer() if self._has_head else NoAnswer())
        self._pieces = []

    async def _write_request(self, head: bytes, content: bytes) -> None:
        if self._transport is None:
            raise RequestNotSent
        if len(content) <= _PORTION:
            self._transport.write(head + content)
        else:
            self._transport.write(head)
            view = memoryview(content)
            for start in range(0, len(content), _PORTION):
                while not self._may_write and not self._has_head:
                    await self._wait_for_news()
                # A server that answers early does not want the rest.
                if self._has_head or self._transport is None:
                    return
                self._transport.write(view[start : start + _PORTION])
                self._heard_at = self._loop.time()
        self._is_request_written = True

    async def _wait_for_news(self) -> None:
        """Waits until bytes have arrived or there is room to write; raises the connection's error."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _wake_waiter(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._abort_transport()
        self._wake_waiter()

    def _abort_transport(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._timer is not None:
            self._timer.cancel()

    def _watch_deadline(self) -> None:
        now = self._loop.time()
        # While reading is paused, the silence is not the server's fault.
        due = self._deadline if self._is_paused else min(self._deadline, self._heard_at + self._silence)
        if now >= due:
            self._fail(TimeoutError())
        else:
            wait = min(self._silence, self._deadline - now) if self._is_paused else due - now
            self._timer = self._loop.call_later(wait, self._watch_deadline)

    # The transport calls these methods.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # it reads and writes

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._loop.time()
        self._non_body += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            # Also if the server sends more than the answer; that answer stays complete.
            self._fail(IncompleteAnswer() if self._has_head else NoAnswer())
        else:
            # The parser buffers a header until it is complete.
            if self._non_body > _MAX_NON_BODY:
                self._fail(IncompleteAnswer() if self._has_head else NoAnswer())

    def pause_writing(self) -> None:
        self._may_write = False

    def resume_writing(self) -> None:
        self._may_write = True
        self._wake_waiter()

    def connection_lost(self, exc: Exception | None) -> None:
        # Only if the server ended the connection, not this side.
        if self._reads_to_end and exc is None and self._transport is not None:
            self.on_message_complete()
        self._fail(IncompleteAnswer() if self._has_head else NoAnswer())

    # The parser calls these methods.

    def on_message_begin(self) -> None:
        if self._is_complete:
            raise ValueError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        # Trailers after the body are not headers.
        if not self._has_head:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # An interim response, not the answer.
            self.headers = {}
            return
        self.status, self._has_head = status, True
        self._keeps_alive = self._parser.should_keep_alive()
        is_chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._reads_to_end = not is_chunked and "content-length" not in self.headers and status not in (204, 304)
        self._wake_waiter()

    def on_body(self, body: bytes) -> None:
        if not self._has_head:
            raise ValueError("a body before the answer's head")
        self._non_body = 0
        if self._silence != self._between:
            self._silence = self._between
            if self._timer is not None:
                self._timer.cancel()
                self._watch_deadline()
        self._pieces.append(body)
        self._buffered_bytes += len(body)
        if self._buffered_bytes > _MAX_BUFFERED and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake_waiter()

    def on_message_complete(self) -> None:
        if not self._has_head or self._is_complete:
            return
        self._is_complete, self._non_body = True, 0
        if not self._keeps_alive:
            self._abort_transport()
        if self._timer is not None:
            self._timer.cancel()
        self._wake_waiter()


def encode_head(path: str, host: str, length: int, headers: Mapping[str, str]) -> bytes:
    """Encodes the head of a POST. Raises RequestNotSent for an invalid header: a line break could add others."""
    lines = [f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}"]
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise RequestNotSent
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
