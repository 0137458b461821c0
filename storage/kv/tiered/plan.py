"""Plans a group of writes to one space, from what both tiers hold to what they are to hold.

The rules are those of operations.py, applied to a copy of the rows while nobody else may change them. Nothing is sent
until the whole group is planned.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from baobab.storage.kv import expiry
from baobab.storage.kv.engine import Quota, Tier, Usage
from baobab.storage.kv.errors import KeysExhausted, StorageFull
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.tier_file import Row
from baobab.storage.kv.tiered.durable import DurableChange, LookupResult, TierUpdate
from baobab.storage.kv.tiered.ephemeral import Change, WriteLock

_NOTHING = Usage(0, 0)


class QuotaUncertain(Exception):
    """A quota seems to refuse a write; this can only be decided while nobody else may write to the space."""


@dataclass(slots=True)
class _Cell:
    durable: Row | None
    ephemeral: Row | None
    after: tuple[Tier, Row] | None

    def after_in(self, tier: Tier) -> Row | None:
        return self.after[1] if self.after is not None and self.after[0] is tier else None


class Changes(NamedTuple):
    """The changes in the order in which they must be made, so that every key is always in a tier and no old value
    returns.

    `before`: entries that move from the durable to the ephemeral tier, and copies that the durable tier hides. `after`:
    entries that move the other way, and changes of the ephemeral tier alone.
    """

    before: list[Change]
    update: TierUpdate
    after: list[Change]


class WritePlan:
    """Has the methods of Transaction that operations.py and idempotency.py call. A refused write leaves no
    trace in it.
    """

    def __init__(self, keys: Sequence[str], lock: WriteLock, found: LookupResult, *, alone: bool) -> None:
        self.now = lock.now
        self.touched: set[Tier] = set()
        self._flushed = False
        self._frozen = self._was_frozen = found.frozen
        self._alone = alone
        self._usage = found.usage
        self._cells = {
            key: self._build_cell(lock.rows.get(key), found.rows.get(key))
            for key in keys
            if key in lock.rows or key in found.rows
        }
        hidden = [len(key) + len(cell.ephemeral.value) for key, cell in self._cells.items()
                  if cell.durable is not None and cell.ephemeral is not None]  # fmt: skip
        # Only what is added to the durable tier's totals, since reading these costs a query and is rarely needed.
        self._added = _add_usage(lock.usage, lock.pledged, Usage(-len(hidden), -sum(hidden)))
        self._tokens = {token: Row(text, None, None) for token, text in lock.token_results.items()} | found.tokens
        self._new_tokens: tuple[dict[str, Row], dict[str, Row]] = {}, {}

    def begin_write(self) -> None:
        """Begins another write."""
        self.touched = set()

    def current(self, space: str, key: str) -> tuple[Tier, Row] | None:
        if space == SPACE:
            return (Tier.DURABLE, self._tokens[key]) if key in self._tokens else None
        cell = self._cells.get(key)
        return None if cell is None else cell.after

    def store(self, space: str, key: str, tier: Tier, row: Row, quota: Quota) -> None:
        if space == SPACE:
            self._store_token(key, row)
            return
        entry = self.current(space, key)
        size = len(key) + len(row.value)
        grown = Usage(1, size) if entry is None else Usage(0, len(row.value) - len(entry[1].value))
        self._admit(grown, quota)
        self._replace(key, (tier, row), grown)

    def restart(self, space: str, key: str, tier: Tier, expires: int | None, window: int | None) -> None:
        entry = self.current(space, key)
        assert entry is not None
        self._replace(key, (tier, entry[1]._replace(expires=expires, window=window)), _NOTHING)

    def remove(self, space: str, key: str) -> int:
        entry = self.current(space, key)
        if entry is None:
            return 0
        self._replace(key, None, Usage(-1, -len(key) - len(entry[1].value)))
        return 1

    def remove_all(self, space: str) -> int:
        assert self._alone
        live = self._total(exact=True).keys
        self._flushed = True
        self.touched = set(Tier)
        self._usage, self._added = lambda _: _NOTHING, _NOTHING
        self._cells = {key: _Cell(None, None, None) for key in self._cells}
        return live

    def is_frozen(self, space: str) -> bool:
        return self._frozen

    def freeze(self, space: str) -> None:
        assert self._alone
        self._frozen = True
        self.touched = {Tier.DURABLE}

    def thaw(self, space: str) -> None:
        assert self._alone
        self._frozen = False
        self.touched |= {Tier.DURABLE}

    def build_changes(self) -> Changes:
        # A flush may delete the frozen mark together with the totals, so it is set again.
        marking = self._frozen != self._was_frozen or (self._flushed and self._frozen)
        update = TierUpdate(self._flushed, self._frozen if marking else None, [], self._new_tokens[Tier.DURABLE])
        planned = Changes([("flush",)] if self._flushed else [], update, [])
        for key, cell in self._cells.items():
            durable, ephemeral = cell.after_in(Tier.DURABLE), cell.after_in(Tier.EPHEMERAL)
            if durable is not cell.durable:
                update.changes.append(DurableChange(key, cell.durable, durable))
            if ephemeral is cell.ephemeral:
                continue
            if ephemeral is not None:
                (planned.after if cell.durable is None else planned.before).append(_put_command(key, ephemeral))
            elif cell.durable is not None:
                planned.before.append(("drop", key))
            else:
                planned.after.append(("drop" if durable is None else "move", key))
        planned.after.extend(("keep", token, row.value) for token, row in self._new_tokens[Tier.EPHEMERAL].items())
        return planned

    def _build_cell(self, ephemeral: Row | None, durable: Row | None) -> _Cell:
        if durable is not None and expiry.is_live(durable.expires, self.now):
            # A copy in the other tier is left over from a crash during a move, and is dropped.
            return _Cell(durable, ephemeral, (Tier.DURABLE, durable))
        return _Cell(None, ephemeral, None if ephemeral is None else (Tier.EPHEMERAL, ephemeral))

    def _replace(self, key: str, after: tuple[Tier, Row] | None, grown: Usage) -> None:
        cell = self._cells.setdefault(key, _Cell(None, None, None))
        self.touched |= {entry[0] for entry in (cell.after, after) if entry is not None}
        cell.after = after
        self._added = _add_usage(self._added, grown)

    def _store_token(self, token: str, row: Row) -> None:
        # In the tier of the write itself, so that both are lost together or not at all.
        tier = Tier.EPHEMERAL if self.touched == {Tier.EPHEMERAL} else Tier.DURABLE
        self._tokens[token] = row
        self._new_tokens[tier][token] = row

    def _admit(self, grown: Usage, quota: Quota) -> None:
        if self._find_refusal(grown, quota, exact=False) is not None:
            refusal = self._find_refusal(grown, quota, exact=True)
            if refusal is not None:
                raise refusal if self._alone else QuotaUncertain

    def _find_refusal(self, grown: Usage, quota: Quota, *, exact: bool) -> KeysExhausted | StorageFull | None:
        max_keys, max_bytes = quota
        if grown.keys > 0 and max_keys is not None:
            used = self._total(exact=exact).keys
            if used + grown.keys > max_keys:
                return KeysExhausted(used, max_keys)
        if grown.bytes > 0 and max_bytes is not None:
            used = self._total(exact=exact).bytes
            if used + grown.bytes > max_bytes:
                return StorageFull(used, max_bytes)
        return None

    def _total(self, *, exact: bool) -> Usage:
        return _add_usage(self._usage(exact), self._added)


def _put_command(key: str, row: Row) -> Change:
    expires, window = ("" if number is None else number for number in (row.expires, row.window))
    return "put", key, expires, window, row.value


def _add_usage(*several: Usage) -> Usage:
    return Usage(sum(each.keys for each in several), sum(each.bytes for each in several))
