"""Jobs of apps: the final removal of a deleted app's data.

The data is removed when the app is deleted, and once more by a job that the deletion enqueues in its own transaction.
The job completes a removal that was interrupted. It also removes what workers have written that still had the app in
memory for a moment.
"""

from sqlalchemy import delete

from baobab.storage.sql.tables import tenant_locks
from baobab.tools.apps.toolset import apps
from baobab.tools.core import Job, RetryLater
from baobab.tools.core.app_data import erase_app
from baobab.tools.core.failures import failures
from baobab.tools.core.jobs import Event

# Longer than any worker keeps a deleted app in memory.
_SETTLED_SECONDS = 60.0
_ELSEWHERE_SECONDS = 300.0


@apps.job(on="app.deleted", delay=_SETTLED_SECONDS)
async def apps_purge(job: Job, event: Event) -> None:
    """Remove everything that is left of an app that was deleted a minute ago."""
    assert event.app_id is not None
    services = job.services
    if event.data["region"] not in services.options.cells:
        # Another installation serves that region and has its data.
        raise RetryLater(_ELSEWHERE_SECONDS, f"the region {event.data['region']} is not served here")
    # A move may have left a copy in any region.
    for stores in [services.stores_of(region) for region in services.options.cells]:
        await erase_app(job.registry.toolsets, stores, event.app_id)
        async with stores.database.writing(lock=None) as connection:
            await connection.execute(delete(failures).where(failures.c.app_id == event.app_id))
            await connection.execute(delete(tenant_locks).where(tenant_locks.c.tenant == event.app_id))
