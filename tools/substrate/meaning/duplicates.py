"""Duplicates: memories that say the same, found by their vectors, and proposed for consolidation once a day."""

import hashlib
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from sqlalchemy import or_, select, update

from baobab.storage.sql.database import Execute
from baobab.tools.core import BaobabError, Job
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.ledger import Ledger, open_ledger
from baobab.tools.substrate.meaning.vectors import group_vectors
from baobab.tools.substrate.proposals import propose_in

PROPOSER = "job:consolidation"
CLOSENESS = 0.95
"""How close the meanings of memories are that a job proposes to consolidate. People may ask for others."""
MOST_WAITING = 20
"""How many of the job's own proposals may wait at a time."""
_LOOKED_AT = 1000
_MOST_GROUPS = 50
_MOST_OF_GROUP = 51
_REASON = "They say the same."
_PAUSE = timedelta(days=1)
_AT_ONCE = 200
_settings, _actions = tables.settings.c, tables.action_ledger.c
_memory, _embeddings, _decisions = tables.memory.c, tables.embeddings.c, tables.decisions.c


async def find_duplicates(execute: Execute, organisation_id: str, closeness: float) -> list[list[Any]]:
    """Returns the groups of learnings, and of decisions in force, that are so close; the oldest of each group first.

    The latest thousand that have a vector are compared.
    """
    principles = select(_decisions.id).where(
        _decisions.organisation_id == organisation_id, _decisions.constraint_spec.is_not(None)
    )
    query = (
        select(_memory.id, _memory.kind, _memory.title, _memory.created_at, _memory.from_strangers, _embeddings.parts)
        .join(
            tables.embeddings,
            (_embeddings.organisation_id == _memory.organisation_id) & (_embeddings.id == _memory.id),
        )
        .where(
            _memory.organisation_id == organisation_id,
            _memory.kind.in_(("learning", "decision")),
            or_(_memory.status.is_(None), _memory.status == "active"),
            _memory.ended_at.is_(None),
            _memory.id.not_in(principles),
        )
        .order_by(_memory.updated_at.desc())
        .limit(_LOOKED_AT)
    )
    rows = (await execute(query)).all()
    groups: list[list[Any]] = []
    for kind in ("learning", "decision"):
        groups += await _group([row for row in rows if row.kind == kind], closeness)
    return groups[:_MOST_GROUPS]


async def _group(rows: list[Any], closeness: float) -> list[list[Any]]:
    """Returns the rows that are close to each other, or to one that is close to both."""
    if len(rows) < 2:
        return []
    places = await group_vectors([row.parts for row in rows], closeness)
    groups = [sorted((rows[place] for place in group), key=lambda row: (row.created_at, row.id)) for group in places]
    return [group[:_MOST_OF_GROUP] for group in groups]


def build_payload(group: Sequence[Any]) -> dict[str, Any]:
    """Returns the payload of `consolidate_memories` that keeps the oldest of a group."""
    oldest, *duplicates = group
    return {"kept_id": oldest.id, "duplicate_ids": [row.id for row in duplicates], "reason": _REASON}


async def propose_consolidations(job: Job) -> None:
    """Proposes to consolidate duplicates, once a day for each organisation that wants it and has written since."""
    before, after = job.services.clock.now() - _PAUSE, ""
    due = (
        _settings.propose_consolidations.is_(True),
        or_(_settings.consolidated_at.is_(None), _settings.consolidated_at <= before),
        or_(_settings.consolidated_at.is_(None), _settings.last_at > _settings.consolidated_at),
    )
    while True:
        query = select(_settings.organisation_id).where(*due, _settings.organisation_id > after)
        async with job.services.database.reading() as connection:
            rows = await connection.execute(query.order_by(_settings.organisation_id).limit(_AT_ONCE))
            organisations = list(rows.scalars())
        if not organisations:
            return
        for organisation_id in organisations:
            await _propose_some(job, organisation_id)
        after = organisations[-1]


async def _propose_some(job: Job, organisation_id: str) -> None:
    async with job.services.database.reading() as connection:
        groups = await find_duplicates(connection.execute, organisation_id, CLOSENESS)
    async with (
        job.writing(lock=organisation_id) as unit,
        open_ledger(unit, job.services, organisation_id) as ledger,
    ):
        if not ledger.settings.propose_consolidations:
            return
        waiting, proposed_ids = await _read_waiting(ledger)
        for group in groups:
            if waiting >= MOST_WAITING:
                break
            if proposed_ids.isdisjoint(row.id for row in group):
                waiting += await _propose_group(ledger, group)
        values = {"consolidated_at": ledger.stamp()}
        await unit.execute(update(tables.settings).where(_settings.organisation_id == organisation_id).values(values))


async def _read_waiting(ledger: Ledger) -> tuple[int, set[str]]:
    """Returns how many of the job's proposals wait for a person, and the memories that these are about."""
    query = select(_actions.payload).where(
        _actions.organisation_id == ledger.organisation_id,
        _actions.status == "proposed",
        tables.IS_NOT_EXECUTED,
        _actions.proposed_by == PROPOSER,
    )
    payloads = list((await ledger.unit.execute(query)).scalars())
    return len(payloads), {each for payload in payloads for each in (payload["kept_id"], *payload["duplicate_ids"])}


async def _propose_group(ledger: Ledger, group: Sequence[Any]) -> bool:
    """Proposes to consolidate a group, unless this was proposed before, whatever became of it."""
    ids = ",".join(sorted(row.id for row in group))
    key = f"consolidate:{hashlib.sha256(ids.encode()).hexdigest()}"
    proposer = Proposer("agent", PROPOSER, from_strangers=any(row.from_strangers for row in group))
    try:
        proposal = await propose_in(ledger, proposer, "consolidate_memories", build_payload(group), idempotency_key=key)
    except BaobabError:
        # Somebody has changed these memories since, and the refused proposal has changed nothing.
        return False
    return not proposal.get("replay", False)
