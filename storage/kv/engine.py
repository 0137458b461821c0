"""The port of the key-value store.

A space is one app's key range; keys are validated printable ASCII; values are compact JSON text. An engine knows
nothing of HTTP, rules or plans: whoever calls it brings the quota.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import NamedTuple, Protocol, Self

from baobab.storage.kv.errors import KvError


class Tier(IntEnum):
    """DURABLE survives a power cut once acknowledged; EPHEMERAL may be lost when the machine restarts."""

    DURABLE = 0
    EPHEMERAL = 1


class Absent(Enum):
    ABSENT = "absent"


ABSENT = Absent.ABSENT


class Quota(NamedTuple):
    """Caps on the live entries of a space; None is no cap."""

    max_keys: int | None = None
    max_bytes: int | None = None


class Usage(NamedTuple):
    """Live entries; the bytes of one are len(key) + len(value)."""

    keys: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Get:
    key: str


@dataclass(frozen=True, slots=True)
class Set:
    """Writes to the durable tier."""

    key: str
    value: bytes
    ttl: int | None = None


@dataclass(frozen=True, slots=True)
class Delete:
    key: str


Op = Get | Set | Delete
# Get answers bytes or None, Set answers None, Delete the number of entries removed, a refused op its error.
OpResult = bytes | int | KvError | None


class Engine(Protocol):
    """A ttl is whole seconds, None for never. An expired entry is absent from the instant it expires."""

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Finishes the writes already accepted. Every later call raises StoreUnavailable."""
        ...

    def once(self, token: str) -> Self:
        """The same store, for one attempt at a call that may be made again after a crash.

        The first write of each view of a token is made once, so is the second, and so on: a later attempt that makes
        the same writes in the same order changes nothing and is answered what the first was. Kept for a week, with
        the write itself; a refused write keeps nothing.
        """
        ...

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        """Durable tier first. `touch` restarts the expiry of a durable key from the ttl it was last given."""
        ...

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        """Remaining seconds rounded up, None for no expiry."""
        ...

    async def exists(self, space: str, key: str) -> bool: ...

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        """Replaces the entry and removes the key from the other tier."""
        ...

    async def delete(self, space: str, key: str) -> int:
        """Entries removed over both tiers."""
        ...

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        """An absent key starts at 0, durable, with `ttl`; an existing one keeps its expiry and tier. `by` is 64 bit."""
        ...

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        """Writes only where the key is absent from both tiers."""
        ...

    async def cas(
        self,
        space: str,
        key: str,
        expected: bytes,
        next: bytes,  # noqa: A002 - the word of the API
        ttl: int | None,
        quota: Quota,
    ) -> bool:
        """Swaps when the stored JSON means `expected`; null and "__NULL__" mean each other and an absent key.

        A swap keeps the expiry and the tier; a key that was absent becomes durable with `ttl`.
        """
        ...

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        """False where the key is absent; 0 deletes; None persists."""
        ...

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        """Results in the order of `ops`. Each op is atomic by itself; a refused one does not stop the others."""
        ...

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        """Live keys of both tiers in order, and the cursor of the next page: the last key of this one."""
        ...

    async def usage(self, space: str) -> Usage: ...

    async def flush(self, space: str) -> int:
        """Deletes every entry of the space in both tiers; answers how many were live."""
        ...

    async def sweep(self, limit: int = 1000) -> int:
        """Removes at most `limit` expired entries of any space; a full answer means that more may be left."""
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable unless the store can read and begin a write."""
        ...
