"""An app's agents as a whole: what is moved with the app, and goes with it."""

from typing import Any

from sqlalchemy import Table, delete, insert, select, update

from baobab.runtime.agents.remote.rows import tool_servers
from baobab.runtime.agents.rows import (
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
from baobab.tools.core.app_freezes import Freezes
from baobab.tools.core.stores import Stores

FREEZES = Freezes("agents")
_ROWS = 500


class AgentData:
    """Runs that are under way when an app is moved go on where it has gone to."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing() as connection:
            await FREEZES.freeze(connection.execute, stores.database.dialect, app_id)
            await _stop(connection.execute, app_id)

    async def thaw(self, stores: Stores, app_id: str) -> None:
        """Runs that are under way are taken up by the next round (working.py)."""
        async with stores.database.writing() as connection:
            await FREEZES.thaw(connection.execute, app_id)

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        async with dest.database.writing() as connection:
            await _erase(connection.execute, app_id)
        for table, mine in _of(app_id):
            async with source.database.reading() as connection:
                found = [dict(row) for row in (await connection.execute(select(table).where(mine))).mappings()]
            for start in range(0, len(found), _ROWS):
                async with dest.database.writing() as connection:
                    await connection.execute(insert(table), found[start : start + _ROWS])

    async def erase(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing() as connection:
            await _erase(connection.execute, app_id)
            await FREEZES.thaw(connection.execute, app_id)


async def _stop(execute: Execute, app_id: str) -> None:
    """From here on no worker has any of the app's runs: whatever it is about to write is refused."""
    under_way = (runs.c.app_id == app_id, UNENDED)
    # In the order in which those do it who write to several: from below upwards.
    await execute(select(runs.c.id).where(*under_way).order_by(runs.c.depth.desc()).with_for_update())
    await execute(update(runs).where(*under_way).values(job_id=FROZEN))


async def _erase(execute: Execute, app_id: str) -> None:
    # First: a worker that is writing to a run just now is waited for.
    await _stop(execute, app_id)
    for table, mine in reversed(_of(app_id)):
        await execute(delete(table).where(mine))


def _of(app_id: str) -> list[tuple[Table, Any]]:
    """Each table with what is the app's in it, those that others refer to first."""
    theirs = select(runs.c.id).where(runs.c.app_id == app_id)
    named = select(agents.c.id).where(agents.c.app_id == app_id)
    return [
        (tool_servers, tool_servers.c.app_id == app_id),
        (webhook_secrets, webhook_secrets.c.app_id == app_id),
        (agents, agents.c.app_id == app_id),
        (counts, counts.c.agent_id.in_(named)),
        (runs, runs.c.app_id == app_id),
        (threads, threads.c.app_id == app_id),
        (messages, messages.c.thread.in_(select(threads.c.id).where(threads.c.app_id == app_id))),
        (events, events.c.run_id.in_(theirs)),
        (checkpoints, checkpoints.c.thread_id.in_(theirs)),
        (pieces, pieces.c.thread_id.in_(theirs)),
        (writes, writes.c.thread_id.in_(theirs)),
    ]
