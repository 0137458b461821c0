"""Gauges of agents."""

from sqlalchemy import func, select

from baobab.runtime.agents.tables import UNENDED, runs
from baobab.tools.agents.toolset import agents
from baobab.tools.core import Services
from baobab.tools.core.gauges import Reading


@agents.gauge("baobab_agent_runs", labels=("status",))
async def read_runs(services: Services) -> Reading:
    """Counts the runs that have not ended, by status."""
    counts: dict[tuple[str, ...], float] = {(status,): 0.0 for status in ("queued", "running", "paused")}
    query = select(runs.c.status, func.count()).where(UNENDED).group_by(runs.c.status)
    for database in {stores.database for stores in services.regions.values()}:
        async with database.reading() as connection:
            for status, number in (await connection.execute(query)).all():
                counts[status,] = counts.get((status,), 0.0) + number
    return counts
