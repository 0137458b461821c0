"""A group of writes, planned on the rows that were read under its locks.

Nothing is sent until the whole group is planned. If a write needs to know more, it raises MoreNeeded: the writer reads
that and plans the group again from the start, which costs microseconds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from baobab.storage.kv.engine import Tier, Usage
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.postgres import statements
from baobab.storage.kv.postgres.statements import Statement
from baobab.storage.kv.transaction import Place, StoredEntry, Transaction

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


@dataclass
class GroupState:
    """`usage` counts all stored entries of the spaces locked `alone`; `expired_usage` counts those that are not
    live.

    A space that is locked alone and not in `is_frozen_by_space` is not frozen.
    """

    alone: set[str]
    rows: dict[Place, StoredEntry] = field(default_factory=dict)
    usage: dict[str, Usage] = field(default_factory=dict)
    expired_usage: dict[str, Usage] = field(default_factory=dict)
    is_frozen_by_space: dict[str, bool] = field(default_factory=dict)


class PostgresTransaction(Transaction):
    def __init__(self, state: GroupState, now: int) -> None:
        super().__init__(now)
        self._state = state

    def remove_expired(self, space: str, keys: Sequence[str]) -> int:
        """Removes those of the keys that are still stored and still expired; returns how many there were."""
        expired_keys = [
            key for key in keys if self._find_before((space, key)) and self._find_live((space, key)) is None
        ]
        expired_keys = [key for key in expired_keys if (space, key) not in self._after]
        self._after.update(((space, key), None) for key in expired_keys)
        return len(expired_keys)

    def build_statements(self) -> list[Statement]:
        """Builds the statements that write the changes, without the commit."""
        stored_rows, restarted_rows, removed_places = [], [], []
        deltas: dict[str, tuple[int, int]] = {}
        for place, before, after in self._changes():
            keys, size = deltas.get(place[0], _NOTHING)
            if before is not None:
                keys, size = keys - 1, size - before.size
            if after is None:
                removed_places.append(place)
            else:
                assert after.row is not None
                keys, size = keys + 1, size + after.size
                if _differs_in_expiry(before, after):
                    restarted_rows.append((place, after.row))
                else:
                    stored_rows.append((place, after.tier, after.row))
            deltas[place[0]] = keys, size
        deltas = {space: delta for space, delta in deltas.items() if delta != (0, 0) and space != SPACE}
        batch = []
        if self._flushed_spaces:
            batch.append(statements.remove_all(self._flushed_spaces))
        if stored_rows:
            batch.append(statements.store(stored_rows))
        if restarted_rows:
            batch.append(statements.restart(restarted_rows))
        if removed_places:
            batch.append(statements.remove(removed_places))
        if deltas:
            batch.append(statements.grow(deltas))
        batch += self._build_marks()
        if batch and self._is_ephemeral():
            batch.append(statements.RELAX)
        return batch

    def _is_ephemeral(self) -> bool:
        return not (self._flushed_spaces or self._marks) and all(
            entry is None or entry.tier is Tier.EPHEMERAL
            for _, before, after in self._changes()
            for entry in (before, after)
        )

    def _build_marks(self) -> list[Statement]:
        # A flush deletes the mark of a space together with its totals.
        frozen_spaces = {
            space for space, is_frozen in self._state.is_frozen_by_space.items() if is_frozen
        } - self._flushed_spaces
        marks = {space: is_frozen for space, is_frozen in self._marks.items() if is_frozen != (space in frozen_spaces)}
        return [statements.mark(marks)] if marks else []

    def _changes(self) -> Iterator[tuple[Place, StoredEntry | None, StoredEntry | None]]:
        for place, after in self._after.items():
            before = self._find_before(place)
            if before is not after:
                yield place, before, after

    def _find_before(self, place: Place) -> StoredEntry | None:
        return None if place[0] in self._flushed_spaces else self._state.rows.get(place)

    def _was_frozen(self, space: str) -> bool:
        if space not in self._state.is_frozen_by_space and space not in self._state.alone:
            raise LockNeeded(space)
        return self._state.is_frozen_by_space.get(space, False)

    def _stored_usage(self, space: str) -> Usage:
        state = self._state
        if space not in state.alone:
            raise LockNeeded(space)
        total, expired_usage = state.usage.get(space, _NOTHING), state.expired_usage.get(space, _NOTHING)
        return Usage(total.keys - expired_usage.keys, total.bytes - expired_usage.bytes)

    def _discount_expired(self, space: str) -> None:
        if space not in self._state.alone:
            raise LockNeeded(space)
        if space not in self._state.expired_usage:
            raise ExpiredCountNeeded(space)

    def _replace(self, place: Place, before: StoredEntry | None, after: StoredEntry | None) -> None:
        space = place[0]
        resizes = before is None or after is None or before.size != after.size
        if resizes and space != SPACE and space not in self._state.alone:
            raise LockNeeded(space)
        super()._replace(place, before, after)


def _differs_in_expiry(before: StoredEntry | None, after: StoredEntry) -> bool:
    """Returns whether only the expiry differs, so that the value need not be sent again."""
    if before is None or before.row is None or after.row is None or before.tier is not after.tier:
        return False
    return before.row.value is after.row.value
