"""A group of writes to both tiers.

Rows are read once and changed in memory. The files get only the result when the group commits, so that a counter that
sixty callers increment is written once.

Every writer of every process locks the durable file, then the ephemeral one, and the two commit one after the other.
The holder of both locks therefore never meets a half-committed group, only what a crash has left of one: a key in both
tiers, of which the durable copy counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import apsw

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.kv.errors import KeysExhausted, StorageFull
from baobab.storage.kv.tier_file import Change, Row, TierFile


class EphemeralFailed(Exception):
    """The durable half of the group is committed, but the ephemeral half is not."""


class _Cell:
    """One key: its rows in both files before the group, and after it.

    From the start, `after` leaves out expired rows and an ephemeral copy that a crash left behind.
    """

    __slots__ = ("after", "before", "held", "key", "space")

    def __init__(self, space: str, key: str, before: list[Row | None], now: int) -> None:
        self.space = space
        self.key = key
        self.before = before
        self.after = [row if row is not None and expiry.is_live(row.expires, now) else None for row in before]
        if before[Tier.DURABLE] is not None:
            self.after[Tier.EPHEMERAL] = None
        # Entries and bytes of `after`.
        self.held = self.size(self.after)

    def size(self, rows: list[Row | None]) -> tuple[int, int]:
        keys = size = 0
        for row in rows:
            if row is not None:
                keys += 1
                size += len(self.key) + len(row.value)
        return keys, size

    def has_changed(self, tier: Tier) -> bool:
        return self.before[tier] is not self.after[tier]

    def is_moving_to(self, tier: Tier) -> bool:
        return self.before[1 - tier] is not None and self.after[1 - tier] is None and self.after[tier] is not None

    def change(self, tier: Tier) -> Change:
        return Change(self.space, self.key, self.before[tier], self.after[tier])


class Transaction:
    """Takes the write locks when it is created. A refused write leaves no trace in it."""

    def __init__(self, durable: TierFile, ephemeral: TierFile, clock: Callable[[], float]) -> None:
        self._durable = durable
        self._ephemeral = ephemeral
        self._cells: dict[tuple[str, str], _Cell] = {}
        self._totals: dict[str, tuple[int, int]] = {}
        self._swept: set[str] = set()
        self._frozen: dict[str, bool] = {}
        self.touched_ephemeral = False
        durable.begin()
        ephemeral.begin()
        # Read after the locks were acquired, because waiting for them may have taken time.
        self.now = expiry.milliseconds(clock())

    def current(self, space: str, key: str) -> tuple[Tier, Row] | None:
        """Returns the live row and its tier, from the durable tier first."""
        durable, ephemeral = self._cell(space, key).after
        if durable is not None:
            return Tier.DURABLE, durable
        return None if ephemeral is None else (Tier.EPHEMERAL, ephemeral)

    def store(self, space: str, key: str, tier: Tier, row: Row, quota: Quota) -> None:
        """Writes to one tier and removes the key from the other. Raises QuotaExceeded."""
        cell = self._cell(space, key)
        after: list[Row | None] = [None, None]
        after[tier] = row
        new_size = 1, len(key) + len(row.value)
        keys, size = new_size[0] - cell.held[0], new_size[1] - cell.held[1]
        if keys > 0 or size > 0:
            self._admit(space, keys, size, quota)
        self._replace(cell, after, new_size)

    def restart(self, space: str, key: str, tier: Tier, expires: int | None, window: int | None) -> None:
        """Changes the expiry of the live row of a tier."""
        cell = self._cell(space, key)
        row = cell.after[tier]
        if row is not None:
            after = list(cell.after)
            after[tier] = row._replace(expires=expires, window=window)
            self._replace(cell, after, cell.held)

    def remove(self, space: str, key: str) -> int:
        cell = self._cell(space, key)
        live, _ = cell.held
        self._replace(cell, [None, None], (0, 0))
        return live

    def remove_all(self, space: str) -> int:
        live = self._durable.remove_all(space, self.now) + self._ephemeral.remove_all(space, self.now)
        for cell in self._cells_of(space):
            for before in cell.before:
                live -= before is not None and expiry.is_live(before.expires, self.now)
            live += cell.held[0]
            cell.before = [None, None]
            cell.after = [None, None]
            cell.held = 0, 0
        self._totals.pop(space, None)
        return live

    def is_frozen(self, space: str) -> bool:
        frozen = self._frozen.get(space)
        if frozen is None:
            frozen = self._frozen[space] = self._durable.is_frozen(space)
        return frozen

    def freeze(self, space: str) -> None:
        self._durable.freeze(space)
        self._frozen[space] = True

    def thaw(self, space: str) -> None:
        self._durable.thaw(space)
        self._frozen[space] = False

    def remove_expired(self, limit: int) -> int:
        count = 0
        for tier, file in ((Tier.DURABLE, self._durable), (Tier.EPHEMERAL, self._ephemeral)):
            removed = file.remove_some_expired(self.now, limit - count)
            count += len(removed)
            for place in removed:
                if place in self._cells:
                    self._cells[place].before[tier] = None
        self._totals.clear()
        return count

    def commit(self) -> None:
        """Raises EphemeralFailed, or apsw.Error with nothing applied to the durable tier.

        A key that moves must be visible in its new tier before it leaves the old one, so the new tier commits first.
        Otherwise the durable tier commits first: if it fails, nothing has happened in the other.
        """
        leaving = any(cell.is_moving_to(Tier.EPHEMERAL) for cell in self._cells.values())
        arriving = [cell for cell in self._cells.values() if cell.is_moving_to(Tier.DURABLE)]
        arrival = self._durable.count_arrival() if arriving else 0
        if leaving:
            # Keys that move the other way keep their old copy for a moment; the new one hides it.
            for cell in arriving:
                cell.after[Tier.EPHEMERAL] = cell.before[Tier.EPHEMERAL]
        elif arriving:
            self._ephemeral.note_arrival(arrival)
        for tier, file in ((Tier.DURABLE, self._durable), (Tier.EPHEMERAL, self._ephemeral)):
            file.save([cell.change(tier) for cell in self._cells.values() if cell.has_changed(tier)])
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

    def _cell(self, space: str, key: str) -> _Cell:
        cell = self._cells.get((space, key))
        if cell is None:
            before = [self._durable.row(space, key), self._ephemeral.row(space, key)]
            cell = self._cells[space, key] = _Cell(space, key, before, self.now)
            # An expired row no longer counts from now on.
            if before != cell.after and space in self._totals:
                self._grow(space, cell.size(before), cell.held)
        return cell

    def _cells_of(self, space: str) -> Iterator[_Cell]:
        return (cell for cell in self._cells.values() if cell.space == space)

    def _replace(self, cell: _Cell, after: list[Row | None], held: tuple[int, int]) -> None:
        if cell.after[Tier.EPHEMERAL] is not after[Tier.EPHEMERAL]:
            self.touched_ephemeral = True
        if cell.space in self._totals:
            self._grow(cell.space, cell.held, held)
        cell.after = after
        cell.held = held

    def _grow(self, space: str, before: tuple[int, int], after: tuple[int, int]) -> None:
        keys, size = self._totals[space]
        self._totals[space] = keys + after[0] - before[0], size + after[1] - before[1]

    def _total(self, space: str) -> tuple[int, int]:
        if space not in self._totals:
            durable, ephemeral = self._durable.usage(space), self._ephemeral.usage(space)
            self._totals[space] = durable.keys + ephemeral.keys, durable.bytes + ephemeral.bytes
            for cell in self._cells_of(space):
                self._grow(space, cell.size(cell.before), cell.held)
        return self._totals[space]

    def _admit(self, space: str, keys: int, size: int, quota: Quota) -> None:
        if self._find_refusal(space, keys, size, quota) is not None:
            self._sweep(space)
            refusal = self._find_refusal(space, keys, size, quota)
            if refusal is not None:
                raise refusal

    def _find_refusal(self, space: str, keys: int, size: int, quota: Quota) -> KeysExhausted | StorageFull | None:
        max_keys, max_bytes = quota
        if keys > 0 and max_keys is not None:
            used = self._total(space)[0]
            if used + keys > max_keys:
                return KeysExhausted(used, max_keys)
        if size > 0 and max_bytes is not None:
            used = self._total(space)[1]
            if used + size > max_bytes:
                return StorageFull(used, max_bytes)
        return None

    def _sweep(self, space: str) -> None:
        # Once is enough, since the time of a transaction does not change.
        if space in self._swept:
            return
        self._swept.add(space)
        self._durable.remove_expired(space, self.now)
        self._ephemeral.remove_expired(space, self.now)
        for cell in self._cells_of(space):
            cell.before = [
                row if row is not None and expiry.is_live(row.expires, self.now) else None for row in cell.before
            ]
        del self._totals[space]

    def _drop_copies(self, cells: list[_Cell], arrival: int) -> None:
        try:
            following = Transaction(self._durable, self._ephemeral, lambda: 0)
            self._ephemeral.note_arrival(arrival)
            for cell in cells:
                # Reading it again is enough: a key in both tiers loses its ephemeral copy.
                following.current(cell.space, cell.key)
            following.commit()
        except apsw.Error:
            # The group itself is committed. The copies are hidden, and go when their keys are next written.
            self._durable.rollback()
            self._ephemeral.rollback()
