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


class Entry(NamedTuple):
    """An entry as it is carried from one engine to another.

    `expires` is epoch milliseconds; `window` the seconds it was last given, from which touch restarts; both None for
    never.
    """

    key: str
    value: bytes
    tier: Tier
    expires: int | None = None
    window: int | None = None


class Engine(Protocol):
    """A ttl is whole seconds, None for never. An expired entry is absent from the instant it expires.

    Every method that names `quota`, and delete, expire and flush, are writes: in a frozen space they raise SpaceFrozen,
    whatever they would have found there. A batch does where it holds a Set or a Delete, and then as a whole.
    """

    async def open(self) -> None: ...

    async def close(self) -> None:
        """Finishes the writes already accepted. Every later call raises StoreUnavailable."""
        ...

    def for_attempt(self, token: str) -> Self:
        """The same store, for one attempt at a call that may be made again after a crash.

        The first write of each view of a token is made once, so is the second, and so on: a later attempt that makes
        the same writes in the same order changes nothing and is answered what the first was. Kept for a week, with
        the write itself; a refused write keeps nothing.
        """
        ...

    async def has_written(self, space: str, token: str) -> bool:
        """Whether a view of the token has written in the space. Once that is frozen, the answer stays what it is."""
        ...

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        """Durable tier first. `touch` restarts the expiry of a durable key from the ttl it was last given.

        Not so in a frozen space, where it only reads.
        """
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
        """Removes at most `limit` expired entries of any space; a full answer means that more may be left.

        In frozen spaces too.
        """
        ...

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        """At most `limit` spaces that hold live entries, in order, from the first behind `after`."""
        ...

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        """At most `limit` live entries of both tiers in the order of their keys, from the first behind the key `after`.

        An empty answer is the end. Entries that are there throughout come exactly once, whatever is written meanwhile;
        of a frozen space, all come. A value may have some 256 KB, and all of an answer is in memory at once.
        """
        ...

    async def load(self, space: str, entries: Sequence[Entry]) -> None:
        """Puts entries as they are, in a frozen space too, with no quota. May run twice, and where it failed must."""
        ...

    async def freeze(self, space: str) -> None:
        """Refuses the writes of every process from now on, until `thaw`. May run twice.

        A write is made before, and `export` shows it, or refused. Reads go on; `touch` restarts no expiry. It lasts as
        the durable tier does. Processes of a release that knew no freezing do not heed it: where such still run, wait.
        """
        ...

    async def thaw(self, space: str) -> None:
        """May run twice."""
        ...

    async def erase(self, space: str) -> None:
        """Removes all entries of a space, frozen or not, and thaws it. May run twice.

        What `once` keeps stays until its week is over.
        """
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable unless the store can read and begin a write."""
        ...
