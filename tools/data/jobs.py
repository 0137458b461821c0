"""The job of tables: it removes from the logs of changes what is too old to be undone."""

from datetime import timedelta
from functools import partial

from baobab.storage.data.store import DataStore
from baobab.storage.statements import Statements
from baobab.tools.core.errors import AppMigrating
from baobab.tools.core.job import Job
from baobab.tools.data.change_log import is_expired, sweep_log
from baobab.tools.data.toolset import data
from baobab.tools.data.transactions import require_thawed


@data.job(every=21_600.0)
async def data_sweep(job: Job) -> None:
    """Remove changes of rows from the logs that were made longer ago than they can be undone."""
    services = job.services
    before = (services.clock.now() - timedelta(days=services.options.undo_days)).isoformat()
    for store in dict.fromkeys(stores.data for stores in services.regions.values()):
        for app_id in await store.list_apps():
            await _sweep_app(store, app_id, before)


async def _sweep_app(store: DataStore, app_id: str, before: str) -> None:
    if not await store.exists(app_id):
        return
    while await store.read(app_id, partial(is_expired, store=store, app_id=app_id, before=before), quick=True):

        def sweep(statements: Statements) -> None:
            require_thawed(statements, store, app_id)
            sweep_log(statements, store, app_id, before)

        try:
            await store.write(app_id, sweep)
        except AppMigrating:
            # Its copy is swept where it arrives.
            return
