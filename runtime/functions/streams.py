"""Bytes of one stream in one direction, no more of them on their way than its receiver allows."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable

from baobab.runtime.functions.frames import PIECE, WINDOW, BadFrame, Kind, pack_credit, pack_frame

Send = Callable[[bytes], None]


class Inbox:
    """What a process sends: an iterator of bytes that gives credit as they are read."""

    def __init__(self, stream: int, send: Send, on_close: Callable[[], None], *, most: int) -> None:
        """on_close: called when the reader closes the iterator before its end. most: the bytes that may come in all."""
        self._stream = stream
        self._send = send
        self._on_close = on_close
        self._most = most
        self._pieces: deque[bytes] = deque()
        self._unread = 0
        self._total = 0
        self._is_over = False
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()

    @property
    def is_over(self) -> bool:
        """Whether no more will come."""
        return self._is_over

    def put(self, data: bytes) -> bool:
        """Takes a piece. Returns False if more came than may come in all. Raises BadFrame for one without credit."""
        if self._is_over:
            return True
        self._unread += len(data)
        if self._unread > WINDOW:
            raise BadFrame
        self._total += len(data)
        if self._total > self._most:
            return False
        self._pieces.append(data)
        self._wake.set()
        return True

    def finish(self, failure: BaseException | None = None) -> None:
        """Ends the stream; its reader gets what has come so far, and then the failure."""
        if not self._is_over:
            self._is_over = True
            self._failure = failure
            self._wake.set()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        while not self._pieces:
            if self._is_over:
                if self._failure is not None:
                    raise self._failure
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        data = self._pieces.popleft()
        self._unread -= len(data)
        if not self._is_over:
            self._send(pack_credit(self._stream, len(data)))
        return data

    async def aclose(self) -> None:
        """Stops reading: the sender is told that nobody listens."""
        self._pieces.clear()
        if not self._is_over:
            self.finish()
            self._on_close()


class Outbox:
    """What the server sends to a process, as it has credit."""

    def __init__(self, stream: int, send: Send) -> None:
        self._stream = stream
        self._send = send
        self._credit = WINDOW
        self._wake = asyncio.Event()

    def grant(self, size: int) -> None:
        """Adds credit."""
        self._credit += size
        self._wake.set()

    async def transmit(self, body: AsyncIterator[bytes], *, most: int) -> bool:
        """Sends a body to its end. Returns False if it has more than `most` bytes. Raises what the body raises."""
        total = 0
        async for data in body:
            total += len(data)
            if total > most:
                return False
            at = 0
            while at < len(data):
                while self._credit <= 0:
                    self._wake.clear()
                    await self._wake.wait()
                size = min(self._credit, PIECE, len(data) - at)
                self._credit -= size
                self._send(pack_frame(Kind.DATA, self._stream, bytes(data[at : at + size])))
                at += size
        self._send(pack_frame(Kind.END, self._stream))
        return True
