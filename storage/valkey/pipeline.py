"""Sends all commands of one iteration of the event loop in one write."""

from __future__ import annotations

import asyncio
from typing import Any

from baobab.storage.valkey.address import Address
from baobab.storage.valkey.connection import Connection, pack
from baobab.storage.valkey.errors import ValkeyUnavailable

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 1.0


class Pipeline:
    """One connection, which is opened again whenever it is lost. It belongs to the event loop that opens it.

    While it is being opened again, commands wait for it; after a failed attempt they are refused at once until one
    succeeds. No command is sent twice.
    """

    def __init__(self, url: str, *, timeout: float = 2.0, queue_limit: int = 10_000) -> None:
        self._address = Address(url)
        self._timeout = timeout
        self._queue_limit = queue_limit
        self._packed_commands: list[bytes] = []
        self._futures: list[asyncio.Future[Any]] = []
        self._connection: Connection | None = None
        self._refusal: str | None = "not open"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._keeper: asyncio.Task[None] | None = None

    async def open(self) -> None:
        """Raises ValkeyUnavailable if the first attempt fails; further attempts follow until `close`."""
        self._loop = asyncio.get_running_loop()
        self._refusal = None
        first: asyncio.Future[None] = self._loop.create_future()
        self._keeper = self._loop.create_task(self._keep(first), name="valkey")
        await asyncio.wait([first, self._keeper], return_when=asyncio.FIRST_COMPLETED)
        if self._keeper.done():
            # An error that no further attempt can fix, such as an invalid host name.
            self._keeper.result()
        first.result()

    async def close(self) -> None:
        """Waits for the replies to commands that were sent, at most as long as a reply may take."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        self._refusal = "closed"
        self._flush()
        if self._connection is not None and self._connection.waiting_count:
            # Replies come in order, so the reply to this PING is the last one.
            await asyncio.wait([self._connection.send("PING")])
        keeper.cancel()
        await asyncio.wait([keeper])
        self._refuse("closed")

    def send(self, *command: bytes | str | int) -> asyncio.Future[Any]:
        """Returns the future reply: bytes, int, None or a list of them. The future fails with ValkeyUnavailable."""
        loop = asyncio.get_running_loop()
        if self._refusal is not None:
            raise ValkeyUnavailable(self._refusal)
        if loop is not self._loop:
            raise RuntimeError("a pipeline belongs to the event loop that opened it")
        if (
            len(self._packed_commands) + (self._connection.waiting_count if self._connection else 0)
            >= self._queue_limit
        ):
            raise ValkeyUnavailable("too many commands are waiting")
        future: asyncio.Future[Any] = loop.create_future()
        if not self._packed_commands:
            loop.call_soon(self._flush)
        self._packed_commands.append(pack(command))
        self._futures.append(future)
        return future

    def _flush(self) -> None:
        # Without a connection the commands wait until there is one, or the attempt has failed.
        if self._connection is None or self._connection.loss.done() or not self._packed_commands:
            return
        packed_commands, futures = self._packed_commands, self._futures
        self._packed_commands, self._futures = [], []
        self._connection.write(packed_commands[0] if len(packed_commands) == 1 else b"".join(packed_commands), futures)

    def _refuse(self, reason: str) -> None:
        self._refusal = reason
        futures, self._futures = self._futures, []
        self._packed_commands = []
        for future in futures:
            if not future.done():
                future.set_exception(ValkeyUnavailable(reason))

    async def _keep(self, first: asyncio.Future[None]) -> None:
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE
        while True:
            started_at = loop.time()
            try:
                async with asyncio.timeout(self._timeout):
                    connection = await self._address.connect(lambda: Connection(self._timeout))
            except (OSError, ValkeyUnavailable) as exc:
                self._refuse(f"{type(exc).__name__}: {exc}")
                if not first.done():
                    first.set_exception(ValkeyUnavailable(f"{type(exc).__name__}: {exc}"))
            else:
                await self._use(connection, first)
            if loop.time() - started_at > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            else:
                # Also after a connection that was dropped at once, to avoid a busy loop.
                await asyncio.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    async def _use(self, connection: Connection, first: asyncio.Future[None]) -> None:
        """Uses a connection until it is lost."""
        try:
            self._connection, self._refusal = connection, None
            self._flush()
            if not first.done():
                first.set_result(None)
            await asyncio.shield(connection.loss)
        finally:
            self._connection = None
            connection.abort()
