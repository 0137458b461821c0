"""Snapshots: how many things of each kind an organisation has, once a day."""

from datetime import date, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Table, and_, case, func, select

from baobab.storage.sql.database import Execute
from baobab.storage.sql.tables import build_upsert
from baobab.tools.substrate import tables

OPEN_COMMITMENTS = ("proposed", "tentative", "confirmed")


async def take_snapshot(
    execute: Execute, dialect: str, organisation_id: str, day: date, now: datetime
) -> dict[str, Any]:
    """Stores the counts of a day, unless it has a snapshot already. Returns the counts that the day then has."""
    counts = await count_things(execute, organisation_id, now)
    row = {"organisation_id": organisation_id, "snapshot_date": day, "counts": counts, "created_at": now}
    await execute(build_upsert(dialect, tables.snapshots).on_conflict_do_nothing(), row)
    columns = tables.snapshots.c
    query = select(columns.counts).where(columns.organisation_id == organisation_id, columns.snapshot_date == day)
    counts_kept: dict[str, Any] = (await execute(query)).scalar_one()
    return counts_kept


async def count_things(execute: Execute, organisation_id: str, now: datetime) -> dict[str, Any]:
    """Returns the counts of a snapshot."""
    since = now - timedelta(days=1)

    async def count(table: Table, **conditions: ColumnElement[bool]) -> dict[str, int]:
        """Counts the rows that meet each condition."""
        sums = [
            func.coalesce(func.sum(case((condition, 1), else_=0)), 0).label(name)
            for name, condition in conditions.items()
        ]
        row = (await execute(select(*sums).where(table.c.organisation_id == organisation_id))).mappings().one()
        return {str(name): int(value) for name, value in row.items()}

    decisions, commitments = tables.decisions.c, tables.commitments.c
    artifacts, actions, entities = tables.source_artifacts.c, tables.action_ledger.c, tables.entities.c
    is_open = commitments.status.in_(OPEN_COMMITMENTS)
    counts: dict[str, Any] = {}
    counts |= await count(
        tables.decisions,
        decision_count=decisions.status != "reversed",
        decision_count_24h=and_(decisions.created_at > since, decisions.status != "reversed"),
    )
    counts |= await count(
        tables.commitments,
        commitment_count=commitments.id.is_not(None),
        open_commitments=is_open,
        overdue_commitments=and_(is_open, commitments.due_at < now),
    )
    counts |= await count(tables.learnings, learning_count=tables.learnings.c.id.is_not(None))
    counts |= await count(
        tables.source_artifacts,
        artifact_count=artifacts.id.is_not(None),
        artifact_count_24h=artifacts.created_at > since,
    )
    counts |= await count(
        tables.action_ledger,
        pending_actions=actions.status == "proposed",
        executed_actions_24h=and_(actions.status == "executed", actions.executed_at > since),
    )
    by_type = select(entities.type, func.count()).where(
        entities.organisation_id == organisation_id, entities.merged_into.is_(None)
    )
    rows = (await execute(by_type.group_by(entities.type))).all()
    of_types = {row[0]: row[1] for row in rows}
    return {"entity_count": sum(of_types.values()), "entities_by_type": of_types, **counts}
