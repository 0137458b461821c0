"""A group of writes to both tiers in files.

Every writer of every process locks the durable file, then the ephemeral one, and the two commit one after the other.
The holder of both locks therefore never meets a half-committed group, only what a crash has left of one: a key in both
tiers, of which the durable copy counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import apsw

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Tier, Usage
from baobab.storage.kv.tier_file import Change, Row, TierFile
from baobab.storage.kv.transaction import Place, StoredEntry, Transaction


class EphemeralFailed(Exception):
    """The durable half of the group is committed, but the ephemeral half is not."""


class _Cell(NamedTuple):
    """One key: its rows in the durable and the ephemeral file before the group, and after it."""

    place: Place
    before: list[Row | None]
    after: list[Row | None]

    def is_moving_to(self, tier: Tier) -> bool:
        return self.before[1 - tier] is not None and self.after[1 - tier] is None and self.after[tier] is not None


class SqliteTransaction(Transaction):
    """Takes the write locks when it is created."""

    def __init__(self, durable: TierFile, ephemeral: TierFile, clock: Callable[[], float]) -> None:
        self._durable = durable
        self._ephemeral = ephemeral
        self._rows: dict[Place, list[Row | None]] = {}
        self._is_frozen_by_space: dict[str, bool] = {}
        self.touched_ephemeral = False
        durable.begin()
        ephemeral.begin()
        # Read after the locks were acquired, because waiting for them may have taken time.
        super().__init__(expiry.milliseconds(clock()))

    def remove_all(self, space: str) -> int:
        live = super().remove_all(space)
        self.touched_ephemeral = True
        self._rows.update({place: [None, None] for place in self._rows if place[0] == space})
        return live

    def remove_expired(self, limit: int) -> int:
        count = 0
        for tier, file in ((Tier.DURABLE, self._durable), (Tier.EPHEMERAL, self._ephemeral)):
            removed_places = file.remove_some_expired(self.now, limit - count)
            count += len(removed_places)
            for place in removed_places:
                if place in self._rows:
                    self._rows[place][tier] = None
        self._totals.clear()
        return count

    def commit(self) -> None:
        """Raises EphemeralFailed, or apsw.Error with nothing applied to the durable tier.

        A key that moves must be visible in its new tier before it leaves the old one, so the new tier commits first.
        Otherwise the durable tier commits first: if it fails, nothing has happened in the other.
        """
        cells = [_Cell(place, rows, self._rows_after(place)) for place, rows in self._rows.items()]
        leaving = any(cell.is_moving_to(Tier.EPHEMERAL) for cell in cells)
        arriving = [cell for cell in cells if cell.is_moving_to(Tier.DURABLE)]
        arrival = self._durable.count_arrival() if arriving else 0
        if leaving:
            # Keys that move the other way keep their old copy for a moment; the new one hides it.
            for cell in arriving:
                cell.after[Tier.EPHEMERAL] = cell.before[Tier.EPHEMERAL]
        elif arriving:
            self._ephemeral.note_arrival(arrival)
        for tier, file in ((Tier.DURABLE, self._durable), (Tier.EPHEMERAL, self._ephemeral)):
            for space in self._flushed_spaces:
                file.remove_all(space)
            file.save(
                [
                    Change(*place, before[tier], after[tier])
                    for place, before, after in cells
                    if before[tier] is not after[tier]
                ]
            )
        for space, is_frozen in self._marks.items():
            (self._durable.freeze if is_frozen else self._durable.thaw)(space)
        if leaving:
            self._ephemeral.commit()
            self._durable.commit()
            if arriving:
                self._drop_copies(arriving, arrival)
            return
        self._durable.commit()
        try:
            self._ephemeral.commit()
        except apsw.Error as exc:
            raise EphemeralFailed from exc

    def _find_before(self, place: Place) -> StoredEntry | None:
        rows = self._rows.get(place)
        if rows is None:
            is_flushed = place[0] in self._flushed_spaces
            rows = [None, None] if is_flushed else [self._durable.row(*place), self._ephemeral.row(*place)]
            self._rows[place] = rows
        durable, ephemeral = rows
        row = ephemeral if durable is None else durable
        if row is None:
            return None
        tier = Tier.EPHEMERAL if durable is None else Tier.DURABLE
        return StoredEntry(tier, len(place[1]) + len(row.value), row.expires, row)

    def _rows_after(self, place: Place) -> list[Row | None]:
        """Leaves out expired rows, and an ephemeral copy that a crash left behind."""
        after: list[Row | None] = [None, None]
        entry = self._find_live(place)
        if entry is not None:
            after[entry.tier] = entry.row
        return after

    def _was_frozen(self, space: str) -> bool:
        is_frozen = self._is_frozen_by_space.get(space)
        if is_frozen is None:
            is_frozen = self._is_frozen_by_space[space] = self._durable.is_frozen(space)
        return is_frozen

    def _stored_usage(self, space: str) -> Usage:
        durable, ephemeral = self._durable.usage(space), self._ephemeral.usage(space)
        hidden_sizes = [
            len(place[1]) + len(copy.value)
            for place, (row, copy) in self._rows.items()
            if place[0] == space and row is not None and copy is not None
        ]
        return Usage(
            durable.keys + ephemeral.keys - len(hidden_sizes), durable.bytes + ephemeral.bytes - sum(hidden_sizes)
        )

    def _discount_expired(self, space: str) -> None:
        self._durable.remove_expired(space, self.now)
        self._ephemeral.remove_expired(space, self.now)
        for place, rows in self._rows.items():
            if place[0] == space:
                rows[:] = [row if row is not None and expiry.is_live(row.expires, self.now) else None for row in rows]

    def _replace(self, place: Place, before: StoredEntry | None, after: StoredEntry | None) -> None:
        if Tier.EPHEMERAL in (before and before.tier, after and after.tier):
            self.touched_ephemeral = True
        super()._replace(place, before, after)

    def _drop_copies(self, cells: list[_Cell], arrival: int) -> None:
        try:
            following = SqliteTransaction(self._durable, self._ephemeral, lambda: 0)
            self._ephemeral.note_arrival(arrival)
            for cell in cells:
                # Reading it again is enough: a key in both tiers loses its ephemeral copy.
                following.current(*cell.place)
            following.commit()
        except apsw.Error:
            # The group itself is committed. The copies are hidden, and go when their keys are next written.
            self._durable.rollback()
            self._ephemeral.rollback()
