"""A pool of connections to model servers, which are kept open for a while between requests."""

import asyncio
import socket
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohappyeyeballs import start_connection

from baobab.runtime.gateway.connection import Connection, HttpAnswer, RequestNotSent, encode_head
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts
from baobab.runtime.net.addresses import Target
from baobab.runtime.net.host_resolver import get_host_resolver

# Connects to (host, port). Raises OSError or EgressError.
Dial = Callable[[str, int], Awaitable[socket.socket]]

_Origin = tuple[str, str, int]
"""Scheme, host and port."""

_CONNECT_SECONDS = 10.0
_IDLE_SECONDS = {"https": 30.0, "http": 4.0}
"""By scheme. Model servers behind plain HTTP close idle connections after five seconds, as uvicorn and Node.js do; a
request that is sent while one closes may have been received, so it is not sent again."""
_SWEEP_SECONDS = 30.0


class ConnectionPool:
    """A pool of connections, used on one event loop. tls: replaces the default context, for a private authority."""

    def __init__(self, dial: Dial, *, tls: ssl.SSLContext | None = None) -> None:
        self._dial = dial
        self._tls = tls
        self._idle: defaultdict[_Origin, list[tuple[Connection, float]]] = defaultdict(list)
        self._active: set[Connection] = set()
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def post_request(
        self, target: Target, headers: Mapping[str, str], content: bytes, retry_timeouts: RetryTimeouts
    ) -> HttpAnswer:
        """Sends a request and returns its answer, whose headers have arrived.

        Raises RequestNotSent, NoAnswer, TimeoutError, OSError or EgressError. After RequestNotSent, an EgressError or
        an OSError other than TimeoutError nothing was sent. Connecting may take ten seconds more.
        """
        origin = target.origin
        head = encode_head(target.rest, target.authority, len(content), headers)
        try:
            connection = self._take_idle(origin) or await self._open_connection(target)
        except TimeoutError as exc:
            raise RequestNotSent from exc
        self._active.add(connection)
        try:
            await connection.send_request(
                head, content, first=retry_timeouts.first, between=retry_timeouts.between, seconds=retry_timeouts.total
            )
        except BaseException:
            self._active.discard(connection)
            raise
        return HttpAnswer(connection, partial(self._release_connection, origin))

    async def close(self) -> None:
        """Ends all connections and the requests on them, and the look-ups of names with which others begin."""
        for connection in (*self._active, *(connection for each in self._idle.values() for connection, _ in each)):
            connection.abort()
        self._idle.clear()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        if self._dial is dial_host:
            await get_host_resolver().close()
        # The connections end in the loop's next iteration.
        await asyncio.sleep(0)

    async def _open_connection(self, target: Target) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_SECONDS):
            secure = target.scheme == "https"
            if secure and self._tls is None:
                self._tls = await asyncio.to_thread(ssl.create_default_context)
            tls, name = (self._tls, target.host) if secure else (None, None)
            raw_socket = await self._dial(target.host, target.port)
            try:
                _, connection = await loop.create_connection(Connection, sock=raw_socket, ssl=tls, server_hostname=name)
            except BaseException:
                raw_socket.close()
                raise
        return connection

    def _take_idle(self, origin: _Origin) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - _IDLE_SECONDS[origin[0]]
        idle = self._idle.get(origin, [])
        while idle:
            connection, since = idle.pop()
            if connection.is_free and since > oldest:
                return connection
            connection.abort()
        return None

    def _release_connection(self, origin: _Origin, connection: Connection) -> None:
        self._active.discard(connection)
        if not connection.is_free:
            connection.abort()
            return
        loop = asyncio.get_running_loop()
        self._idle[origin].append((connection, loop.time()))
        if self._sweep_timer is None:
            self._sweep_timer = loop.call_later(_SWEEP_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        """Closes connections that have been idle too long, and schedules the next sweep if any are left."""
        loop = asyncio.get_running_loop()
        for origin, idle in list(self._idle.items()):
            oldest = loop.time() - _IDLE_SECONDS[origin[0]]
            self._idle[origin] = [entry for entry in idle if entry[1] > oldest and entry[0].is_free]
            for connection, since in idle:
                if since <= oldest:
                    connection.abort()
            if not self._idle[origin]:
                del self._idle[origin]
        self._sweep_timer = loop.call_later(_SWEEP_SECONDS, self._close_idle) if self._idle else None


async def dial_host(host: str, port: int) -> socket.socket:
    """Connects to the first address of the host that answers."""
    try:
        addresses = [(ip, port) for ip in await get_host_resolver().resolve(host, port)]
        addresses_info: Any = [
            (socket.AF_INET6 if ":" in address[0] else socket.AF_INET, socket.SOCK_STREAM, 0, "", address)
            for address in addresses
        ]
    except OSError:
        # The operator's own servers may have names that only the system's resolver knows.
        addresses_info = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await start_connection(addresses_info)
