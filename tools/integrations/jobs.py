"""The jobs of integrations: what follows when a user is deleted, and the sweep."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select, update

from baobab.runtime.integrations.provider import ProviderBusy
from baobab.tools.core import AppNotFound, Job
from baobab.tools.core.jobs import Event
from baobab.tools.integrations.errors import NotConfigured
from baobab.tools.integrations.grants import build_connection
from baobab.tools.integrations.links import OPEN_SECONDS
from baobab.tools.integrations.tables import FREEZES, calls, connections, toolkits
from baobab.tools.integrations.toolkits import build_setting, find_provider
from baobab.tools.integrations.toolset import integrations

_CALLS_KEPT, _RESULTS_KEPT = timedelta(days=30), timedelta(days=1)


@integrations.job(on="user.deleted", attempts=20)
async def integrations_forget_user(job: Job, event: Event) -> None:
    """Disconnect the accounts of a user who was deleted, and forget the user's calls."""
    services, user_id = job.services, event.data["user"]["id"]
    try:
        app = await services.directory.app(event.app_id)
    except AppNotFound:
        return
    database = services.stores_of(app.region).database
    of_user = (connections.c.app_id == app.id, connections.c.app_user_id == user_id)
    async with database.reading() as connection:
        rows = (await connection.execute(select(connections).where(*of_user))).all()
        are_theirs = toolkits.c.toolkit_slug.in_({row.toolkit_slug for row in rows})
        settings = (await connection.execute(select(toolkits).where(toolkits.c.app_id == app.id, are_theirs))).all()
    by_slug: dict[str, Any] = {row.toolkit_slug: row for row in settings}
    for row in rows:
        try:
            setting = build_setting(services.vault, by_slug[row.toolkit_slug])
            await find_provider(services, row.provider).revoke(setting, build_connection(services.vault, row))
        except (ProviderBusy, NotConfigured):
            # The tokens are forgotten all the same.
            continue
    async with database.writing_unit(lock=app.id) as unit:
        await unit.execute(delete(connections).where(*of_user))
        await unit.execute(delete(calls).where(calls.c.app_id == app.id, calls.c.app_user_id == user_id))


@integrations.job(every=3600)
async def integrations_sweep(job: Job) -> None:
    """Delete links that nobody has finished, results after a day, and calls after 30 days."""
    services, now = job.services, job.services.clock.now()
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        async with database.writing(lock=None) as connection:
            is_link = connections.c.status.in_(("initiated", "finishing"))
            is_late = connections.c.created_at < now - timedelta(seconds=2 * OPEN_SECONDS)
            is_here = FREEZES.is_thawed(connections.c.app_id)
            await connection.execute(delete(connections).where(is_link, is_late, is_here))
            of_calls = FREEZES.is_thawed(calls.c.app_id)
            is_kept = (calls.c.result.is_not(None), calls.c.ended_at < now - _RESULTS_KEPT, of_calls)
            await connection.execute(update(calls).where(*is_kept).values(result=None))
            await connection.execute(delete(calls).where(calls.c.created_at < now - _CALLS_KEPT, of_calls))
