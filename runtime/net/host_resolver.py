"""Resolves host names of outgoing requests with c-ares: without threads, and with a timeout that ends the lookup.

Addresses are cached for the TTL of their records, failures for a short while. Requests for the same name share one
lookup, and a tenant whose names are slow to resolve delays only itself. `/etc/hosts` is read first.
"""

import asyncio
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.tools.core.tenancy import STRANGER, current_tenant

if TYPE_CHECKING:
    import aiodns

LOOKUP_SECONDS = 5.0
_TRY_SECONDS, _TRIES = 1.5, 3
_MIN_TTL, _MAX_TTL = 5.0, 300.0
_FAILURE_TTL = 5.0
_MOST_NAMES = 4096
_MOST_LOOKUPS = 1000
"""The most lookups at the same time, of all tenants together."""
_OF_ONE_TENANT, _OF_ONE_STRANGER = 16, 2

_LookupResult = tuple[str, ...] | int
"""Addresses, best first; or the code of a `socket.gaierror`."""


class HostResolver:
    """Resolves names; one for each event loop. nameservers: used in place of the system's, as `host:port`."""

    def __init__(self, nameservers: Sequence[str] | None = None) -> None:
        self._nameservers = nameservers
        self._cache: dict[str, tuple[float, _LookupResult]] = {}
        self._lookups: dict[str, asyncio.Task[_LookupResult]] = {}
        self._tenant_slots = KeyedSemaphore(_OF_ONE_TENANT)
        self._dns_resolver: aiodns.DNSResolver | None = None

    async def resolve(self, host: str, port: int) -> list[str]:
        """Returns the addresses of a host, best first. Raises OSError if it has none, or if the lookup takes too
        long.
        """
        result = self._find_cached(host)
        if result is None:
            tenant = current_tenant()
            async with self._tenant_slots.acquire_slot(
                tenant, _OF_ONE_STRANGER if tenant.startswith(STRANGER) else None
            ):
                result = self._find_cached(host)
                if result is None:
                    # Others may wait for the same lookup, so a cancelled caller does not cancel it.
                    result = await asyncio.shield(self._start_lookup(host))
        if isinstance(result, int):
            raise socket.gaierror(result, "the name does not resolve")
        return list(result)

    async def close(self) -> None:
        dns_resolver, self._dns_resolver = self._dns_resolver, None
        if dns_resolver is not None:
            await dns_resolver.close()

    def _find_cached(self, host: str) -> _LookupResult | None:
        entry = self._cache.get(host)
        return entry[1] if entry is not None and entry[0] > asyncio.get_running_loop().time() else None

    def _start_lookup(self, host: str) -> "asyncio.Task[_LookupResult]":
        task = self._lookups.get(host)
        if task is None:
            if len(self._lookups) >= _MOST_LOOKUPS:
                raise socket.gaierror(socket.EAI_AGAIN, "too many names are being looked up")
            task = self._lookups[host] = asyncio.get_running_loop().create_task(self._look_up(host))
            task.add_done_callback(lambda _: self._lookups.pop(host, None))
        return task

    async def _look_up(self, host: str) -> _LookupResult:
        result: _LookupResult
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                result, seconds = await self._query_dns(host)
        except TimeoutError:
            result, seconds = socket.EAI_AGAIN, _FAILURE_TTL
        self._cache.pop(host, None)
        while len(self._cache) >= _MOST_NAMES:
            del self._cache[next(iter(self._cache))]
        self._cache[host] = asyncio.get_running_loop().time() + seconds, result
        return result

    async def _query_dns(self, host: str) -> tuple[_LookupResult, float]:
        """Queries c-ares. Returns its result and for how many seconds that may be cached."""
        import aiodns

        if self._dns_resolver is None:
            self._dns_resolver = aiodns.DNSResolver(self._nameservers, timeout=_TRY_SECONDS, tries=_TRIES)
        try:
            answer = await self._dns_resolver.getaddrinfo(host, family=socket.AF_UNSPEC, type=socket.SOCK_STREAM)
        except aiodns.error.DNSError as exc:
            is_missing = exc.args and exc.args[0] in (aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA)
            return (socket.EAI_NONAME if is_missing else socket.EAI_AGAIN), _FAILURE_TTL
        nodes = answer.nodes
        addresses = dict.fromkeys(_to_text(node.addr[0]) for node in nodes)
        ttl = min((node.ttl for node in nodes), default=0)
        return tuple(addresses) or socket.EAI_NONAME, min(max(ttl, _MIN_TTL), _MAX_TTL)


def _to_text(address: bytes | str) -> str:
    return address.decode() if isinstance(address, bytes) else address


_resolvers: WeakKeyDictionary[asyncio.AbstractEventLoop, HostResolver] = WeakKeyDictionary()


def get_host_resolver() -> HostResolver:
    """Returns the resolver of the running event loop, with the system's name servers."""
    loop = asyncio.get_running_loop()
    if (resolver := _resolvers.get(loop)) is None:
        resolver = _resolvers[loop] = HostResolver()
    return resolver
