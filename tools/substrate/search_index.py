"""Maintains the search index: the row of each memory in `substrate_memory`, and the keys of each entity.

Both are made from the rows of the other tables, whenever the ledger writes one of these.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from sqlalchemy import Table, delete, insert, text

from baobab.storage.sql.database import Unit
from baobab.storage.sql.full_text import split_words, tag_words
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Job, Services
from baobab.tools.substrate import tables

Row = Mapping[str, Any]
ERASE = "substrate_erase_words"
_AT_ONCE = 500
_ERASED_EVERY, _LATEST_COMMIT = 300, 60
"""Seconds."""
_PAGES_MERGED = 250
_LEAST_CHANGED = 2
_COUNT_CHANGES = text("SELECT total_changes()")
_MERGE = text("INSERT INTO substrate_memory_fts(substrate_memory_fts, rank) VALUES ('merge', :pages)")


async def index_rows(
    unit: Unit, organisation_id: str, table: Table, rows: Sequence[Row], deleted_ids: Sequence[str]
) -> None:
    """Brings the index up to date with rows that were written, and others that were deleted."""
    if table is tables.entities:
        await _index_entities(unit, organisation_id, rows, deleted_ids)
    elif table in _MEMORIES:
        await _index_memories(unit, organisation_id, table, rows, deleted_ids)


async def _index_entities(unit: Unit, organisation_id: str, rows: Sequence[Row], deleted_ids: Sequence[str]) -> None:
    keys = tables.entity_keys
    entity_ids = [*deleted_ids, *(row["id"] for row in rows)]
    for start in range(0, len(entity_ids), _AT_ONCE):
        of_some = keys.c.entity_id.in_(entity_ids[start : start + _AT_ONCE])
        await unit.execute(delete(keys).where(keys.c.organisation_id == organisation_id, of_some))
    key_rows = [
        {"organisation_id": organisation_id, "entity_id": row["id"], "type": row["type"], "name": name, "value": value}
        for row in rows
        for name, value in (row["canonical_keys"] or {}).items()
    ]
    if key_rows:
        await unit.execute(insert(keys), key_rows)


async def _index_memories(
    unit: Unit, organisation_id: str, table: Table, rows: Sequence[Row], deleted_ids: Sequence[str]
) -> None:
    for start in range(0, len(deleted_ids), _AT_ONCE):
        for of_memory in (tables.memory, tables.embeddings):
            of_some = of_memory.c.id.in_(deleted_ids[start : start + _AT_ONCE])
            await unit.execute(delete(of_memory).where(of_memory.c.organisation_id == organisation_id, of_some))
    if not rows:
        return
    statement = _build_write(unit.database.dialect)
    for row in rows:
        memory_row = remember(table, row)
        words = " ".join(tag_words(organisation_id, memory_row["words"]))
        memory_row |= {"words": words, "id": row["id"], "organisation_id": organisation_id}
        await unit.write(statement, memory_row)


async def ask_to_erase_words(unit: Unit, services: Services, organisation_id: str) -> None:
    """Asks for a job that erases the words of memories which this unit deletes, where the database keeps them.

    The job rewrites the whole index, so there is one for all that is forgotten within some minutes, a while after them.
    """
    if unit.database.dialect == "sqlite":
        now = services.clock.time()
        period = int(now // _ERASED_EVERY)
        delay = (period + 1) * _ERASED_EVERY + _LATEST_COMMIT - now
        job_id = f"{ERASE}:{period}"
        await services.jobs.enqueue(unit, ERASE, {}, job_id=job_id, delay=delay, tenant=organisation_id)


async def erase_words(job: Job) -> None:
    """Erases words of deleted memories from SQLite's full-text index, which else has them until it merges by itself.

    The index of all organisations is merged, in short transactions between which others write.
    """
    # Negative: all of the index, and not only as many parts of one size as it merges by itself.
    pages = -_PAGES_MERGED
    while True:
        async with job.writing(bulk=True) as unit:
            before = (await unit.execute(_COUNT_CHANGES)).scalar_one()
            await unit.execute(_MERGE, {"pages": pages})
            merged_parts = (await unit.execute(_COUNT_CHANGES)).scalar_one() - before
        # As SQLite says that there is nothing left to merge.
        if merged_parts < _LEAST_CHANGED and pages > 0:
            return
        pages = _PAGES_MERGED


def remember(table: Table, row: Row) -> dict[str, Any]:
    """Returns a row of one of the four tables as a memory."""
    return _MEMORIES[table](row)


@cache
def _build_write(dialect: str) -> Any:
    """Returns the statement that writes a memory, built once: that takes longer than to run it."""
    # Nobody needs the number that it gets.
    statement = build_upsert(dialect, tables.memory).inline()
    changing = {name: statement.excluded[name] for name in _WRITTEN if name not in ("organisation_id", "id")}
    return statement.on_conflict_do_update(index_elements=["organisation_id", "id"], set_=changing)


_WRITTEN = [column.name for column in tables.memory.c if column.name != "number"]


def _remember(row: Row, kind: str, title: str, *texts: str | None, further: str | None = None) -> dict[str, Any]:
    body = "\n\n".join(text for text in texts if text)
    return {
        "kind": kind,
        "title": title,
        "body_text": body,
        "words": split_words("\n".join((title, body, further or ""))),
        "status": row.get("status"),
        "supersedes": row.get("supersedes"),
        "source_artifact_id": row.get("source_artifact_id"),
        "from_strangers": row["from_strangers"],
        "action_id": row["action_id"],
        "valid_from": row.get("valid_from"),
        "valid_to": row.get("valid_to"),
        "ended_at": row.get("ended_at"),
        "created_at": row["created_at"],
        "updated_at": row["updated_at"],
    }


def _remember_decision(row: Row) -> dict[str, Any]:
    return _remember(row, "decision", row["title"], row["rationale"])


def _remember_commitment(row: Row) -> dict[str, Any]:
    description: str = row["description"]
    title = description if len(description) <= _TITLE else description[: _TITLE - 1] + "…"
    parties = " ".join(name for name in (row["from_entity"], row["to_entity"]) if name)
    return _remember(row, "commitment", title, description, further=parties)


def _remember_learning(row: Row) -> dict[str, Any]:
    return _remember(row, "learning", row["title"], row["description"], row["resolution_taken"])


def _remember_artifact(row: Row) -> dict[str, Any]:
    return _remember(row, "source_artifact", row["title"], row["summary"], further=row["content"])


_TITLE = 200
_MEMORIES = {
    tables.decisions: _remember_decision,
    tables.commitments: _remember_commitment,
    tables.learnings: _remember_learning,
    tables.source_artifacts: _remember_artifact,
}
