"""Full-text search of memories, in both databases alike: both index the words that `full_text.split_words` makes."""

from datetime import datetime
from typing import Any, Literal

from sqlalchemy import ColumnElement, Float, Integer, String, column, func, literal_column, or_, select, table, text
from sqlalchemy.sql import Select

from baobab.storage.database import Execute
from baobab.storage.full_text import split_words, tag_words
from baobab.storage.tables import metadata
from baobab.tools.substrate import tables
from baobab.tools.substrate.ledger import decode_row
from baobab.tools.substrate.search_index import remember

Match = Literal["and", "or", "phrase"]
_MOST_WORDS = 32
_fts = table("substrate_memory_fts", column("rowid", Integer))
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
    """The words of a query by which to search."""
    return split_words(query)[:_MOST_WORDS]


def build_search(dialect: str, organisation_id: str, query: str, match: Match) -> Select[Any] | None:
    """A query of the memories of an organisation that hold the words, with `rank`, the best first; None without any."""
    words = choose_words(query)
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


def filter_moments(valid_at: datetime | None, known_at: datetime | None) -> list[ColumnElement[bool]]:
    """Conditions for what was true at a moment, and for what was known at one: recorded, and not ended yet."""
    memory, conditions = tables.memory.c, []
    is_open: ColumnElement[bool] = memory.valid_to.is_(None)
    if known_at is not None:
        not_ended = or_(memory.ended_at.is_(None), memory.ended_at > known_at)
        conditions += [memory.created_at <= known_at]
        if valid_at is None:
            conditions.append(not_ended)
        else:
            # What ended it was not known yet.
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
    query = select(changes.row_id, changes.tbl, changes.before).where(
        changes.organisation_id == organisation_id,
        changes.row_id.in_(since),
        changes.action_id.is_not(None),
        changes.created_at > known_at,
    )
    before: dict[str, dict[str, Any]] = {}
    for change in await execute(query.order_by(changes.seq)) if since else ():
        if change.row_id not in before and change.before is not None:
            table = metadata.tables[tables.PREFIX + change.tbl]
            before[change.row_id] = remember(table, decode_row(table, change.before))
    return [{**row, **before.get(row["id"], {})} for row in rows]


async def read_sources(execute: Execute, organisation_id: str, rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Where memories come from, by the action that wrote them last."""
    actions = tables.action_ledger.c
    query = select(
        actions.id, actions.proposed_by_kind, actions.source_app_id, actions.source_rule_id, actions.capability
    ).where(actions.organisation_id == organisation_id, actions.id.in_({row["action_id"] for row in rows}))
    found = {row.id: row for row in await execute(query)} if rows else {}
    return {
        action_id: {
            "action_id": action_id,
            "capability": row.capability,
            "proposed_by_kind": row.proposed_by_kind,
            "source_app_id": row.source_app_id,
            "source_rule_id": row.source_rule_id,
        }
        for action_id, row in found.items()
    }


def build_recent(organisation_id: str) -> Select[Any]:
    """A query of the memories of an organisation, the latest changed first, without a rank."""
    memory = tables.memory
    rank: Any = literal_column("NULL", String).label("rank")
    return select(*SHOWN, rank).where(memory.c.organisation_id == organisation_id).order_by(memory.c.updated_at.desc())
