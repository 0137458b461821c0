"""The interface of key-value engines.

A space is the key range of one app; keys are validated printable ASCII; values are compact JSON text. An engine knows
nothing of HTTP, rules or plans: the caller passes the quota.
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
    """The answer for the ttl of a key that does not exist."""

    ABSENT = "absent"


ABSENT = Absent.ABSENT


class Quota(NamedTuple):
    """Caps on the live entries of a space; None means no cap."""

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
# Get returns bytes or None, Set returns None, Delete the number of entries removed, and a refused op its error.
OpResult = bytes | int | KvError | None


class Entry(NamedTuple):
    """An entry as it is copied from one engine to another.

    `expires` is epoch milliseconds. `window` is the ttl in seconds that was set last, from which touch restarts. Both
    are None for entries that never expire.
    """

    key: str
    value: bytes
    tier: Tier
    expires: int | None = None
    window: int | None = None


class Engine(Protocol):
    """A ttl is in whole seconds; None means never. An expired entry is absent from the instant it expires.

    Every method with a `quota`, and delete, expire and flush, are writes: in a frozen space they raise SpaceFrozen,
    whatever the entries are. A batch with a Set or a Delete raises it as a whole.
    """

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Finishes the writes that were accepted. Every later call raises StoreUnavailable."""
        ...

    def for_attempt(self, token: str) -> Self:
        """Returns a view of the store for one attempt at a call that may be repeated after a crash.

        The first write of each view of a token is made once, so is the second, and so on: a later attempt that makes
        the same writes in the same order changes nothing and gets the results of the first. The results are stored for
        a week, together with the writes. A refused write stores nothing.
        """
        ...

    async def has_written(self, space: str, token: str) -> bool:
        """Returns whether a view of the token has written in the space. Once the space is frozen, this stays so."""
        ...

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        """Returns the value, from the durable tier first. `touch` restarts the expiry of a durable key with its last
        ttl.

        In a frozen space, `touch` has no effect.
        """
        ...

    async def ttl(self, space: str, key: str) -> int | Absent | None:
        """Returns the remaining seconds, rounded up; None for no expiry; Absent for an absent key."""
        ...

    async def exists(self, space: str, key: str) -> bool: ...

    async def put(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> None:
        """Replaces the entry and removes the key from the other tier. Raises QuotaExceeded."""
        ...

    async def delete(self, space: str, key: str) -> int:
        """Returns the number of entries removed in both tiers."""
        ...

    async def incr(self, space: str, key: str, by: int, ttl: int | None, quota: Quota) -> int:
        """Adds to an integer and returns the sum. An absent key starts at 0, durable, with `ttl`; an existing one keeps
        its expiry and tier. `by` has 64 bits. Raises NotAnInteger and IntegerOverflow.
        """
        ...

    async def setnx(self, space: str, key: str, value: bytes, ttl: int | None, tier: Tier, quota: Quota) -> bool:
        """Writes only if the key is absent from both tiers, and returns whether it did. Raises QuotaExceeded."""
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
        """Swaps the value if the stored JSON equals `expected`, and returns whether it did. null and "__NULL__" equal
        each other and an absent key.

        A swap keeps the expiry and the tier; a key that was absent becomes durable with `ttl`.
        """
        ...

    async def expire(self, space: str, key: str, ttl: int | None) -> bool:
        """Sets the ttl and returns True; returns False if the key is absent. A ttl of 0 deletes the key; None removes
        the expiry.
        """
        ...

    async def batch(self, space: str, ops: Sequence[Op], quota: Quota) -> list[OpResult]:
        """Returns results in the order of `ops`. Each op is atomic by itself; a refused one does not stop the
        others.
        """
        ...

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        """Returns live keys of both tiers in order, and the cursor of the next page: the last key of this one."""
        ...

    async def usage(self, space: str) -> Usage: ...

    async def flush(self, space: str) -> int:
        """Deletes every entry of the space in both tiers; returns how many were live."""
        ...

    async def sweep(self, limit: int = 1000) -> int:
        """Removes at most `limit` expired entries of any space, frozen or not. If it returns `limit`, more
        may be left.
        """
        ...

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        """Returns at most `limit` spaces that hold live entries, in order, beginning after `after`."""
        ...

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        """Returns at most `limit` live entries of both tiers in the order of their keys, beginning after the key
        `after`.

        An empty list is the end. Entries that exist throughout come exactly once, whatever is written meanwhile; of a
        frozen space, all entries come. A value may have 256 KB, and the whole result is in memory at once.
        """
        ...

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Stores entries unchanged, in a frozen space too, without a quota. It may be repeated, and must be after a
        failure.
        """
        ...

    async def freeze(self, space: str) -> None:
        """Refuses writes from every process from now on, until `thaw`. It may be repeated.

        A write is either made before, and `export` shows it, or refused. Reads continue; `touch` restarts no expiry.
        The freeze lasts as long as the durable tier. Processes of a release without freezing ignore it: wait until none
        runs.
        """
        ...

    async def thaw(self, space: str) -> None:
        """Allows writes again. It may be repeated."""
        ...

    async def erase(self, space: str) -> None:
        """Removes all entries of a space, frozen or not, and thaws it. It may be repeated.

        The results of `for_attempt` stay until their week is over.
        """
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable unless the store can read and begin a write."""
        ...
