"""Full-text search of memories, in both databases alike: both index the words that `search_index.split_words` makes."""

from typing import Any, Literal

from sqlalchemy import Float, Integer, String, column, func, literal_column, select, table, text
from sqlalchemy.sql import Select

from baobab.tools.substrate import tables
from baobab.tools.substrate.search_index import split_words, tag_words

Match = Literal["and", "or", "phrase"]
_MOST_WORDS = 32
_fts = table("substrate_memory_fts", column("rowid", Integer))
SHOWN = tuple(
    tables.memory.c[name]
    for name in (
        "id",
        "kind",
        "title",
        "body_text",
        "updated_at",
        "source_artifact_id",
        "supersedes",
        "status",
        "from_strangers",
    )
)


def build_search(dialect: str, organisation_id: str, query: str, match: Match) -> Select[Any] | None:
    """A query of the memories of an organisation that hold the words, with `rank`, the best first; None without any."""
    words = split_words(query)[:_MOST_WORDS]
    if not words:
        return None
    words = tag_words(organisation_id, words)
    if dialect == "postgresql":
        return _search_postgres(organisation_id, words, match)
    return _search_sqlite(organisation_id, words, match)


def _search_sqlite(organisation_id: str, words: list[str], match: Match) -> Select[Any]:
    memory = tables.memory
    # Words are letters and digits only, so that nothing in them means anything to FTS5.
    wanted = f'"{" ".join(words)}"' if match == "phrase" else f" {match.upper()} ".join(f'"{word}"' for word in words)
    # bm25 is negative, and smaller is better.
    rank = literal_column("-bm25(substrate_memory_fts)", Float).label("rank")
    found = select(*SHOWN, rank).select_from(_fts.join(memory, memory.c.number == _fts.c.rowid))
    found = found.where(
        text("substrate_memory_fts MATCH :expression").bindparams(expression=wanted),
        memory.c.organisation_id == organisation_id,
    )
    return found.order_by(text("rank DESC"), memory.c.updated_at.desc())


def _search_postgres(organisation_id: str, words: list[str], match: Match) -> Select[Any]:
    memory = tables.memory
    vector: Any = literal_column("substrate_memory.words_vector")
    simple: Any = literal_column("'simple'::regconfig")
    if match == "or":
        wanted = func.to_tsquery(simple, " | ".join(f"'{word}'" for word in words))
    else:
        make = func.phraseto_tsquery if match == "phrase" else func.plainto_tsquery
        wanted = make(simple, " ".join(words))
    rank = func.ts_rank_cd(vector, wanted, type_=Float).label("rank")
    found = select(*SHOWN, rank).where(memory.c.organisation_id == organisation_id, vector.op("@@")(wanted))
    return found.order_by(text("rank DESC"), memory.c.updated_at.desc())


def build_recent(organisation_id: str) -> Select[Any]:
    """A query of the memories of an organisation, the latest changed first, without a rank."""
    memory = tables.memory
    rank: Any = literal_column("NULL", String).label("rank")
    return select(*SHOWN, rank).where(memory.c.organisation_id == organisation_id).order_by(memory.c.updated_at.desc())
