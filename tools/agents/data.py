"""The data of an app's agents: it is moved and erased with the app. Runs continue where the app has moved."""

from collections.abc import Callable

from sqlalchemy import ColumnElement, select, update

from baobab.runtime.agents.remote.tables import tool_servers
from baobab.runtime.agents.tables import (
    FROZEN,
    UNENDED,
    agents,
    checkpoints,
    counts,
    events,
    messages,
    model_calls,
    pieces,
    runs,
    threads,
    webhook_secrets,
    writes,
)
from baobab.storage.database import Execute
from baobab.tools.core.app_data import AppTable
from baobab.tools.core.app_freezes import Freezes

FREEZES = Freezes("agents")


async def stop_runs(execute: Execute, app_id: str) -> None:
    """Takes the app's runs away from all workers: what a worker writes afterwards is refused."""
    under_way = (runs.c.app_id == app_id, UNENDED)
    # Child runs are locked before their parents, as everywhere, so that nobody deadlocks.
    await execute(select(runs.c.id).where(*under_way).order_by(runs.c.depth.desc()).with_for_update())
    await execute(update(runs).where(*under_way).values(job_id=FROZEN))


def _of_runs(column: ColumnElement[str]) -> Callable[[str], ColumnElement[bool]]:
    return lambda app_id: column.in_(select(runs.c.id).where(runs.c.app_id == app_id))


APP_TABLES = (
    AppTable(tool_servers),
    AppTable(webhook_secrets),
    AppTable(agents),
    AppTable(counts, lambda app_id: counts.c.agent_id.in_(select(agents.c.id).where(agents.c.app_id == app_id))),
    AppTable(runs),
    AppTable(threads),
    AppTable(messages, lambda app_id: messages.c.thread.in_(select(threads.c.id).where(threads.c.app_id == app_id))),
    AppTable(events, _of_runs(events.c.run_id)),
    AppTable(model_calls),
    AppTable(checkpoints, _of_runs(checkpoints.c.thread_id)),
    AppTable(pieces, _of_runs(pieces.c.thread_id)),
    AppTable(writes, _of_runs(writes.c.thread_id)),
)
