"""Connections to model servers, kept for a while between requests."""

import asyncio
import socket
import ssl
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any

from aiohappyeyeballs import start_connection

from baobab.runtime.addresses import Target
from baobab.runtime.gateway.connection import Answer, Connection, NotSent, head_of
from baobab.runtime.gateway.patience import Patience
from baobab.runtime.names import system_names

# (host, port) -> a connection to it. Raises OSError, EgressError.
Dial = Callable[[str, int], Awaitable[socket.socket]]

_Place = tuple[str, str, int]
"""Scheme, host and port."""

_CONNECT_SECONDS = 10.0
_KEPT_SECONDS = {"https": 30.0, "http": 4.0}
"""By scheme: model servers behind plain HTTP close idle connections after five seconds, as uvicorn and Node.js do. What
is sent as one closes may have been received, and is not sent again."""
_SWEEP_SECONDS = 30.0


class Connections:
    """Used on one event loop. tls: replaces the default context, for a private authority."""

    def __init__(self, dial: Dial, *, tls: ssl.SSLContext | None = None) -> None:
        self._dial = dial
        self._tls = tls
        self._kept: defaultdict[_Place, list[tuple[Connection, float]]] = defaultdict(list)
        self._under_way: set[Connection] = set()
        self._sweeping: asyncio.TimerHandle | None = None

    async def post(self, target: Target, headers: Mapping[str, str], content: bytes, patience: Patience) -> Answer:
        """Send a request; its answer, whose head is there. NotSent, NoAnswer, TimeoutError, OSError, EgressError.

        To connect there are ten seconds more. After NotSent, an OSError that is no TimeoutError, and an EgressError
        nothing of the request has left.
        """
        place = target.origin
        head = head_of(target.rest, target.authority, len(content), headers)
        try:
            connection = self._taken(place) or await self._opened(target)
        except TimeoutError as exc:
            raise NotSent from exc
        self._under_way.add(connection)
        try:
            await connection.ask(head, content, first=patience.first, between=patience.between, seconds=patience.total)
        except BaseException:
            self._under_way.discard(connection)
            raise
        return Answer(connection, partial(self._done, place))

    async def close(self) -> None:
        """End all connections, and what is under way on them."""
        for connection in (*self._under_way, *(connection for each in self._kept.values() for connection, _ in each)):
            connection.end()
        self._kept.clear()
        if self._sweeping is not None:
            self._sweeping.cancel()
        # They end in the loop's next turn.
        await asyncio.sleep(0)

    async def _opened(self, target: Target) -> Connection:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(_CONNECT_SECONDS):
            secure = target.scheme == "https"
            if secure and self._tls is None:
                self._tls = await asyncio.to_thread(ssl.create_default_context)
            tls, name = (self._tls, target.host) if secure else (None, None)
            line = await self._dial(target.host, target.port)
            try:
                _, connection = await loop.create_connection(Connection, sock=line, ssl=tls, server_hostname=name)
            except BaseException:
                line.close()
                raise
        return connection

    def _taken(self, place: _Place) -> Connection | None:
        oldest = asyncio.get_running_loop().time() - _KEPT_SECONDS[place[0]]
        kept = self._kept.get(place, [])
        while kept:
            connection, since = kept.pop()
            if connection.free and since > oldest:
                return connection
            connection.end()
        return None

    def _done(self, place: _Place, connection: Connection) -> None:
        self._under_way.discard(connection)
        if not connection.free:
            connection.end()
            return
        loop = asyncio.get_running_loop()
        self._kept[place].append((connection, loop.time()))
        if self._sweeping is None:
            self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep)

    def _sweep(self) -> None:
        """End what nobody has used for long; the next round is needed where something is left."""
        loop = asyncio.get_running_loop()
        for place, kept in list(self._kept.items()):
            oldest = loop.time() - _KEPT_SECONDS[place[0]]
            self._kept[place] = [one for one in kept if one[1] > oldest and one[0].free]
            for connection, since in kept:
                if since <= oldest:
                    connection.end()
            if not self._kept[place]:
                del self._kept[place]
        self._sweeping = loop.call_later(_SWEEP_SECONDS, self._sweep) if self._kept else None


async def dial(host: str, port: int) -> socket.socket:
    """A connection to wherever the system finds the host, whichever of its addresses answers first."""
    try:
        addresses = [(one, port) for one in await system_names().resolve(host, port)]
        found: Any = [
            (socket.AF_INET6 if ":" in one[0] else socket.AF_INET, socket.SOCK_STREAM, 0, "", one) for one in addresses
        ]
    except OSError:
        # The operator's own servers may have names that only the system's other services know.
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await start_connection(found)
