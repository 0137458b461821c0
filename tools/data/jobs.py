"""The jobs of tables: telling triggers what changed, and the sweep of changes that are too old to be undone."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import timedelta
from functools import partial
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import Database
from baobab.storage.sql.statements import Statements
from baobab.tools.core import AppMigrating, Job, RetryLater, Services
from baobab.tools.data.history.change_log import is_expired, sweep_log
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.rows.attempts import Attempts
from baobab.tools.data.rows.row_security import raise_guard
from baobab.tools.data.rows.transactions import require_thawed
from baobab.tools.data.schema.catalogue import NOTICE, read_catalogue, write_catalogue
from baobab.tools.data.telling import list_behind, pass_over, tell_changes
from baobab.tools.data.toolset import data

_ATTEMPT_DAYS = 7
"""How long the result of a write is stored for clients that send it again."""


@data.job(every=21_600.0)
async def data_sweep(job: Job) -> None:
    """Remove changes of rows from the logs that can be undone no longer, and results that nobody asks for again."""
    services = job.services
    now = services.clock.now()
    before = (now - timedelta(days=services.options.undo_days)).isoformat()
    for store in dict.fromkeys(stores.data for stores in services.regions.values()):
        for app_id in await store.list_apps():
            sweep = _Sweep(store, app_id, before, (now - timedelta(days=_ATTEMPT_DAYS)).isoformat(), now.isoformat())
            await sweep.run()
            if await _guard_rows(store, app_id):
                async with services.database.writing_unit(lock=None) as unit:
                    await services.notices.publish(unit, NOTICE, app_id)


async def _pass_over(services: Services, database: Database, jobs: Sequence[Mapping[str, Any]]) -> None:
    del database
    mark = services.liveness.mark
    assert mark is not None
    for app_id in {each["app_id"] for each in jobs}:
        await pass_over(services, app_id, mark.since)


@data.job(attempts=1000, drop=_pass_over)
async def data_tell(job: Job, app_id: str) -> None:
    """Tell the triggers of an app which rows have changed."""
    await tell_changes(job.services, app_id)


@data.job(every=10.0)
async def data_follow(job: Job) -> None:
    """Tell triggers what was not told because a process ended too early."""
    for app_id in await list_behind(job.services):
        # Too much of this app waits, or it is being moved: others need not wait for that.
        with contextlib.suppress(RetryLater):
            await tell_changes(job.services, app_id)


class _Sweep:
    """Sweeps one app.

    before, attempts_before: the moments from which changes and attempts stay. All times are in ISO 8601.
    """

    def __init__(self, store: DataStore, app_id: str, before: str, attempts_before: str, now: str) -> None:
        self._store = store
        self._app_id = app_id
        self._before = before
        self._attempts_before = attempts_before
        self._now = now

    async def run(self) -> None:
        if not await self._store.exists(self._app_id):
            return
        try:
            while await self._store.read(self._app_id, self._is_needed, quick=True):
                await self._store.write(self._app_id, self._sweep)
        except AppMigrating:
            # The app is being moved. Its copy is swept at the destination.
            return

    def _is_needed(self, statements: Statements) -> bool:
        attempts = Attempts(statements, self._store, self._app_id, self._now)
        return is_expired(statements, self._store, self._app_id, self._before) or attempts.is_expired(
            self._attempts_before
        )

    def _sweep(self, statements: Statements) -> None:
        require_thawed(statements, self._store, self._app_id)
        sequences = Sequences(statements, self._store, self._app_id)
        sweep_log(statements, self._store, self._app_id, sequences, self._before)
        Attempts(statements, self._store, self._app_id, self._now, sequences).sweep(self._attempts_before)
        sequences.write()


async def _guard_rows(store: DataStore, app_id: str) -> bool:
    """Adds Postgres's row-level security to tables that were made without it. Returns whether it did."""
    roles = store.row_security
    if roles is None or not await store.exists(app_id):
        return False
    if (await store.read(app_id, partial(read_catalogue, store=store, app_id=app_id), quick=True)).guard == roles.mark:
        return False

    def guard(statements: Statements) -> None:
        require_thawed(statements, store, app_id)
        catalogue = read_catalogue(statements, store, app_id)
        write_catalogue(statements, store, app_id, raise_guard(statements, store, app_id, catalogue, catalogue))

    try:
        await store.alter(app_id, guard)
    except AppMigrating:
        # The app is being moved. Its copy gets them at the destination.
        return False
    return True
