"""The index of meanings: in each process, a bit for each dimension of the vectors of the organisations it serves."""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from typing import Any

from sqlalchemy import bindparam, select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Services
from baobab.tools.substrate import tables
from baobab.tools.substrate.meaning.vectors import NUMPY, SIGNS

FORGOTTEN = "substrate_forgotten"
"""The topic of the notice that memories were erased; its subject is the organisation."""
KINDS = ("decision", "commitment", "learning", "source_artifact")
_MOST_BYTES = 96 * 2**20
"""Of the indexes that a process holds; the one that was used longest ago goes first."""
_SMALL = 10_000
"""Rows up to which replaced ones are left in."""
_COMPARED_AT_ONCE = 150_000
"""Rows that are compared without a thread: in about a millisecond, as long as a short statement takes."""
_PAGE = 20_000
_rows = tables.embeddings.c
# Built once, since that takes longer than to run them.
_ALL = (
    select(_rows.number, _rows.kind, _rows.bits, _rows.memory_at)
    .where(_rows.organisation_id == bindparam("of_organisation"))
    .order_by(_rows.memory_at)
    .limit(_PAGE)
)
_LATER = _ALL.where(_rows.memory_at > bindparam("until"))


class MeaningIndex:
    """The bits of one organisation's vectors. `numbers` are those of `substrate_memory`."""

    def __init__(self, np: Any, signs: Any) -> None:
        """np: numpy. signs: the module `storage.vectors.signs`."""
        self._np = np
        self._signs = signs
        self._size = 0
        self._widest = _SMALL
        self._until: datetime | None = None
        self.embedded_until: datetime | None = None
        """Up to which moment memories had their vectors when it was read last."""
        self._numbers: Any = np.zeros(0, dtype=np.int64)
        self._kinds: Any = np.zeros(0, dtype=np.uint8)
        self._bits: Any = np.zeros((0, 0), dtype=np.uint64)

    @property
    def bytes_held(self) -> int:
        return int(self._numbers.nbytes + self._kinds.nbytes + self._bits.nbytes)

    def _grow(self, room: int, words: int) -> None:
        np = self._np
        numbers, kinds = np.zeros(room, dtype=np.int64), np.zeros(room, dtype=np.uint8)
        bits = np.zeros((words, room), dtype=np.uint64)
        if self._size:
            numbers[: self._size], kinds[: self._size] = self._numbers[: self._size], self._kinds[: self._size]
            bits[:, : self._size] = self._bits[:, : self._size]
        self._numbers, self._kinds, self._bits = numbers, kinds, bits

    async def refresh(self, execute: Execute, organisation_id: str) -> None:
        """Adds what was given a vector since; what was changed is there twice, and the newer counts."""
        while True:
            parameters: dict[str, Any] = {"of_organisation": organisation_id}
            if self._until is None:
                rows = (await execute(_ALL, parameters)).all()
            else:
                rows = (await execute(_LATER, {**parameters, "until": self._until})).all()
            if rows:
                self._add(rows)
                self._until = rows[-1].memory_at
            if len(rows) < _PAGE:
                return

    def _add(self, rows: Sequence[Any]) -> None:
        np = self._np
        bits = np.frombuffer(b"".join(row.bits for row in rows), dtype=np.uint64).reshape(len(rows), -1)
        if self._size + len(rows) > len(self._numbers):
            self._grow(2 * (self._size + len(rows)), bits.shape[1])
        place = slice(self._size, self._size + len(rows))
        self._numbers[place] = [row.number for row in rows]
        self._kinds[place] = [KINDS.index(row.kind) for row in rows]
        self._bits[:, place] = bits.T
        self._size += len(rows)
        if self._size > self._widest:
            self._leave_out_replaced()

    def _leave_out_replaced(self) -> None:
        """Keeps the newest bits of each memory: one that is changed again and again must not fill the index."""
        np, size = self._np, self._size
        _, latest = np.unique(self._numbers[:size][::-1], return_index=True)
        newest = np.sort(size - 1 - latest)
        self._size = len(newest)
        self._numbers[: self._size], self._kinds[: self._size] = self._numbers[newest], self._kinds[newest]
        self._bits[:, : self._size] = self._bits[:, newest]
        self._widest = 2 * self._size + _SMALL

    async def find_candidates(self, bits: bytes, kinds: Sequence[str] | None, most: int) -> list[int]:
        """Returns the numbers of the memories whose bits differ least."""
        if not self._size:
            return []
        work = partial(self._find_candidates, bits, kinds, most)
        return work() if self._size <= _COMPARED_AT_ONCE else await asyncio.to_thread(work)

    def _find_candidates(self, bits: bytes, kinds: Sequence[str] | None, most: int) -> list[int]:
        np, size, dimensions = self._np, self._size, 8 * len(bits)
        different = self._signs.count_different(self._bits[:, :size], np.frombuffer(bits, dtype=np.uint64))
        if kinds is not None:
            different[~np.isin(self._kinds[:size], [KINDS.index(kind) for kind in kinds])] = dimensions + 1
        nearest = self._signs.find_least(different, most, dimensions)
        nearest = nearest[np.argsort(different[nearest], kind="stable")[:most]]
        return [int(number) for number in np.unique(self._numbers[nearest])]


class MeaningIndexes:
    """The indexes of this process; one object for each application."""

    def __init__(self, services: Services) -> None:
        self._indexes: OrderedDict[tuple[str, str], MeaningIndex] = OrderedDict()
        self._loading: dict[tuple[str, str], asyncio.Lock] = {}
        services.notices.subscribe(FORGOTTEN, self._forget)

    async def get(
        self, execute: Execute, organisation_id: str, embedder: str, embedded_until: datetime
    ) -> MeaningIndex:
        """Returns the index of an organisation, with all that has a vector by now.

        embedded_until: as the transaction of `execute` sees it; whatever adds vectors moves it.
        """
        place = (organisation_id, embedder)
        cached_index = self._indexes.get(place)
        if cached_index is not None and cached_index.embedded_until == embedded_until:
            self._indexes.move_to_end(place)
            return cached_index
        lock = self._loading.setdefault(place, asyncio.Lock())
        try:
            async with lock:
                index = self._indexes.get(place)
                if index is None:
                    index = MeaningIndex(await NUMPY.get(), await SIGNS.get())
                await index.refresh(execute, organisation_id)
                index.embedded_until = embedded_until
                self._indexes[place] = index
                self._indexes.move_to_end(place)
        finally:
            if not lock.locked():
                self._loading.pop(place, None)
        while sum(each.bytes_held for each in self._indexes.values()) > _MOST_BYTES and len(self._indexes) > 1:
            self._indexes.popitem(last=False)
        return index

    def _forget(self, organisation_id: str) -> None:
        for place in [place for place in self._indexes if place[0] == organisation_id]:
            del self._indexes[place]
