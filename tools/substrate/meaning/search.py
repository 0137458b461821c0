"""Search by meaning, and by meaning and words together."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from itertools import islice
from typing import Any, Literal, NamedTuple

from sqlalchemy import Select, String, bindparam, case, func, select, type_coerce

from baobab.runtime.retrieval.rankings import fuse_rankings, weigh_words
from baobab.storage.cancellation import run_beside
from baobab.storage.sql.database import mark_long
from baobab.storage.sql.full_text import tag_words
from baobab.storage.sql.statements import Statements
from baobab.storage.sql.tables import is_listed
from baobab.tools.core import Call, Services
from baobab.tools.substrate import tables
from baobab.tools.substrate.meaning.index import MeaningIndex, MeaningIndexes
from baobab.tools.substrate.meaning.vectors import Vector, compare, embed_texts, name_embedder
from baobab.tools.substrate.memory_search import SHOWN, Match, choose_words, find_by_words

_CANDIDATES = 100
"""Memories whose bits are nearest, of which the vectors are compared."""
_MORE_CANDIDATES = (1000, 10_000)
"""How many instead, where conditions leave too few of them."""
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
_NAMES_SHOWN = (*(column.name for column in SHOWN), "rank")
_memory, _embeddings, _states = tables.memory.c, tables.embeddings.c, tables.embedding_states.c
# Built once, since that takes longer than to run them.
_OF: Any = bindparam("of_organisation")
_STATE = select(_states.embedder, _states.embedded_until).where(_states.organisation_id == _OF)
# As the database has them: only compared, they need not become moments.
_UPDATED_AT = type_coerce(_memory.updated_at, String).label("updated_at")
_WRITTEN_AT = type_coerce(_embeddings.memory_at, String).label("written_at")
_WORDED = (_memory.id, _UPDATED_AT)
_WORDED_COUNTED = (
    *_WORDED,
    case((func.length(_memory.words) <= _LONGEST_COUNTED, _memory.words)).label("counted"),
)


@cache
def _build_best(dialect: str) -> Select[Any]:
    """Returns a query of some memories."""
    # By id: asked for numbers, SQLite would go through all memories of the organisation instead.
    return select(*SHOWN).where(_memory.organisation_id == _OF, is_listed(dialect, _memory.id, "ids"))


# By their numbers. As text: SQLite finds a hundred listed values in three quarters of the time that it takes for those
# of a JSON list.
_NEAR = "SELECT number, id, parts, memory_at FROM substrate_embeddings WHERE organisation_id = ? AND number IN ?"


@cache
def _build_near(dialect: str) -> Select[Any]:
    """Returns the same query, to be joined with memories."""
    query = select(_embeddings.number, _embeddings.id, _embeddings.parts, _WRITTEN_AT)
    return query.where(_embeddings.organisation_id == _OF, is_listed(dialect, _embeddings.number, "numbers"))


def _read_near(organisation_id: str, numbers: list[int], statements: Statements) -> list[tuple[Any, ...]]:
    return statements.rows(_NEAR, organisation_id, numbers)


class _Near(NamedTuple):
    """A memory whose vector is near; nearer ones sort first, and of equal ones the earlier.

    distance: -1 to 0, the closeness with its sign changed. written_at: when the version was written that has this
    vector.
    """

    distance: float
    number: int
    id: str
    written_at: Any


class _Worded(NamedTuple):
    """A memory that has the words. weight: how much that counts."""

    id: str
    updated_at: Any
    weight: float


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
        """Returns the memories that are found, the best first. `rank` is how close they are, or with words what fusion
        gives.

        kinds: of which kinds, None for all. filters: further conditions. Raises Unavailable.
        """
        # The words are looked for while the vector is made. This call's own transaction begins after both, and holds
        # no connection meanwhile.
        async with run_beside(self._prepare(by, match, filters)) as preparing:
            vector = await self.call.services.of(QuestionVectors).get(self.question)
            index, word_matches = await preparing
        near_memories = [] if index is None else await self._find_near(index, vector, kinds, filters, limit)
        if by == "both":
            best = dict(islice(self._fuse(near_memories[:_RANKED], word_matches).items(), limit))
        else:
            best = {each.id: -each.distance for each in near_memories[:limit]}
        if not best:
            return []
        query = _build_best(self.call.unit.database.dialect)
        found_rows = (
            await self.call.unit.execute(query, {"of_organisation": self.organisation_id, "ids": list(best)})
        ).all()
        rows = {row.id: dict(zip(_NAMES_SHOWN, (*row, round(best[row.id], 6)), strict=True)) for row in found_rows}
        return [rows[memory_id] for memory_id in best if memory_id in rows]

    async def _prepare(
        self, by: Literal["meaning", "both"], match: Match, filters: Sequence[Any]
    ) -> tuple[MeaningIndex | None, list[_Worded]]:
        """Returns what is found without the vector: the index (None if there is none yet), and what has the words."""
        async with self.call.open_reader() as reader:
            index, embedder = None, name_embedder()
            for state in await reader.execute(_STATE, {"of_organisation": self.organisation_id}):
                if state.embedder == embedder:
                    index = await self.call.services.of(MeaningIndexes).get(
                        reader.execute, self.organisation_id, embedder, state.embedded_until
                    )
            if by == "meaning":
                return index, []
            # Memories that have only everyday words of the question say little about it.
            rows = await find_by_words(
                *(reader, self.call.unit.database.dialect, self.organisation_id, self.question, match, filters),
                limit=_RANKED,
                columns=_WORDED_COUNTED if match == "or" else _WORDED,
                fills=False,
            )
        weights = {row["id"]: 1.0 for row in rows}
        if match == "or":
            texts = {row["id"]: row["counted"] for row in rows if row["counted"] is not None}
            question_words = frozenset(tag_words(self.organisation_id, choose_words(self.question)))
            weights |= weigh_words(question_words, texts, _POWER_OF_WORDS)
        return index, [_Worded(row["id"], row["updated_at"], weights[row["id"]]) for row in rows]

    async def _find_near(
        self, index: MeaningIndex, vector: Vector, kinds: Sequence[str] | None, filters: Sequence[Any], enough: int
    ) -> list[_Near]:
        """Returns the nearest memories, the nearest first. enough: how many of them make a wider search superfluous."""
        rows: Sequence[Any] = ()
        looked_at = 0
        for most in (max(_CANDIDATES, enough), *(_MORE_CANDIDATES if filters else ())):
            candidates = await index.find_candidates(vector.bits, kinds, most)
            if len(candidates) > looked_at:
                if filters:
                    rows = await self._filter_near(candidates, filters, is_long=looked_at > 0)
                else:
                    read = partial(_read_near, self.organisation_id, candidates)
                    rows = await self.call.unit.run_statements(read)
            if len(rows) >= enough or len(candidates) in (0, looked_at):
                break
            looked_at = len(candidates)
        if not rows:
            return []
        numbers, ids, parts, moments = zip(*rows, strict=True)
        distances = [-round(close, 4) for close in await compare(vector.parts, parts)]
        # Two never have the same number, so no more than that is compared.
        near_memories = sorted(map(_Near, distances, numbers, ids, moments))
        return [each for each in near_memories if each.distance < 0]

    async def _filter_near(self, candidates: Sequence[int], filters: Sequence[Any], *, is_long: bool) -> Sequence[Any]:
        same = (_memory.organisation_id == _embeddings.organisation_id) & (_memory.id == _embeddings.id)
        query = _build_near(self.call.unit.database.dialect).join(tables.memory, same).where(*filters)
        parameters = {"of_organisation": self.organisation_id, "numbers": candidates}
        return (await self.call.execute(mark_long(query) if is_long else query, parameters)).all()

    def _fuse(self, nearest: Sequence[_Near], word_matches: Sequence[_Worded]) -> dict[str, float]:
        """Returns the weighted reciprocal rank fusion of the nearest memories, those with the words, and the order
        in time, the best first.

        What has only some of the words (`match` is "or") counts less for them.
        """
        moments = {each.id: each.written_at for each in nearest} | {each.id: each.updated_at for each in word_matches}
        latest = sorted(moments, key=moments.__getitem__, reverse=True)
        words = {each.id: each.weight for each in word_matches}
        return fuse_rankings([{each.id: 1.0 for each in nearest}, words, dict.fromkeys(latest, _RECENCY)])
