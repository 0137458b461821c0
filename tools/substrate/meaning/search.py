"""Search by meaning, and by meaning and words together."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import bindparam, case, func, null, select

from baobab.runtime.retrieval.fusion import fuse_rankings, weigh_words
from baobab.storage.cancellation import run_beside
from baobab.storage.database import Execute
from baobab.storage.full_text import tag_words
from baobab.tools.core.call import Call
from baobab.tools.core.services import Services
from baobab.tools.substrate import tables
from baobab.tools.substrate.meaning.index import MeaningIndexes
from baobab.tools.substrate.meaning.vectors import Vector, compare, embed_texts, name_embedder
from baobab.tools.substrate.memory_search import SHOWN, Match, choose_words, find_by_words

_CANDIDATES = 100
"""Memories whose bits are nearest, of which the vectors are compared."""
_RANKED = 100
"""The first of each ranking, which are ranked together."""
_POWER_OF_WORDS = 2
"""Less than of chunks of documents, for a memory is short, and has few of a question's words even if it answers it."""
_LONGEST_COUNTED = 32_768
"""Characters: the words of a question are not counted in a memory with more, for to read it takes longer than to
search. It counts as if it had all of them."""
_RECENCY = 0.25
"""How much the order in time counts, beside words and meaning with 1 each."""
_REMEMBERED = 512
_memory, _embeddings, _states = tables.memory.c, tables.embeddings.c, tables.embedding_states.c
# Built once, since that takes longer than to run them.
_OF: Any = bindparam("of_organisation")
_EMBEDDER = select(_states.embedder).where(_states.organisation_id == _OF)
_CANDIDATE_VECTORS = select(_embeddings.id, _embeddings.parts).where(
    _embeddings.organisation_id == _OF, _embeddings.number.in_(bindparam("numbers", expanding=True))
)
# By id: asked for numbers, SQLite would go through all memories of the organisation instead.
_BEST = select(*SHOWN).where(_memory.organisation_id == _OF, _memory.id.in_(bindparam("ids", expanding=True)))


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

    call: Call
    organisation_id: str
    question: str

    async def run(
        self,
        by: Literal["meaning", "both"],
        match: Match,
        kinds: Sequence[str] | None,
        filters: Sequence[Any],
        limit: int,
    ) -> list[dict[str, Any]]:
        """The memories that are found, the best first. `rank` is how close they are, or with words what fusion gives.

        kinds: of which kinds, None for all. filters: further conditions. Raises Unavailable.
        """
        # The words are looked for while the vector is made. This call's own transaction begins after both, and holds
        # no connection meanwhile.
        async with run_beside(self._find_by_words(by, match, filters)) as searching_words:
            vector = await self.call.services.of(QuestionVectors).get(self.question)
            worded = await searching_words
        execute = self.call.execute
        near = await self._find_near(execute, vector, kinds, filters)
        ranks = dict(near)
        if by == "both":
            ranks = await self._fuse(execute, [memory_id for memory_id, _ in near], worded, match)
        best = sorted(ranks, key=lambda memory_id: -ranks[memory_id])[:limit]
        found = await execute(_BEST, {"of_organisation": self.organisation_id, "ids": best})
        rows = {row["id"]: dict(row) for row in found.mappings()}
        return [{**rows[memory_id], "rank": ranks[memory_id]} for memory_id in best if memory_id in rows]

    async def _find_by_words(self, by: Literal["meaning", "both"], match: Match, filters: Sequence[Any]) -> list[str]:
        if by == "meaning":
            return []
        dialect = self.call.unit.database.dialect
        async with self.call.reading() as execute:
            # What has only everyday words of the question says little about it.
            found = await find_by_words(
                *(execute, dialect, self.organisation_id, self.question, match, filters, _RANKED),
                columns=(_memory.id,),
                fills=False,
            )
        return [row["id"] for row in found]

    async def _find_near(
        self, execute: Execute, vector: Vector, kinds: Sequence[str] | None, filters: Sequence[Any]
    ) -> list[tuple[str, float]]:
        """The ids of the nearest memories, the nearest first, and how close they are."""
        ours, embedder = {"of_organisation": self.organisation_id}, name_embedder()
        if (await execute(_EMBEDDER, ours)).scalar() != embedder:
            return []
        index = await self.call.services.of(MeaningIndexes).get(execute, self.organisation_id, embedder)
        candidates = await index.find_candidates(vector.bits, kinds, _CANDIDATES)
        query = _CANDIDATE_VECTORS
        if filters:
            same = (_memory.organisation_id == _embeddings.organisation_id) & (_memory.id == _embeddings.id)
            query = query.join(tables.memory, same).where(*filters)
        rows = (await execute(query, {**ours, "numbers": candidates})).all() if candidates else []
        if not rows:
            return []
        closeness = await compare(vector.parts, [row.parts for row in rows])
        found = [(row.id, round(close, 4)) for row, close in zip(rows, closeness, strict=True)]
        return sorted((pair for pair in found if pair[1] > 0), key=lambda pair: -pair[1])

    async def _fuse(
        self, execute: Execute, near: Sequence[str], worded: Sequence[str], match: Match
    ) -> dict[str, float]:
        """Weighted reciprocal rank fusion of what is near, of what has the words, and of the order in time.

        What has only some of the words (`match` is "or") counts less for them.
        """
        near = near[:_RANKED]
        counted = case((func.length(_memory.words) <= _LONGEST_COUNTED, _memory.words)) if match == "or" else null()
        query = select(_memory.id, _memory.updated_at, counted.label("counted")).where(
            _memory.organisation_id == self.organisation_id, _memory.id.in_({*near, *worded})
        )
        # Sorted here: to have them in this order, SQLite would go through all memories of the organisation.
        found = sorted(await execute(query), key=lambda row: row.updated_at, reverse=True)
        rows = {row.id: row for row in found}
        weights = {each: 1.0 for each in worded if each in rows}
        weights |= self._weigh_words({each: rows[each].counted for each in weights if rows[each].counted is not None})
        fused = fuse_rankings([{each: 1.0 for each in near if each in rows}, weights, dict.fromkeys(rows, _RECENCY)])
        return {memory_id: round(rank, 6) for memory_id, rank in fused.items()}

    def _weigh_words(self, found: dict[str, str]) -> dict[str, float]:
        asked = frozenset(tag_words(self.organisation_id, choose_words(self.question)))
        return weigh_words(asked, found, _POWER_OF_WORDS)
