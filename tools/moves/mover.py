"""The mover: takes an app to another region step by step.

Each step may be made twice. The row says which step is next, and only the attempt that has the job writes it. The app's
data is frozen in the source before it is copied, and in the destination until every worker knows the new region. So no
write is ever accepted in a region that it will not be read from.
"""

import logging
from typing import Any

from sqlalchemy import select, update

from baobab.storage.sql.database import Unit
from baobab.tools.core import Job, RetryLater
from baobab.tools.core.app_data import MOVE_ENDED, AppData, copy_objects, erase_app
from baobab.tools.core.auth.tables import apps
from baobab.tools.core.jobs import OUTAGES, JobLost
from baobab.tools.core.stores import Stores
from baobab.tools.moves.tables import BEFORE_FLIP, STEPS, moves_table

MOST_RETRIES = 20
SETTLED_SECONDS = 2.0
"""Longer than it takes until every worker knows of a change."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 2.0, 60.0

_log = logging.getLogger(__name__)


class Mover:
    """One attempt at the remaining steps of a move."""

    def __init__(self, job: Job, row: Any) -> None:
        self._job = job
        self._row = row
        self._services = job.services
        self._data: list[AppData] = [data for toolset in job.registry.toolsets for data in toolset.app_data]

    async def advance(self) -> None:
        """Makes steps until the move has ended. Raises RetryLater where a step must wait."""
        while self._row.completed_at is None:
            try:
                await self._step()
            except (RetryLater, JobLost):
                raise
            except OUTAGES as exc:
                _log.warning("move %s: a store does not answer (%s)", self._row.id, exc)
                await self._retry("A store does not answer.")
            except Exception:  # noqa: BLE001 - whatever it is, it must not leave the app frozen for ever
                _log.exception("move %s: a step failed", self._row.id)
                await self._retry("Something went wrong on our side.")
            self._row = await self._now()

    async def _step(self) -> None:
        row = self._row
        if row.ending is not None and row.current_step in BEFORE_FLIP:
            await self._undo()
            return
        progress = row.progress
        match row.current_step:
            case "reserving_dest":
                await self._reserve()
            case "blocking_writes":
                await self._block()
            case "dumping_data":
                progress = {}
                for data in self._data:
                    progress |= await data.count(self._source, row.app_id)
            case "restoring_data":
                for data in self._data:
                    await data.copy(self._source, self._dest, row.app_id)
            case "copying_blobs":
                await copy_objects(self._source.objects, self._dest.objects, row.app_id)
            case "flipping_routing":
                await self._flip()
                return
            case "unblocking_writes":
                await self._unblock()
        await self._enter(STEPS[STEPS.index(row.current_step) + 1], progress=progress)

    async def _reserve(self) -> None:
        """Prepares an empty place that takes no writes yet. Removes what an earlier move left there."""
        conditions = (
            moves_table.c.app_id == self._row.app_id,
            moves_table.c.source_region == self._row.dest_region,
            moves_table.c.source_replica_state == "active",
        )
        async with self._job.writing(lock=self._row.app_id) as unit:
            await unit.execute(update(moves_table).where(*conditions).values(source_replica_state="torn_down"))
        await erase_app(self._job.registry.toolsets, self._dest, self._row.app_id)
        for data in self._data:
            await data.freeze(self._dest, self._row.app_id)

    async def _block(self) -> None:
        """Stops all writes. Raises RetryLater while an approved call is half done.

        What keeps a second attempt at such a call from doing its work twice is in the source, and does not move.
        """
        for data in self._data:
            await data.freeze(self._source, self._row.app_id)
        for approval_id in await self._services.approvals.list_approved_of_app(self._row.app_id):
            if await self._source.kv.has_written(self._row.app_id, approval_id):
                for data in self._data:
                    await data.thaw(self._source, self._row.app_id)
                raise RetryLater(_PAUSE_SECONDS, "an approved call is under way")

    async def _flip(self) -> None:
        """Switches the app to the destination: requests go there from this commit on."""
        row = self._row
        async with self._job.writing(lock=self._row.app_id) as unit:
            is_in_source = (apps.c.id == row.app_id, apps.c.region == row.source_region)
            if (await unit.execute(update(apps).where(*is_in_source).values(region=row.dest_region))).rowcount:
                await self._services.notices.publish(unit, "app", row.app_id)
                values = self._values("setting_up_reverse_replication") | {"source_replica_state": "active"}
                await self._set(unit, values)
            else:
                await self._set(unit, {"ending": "failed", "last_error": "The app was deleted."})

    async def _unblock(self) -> None:
        seconds_left = SETTLED_SECONDS - (self._services.clock.now() - self._row.step_started_at).total_seconds()
        if seconds_left > 0:
            raise RetryLater(seconds_left, "workers hear of the new region")
        for data in self._data:
            await data.thaw(self._dest, self._row.app_id)

    async def _undo(self) -> None:
        """Restores everything as it was before the move.

        The source comes first: its writes must not wait for a destination that may have failed.
        """
        row = self._row
        async with self._services.database.reading() as connection:
            app_row = (await connection.execute(select(apps.c.id).where(apps.c.id == row.app_id))).first()
        for data in self._data:
            if app_row is None:
                await data.erase(self._source, row.app_id)
            else:
                await data.thaw(self._source, row.app_id)
        await erase_app(self._job.registry.toolsets, self._dest, self._row.app_id)
        async with self._job.writing(last=True, lock=self._row.app_id) as unit:
            await self._set(unit, self._values(row.ending))
            await self._emit_ended(unit, row.ending)

    async def _enter(self, step: str, **values: Any) -> None:
        async with self._job.writing(last=step == "completed", lock=self._row.app_id) as unit:
            await self._set(unit, self._values(step) | values)
            if step == "completed":
                await self._emit_ended(unit, step)

    async def _emit_ended(self, unit: Unit, outcome: str) -> None:
        data = {"migration_id": self._row.id, "outcome": outcome}
        await self._services.jobs.emit(unit, MOVE_ENDED, app_id=self._row.app_id, data=data)

    async def _retry(self, reason: str) -> None:
        attempts = self._row.retry_count + 1
        values: dict[str, Any] = {"retry_count": attempts, "last_error": reason}
        if attempts >= MOST_RETRIES and self._row.current_step in BEFORE_FLIP and self._row.ending is None:
            values["ending"] = "failed"
        async with self._job.writing(lock=self._row.app_id) as unit:
            await self._set(unit, values)
        raise RetryLater(min(_PAUSE_SECONDS * 2 ** min(attempts - 1, 10), _LONGEST_PAUSE_SECONDS), reason)

    def _values(self, step: str) -> dict[str, Any]:
        now = self._services.clock.now()
        completed_at = now if step in ("completed", "aborted", "failed") else None
        return {"current_step": step, "step_started_at": now, "completed_at": completed_at}

    async def _set(self, unit: Unit, values: dict[str, Any]) -> None:
        """Changes the row, unless the move was aborted meanwhile: the next step then sees that."""
        same_ending = (
            moves_table.c.ending.is_(None) if self._row.ending is None else moves_table.c.ending == self._row.ending
        )
        is_unchanged = (
            moves_table.c.id == self._row.id,
            moves_table.c.current_step == self._row.current_step,
            same_ending,
        )
        if (await unit.execute(update(moves_table).where(*is_unchanged).values(**values))).rowcount != 1:
            raise RetryLater(0, "the move is to end")

    async def _now(self) -> Any:
        async with self._services.database.reading() as connection:
            return (await connection.execute(select(moves_table).where(moves_table.c.id == self._row.id))).one()

    @property
    def _source(self) -> Stores:
        return self._services.stores_of(self._row.source_region)

    @property
    def _dest(self) -> Stores:
        return self._services.stores_of(self._row.dest_region)
