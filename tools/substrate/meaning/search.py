"""Search by meaning, and by meaning and words together."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import select

from baobab.storage.database import Execute
from baobab.tools.core.services import Services
from baobab.tools.substrate import tables
from baobab.tools.substrate.meaning.index import MeaningIndexes
from baobab.tools.substrate.meaning.vectors import Vector, compare, embed_texts, name_embedder
from baobab.tools.substrate.memory_search import SHOWN, Match, build_search

_CANDIDATES = 100
"""Memories whose bits are nearest, of which the vectors are compared."""
_RANKED = 100
"""The first of each ranking, which are ranked together."""
_DAMPING = 60
"""Of reciprocal rank fusion: how little the first places count more than the following ones."""
_RECENCY = 0.25
"""How much the order in time counts, beside words and meaning with 1 each."""
_REMEMBERED = 512
_memory, _embeddings, _states = tables.memory.c, tables.embeddings.c, tables.embedding_states.c


class QuestionVectors:
    """The vectors of the last questions, of which many come again."""

    def __init__(self, services: Services) -> None:
        del services
        self._vectors: OrderedDict[tuple[str, str], Vector] = OrderedDict()

    async def get(self, question: str) -> Vector:
        place = (name_embedder(), question)
        vector = self._vectors.get(place)
        if vector is None:
            (vector,) = await embed_texts([question])
        self._vectors[place] = vector
        self._vectors.move_to_end(place)
        if len(self._vectors) > _REMEMBERED:
            self._vectors.popitem(last=False)
        return vector


@dataclass(frozen=True, slots=True)
class MeaningSearch:
    """One search in the memories of an organisation."""

    services: Services
    dialect: str
    organisation_id: str
    question: str

    async def run(
        self,
        execute: Execute,
        by: Literal["meaning", "both"],
        match: Match,
        kinds: Sequence[str] | None,
        filters: Sequence[Any],
        limit: int,
    ) -> list[dict[str, Any]]:
        """The memories that are found, the best first. `rank` is how close they are, or with words what fusion gives.

        kinds: of which kinds, None for all. filters: further conditions. Raises Unavailable.
        """
        # Made before the first statement takes a connection, for it takes its time.
        vector = await self.services.of(QuestionVectors).get(self.question)
        near = await self._find_near(execute, vector, kinds, filters)
        if by == "meaning":
            ranks = dict(near)
        else:
            ranks = await self._fuse(execute, [number for number, _ in near], match, filters)
        best = sorted(ranks, key=lambda number: -ranks[number])[:limit]
        query = select(*SHOWN).where(_memory.organisation_id == self.organisation_id, _memory.number.in_(best))
        rows = {row["number"]: dict(row) for row in (await execute(query)).mappings()}
        return [{**rows[number], "rank": ranks[number]} for number in best if number in rows]

    async def _find_near(
        self, execute: Execute, vector: Vector, kinds: Sequence[str] | None, filters: Sequence[Any]
    ) -> list[tuple[int, float]]:
        """The numbers of the nearest memories, the nearest first, and how close they are."""
        which = _states.organisation_id == self.organisation_id
        embedder = name_embedder()
        if (await execute(select(_states.embedder).where(which))).scalar() != embedder:
            return []
        index = await self.services.of(MeaningIndexes).get(execute, self.organisation_id, embedder)
        candidates = await index.find_candidates(vector.bits, kinds, _CANDIDATES)
        query = select(_embeddings.number, _embeddings.parts).where(
            _embeddings.organisation_id == self.organisation_id, _embeddings.number.in_(candidates)
        )
        if filters:
            query = query.join(tables.memory, _memory.number == _embeddings.number).where(*filters)
        rows = (await execute(query)).all() if candidates else []
        if not rows:
            return []
        (closeness,) = await compare([vector.parts], [row.parts for row in rows])
        found = [(row.number, round(float(close), 4)) for row, close in zip(rows, closeness, strict=True)]
        return sorted((pair for pair in found if pair[1] > 0), key=lambda pair: -pair[1])

    async def _fuse(
        self, execute: Execute, near: Sequence[int], match: Match, filters: Sequence[Any]
    ) -> dict[int, float]:
        """Reciprocal rank fusion of what is near, of what has the words, and of the order in time."""
        worded: list[int] = []
        searched = build_search(self.dialect, self.organisation_id, self.question, match)
        if searched is not None:
            numbered = searched.with_only_columns(_memory.number, *_get_rank(searched))
            found = await execute(numbered.where(*filters).limit(_RANKED))
            worded = [row.number for row in found]
        near = near[:_RANKED]
        query = select(_memory.number).where(
            _memory.organisation_id == self.organisation_id, _memory.number.in_({*near, *worded})
        )
        latest = list((await execute(query.order_by(_memory.updated_at.desc()))).scalars())
        ranks = dict.fromkeys(latest, 0.0)
        for weight, ranking in ((1.0, near), (1.0, worded), (_RECENCY, latest)):
            for place, number in enumerate(ranking, 1):
                if number in ranks:
                    ranks[number] += weight / (_DAMPING + place)
        return {number: round(rank, 6) for number, rank in ranks.items()}


def _get_rank(searched: Any) -> list[Any]:
    return [column for column in searched.selected_columns if column.name == "rank"]
