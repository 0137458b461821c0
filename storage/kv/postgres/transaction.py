"""A group of writes, planned on a copy of the rows that were read under its locks.

The rules are those of operations.py; nothing is sent until the whole group is planned. If a write needs to know more,
it raises MoreNeeded: the writer reads that and plans the group again from the start, which costs microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Quota, Tier, Usage
from baobab.storage.kv.errors import KeysExhausted, StorageFull
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.postgres import statements
from baobab.storage.kv.postgres.statements import Place, Statement
from baobab.storage.kv.tier_file import Row

_NOTHING = Usage(0, 0)


class MoreNeeded(Exception):
    """A group needs more information about a space before it can continue."""

    def __init__(self, space: str) -> None:
        super().__init__(space)
        self.space = space


class LockNeeded(MoreNeeded):
    """The space must be locked alone, since its total changes, or since nothing that was read says whether it is
    frozen.
    """


class ExpiredCountNeeded(MoreNeeded):
    """The total decides about a quota, so expired entries must be subtracted."""


class StoredEntry(NamedTuple):
    """An entry, live or not; its size counts key and value. `row` is None if no write of the group needs the value."""

    tier: Tier
    size: int
    expires: int | None
    row: Row | None


@dataclass
class GroupState:
    """`usage` counts all stored entries of the spaces locked `alone`; `expired` counts those that are not live.

    A space that is locked alone and not in `frozen` is not frozen.
    """

    alone: set[str]
    rows: dict[Place, StoredEntry] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    expired: dict[str, Usage] = field(default_factory=dict)
    frozen: dict[str, bool] = field(default_factory=dict)


class PostgresTransaction:
    """Has the methods of Transaction that operations.py and idempotency.py call. A refused write leaves no
    trace in it.
    """

    def __init__(self, state: GroupState, now: int) -> None:
        self.now = now
        self._state = state
        self._after: dict[Place, StoredEntry | None] = {}
        self._flushed: set[str] = set()
        self._totals: dict[str, Usage] = {}
        self._marks: dict[str, bool] = {}

    def current(self, space: str, key: str) -> tuple[Tier, Row] | None:
        entry = self._find_live((space, key))
        if entry is None:
            return None
        assert entry.row is not None, "a blind write reads a value"
        return entry.tier, entry.row

    def store(self, space: str, key: str, tier: Tier, row: Row, quota: Quota) -> None:
        entry = self._find_live((space, key))
        size = len(key) + len(row.value)
        grown = Usage(1, size) if entry is None else Usage(0, size - entry.size)
        if grown.keys > 0 or grown.bytes > 0:
            self._admit(space, grown, quota)
        self._replace((space, key), StoredEntry(tier, size, row.expires, row), grown)

    def restart(self, space: str, key: str, tier: Tier, expires: int | None, window: int | None) -> None:
        entry = self._find_live((space, key))
        assert entry is not None
        assert entry.row is not None
        row = entry.row._replace(expires=expires, window=window)
        self._replace((space, key), StoredEntry(tier, entry.size, expires, row), _NOTHING)

    def remove(self, space: str, key: str) -> int:
        entry = self._find_live((space, key))
        if entry is None:
            return 0
        self._replace((space, key), None, Usage(-1, -entry.size))
        return 1

    def remove_all(self, space: str) -> int:
        live = self.total(space, exact=True).keys
        self._flushed.add(space)
        self._totals[space] = _NOTHING
        self._after = {place: after for place, after in self._after.items() if place[0] != space}
        return live

    def is_frozen(self, space: str) -> bool:
        if space in self._marks:
            return self._marks[space]
        if space not in self._state.frozen and space not in self._state.alone:
            raise LockNeeded(space)
        return self._state.frozen.get(space, False)

    def freeze(self, space: str) -> None:
        self._marks[space] = True

    def thaw(self, space: str) -> None:
        self._marks[space] = False

    def remove_expired(self, space: str, keys: Sequence[str]) -> int:
        """Removes those of the keys that are still stored and still expired; returns how many there were."""
        expired = [key for key in keys if self._find_before((space, key)) and self._find_live((space, key)) is None]
        expired = [key for key in expired if (space, key) not in self._after]
        self._after.update(((space, key), None) for key in expired)
        return len(expired)

    def build_statements(self) -> list[Statement]:
        """Builds the statements that write the changes, without the commit."""
        stored, restarted, removed = [], [], []
        deltas: dict[str, tuple[int, int]] = {}
        for place, before, after in self._changes():
            keys, size = deltas.get(place[0], _NOTHING)
            if before is not None:
                keys, size = keys - 1, size - before.size
            if after is None:
                removed.append(place)
            else:
                assert after.row is not None
                keys, size = keys + 1, size + after.size
                if _differs_in_expiry(before, after):
                    restarted.append((place, after.row))
                else:
                    stored.append((place, after.tier, after.row))
            deltas[place[0]] = keys, size
        deltas = {space: delta for space, delta in deltas.items() if delta != (0, 0) and space != SPACE}
        batch = []
        if self._flushed:
            batch.append(statements.remove_all(self._flushed))
        if stored:
            batch.append(statements.store(stored))
        if restarted:
            batch.append(statements.restart(restarted))
        if removed:
            batch.append(statements.remove(removed))
        if deltas:
            batch.append(statements.grow(deltas))
        batch += self._build_marks()
        if batch and self._is_ephemeral():
            batch.append(statements.RELAX)
        return batch

    def _is_ephemeral(self) -> bool:
        return not (self._flushed or self._marks) and all(
            entry is None or entry.tier is Tier.EPHEMERAL
            for _, before, after in self._changes()
            for entry in (before, after)
        )

    def _build_marks(self) -> list[Statement]:
        # A flush deletes the mark of a space together with its totals.
        stored = {space for space, frozen in self._state.frozen.items() if frozen} - self._flushed
        marks = {space: frozen for space, frozen in self._marks.items() if frozen != (space in stored)}
        return [statements.mark(marks)] if marks else []

    def _changes(self) -> Iterator[tuple[Place, StoredEntry | None, StoredEntry | None]]:
        for place, after in self._after.items():
            before = self._find_before(place)
            if before is not after:
                yield place, before, after

    def _find_before(self, place: Place) -> StoredEntry | None:
        return None if place[0] in self._flushed else self._state.rows.get(place)

    def _find_live(self, place: Place) -> StoredEntry | None:
        if place in self._after:
            return self._after[place]
        before = self._find_before(place)
        return before if before is not None and expiry.is_live(before.expires, self.now) else None

    def _replace(self, place: Place, after: StoredEntry | None, grown: Usage) -> None:
        space = place[0]
        if grown != _NOTHING and space != SPACE:
            self._totals[space] = _add_usage(self.total(space), grown)
        self._after[place] = after

    def total(self, space: str, *, exact: bool = False) -> Usage:
        """Returns the total of live entries; without `exact`, it may include expired ones."""
        state = self._state
        if space not in state.alone:
            raise LockNeeded(space)
        if exact and space not in state.expired and space not in self._flushed:
            raise ExpiredCountNeeded(space)
        if space not in self._totals:
            total = state.usage.get(space, _NOTHING)
            expired_usage = state.expired.get(space, _NOTHING)
            self._totals[space] = Usage(total.keys - expired_usage.keys, total.bytes - expired_usage.bytes)
        return self._totals[space]

    def _admit(self, space: str, grown: Usage, quota: Quota) -> None:
        if self._find_refusal(space, grown, quota, exact=False) is not None:
            refusal = self._find_refusal(space, grown, quota, exact=True)
            if refusal is not None:
                raise refusal

    def _find_refusal(
        self, space: str, grown: Usage, quota: Quota, *, exact: bool
    ) -> KeysExhausted | StorageFull | None:
        max_keys, max_bytes = quota
        if grown.keys > 0 and max_keys is not None:
            used = self.total(space, exact=exact).keys
            if used + grown.keys > max_keys:
                return KeysExhausted(used, max_keys)
        if grown.bytes > 0 and max_bytes is not None:
            used = self.total(space, exact=exact).bytes
            if used + grown.bytes > max_bytes:
                return StorageFull(used, max_bytes)
        return None


def _add_usage(left: Usage, right: Usage) -> Usage:
    return Usage(left.keys + right.keys, left.bytes + right.bytes)


def _differs_in_expiry(before: StoredEntry | None, after: StoredEntry) -> bool:
    """Whether only the expiry differs, so that the value need not be sent again."""
    if before is None or before.row is None or after.row is None or before.tier is not after.tier:
        return False
    return before.row.value is after.row.value
