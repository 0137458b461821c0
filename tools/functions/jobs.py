"""The jobs of functions: they remove what is kept for some days only."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, select

from baobab.runtime.jobs.job_slots import network_wait
from baobab.tools.core import AppMigrating, AppNotFound, Job, RetryLater
from baobab.tools.functions.deliveries import claim_lost, run
from baobab.tools.functions.invocations import TOTAL
from baobab.tools.functions.tables import claims, functions_table, invocations, steps, usage, webhook_deliveries
from baobab.tools.functions.toolset import functions

LOGS_KEPT, DELIVERIES_KEPT, STEPS_KEPT, HOURS_KEPT = (timedelta(days=days) for days in (14, 7, 7, 62))
_MOVING_SECONDS, _PAUSED_SECONDS = 5.0, 60.0
_deliveries = webhook_deliveries.c


@functions.job(attempts=1000, drop=True)
async def functions_redeliver(job: Job, app_id: str, delivery_id: str) -> None:
    """Run a webhook again whose worker was lost."""
    services = job.services
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    async with services.stores_of(app.region).database.reading() as connection:
        is_it = (_deliveries.app_id == app_id, _deliveries.id == delivery_id, _deliveries.status == "running")
        row: Any = (await connection.execute(select(webhook_deliveries).where(*is_it))).first()
        if row is None:
            return
        is_function = (functions_table.c.app_id == app_id, functions_table.c.id == row.function_id)
        query = select(functions_table).where(*is_function, functions_table.c.deleted_at.is_(None))
        function: Any = (await connection.execute(query)).first()
    if function is None:
        return
    left = (row.runs_until - services.clock.now()).total_seconds()
    if left > 0:
        raise RetryLater(left + 1, "another worker runs it")
    if app.is_paused:
        raise RetryLater(_PAUSED_SECONDS, "the app is paused")
    try:
        claimed_row = await claim_lost(services, app, function, row)
        if claimed_row is not None:
            async with network_wait():
                await run(job.registry, services, app, function, claimed_row)
    except AppMigrating as error:
        raise RetryLater(_MOVING_SECONDS, "the app is being moved") from error


@functions.job(every=3600.0, in_copies=True)
async def functions_prune(job: Job) -> None:
    """Delete logs, deliveries, steps and claims of functions whose time is over."""
    now = job.services.clock.now()
    hour = (now - HOURS_KEPT).strftime("%Y-%m-%dT%H")
    for database in dict.fromkeys(stores.database for stores in job.services.regions.values()):
        async with database.writing(lock=None, bulk=True) as connection:
            await connection.execute(delete(invocations).where(invocations.c.logged_at < now - LOGS_KEPT))
            await connection.execute(delete(usage).where(usage.c.hour < hour, usage.c.hour != TOTAL))
            is_old = webhook_deliveries.c.created_at < now - DELIVERIES_KEPT
            await connection.execute(delete(webhook_deliveries).where(is_old))
            await connection.execute(delete(steps).where(steps.c.created_at < now - STEPS_KEPT))
            # A claim that is over is as good as none.
            await connection.execute(delete(claims).where(claims.c.expires_at < now))
