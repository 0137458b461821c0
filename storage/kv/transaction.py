"""A group of writes, planned in memory on what the store held before the group.

operations.py and idempotency.py say what a write does; the engines say how rows are read, and how the result of the
whole group is written. So a counter that sixty callers increment is written once.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Quota, Tier, Usage
from baobab.storage.kv.errors import KeysExhausted, StorageFull
from baobab.storage.kv.tier_file import Row

# Space and key.
Place = tuple[str, str]

_NOTHING = Usage(0, 0)


class StoredEntry(NamedTuple):
    """An entry, live or not; its size counts key and value. `row` is None if no write of the group needs the value."""

    tier: Tier
    size: int
    expires: int | None
    row: Row | None


class Transaction(ABC):
    """Nobody else writes the same places until it ends. A refused write leaves no trace in it.

    now: the time of the whole group in milliseconds.
    """

    def __init__(self, now: int) -> None:
        self.now = now
        self._after: dict[Place, StoredEntry | None] = {}
        self._flushed_spaces: set[str] = set()
        self._marks: dict[str, bool] = {}
        self._totals: dict[str, Usage] = {}
        # The spaces of which the stored totals count no expired entries.
        self._exact: set[str] = set()

    def current(self, space: str, key: str) -> tuple[Tier, Row] | None:
        """Returns the live row and its tier."""
        entry = self._find_live((space, key))
        if entry is None:
            return None
        assert entry.row is not None, "a blind write reads a value"
        return entry.tier, entry.row

    def store(self, space: str, key: str, tier: Tier, row: Row, quota: Quota) -> None:
        """Writes to one tier and removes the key from the other. Raises QuotaExceeded."""
        before = self._find_live((space, key))
        after = StoredEntry(tier, len(key) + len(row.value), row.expires, row)
        growth = after.size if before is None else after.size - before.size
        if growth > 0:
            self._admit(space, before is None, growth, quota)
        self._replace((space, key), before, after)

    def restart(self, space: str, key: str, tier: Tier, expires: int | None, window: int | None) -> None:
        """Changes the expiry of a live row."""
        before = self._find_live((space, key))
        assert before is not None
        assert before.row is not None
        row = before.row._replace(expires=expires, window=window)
        self._replace((space, key), before, StoredEntry(tier, before.size, expires, row))

    def remove(self, space: str, key: str) -> int:
        before = self._find_live((space, key))
        if before is None:
            return 0
        self._replace((space, key), before, None)
        return 1

    def remove_all(self, space: str) -> int:
        live = self.total(space, exact=True).keys
        self._flushed_spaces.add(space)
        self._totals[space] = _NOTHING
        self._after = {place: after for place, after in self._after.items() if place[0] != space}
        return live

    def is_frozen(self, space: str) -> bool:
        return self._marks[space] if space in self._marks else self._was_frozen(space)

    def freeze(self, space: str) -> None:
        self._marks[space] = True

    def thaw(self, space: str) -> None:
        self._marks[space] = False

    def total(self, space: str, *, exact: bool = False) -> Usage:
        """Returns the total of live entries; without `exact`, it may include expired ones."""
        if exact and space not in self._exact and space not in self._flushed_spaces:
            self._discount_expired(space)
            self._exact.add(space)
            self._totals.pop(space, None)
        if space not in self._totals:
            total = _NOTHING if space in self._flushed_spaces else self._stored_usage(space)
            for place, after in self._after.items():
                if place[0] == space:
                    total = _change_total(total, self._find_live_before(place), after)
            self._totals[space] = total
        return self._totals[space]

    @abstractmethod
    def _find_before(self, place: Place) -> StoredEntry | None:
        """Returns what the store held before the group; None in a flushed space."""

    @abstractmethod
    def _was_frozen(self, space: str) -> bool: ...

    @abstractmethod
    def _stored_usage(self, space: str) -> Usage:
        """Returns the total before the group; with expired entries, if they have not been discounted."""

    @abstractmethod
    def _discount_expired(self, space: str) -> None:
        """Makes `_stored_usage` exact."""

    def _find_live(self, place: Place) -> StoredEntry | None:
        return self._after[place] if place in self._after else self._find_live_before(place)

    def _find_live_before(self, place: Place) -> StoredEntry | None:
        before = self._find_before(place)
        return before if before is not None and expiry.is_live(before.expires, self.now) else None

    def _replace(self, place: Place, before: StoredEntry | None, after: StoredEntry | None) -> None:
        """Plans a change of a place. before: its live entry now."""
        if place[0] in self._totals and _size(before) != _size(after):
            self._totals[place[0]] = _change_total(self._totals[place[0]], before, after)
        self._after[place] = after

    def _admit(self, space: str, is_new: bool, growth: int, quota: Quota) -> None:
        if self._find_refusal(space, is_new, growth, quota, exact=False) is not None:
            refusal = self._find_refusal(space, is_new, growth, quota, exact=True)
            if refusal is not None:
                raise refusal

    def _find_refusal(
        self, space: str, is_new: bool, growth: int, quota: Quota, *, exact: bool
    ) -> KeysExhausted | StorageFull | None:
        max_keys = quota.max_keys if is_new else None
        max_bytes = quota.max_bytes if growth > 0 else None
        if max_keys is None and max_bytes is None:
            return None
        usage = self.total(space, exact=exact)
        if max_keys is not None and usage.keys + 1 > max_keys:
            return KeysExhausted(usage.keys, max_keys)
        if max_bytes is not None and usage.bytes + growth > max_bytes:
            return StorageFull(usage.bytes, max_bytes)
        return None


def _size(entry: StoredEntry | None) -> int:
    return 0 if entry is None else entry.size


def _change_total(total: Usage, before: StoredEntry | None, after: StoredEntry | None) -> Usage:
    keys = total.keys + (after is not None) - (before is not None)
    return Usage(keys, total.bytes + _size(after) - _size(before))
