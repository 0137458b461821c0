"""The cloner: makes a copy of an app step by step, and then the app itself.

Each step may be made twice, and the row says which one is next. Until the last transaction there is no app of the
copy's id, so nobody sees or reaches what is copied; that transaction makes the app, or nothing. A clone that fails says
so in its row first, then everything of it is removed, and only then it has failed.
"""

import json
import logging
from typing import Any

from sqlalchemy import select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import BaobabError, Job, RetryLater
from baobab.tools.core.app_clones import STEPS, ClonedRows, ClonedStore, CloneRefused, Cloning, Place
from baobab.tools.core.app_data import erase_app
from baobab.tools.core.jobs import OUTAGES, JobLost
from baobab.tools.core.stores import Stores
from baobab.tools.templates.new_copy import make_app, warn_of_left_out
from baobab.tools.templates.sources import select_source_of_job
from baobab.tools.templates.survey import list_env, list_left_out, list_rules
from baobab.tools.templates.tables import clone_jobs, seal_context

MOST_ATTEMPTS = 8
"""How often a step that goes wrong is tried. One that only waits for a store is tried more often."""
MOST_OUTAGES = 60
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 60.0
_SETTLED_SECONDS = 60.0
"""Longer than an attempt that has lost its job goes on writing."""
GONE = "The template is no longer offered."
DISCARD = "clones_discard"

_log = logging.getLogger(__name__)


class Cloner:
    """One attempt at the remaining steps of a clone."""

    def __init__(self, job: Job, row: Any) -> None:
        self._job = job
        self._row = row
        self._services = job.services
        self._toolsets = job.registry.toolsets

    async def advance(self) -> None:
        """Makes steps until the clone is completed or has failed. Raises RetryLater where a step must wait."""
        while self._row.completed_at is None:
            try:
                await (self._undo() if self._row.is_failing else self._step())
            except (RetryLater, JobLost):
                raise
            except CloneRefused as exc:
                await self._begin_failing(str(exc))
            except OUTAGES as exc:
                _log.warning("clone %s: a store does not answer (%s)", self._row.id, exc)
                await self._retry("A store does not answer.", MOST_OUTAGES)
            except Exception as exc:  # noqa: BLE001 - whatever it is, the job must come to an end
                _log.exception("clone %s: a step failed", self._row.id)
                reason = exc.message if isinstance(exc, BaobabError) else "Something went wrong on our side."
                await self._retry(reason, MOST_ATTEMPTS)
            self._row = await self._now()

    async def _step(self) -> None:
        row = self._row
        if row.status == "pending":
            await self._set({"status": STEPS[0]})
            return
        async with self._services.database.reading() as connection:
            source = (await connection.execute(select_source_of_job(row))).mappings().first()
        if source is None:
            raise CloneRefused(GONE)
        cloning = self._build_cloning(source)
        for rule in list_rules(self._toolsets):
            if isinstance(rule, ClonedStore) and row.status in rule.copies:
                await rule.copies[row.status](cloning)
            elif isinstance(rule, ClonedRows) and rule.step == row.status and not rule.is_home:
                await rule.copy(cloning)
        position = STEPS.index(row.status) + 1
        warnings = list(dict.fromkeys([*row.warnings, *cloning.warnings]))
        if position < len(STEPS):
            await self._set({"status": STEPS[position], "warnings": warnings})
            return
        # Read before: whoever holds a connection must not wait for another.
        unfilled_keys = await self._find_unfilled(cloning)
        left_out = await list_left_out(self._toolsets, cloning)
        warn_of_left_out(cloning, left_out)
        async with self._job.writing(last=True, lock=row.organisation_id) as unit:
            values = await make_app(self._services, self._toolsets, unit, row, cloning, unfilled_keys, left_out)
            completion = {"status": "completed", "completed_at": self._services.clock.now(), "env_values": None}
            warnings = list(dict.fromkeys([*warnings, *cloning.warnings]))
            await self._update(unit, {**completion, **values, "warnings": warnings})

    async def _find_unfilled(self, cloning: Cloning) -> dict[str, list[str]] | None:
        unfilled_keys = {
            name: [key for key in keys if key not in cloning.env_values.get(name, {})]
            for name, keys in (await list_env(self._toolsets, cloning.source)).items()
        }
        return {name: keys for name, keys in unfilled_keys.items() if keys} or None

    async def _undo(self) -> None:
        """Removes whatever was copied, and then says that the clone has failed."""
        row, services = self._row, self._services
        stores = services.regions.get(row.dest_region)
        if stores is None:
            raise RetryLater(_LONGEST_PAUSE_SECONDS, f"the region {row.dest_region} does not answer")
        await erase_app(self._toolsets, stores, row.dest_app_id)
        async with self._job.writing(last=True, lock=row.organisation_id) as unit:
            await self._update(unit, {"status": "failed", "completed_at": services.clock.now()})
            # Once more, for what an attempt that has lost the job may write after this.
            arguments = {"app_id": row.dest_app_id, "region": row.dest_region}
            await services.jobs.enqueue(unit, DISCARD, arguments, delay=_SETTLED_SECONDS, tenant=row.organisation_id)

    async def _begin_failing(self, reason: str) -> None:
        await self._set({"is_failing": True, "error_message": reason[:2000]})

    async def _retry(self, reason: str, most: int) -> None:
        attempts = self._row.attempts + 1
        if attempts >= most and not self._row.is_failing:
            await self._begin_failing(reason)
            return
        await self._set({"attempts": attempts})
        raise RetryLater(min(_PAUSE_SECONDS * 2 ** min(attempts - 1, 10), _LONGEST_PAUSE_SECONDS), reason)

    def _build_cloning(self, source: Any) -> Cloning:
        row, services = self._row, self._services
        values: dict[str, Any] = {}
        if row.env_values is not None:
            values = json.loads(services.vault.open(row.env_values, seal_context(clone_jobs, "env_values", row.id)))
        return Cloning(
            services,
            row.id,
            Place(source["id"], self._open(source["region"]), services.vault),
            Place(row.dest_app_id, self._open(row.dest_region), services.vault),
            row.account_id,
            row.maker,
            row.started_at,
            values.get("env", {}),
        )

    def _open(self, region: str) -> Stores:
        if region not in self._services.options.cells:
            raise CloneRefused(f"The region `{region}` is not served here.")
        return self._services.stores_of(region)

    async def _set(self, values: dict[str, Any]) -> None:
        async with self._job.writing(lock=self._row.organisation_id) as unit:
            await self._update(unit, values)

    async def _update(self, unit: Unit, values: dict[str, Any]) -> None:
        is_it = (clone_jobs.c.id == self._row.id, clone_jobs.c.status == self._row.status)
        if (await unit.execute(update(clone_jobs).where(*is_it).values(**values))).rowcount != 1:
            raise JobLost

    async def _now(self) -> Any:
        async with self._services.database.reading() as connection:
            return (await connection.execute(select(clone_jobs).where(clone_jobs.c.id == self._row.id))).one()
