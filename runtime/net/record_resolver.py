"""Reads records of the DNS from several resolvers, each asked by itself: one of them may lie, lag or be silent.

Nothing is cached, for whoever has just set a record wants to know whether it is there.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from baobab.runtime.jobs.job_slots import network_wait
from baobab.runtime.net.egress import always_open
from baobab.runtime.net.nameservers import parse_nameserver
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.tools.core.tenancy import current_tenant

RecordKind = Literal["TXT", "CNAME"]
_TRY_SECONDS, _TRIES, _LOOKUP_SECONDS = 1.0, 2, 4.0
_OF_ONE_TENANT = 8
"""The most lookups at the same time; a tenant whose names are slow to resolve delays only itself."""
_MOST_VALUES = 100


@dataclass(frozen=True, slots=True)
class RecordAnswer:
    """What one resolver says."""

    nameserver: str
    values: tuple[str, ...] | None
    """The values of the records, none if there is no such record; None if the resolver does not answer."""


class RecordResolver:
    """Looks up records. nameservers: addresses, with a port if it is not 53. require_open: raises what forbids it."""

    def __init__(self, nameservers: Sequence[str], require_open: Callable[[], None] = always_open) -> None:
        self._nameservers = [parse_nameserver(text) for text in nameservers]
        self._require_open = require_open
        self._tenant_slots = KeyedSemaphore(_OF_ONE_TENANT)

    async def look_up(self, name: str, kind: RecordKind) -> list[RecordAnswer]:
        """Returns the answer of each resolver, within some seconds. name: ASCII. A CNAME's value is in lower case."""
        self._require_open()
        async with network_wait():
            return list(await asyncio.gather(*(self._ask(server, name, kind) for server in self._nameservers)))

    async def _ask(self, nameserver: str, name: str, kind: RecordKind) -> RecordAnswer:
        import aiodns

        async with self._tenant_slots.acquire_slot(current_tenant()):
            # A resolver of its own: c-ares would remember the answer, and ask others in the place of a silent one.
            resolver = aiodns.DNSResolver([nameserver], timeout=_TRY_SECONDS, tries=_TRIES)
            try:
                async with asyncio.timeout(_LOOKUP_SECONDS):
                    result = await resolver.query_dns(name, kind)
            except aiodns.error.DNSError as exc:
                is_missing = exc.args and exc.args[0] in (aiodns.error.ARES_ENOTFOUND, aiodns.error.ARES_ENODATA)
                return RecordAnswer(nameserver, () if is_missing else None)
            except TimeoutError:
                return RecordAnswer(nameserver, None)
            finally:
                await resolver.close()
        values = [_read_value(record.data, kind) for record in result.answer[:_MOST_VALUES]]
        return RecordAnswer(nameserver, tuple(value for value in values if value is not None))


def _read_value(data: Any, kind: RecordKind) -> str | None:
    """Returns the value of a record; None for one of another kind, such as the CNAME before a TXT record."""
    if kind == "TXT":
        text = getattr(data, "data", None)
        return text.decode("utf-8", "replace") if isinstance(text, bytes) else None
    target = getattr(data, "cname", None)
    return target.rstrip(".").lower() if isinstance(target, str) else None
