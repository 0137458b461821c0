"""Search by words, in both databases alike: both index the words that `full_text.split_words` makes."""

from collections.abc import Sequence
from functools import cache
from itertools import islice
from typing import Any

from sqlalchemy import Float, Integer, Select, Text, and_, bindparam, column, func, literal_column, select, table, text

from baobab.storage.sql.database import Execute, Reader, mark_long
from baobab.storage.sql.full_text import split_words, tag_words
from baobab.storage.sql.rare_words import part_words
from baobab.tools.rag.tables import chunks, documents
from baobab.tools.rag.vector_search import Place, Scope, build_conditions

_MOST_WORDS = 24
_MOST_RANKED = 2000
"""Chunks that the rarer words of a question may have together."""
_BEST_FOR_EACH = 2
"""Of how many of the best chunks, for each that is wanted, documents are read first: some are of former versions."""
_fts = table("rag_chunks_fts", column("rowid", Integer), column("rank", Float))
_COMMON_WORDS = """
a about an and are as at be been but by can do does for from had has have how i if in into is it its me my no not of
on or our s shall should so t than that the their them then there these they this those to was we were what when where
which who whom why will with would you your aber als am an auch auf aus bei bin bis das dass dem den der des die ein
eine einem einen einer eines er es fur hat ich ihr im in ist mit nach nicht oder sich sie sind um und uns von vor war
was wer wie wir wird wo zu zum zur al como con cual cuando de del donde el en es esta este la las lo los mas no o para
pero por que quien se si sin son su sus un una y
"""
_COMMON = frozenset(_COMMON_WORDS.split())
"""Words that say nothing about what a text is about, as they are without accents."""


def choose_words(query: str) -> list[str]:
    """Returns the words of a query by which to search: each once, and common ones only if there are no others."""
    words = list(dict.fromkeys(split_words(query)))
    return ([word for word in words if word not in _COMMON] or words)[:_MOST_WORDS]


async def find_by_words(reader: Reader, dialect: str, scope: Scope, query: str, limit: int) -> dict[Place, str]:
    """Returns the chunks that have any of the words, with the words of each, as the index has them.

    The best come first: those that have more of the words, and rarer ones. Of a question with everyday words in a large
    collection, the rarer words choose which chunks are ranked. What has none of them comes after those that have.
    """
    words = tag_words(scope.collection_id, choose_words(query))
    if not words:
        return {}
    rarer, everyday = await part_words(reader, dialect, "rag_chunks", words, _MOST_RANKED)
    words_of = await _find_best(reader.execute, dialect, scope, rarer, limit)
    if everyday and len(words_of) < limit:
        words_of |= await _find_best(reader.execute, dialect, scope, words, limit)
    return dict(islice(words_of.items(), limit))


async def _find_best(
    execute: Execute, dialect: str, scope: Scope, words: Sequence[str], limit: int
) -> dict[Place, str]:
    if dialect == "sqlite" and scope.owner is None and scope.ids is None:
        # FTS5 ranks in a fifth of the time that it takes to read the document of each chunk that has the words.
        words_of = await _rank(execute, dialect, scope, words, limit, first=limit * _BEST_FOR_EACH)
        if len(words_of) == limit:
            return words_of
    return await _rank(execute, dialect, scope, words, limit)


async def _rank(
    execute: Execute, dialect: str, scope: Scope, words: Sequence[str], limit: int, *, first: int | None = None
) -> dict[Place, str]:
    """Ranks the chunks that have the words. first: how many of the best of all callers are ranked; None for all."""
    if dialect == "postgresql":
        expression = " | ".join(f"'{word}'" for word in words)
    else:
        # Words are letters and digits only, so that nothing in them means anything to FTS5.
        expression = " OR ".join(f'"{word}"' for word in words)
    parameters = {"expression": expression, "most": limit, **scope.list_parameters()}
    if first is not None:
        parameters["first"] = first
    query = _build_ranking(
        dialect, is_owned=scope.owner is not None, has_ids=scope.ids is not None, is_bounded=first is not None
    )
    return {Place(row[0], row[1], row[2]): row[3] for row in await execute(query, parameters)}


@cache
def _build_ranking(dialect: str, *, is_owned: bool, has_ids: bool, is_bounded: bool) -> Select[Any]:
    """Builds the query that ranks chunks. It is built once, because that takes longer than running it."""
    places = (chunks.c.document_id, chunks.c.version, chunks.c.position)
    has_version = and_(
        documents.c.app_id == chunks.c.app_id,
        documents.c.id == chunks.c.document_id,
        documents.c.version == chunks.c.version,
    )
    query: Any
    rank: Any
    if dialect == "postgresql":
        vector: Any = literal_column("rag_chunks.words_vector")
        search_query = func.to_tsquery(literal_column("'simple'::regconfig"), bindparam("expression", type_=Text))
        # 1: longer chunks count less, as they do in BM25.
        rank = func.ts_rank(vector, search_query, 1, type_=Float)
        query = select(*places, chunks.c.number, (-rank).label("rank")).select_from(chunks.join(documents, has_version))
        query = query.where(chunks.c.app_id == bindparam("of_app"), vector.op("@@")(search_query))
    else:
        matching_rows: Any = select(_fts.c.rowid, _fts.c.rank).where(text("rag_chunks_fts MATCH :expression"))
        if is_bounded:
            matching_rows = matching_rows.order_by(_fts.c.rank).limit(bindparam("first"))
        matching_rows = matching_rows.subquery()
        source = matching_rows.join(chunks, chunks.c.number == matching_rows.c.rowid).join(documents, has_version)
        query = select(*places, chunks.c.number, matching_rows.c.rank.label("rank")).select_from(source)
    query = query.where(*build_conditions(dialect, is_owned=is_owned, has_ids=has_ids))
    best = query.order_by(text("rank"), *places).limit(bindparam("most")).subquery()
    # The words are longer than the text, so they are read for the best chunks only.
    best_chunks = select(best.c.document_id, best.c.version, best.c.position, chunks.c.words)
    best_chunks = best_chunks.join(chunks, chunks.c.number == best.c.number)
    return mark_long(best_chunks.order_by(best.c.rank, best.c.document_id, best.c.version, best.c.position))
