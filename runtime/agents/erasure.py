"""Erases ended runs, with their events, checkpoints and approvals, and optionally their messages in threads."""

from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from sqlalchemy import delete, exists, select

from baobab.runtime.agents.tables import AGENT_OF_RUN, agents, counts, live_texts, runs, threads
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements
from baobab.tools.core.services import Services

BATCH = 20
"""Runs that are erased in one transaction."""
_MOST_SWEPT = 400
_HOUR = 3600
_LASTING_HOURS = 48
_OF_THREAD = ("agent_writes", "agent_checkpoints", "agent_pieces")

_above = runs.alias("above")
UNUSED = ~exists().where(
    _above.c.app_id == runs.c.app_id, _above.c.id == runs.c.parent_run_id, _above.c.finished_at.is_(None)
)
"""Whether the run is not a child of a run that has not ended."""


async def erase_runs(services: Services, database: Database, ids: Sequence[str], *, with_thread_messages: bool) -> None:
    """Erases runs that have ended, as `erase_in` does, with their approvals, in transactions of their own."""
    # First, because a failure in between must leave the runs, by which the rest is found.
    async with services.database.writing(lock=None) as connection:
        await services.approvals.erase_of_runs(connection.execute, ids)
    work = partial(erase_in, ids=ids, with_thread_messages=with_thread_messages)
    await database.transact(work)


def erase_in(statements: Statements, ids: Sequence[str], *, with_thread_messages: bool) -> None:
    """Erases runs that have ended. with_thread_messages: whether their messages in threads are erased, too."""
    # What refers to a run goes with it.
    delete_ended = "DELETE FROM agent_runs WHERE id IN ? AND finished_at IS NOT NULL RETURNING app_id, id"
    ended_ids_by_app: dict[str, list[str]] = {}
    for app_id, run_id in statements.rows(delete_ended, list(ids)):
        ended_ids_by_app.setdefault(app_id, []).append(run_id)
    for app_id, ended_ids in ended_ids_by_app.items():
        for table in _OF_THREAD:
            deleting = f"DELETE FROM {table} WHERE app_id = ? AND thread_id IN ?"  # noqa: S608 - our names
            statements.rows(deleting, app_id, ended_ids)
        if with_thread_messages:
            # Not by the app as well: SQLite might read all messages of the app.
            statements.rows("DELETE FROM agent_messages WHERE run_id IN ?", ended_ids)


async def erase_threads(execute: Any, *, person: str, agent_id: str | None, name: str | None, app_id: str) -> None:
    """Erases threads of a person: all in an app, those with one agent, or the one of a name."""
    conditions = [threads.c.app_id == app_id, threads.c.person == person]
    conditions += [threads.c.agent_id == agent_id] if agent_id is not None else []
    conditions += [threads.c.name == name] if name is not None else []
    # Their messages go with them.
    await execute(delete(threads).where(*conditions))


async def sweep_runs(services: Services, database: Database) -> None:
    """Erases runs past their retention, a few hundred at most, and the counts of past hours."""
    now, default = services.clock.now(), services.options.run_retention_days
    async with database.reading() as connection:
        retention_settings = set((await connection.execute(select(agents.c.retention_days).distinct())).scalars())
    swept_count = 0
    for days in retention_settings:
        retention_days = default if days is None else days
        if not retention_days:
            continue
        of_setting = agents.c.retention_days.is_(None) if days is None else agents.c.retention_days == days
        expired_runs = select(runs.c.id).where(
            runs.c.finished_at <= now - timedelta(days=retention_days),
            # Not a list of the agents: SQLite would read all of their runs and sort them.
            exists().where(AGENT_OF_RUN, of_setting),
            UNUSED,
        )
        # All at once, because each look begins with the old runs of agents that keep them for longer.
        oldest_runs = expired_runs.order_by(runs.c.finished_at).limit(_MOST_SWEPT - swept_count)
        async with database.reading() as connection:
            run_ids = (await connection.execute(oldest_runs)).scalars().all()
        swept_count += len(run_ids)
        for start in range(0, len(run_ids), BATCH):
            await erase_runs(services, database, run_ids[start : start + BATCH], with_thread_messages=False)
    async with database.writing(lock=None) as connection:
        is_run = (runs.c.app_id == live_texts.c.app_id, runs.c.id == live_texts.c.run_id)
        ended_runs = select(runs.c.id).where(*is_run, runs.c.finished_at.is_not(None))
        await connection.execute(delete(live_texts).where(exists(ended_runs)))
        hour = int(now.timestamp() // _HOUR)
        await connection.execute(delete(counts).where(counts.c.hour < hour - _LASTING_HOURS))
