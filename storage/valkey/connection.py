"""A connection to Valkey: commands are sent in order, and replies arrive in the same order."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, cast

import hiredis

from baobab.storage.valkey.errors import ValkeyUnavailable, from_reply

_UNFINISHED = object()

# Its type stub allows only tuples of one.
pack: Callable[..., bytes] = hiredis.pack_command


class Connection(asyncio.Protocol):
    """Resolves all replies of one read together, where redis-py's connection awaits each reply by itself."""

    def __init__(self, timeout: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._timeout = timeout
        self._reader = hiredis.Reader(protocolError=ValkeyUnavailable, replyError=from_reply, notEnoughData=_UNFINISHED)
        # The future of each reply, and its deadline.
        self._waiting: deque[tuple[asyncio.Future[Any], float]] = deque()
        self._watch: asyncio.TimerHandle | None = None
        self._fault: str | None = None
        self._transport: asyncio.Transport | None = None
        self.loss: asyncio.Future[None] = self._loop.create_future()

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def send(self, *command: bytes | str | int) -> asyncio.Future[Any]:
        future: asyncio.Future[Any] = self._loop.create_future()
        self.write(pack(command), (future,))
        return future

    def write(self, packed_commands: bytes, futures: Iterable[asyncio.Future[Any]]) -> None:
        """Sends commands, one for each future."""
        if self.loss.done():
            self._fail(futures)
            return
        deadline = self._loop.time() + self._timeout
        self._waiting.extend([(future, deadline) for future in futures])
        if self._watch is None:
            self._watch = self._loop.call_at(deadline, self._check_deadline)
        cast(asyncio.Transport, self._transport).write(packed_commands)

    def abort(self, fault: str | None = None) -> None:
        self._fault = self._fault or fault
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        try:
            while (reply := self._reader.gets()) is not _UNFINISHED:
                future, _ = self._waiting.popleft()
                # Done already if the caller was cancelled.
                if future.done():
                    continue
                if isinstance(reply, Exception):
                    future.set_exception(reply)
                else:
                    future.set_result(reply)
        except (ValkeyUnavailable, IndexError) as exc:
            self.abort(f"an unreadable reply: {exc}")

    def connection_lost(self, exc: Exception | None) -> None:
        if self._watch is not None:
            self._watch.cancel()
        self._fault = self._fault or f"the connection was lost: {exc or 'closed by the server'}"
        self.loss.set_result(None)
        self._fail(future for future, _ in self._waiting)
        self._waiting.clear()

    def _fail(self, futures: Iterable[asyncio.Future[Any]]) -> None:
        for future in futures:
            if not future.done():
                future.set_exception(ValkeyUnavailable(self._fault or "the connection is lost"))

    def _check_deadline(self) -> None:
        """Aborts the connection if a reply is overdue, since it holds up all later replies."""
        self._watch = None
        if not self._waiting:
            return
        deadline = self._waiting[0][1]
        if deadline <= self._loop.time():
            self.abort(f"no reply within {self._timeout} s")
        else:
            self._watch = self._loop.call_at(deadline, self._check_deadline)
