"""Jobs of suggestions."""

from datetime import timedelta

from sqlalchemy import delete

from baobab.tools.core import Job
from baobab.tools.suggestions.tables import table
from baobab.tools.suggestions.toolset import suggestions

_KEPT = timedelta(days=365)


@suggestions.job(every=86_400, in_copies=True)
async def suggestions_prune(job: Job) -> None:
    """Delete suggestions that are more than a year old."""
    async with job.writing() as unit:
        await unit.execute(delete(table).where(table.c.created_at < job.services.clock.now() - _KEPT))
