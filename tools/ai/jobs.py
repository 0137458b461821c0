"""The job that removes expired answers from the response cache."""

from baobab.tools.ai import cache_rows
from baobab.tools.ai.toolset import ai
from baobab.tools.core import Job


@ai.job(every=60, in_copies=True)
async def response_cache_sweep(job: Job) -> None:
    """Remove expired answers from the response cache."""
    services = job.services
    for database in {stores.database for stores in services.regions.values()}:
        await cache_rows.sweep(database, services.clock.now())
