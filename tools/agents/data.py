"""The data of an app's agents: it is moved and erased with the app. Runs continue where the app has moved."""

from sqlalchemy import select, update

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
from baobab.storage.sql.database import Execute
from baobab.tools.core import AppTable, Freezes

FREEZES = Freezes("agents")


async def stop_runs(execute: Execute, app_id: str) -> None:
    """Takes the app's runs away from all workers: what a worker writes afterwards is refused."""
    under_way = (runs.c.app_id == app_id, UNENDED)
    # Child runs are locked before their parents, as everywhere, so that nobody deadlocks.
    await execute(select(runs.c.id).where(*under_way).order_by(runs.c.depth.desc()).with_for_update())
    await execute(update(runs).where(*under_way).values(job_id=FROZEN))


APP_TABLES = (
    AppTable(tool_servers),
    AppTable(webhook_secrets),
    AppTable(agents),
    AppTable(counts),
    AppTable(runs),
    AppTable(threads),
    AppTable(messages),
    AppTable(events),
    AppTable(model_calls),
    AppTable(checkpoints),
    AppTable(pieces),
    AppTable(writes),
)
