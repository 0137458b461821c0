"""Host names of outgoing requests: looked up by c-ares, with a timeout that ends the lookup and no thread that waits.

What was found is kept for as long as its record says, what was not for a short while; two who ask for one name wait for
one lookup; and a tenant whose names are slow waits for its own lookups only. `/etc/hosts` is read first.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from baobab.runtime.shares import Shares
from baobab.tools.core.tenancy import STRANGER, current_tenant

if TYPE_CHECKING:
    import aiodns

LOOKUP_SECONDS = 5.0
_TRY_SECONDS, _TRIES = 1.5, 3
_LEAST_KEPT, _MOST_KEPT = 5.0, 300.0
_FAILURE_KEPT = 5.0
_MOST_NAMES = 4096
_MOST_LOOKUPS = 1000
"""At once, of all tenants."""
_OF_ONE_TENANT, _OF_ONE_STRANGER = 16, 2

_Found = tuple[str, ...] | int
"""Addresses, best first; or the code of a `socket.gaierror`."""


class Names:
    """One for each event loop. nameservers: instead of the system's, as `host:port`."""

    def __init__(self, nameservers: Sequence[str] | None = None) -> None:
        self._nameservers = nameservers
        self._kept: dict[str, tuple[float, _Found]] = {}
        self._looking: dict[str, asyncio.Task[_Found]] = {}
        self._shares = Shares(_OF_ONE_TENANT)
        self._opened: aiodns.DNSResolver | None = None

    async def resolve(self, host: str, port: int) -> list[str]:
        """The addresses of a host, best first; OSError where it has none, or nobody says in time."""
        found = self._known(host)
        if found is None:
            tenant = current_tenant()
            async with self._shares.place(tenant, _OF_ONE_STRANGER if tenant.startswith(STRANGER) else None):
                found = self._known(host)
                if found is None:
                    # Whoever is cancelled takes the lookup from nobody else.
                    found = await asyncio.shield(self._lookup(host))
        if isinstance(found, int):
            raise socket.gaierror(found, "the name does not resolve")
        return list(found)

    async def close(self) -> None:
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.close()

    def _known(self, host: str) -> _Found | None:
        kept = self._kept.get(host)
        return kept[1] if kept is not None and kept[0] > asyncio.get_running_loop().time() else None

    def _lookup(self, host: str) -> "asyncio.Task[_Found]":
        task = self._looking.get(host)
        if task is None:
            if len(self._looking) >= _MOST_LOOKUPS:
                raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
            task = self._looking[host] = asyncio.get_running_loop().create_task(self._look(host))
            task.add_done_callback(lambda _: self._looking.pop(host, None))
        return task

    async def _look(self, host: str) -> _Found:
        found: _Found
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                found, seconds = await self._ask(host)
        except TimeoutError:
            found, seconds = socket.EAI_AGAIN, _FAILURE_KEPT
        self._kept.pop(host, None)
        while len(self._kept) >= _MOST_NAMES:
            del self._kept[next(iter(self._kept))]
        self._kept[host] = asyncio.get_running_loop().time() + seconds, found
        return found

    async def _ask(self, host: str) -> tuple[_Found, float]:
        """What c-ares finds, and for how many seconds that holds."""
        import aiodns

        if self._opened is None:
            self._opened = aiodns.DNSResolver(self._nameservers, timeout=_TRY_SECONDS, tries=_TRIES)
        try:
            answer = await self._opened.getaddrinfo(host, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as exc:
            missing = exc.args and exc.args[0] in (aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA)
            return (socket.EAI_NONAME if missing else socket.EAI_AGAIN), _FAILURE_KEPT
        nodes = answer.nodes
        addresses = dict.fromkeys(_text(node.addr[0]) for node in nodes)
        lived = min((node.ttl for node in nodes), default=0)
        return tuple(addresses) or socket.EAI_NONAME, min(max(lived, _LEAST_KEPT), _MOST_KEPT)


def _text(address: bytes | str) -> str:
    return address.decode() if isinstance(address, bytes) else address


_names: WeakKeyDictionary[asyncio.AbstractEventLoop, Names] = WeakKeyDictionary()


def system_names() -> Names:
    """Those of the event loop that runs, by the system's settings."""
    loop = asyncio.get_running_loop()
    if (names := _names.get(loop)) is None:
        names = _names[loop] = Names()
    return names
