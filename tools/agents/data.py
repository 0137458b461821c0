"""What is kept of an app's agents: it is moved with the app, and goes with it. Runs go on where the app has gone."""

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
    """From here on no worker has any of the app's runs: whatever it is about to write is refused."""
    under_way = (runs.c.app_id == app_id, UNENDED)
    # In the order in which those do it who write to several: from below upwards.
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
    AppTable(checkpoints, _of_runs(checkpoints.c.thread_id)),
    AppTable(pieces, _of_runs(pieces.c.thread_id)),
    AppTable(writes, _of_runs(writes.c.thread_id)),
)
