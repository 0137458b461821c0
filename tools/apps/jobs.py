"""Teardown: what an app kept outside the platform's rows is removed even if we are killed on the way.

It is removed when the app is deleted, and once more by a job that the deletion asks for in its own transaction:
workers that still hold the app in memory may let a write through for a moment, and the job comes after that moment.
"""

from sqlalchemy import delete

from baobab.tools.apps.toolset import apps
from baobab.tools.core.app_data import erase_app
from baobab.tools.core.failures import failures
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Event, RetryLater

# Longer than any worker may hold a deleted app in memory.
_SETTLED_SECONDS = 60.0
_ELSEWHERE_SECONDS = 300.0


@apps.job(on="app.deleted", delay=_SETTLED_SECONDS)
async def apps_purge(job: Job, event: Event) -> None:
    """Purge what was deleted a minute ago for the last time."""
    assert event.app_id is not None
    regions = job.services.regions
    if event.data["region"] not in regions:
        # The data of another region is with the installation that serves it.
        raise RetryLater(_ELSEWHERE_SECONDS, f"the region {event.data['region']} is not served here")
    for stores in regions.values():
        # In the others a move may have left a copy.
        await erase_app(job.registry.toolsets, stores, event.app_id)
        async with stores.database.writing() as connection:
            await connection.execute(delete(failures).where(failures.c.app_id == event.app_id))
