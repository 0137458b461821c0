"""Full-text search of memories, in both databases alike: both index the words that `full_text.split_words` makes."""

from collections.abc import Iterable, Sequence
from datetime import datetime
from functools import cache
from typing import Any, Literal

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    String,
    bindparam,
    column,
    func,
    literal_column,
    or_,
    select,
    table,
    text,
)
from sqlalchemy.sql import Select

from baobab.storage.sql.database import Execute, Reader, mark_long
from baobab.storage.sql.full_text import split_words, tag_words
from baobab.storage.sql.rare_words import part_words
from baobab.storage.sql.tables import is_listed, metadata
from baobab.tools.substrate import tables
from baobab.tools.substrate.rows import decode_row
from baobab.tools.substrate.search_index import remember

Match = Literal["and", "or", "phrase"]
_MOST_WORDS = 32
_MOST_RANKED = 2000
"""Memories that one search ranks."""
_fts = table("substrate_memory_fts", column("rowid", Integer))
_memory, _actions = tables.memory.c, tables.action_ledger.c
# bm25 is negative, and smaller is better.
_BM25: Any = literal_column("-bm25(substrate_memory_fts)", Float).label("rank")
_WANTED: Any = bindparam("wanted_words", type_=String)
_HOLDS_WORDS = text("substrate_memory_fts MATCH :wanted_words").bindparams(_WANTED)
_OF: Any = bindparam("of_organisation", type_=String)
SHOWN = tuple(
    tables.memory.c[name]
    for name in (
        "number",
        "id",
        "kind",
        "title",
        "body_text",
        "updated_at",
        "source_artifact_id",
        "supersedes",
        "status",
        "from_strangers",
        "action_id",
        "valid_from",
        "valid_to",
        "created_at",
    )
)


def choose_words(query: str) -> list[str]:
    """Returns the words of a query by which to search."""
    return split_words(query)[:_MOST_WORDS]


async def find_by_words(
    reader: Reader,
    dialect: str,
    organisation_id: str,
    query: str,
    match: Match,
    filters: Sequence[ColumnElement[bool]],
    limit: int,
    *,
    columns: Sequence[Any] = SHOWN,
    fills: bool = True,
) -> list[dict[str, Any]]:
    """Returns the memories that hold the words, with `rank`, the best first.

    Of more than `_MOST_RANKED` that hold them, the latest are ranked. With "or", rows are selected by the rare
    words; rows that match only common words are appended. columns: further columns to read. fills: whether they are
    appended even if the rare words have found something.
    """
    words = tag_words(organisation_id, choose_words(query))
    if not words:
        return []
    rarer, everyday = words, list[str]()
    if match == "or":
        rarer, everyday = await part_words(
            reader, dialect, "substrate_memory", list(dict.fromkeys(words)), _MOST_RANKED
        )
    search_query = (
        _build_search(dialect, match, columns, filters) if filters else _build_unfiltered(dialect, match, columns)
    )

    async def find(some_words: list[str], most: int) -> list[dict[str, Any]]:
        words_text = _write_words(dialect, some_words, match)
        parameters = {"of_organisation": organisation_id, "wanted_words": words_text, "most_found": most}
        return [row._asdict() for row in await reader.execute(search_query, parameters)]

    results = await find(rarer, limit)
    if everyday and len(results) < limit and (fills or not results):
        found_ids = {row["id"] for row in results}
        # Ranks of two searches do not compare: none of the second is above the first's.
        highest = min((row["rank"] for row in results), default=float("inf"))
        further_results = [row for row in await find(everyday, limit + len(found_ids)) if row["id"] not in found_ids]
        results += [{**row, "rank": min(row["rank"], highest)} for row in further_results[: limit - len(results)]]
    return results


def _build_search(dialect: str, match: Match, columns: Sequence[Any], filters: Sequence[Any] = ()) -> Select[Any]:
    """Returns a query of the columns and the ranks of the best memories that hold the words."""
    best = _build_ranking(dialect, match, filters).subquery()
    # Only of the best are rows read, of which each is much more than a number and a rank.
    query = select(*columns, best.c.rank).join(best, best.c.number == _memory.number)
    query = query.where(_memory.organisation_id == _OF)
    query = query.order_by(best.c.rank.desc(), _memory.updated_at.desc())
    # Any of some words may be in thousands of memories.
    return mark_long(query) if match == "or" else query


_build_unfiltered = cache(_build_search)


def _build_ranking(dialect: str, match: Match, filters: Sequence[Any]) -> Select[Any]:
    """Returns a query of the numbers and the ranks of the best memories that hold the words, of the latest
    `_MOST_RANKED`.
    """
    if dialect == "postgresql":
        vector: Any = literal_column("words_vector")
        tsquery = _build_tsquery(match, _WANTED)
        matches = select(_memory.number, vector.label("vector")).where(
            _memory.organisation_id == _OF, vector.op("@@")(tsquery), *filters
        )
        latest_matches = matches.order_by(_memory.number.desc()).limit(_MOST_RANKED).subquery()
        ranking = select(
            latest_matches.c.number, func.ts_rank_cd(latest_matches.c.vector, tsquery, type_=Float).label("rank")
        )
    else:
        matches = select(_fts.c.rowid.label("number"), _BM25).where(_HOLDS_WORDS)
        if filters:
            matches = matches.select_from(_fts.join(tables.memory, _memory.number == _fts.c.rowid))
            matches = matches.where(_memory.organisation_id == _OF, *filters)
        latest_matches = matches.order_by(_fts.c.rowid.desc()).limit(_MOST_RANKED).subquery()
        ranking = select(latest_matches.c.number, latest_matches.c.rank)
    return ranking.order_by(text("rank DESC"), latest_matches.c.number.desc()).limit(
        bindparam("most_found", type_=Integer)
    )


def build_holding(dialect: str, organisation_id: str, query: str) -> Select[Any] | None:
    """Returns a query of the ids of all memories that hold each of the words, with `rank`; None without any word."""
    words = tag_words(organisation_id, choose_words(query))
    if not words:
        return None
    words_text = _write_words(dialect, words, "and")
    if dialect == "postgresql":
        vector: Any = literal_column("substrate_memory.words_vector")
        tsquery = _build_tsquery("and", words_text)
        rank = func.ts_rank_cd(vector, tsquery, type_=Float).label("rank")
        statement = select(_memory.id, rank).where(vector.op("@@")(tsquery))
    else:
        statement = select(_memory.id, _BM25).select_from(_fts.join(tables.memory, _memory.number == _fts.c.rowid))
        statement = statement.where(_HOLDS_WORDS.bindparams(wanted_words=words_text))
    return statement.where(_memory.organisation_id == organisation_id)


def _write_words(dialect: str, words: list[str], match: Match) -> str:
    """Returns the words as the database's full-text search reads them. They are letters and digits only, so that
    nothing in them means anything to it.
    """
    if dialect == "postgresql":
        return " | ".join(f"'{word}'" for word in words) if match == "or" else " ".join(words)
    return f'"{" ".join(words)}"' if match == "phrase" else f" {match.upper()} ".join(f'"{word}"' for word in words)


def _build_tsquery(match: Match, words_text: Any) -> Any:
    make = {"and": func.plainto_tsquery, "or": func.to_tsquery, "phrase": func.phraseto_tsquery}[match]
    return make(literal_column("'simple'::regconfig"), words_text)


def filter_moments(valid_at: datetime | None, known_at: datetime | None) -> list[ColumnElement[bool]]:
    """Conditions for what was true at a moment, and for what was known at one: recorded, and not ended yet."""
    if valid_at is known_at is None:
        return []
    memory, conditions = tables.memory.c, []
    is_open: ColumnElement[bool] = memory.valid_to.is_(None)
    if known_at is not None:
        not_ended = or_(memory.ended_at.is_(None), memory.ended_at > known_at)
        conditions += [memory.created_at <= known_at]
        if valid_at is None:
            conditions.append(not_ended)
        else:
            # Its end was not recorded yet.
            is_open = or_(is_open, memory.ended_at > known_at)
    if valid_at is not None:
        conditions += [or_(memory.valid_from.is_(None), memory.valid_from <= valid_at)]
        conditions += [or_(is_open, memory.valid_to > valid_at)]
    return conditions


async def recall_as_known(
    execute: Execute, organisation_id: str, rows: list[dict[str, Any]], known_at: datetime
) -> list[dict[str, Any]]:
    """Memories as they were at a moment: those that were changed since have what the changes keep of them."""
    changes = tables.changes.c
    since = [row["id"] for row in rows if row["updated_at"] > known_at]
    query = select(changes.seq, changes.row_id, changes.tbl, changes.before).where(
        changes.organisation_id == organisation_id,
        changes.row_id.in_(since),
        tables.CAN_BE_UNDONE,
        changes.created_at > known_at,
    )
    before: dict[str, dict[str, Any]] = {}
    # Not sorted by SQLite, which would go through all changes in their order instead.
    for change in sorted(await execute(query), key=lambda change: change.seq) if since else ():
        if change.row_id not in before and change.before is not None:
            table = metadata.tables[tables.PREFIX + change.tbl]
            before[change.row_id] = remember(table, decode_row(table, change.before))
    return [{**row, **before.get(row["id"], {})} for row in rows]


async def add_sources(reader: Reader, dialect: str, organisation_id: str, rows: Iterable[Any]) -> list[dict[str, Any]]:
    """Rows with their `source`: the action that wrote each last, and who proposed it."""
    result = [dict(row) for row in rows]
    parameters = {"of_organisation": organisation_id, "ids": list({row["action_id"] for row in result})}
    source_rows = (await reader.execute(_build_sources(dialect), parameters)).all() if result else ()
    sources = {row.action_id: row._asdict() for row in source_rows}
    for row in result:
        row["source"] = sources.get(row["action_id"])
    return result


@cache
def _build_sources(dialect: str) -> Select[Any]:
    """Returns a query of what rows have as `source`, by the ids of the actions."""
    return select(
        *(_actions.id.label("action_id"), _actions.capability, _actions.proposed_by_kind, _actions.proposed_by),
        *(_actions.source_app_id, _actions.source_rule_id),
    ).where(_actions.organisation_id == _OF, is_listed(dialect, _actions.id, "ids"))


def build_recent(organisation_id: str) -> Select[Any]:
    """Returns a query of the memories of an organisation, the latest changed first, without a rank."""
    memory = tables.memory
    rank: Any = literal_column("NULL", String).label("rank")
    return select(*SHOWN, rank).where(memory.c.organisation_id == organisation_id).order_by(memory.c.updated_at.desc())
