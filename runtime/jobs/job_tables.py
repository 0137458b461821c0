"""The rows of durable jobs and of events."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Index, Integer, String, Table, Text, and_

from baobab.storage.sql.database import Unit
from baobab.storage.sql.tables import Instant, Json, build_upsert, metadata
from baobab.tools.core.tenancy import PLATFORM

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(200), primary_key=True),
    Column("kind", String(64), nullable=False),
    # Whom the job is for, in the form of tools/core/tenancy.py: tenants take turns.
    Column("tenant", String(80), nullable=False, server_default=PLATFORM),
    Column("arguments", Json, nullable=False),
    Column("due_at", Instant, nullable=False),
    Column("epoch", Integer, nullable=False, default=0),
    Column("attempts", Integer, nullable=False, default=0),
    Column("held_by", String(36)),
    Column("created_at", Instant, nullable=False),
    Column("finished_at", Instant, index=True),
    Column("error", Text),
)
_UNFINISHED = jobs.c.finished_at.is_(None)
Index(
    "ix_jobs_unfinished",
    jobs.c.tenant,
    jobs.c.kind,
    jobs.c.due_at,
    sqlite_where=_UNFINISHED,
    postgresql_where=_UNFINISHED,
)
_FAILED = and_(jobs.c.finished_at.is_not(None), jobs.c.error.is_not(None))
Index("ix_jobs_failed", jobs.c.tenant, jobs.c.finished_at, sqlite_where=_FAILED, postgresql_where=_FAILED)

events = Table(
    "events",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("type", String(64), nullable=False),
    Column("at", Instant, nullable=False, index=True),
    Column("app_id", String(36)),
    Column("data", Json, nullable=False),
    # Who caused it (tools/core/app_events.py); null if whoever emitted it does not know.
    Column("origin", Json),
)


_INSERT_JOB = {
    dialect: build_upsert(dialect, jobs).on_conflict_do_nothing(index_elements=["id"])
    for dialect in ("sqlite", "postgresql")
}


async def insert_new(unit: Unit, row: Mapping[str, Any]) -> None:
    """Inserts a job, unless there is one of its id. The same statement works on both databases."""
    await unit.write(_INSERT_JOB[unit.database.dialect], row)
