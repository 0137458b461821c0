"""Filling: a job gives each memory its vector, in the order in which memories were written."""

from datetime import datetime
from typing import Any

from sqlalchemy import delete, insert, or_, select, update

from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import Job, Unavailable
from baobab.tools.substrate import tables
from baobab.tools.substrate.meaning.vectors import embed_texts, name_embedder

_TOGETHER = 64
_MOST_ROUNDS = 50
"""Of one organisation in a row; then it is the turn of the next."""
_MOST_ORGANISATIONS = 200
_settings, _states, _memory = tables.settings.c, tables.embedding_states.c, tables.memory.c


async def fill_all(job: Job) -> None:
    """Gives vectors to the memories of all organisations that have new ones."""
    settings_with_states = tables.settings.outerjoin(
        tables.embedding_states, _states.organisation_id == _settings.organisation_id
    )
    is_behind = or_(
        _states.organisation_id.is_(None),
        _states.embedded_until < _settings.last_at,
        _states.embedder != name_embedder(),
    )
    query = (
        select(_settings.organisation_id).select_from(settings_with_states).where(is_behind).limit(_MOST_ORGANISATIONS)
    )
    async with job.database.reading() as connection:
        organisations = list((await connection.execute(query)).scalars())
    for organisation_id in organisations:
        for _ in range(_MOST_ROUNDS):
            if await fill_some(job, organisation_id):
                break


async def fill_some(job: Job, organisation_id: str) -> bool:
    """Gives vectors to the next memories of an organisation; whether there are no more.

    The moments of its rows are never equal and become visible in their order, so that it is enough to note how far
    they have got.
    """
    embedder = name_embedder()
    async with job.database.reading() as connection:
        condition = _settings.organisation_id == organisation_id
        last: datetime | None = (await connection.execute(select(_settings.last_at).where(condition))).scalar()
        condition = _states.organisation_id == organisation_id
        state: Any = (await connection.execute(select(tables.embedding_states).where(condition))).first()
        until = state.embedded_until if state is not None and state.embedder == embedder else None
        query = select(_memory.id, _memory.number, _memory.kind, _memory.title, _memory.body_text, _memory.updated_at)
        query = query.where(_memory.organisation_id == organisation_id)
        if until is not None:
            query = query.where(_memory.updated_at > until)
        rows = (await connection.execute(query.order_by(_memory.updated_at).limit(_TOGETHER))).all()
    if last is None:
        return True
    try:
        vectors = await embed_texts([f"{row.title}\n{row.body_text}" for row in rows]) if rows else []
    except Unavailable:
        # The next round tries again.
        return True
    is_done = len(rows) < _TOGETHER
    embedded_until = last if is_done else rows[-1].updated_at
    new_rows = [
        {
            "organisation_id": organisation_id,
            "id": row.id,
            "number": row.number,
            "kind": row.kind,
            "memory_at": row.updated_at,
            "bits": vector.bits,
            "parts": vector.parts,
        }
        for row, vector in zip(rows, vectors, strict=True)
    ]
    async with job.writing(lock=organisation_id) as unit:
        now: Any = (await unit.execute(select(tables.embedding_states).where(condition))).first()
        if now != state:
            return False
        embeddings = tables.embeddings
        in_organisation = embeddings.c.organisation_id == organisation_id
        if state is not None and state.embedder != embedder:
            await unit.execute(delete(embeddings).where(in_organisation))
        # A memory that was changed or forgotten meanwhile gets no vector of its earlier text.
        times_query = select(_memory.id, _memory.updated_at).where(
            _memory.organisation_id == organisation_id, _memory.id.in_([row.id for row in rows])
        )
        present_times = {row.id: row.updated_at for row in await unit.execute(times_query)}
        new_rows = [row for row in new_rows if present_times.get(row["id"]) == row["memory_at"]]
        if new_rows:
            upsert = build_upsert(unit.database.dialect, embeddings)
            changing = {name: upsert.excluded[name] for name in ("number", "memory_at", "bits", "parts")}
            upsert = upsert.on_conflict_do_update(index_elements=["organisation_id", "id"], set_=changing)
            await unit.execute(upsert, new_rows)
        values = {"embedder": embedder, "embedded_until": embedded_until}
        if state is None:
            await unit.execute(insert(tables.embedding_states), {"organisation_id": organisation_id, **values})
        else:
            await unit.execute(update(tables.embedding_states).where(condition).values(values))
    return is_done
