"""One connection to a model server that speaks HTTP/1.1: a request, its answer, and then perhaps the next.

Most of what relaying a short answer costs is what its client costs; docs/decisions/0021-own-client.md has the figures.
The bytes are taken apart by httptools, as those are that come to this server.
"""

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Mapping

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

_MOST_BESIDE = 64 * 1024
"""Bytes that are no body, one after the other: those of a head, for one."""
_MOST_HELD = 256 * 1024
"""Bytes of an answer that wait for their reader, before the server is left waiting."""
_PORTION = 256 * 1024
"""What is written at once of a long request: all of it would keep everybody else waiting."""
_TOKEN = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


class NotSent(Exception):
    """Nothing of the request has left: the connection had ended, or the request cannot be written as HTTP."""


class NoAnswer(Exception):
    """The server did not answer, or what it answered is not HTTP. It may have begun to work."""


class HalfAnswer(Exception):
    """The server broke off within its answer."""


class Answer:
    """What a server answers. Its head is there; `read` or iterate over its body once, and `close` it in any case."""

    __slots__ = ("_connection", "_done", "headers", "status")

    def __init__(self, connection: "Connection", done: Callable[["Connection"], None]) -> None:
        self.status, self.headers = connection.status, connection.headers
        """headers: by their names in small letters; of those that come several times, the last."""
        self._connection: Connection | None = connection
        self._done = done

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        """The body, as it comes. HalfAnswer, TimeoutError."""
        while self._connection is not None and (piece := await self._connection.piece()):
            yield piece

    def close(self) -> None:
        """Give the connection back, where all has come; else end it, and what is still under way."""
        connection, self._connection = self._connection, None
        if connection is not None:
            self._done(connection)


class Connection(asyncio.Protocol):
    """What its transport tells; `ask` it one thing at a time. Used on one event loop."""

    def __init__(self) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self._loop = asyncio.get_running_loop()
        self._parser = HttpResponseParser(self)
        self._transport: asyncio.Transport | None = None
        self._error: Exception | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._clock: asyncio.TimerHandle | None = None
        self._pieces: list[bytes] = []
        self._held = self._beside = 0
        self._silence = self._between = self._deadline = self._heard = 0.0
        # Of the exchange that is under way.
        self._written = self._headed = self._whole = True
        self._to_the_end = self._stays = False
        self._room = True
        self._paused = False

    @property
    def free(self) -> bool:
        """Whether something can be asked now: all that was is answered and read, and the server stays."""
        return self._transport is not None and self._written and self._whole and not self._pieces and not self._paused

    async def ask(self, head: bytes, content: bytes, *, first: float, between: float, seconds: float) -> None:
        """Send a request; `status` and `headers` are there when this returns. NotSent, NoAnswer, TimeoutError.

        first: seconds in which the server may say nothing before the first byte of its answer's body. between: the same
        after it. seconds: for all of the exchange. Whatever it raises, and if it is cancelled, the connection has
        ended.
        """
        self.status, self.headers = 0, {}
        self._written = self._headed = self._whole = self._to_the_end = self._stays = False
        self._heard = self._loop.time()
        self._silence, self._between, self._deadline = first, between, self._heard + seconds
        self._watch()
        try:
            await self._write(head, content)
            while not self._headed:
                await self._news()
        except BaseException:
            self.end()
            raise

    async def piece(self) -> bytes:
        """What has come of the body since, as soon as there is something; nothing at its end."""
        while not self._pieces and not self._whole:
            await self._news()
        if self._paused and self._transport is not None:
            self._paused, self._heard = False, self._loop.time()
            self._transport.resume_reading()
        pieces, self._pieces, self._held = self._pieces, [], 0
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def end(self) -> None:
        """Whoever waits is told."""
        self._fail(HalfAnswer() if self._headed else NoAnswer())
        self._pieces = []

    async def _write(self, head: bytes, content: bytes) -> None:
        if self._transport is None:
            raise NotSent
        if len(content) <= _PORTION:
            self._transport.write(head + content)
        else:
            self._transport.write(head)
            view = memoryview(content)
            for start in range(0, len(content), _PORTION):
                while not self._room and not self._headed:
                    await self._news()
                # Who answers early does not want the rest.
                if self._headed or self._transport is None:
                    return
                self._transport.write(view[start : start + _PORTION])
                self._heard = self._loop.time()
        self._written = True

    async def _news(self) -> None:
        """Wait until something has come, or there is room again; what has gone wrong."""
        if self._error is not None:
            raise self._error
        self._waiting = self._loop.create_future()
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def _fail(self, error: Exception) -> None:
        if self._error is None:
            self._error = error
        self._hang_up()
        self._wake()

    def _hang_up(self) -> None:
        transport, self._transport = self._transport, None
        if transport is not None:
            transport.abort()
        if self._clock is not None:
            self._clock.cancel()

    def _watch(self) -> None:
        now = self._loop.time()
        # Whoever does not read leaves the server no room to speak.
        due = self._deadline if self._paused else min(self._deadline, self._heard + self._silence)
        if now >= due:
            self._fail(TimeoutError())
        else:
            wait = min(self._silence, self._deadline - now) if self._paused else due - now
            self._clock = self._loop.call_later(wait, self._watch)

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # it reads and writes

    def data_received(self, data: bytes) -> None:
        self._heard = self._loop.time()
        self._beside += len(data)
        try:
            self._parser.feed_data(data)
        except (HttpParserError, HttpParserUpgrade):
            # Also where more comes than was asked for: the answer is whole all the same.
            self._fail(HalfAnswer() if self._headed else NoAnswer())
        else:
            # The parser keeps a header until it has ended.
            if self._beside > _MOST_BESIDE:
                self._fail(HalfAnswer() if self._headed else NoAnswer())

    def pause_writing(self) -> None:
        self._room = False

    def resume_writing(self) -> None:
        self._room = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        # Not where it was we who hung up.
        if self._to_the_end and exc is None and self._transport is not None:
            self.on_message_complete()
        self._fail(HalfAnswer() if self._headed else NoAnswer())

    # What the parser calls.

    def on_message_begin(self) -> None:
        if self._whole:
            raise ValueError("an answer to nothing")

    def on_header(self, name: bytes, value: bytes) -> None:
        # What comes after the body is no head.
        if not self._headed:
            self.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status < 200:
            # Not yet the answer.
            self.headers = {}
            return
        self.status, self._headed = status, True
        self._stays = self._parser.should_keep_alive()
        chunked = "chunked" in self.headers.get("transfer-encoding", "").lower()
        self._to_the_end = not chunked and "content-length" not in self.headers and status not in (204, 304)
        self._wake()

    def on_body(self, body: bytes) -> None:
        if not self._headed:
            raise ValueError("a body before the answer's head")
        self._beside = 0
        if self._silence != self._between:
            self._silence = self._between
            if self._clock is not None:
                self._clock.cancel()
                self._watch()
        self._pieces.append(body)
        self._held += len(body)
        if self._held > _MOST_HELD and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if not self._headed or self._whole:
            return
        self._whole, self._beside = True, 0
        if not self._stays:
            self._hang_up()
        if self._clock is not None:
            self._clock.cancel()
        self._wake()


def head_of(path: str, host: str, length: int, headers: Mapping[str, str]) -> bytes:
    """The head of a POST. NotSent for what is no header: a key with a line in it would make others."""
    lines = [f"POST {path} HTTP/1.1\r\nhost: {host}\r\ncontent-length: {length}"]
    for name, value in headers.items():
        if _TOKEN.fullmatch(name) is None or _VALUE.fullmatch(value) is None:
            raise NotSent
        lines.append(f"{name}: {value}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
