"""Refusals: the recent answers of 400 and above that a toolset keeps for an app's developer to look at."""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import Column, Integer, RowMapping, String, Table, delete, insert, select

from baobab.storage.cancellation import run_to_completion
from baobab.storage.clock import Clock
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.tables import Instant, metadata
from baobab.tools.core.auth.directory import App
from baobab.tools.core.stores import Stores

failures = Table(
    "failures",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("app_id", String(36), nullable=False),
    Column("family", String(40), nullable=False),
    Column("at", Instant, nullable=False, index=True),
    Column("method", String(10), nullable=False),
    Column("path", String(700), nullable=False),
    Column("status_code", Integer, nullable=False),
    Column("error_code", String(60)),
    Column("subject", String(600)),
    # The user of the app whose call it was.
    Column("user_id", String(64)),
    sqlite_autoincrement=True,
)

KEPT = 1000
KEPT_FOR = timedelta(days=7)
_PENDING = 5000


class Failures:
    """Collected in memory, written each second, trimmed to the last 1000 of an app and to 7 days.

    What a flood adds faster than it is written pushes the oldest out: a refusal must never cost a transaction.
    """

    def __init__(self, regions: Mapping[str, Stores], names: Iterable[str], clock: Clock) -> None:
        """regions: those that are open; names: those that there are."""
        self._regions = regions
        self._clock = clock
        self._pending: dict[str, deque[dict[str, Any]]] = {region: deque(maxlen=_PENDING) for region in names}
        self._turns = KeyedSemaphore(1)

    def record(
        self,
        app: App,
        family: str,
        method: str,
        path: str,
        status: int,
        code: str | None,
        subject: object,
        user_id: str | None,
    ) -> None:
        rows_of_region = self._pending.get(app.region)
        if rows_of_region is None:
            return
        rows_of_region.append(
            {
                "app_id": app.id,
                "family": family,
                "at": self._clock.now(),
                "method": method[:10],
                "path": path[:700],
                "status_code": status,
                "error_code": code,
                "subject": subject[:600] if isinstance(subject, str) else None,
                "user_id": None if user_id is None else user_id[:64],
            }
        )

    async def recent(
        self,
        stores: Stores,
        app_id: str,
        family: str,
        limit: int,
        *,
        since: datetime | None = None,
        to: datetime | None = None,
        user_id: str | None = None,
    ) -> Sequence[RowMapping]:
        """Lists the newest first, including those of this process that are not written yet.

        since, to: only those from this moment on, and before that one. user_id: only those of this user of the app.
        """
        for region, region_stores in list(self._regions.items()):
            # Only the region that it reads matters: another region may be unreachable.
            if region_stores.database is stores.database:
                await run_to_completion(self._flush(region))
        query = (
            select(failures)
            .where(failures.c.app_id == app_id, failures.c.family == family)
            .order_by(failures.c.id.desc())
            .limit(limit)
        )
        if since is not None:
            query = query.where(failures.c.at >= since)
        if to is not None:
            query = query.where(failures.c.at < to)
        if user_id is not None:
            query = query.where(failures.c.user_id == user_id)
        async with stores.database.reading() as connection:
            return (await connection.execute(query)).mappings().all()

    async def flush(self) -> None:
        """Writes what was collected. Raises DatabaseUnavailable if a region's database is away; its part is kept."""
        outage: DatabaseUnavailable | None = None
        for region in self._pending:
            try:
                await run_to_completion(self._flush(region))
            except DatabaseUnavailable as exc:
                outage = exc
        if outage is not None:
            raise outage

    async def _flush(self, region: str) -> None:
        stores = self._regions.get(region)
        if stores is None:
            return
        rows_of_region = self._pending[region]
        # A caller who comes while they are written waits until they are there.
        async with self._turns.acquire_slot(region):
            rows = list(rows_of_region)
            rows_of_region.clear()
            try:
                await self._write(stores.database, rows)
            except DatabaseUnavailable:
                room = _PENDING - len(rows_of_region)
                # Keeps the newest of them: those that came meanwhile are newer still.
                rows_of_region.extendleft(reversed(rows[-room:] if room else []))
                raise

    async def _write(self, database: Database, rows: list[dict[str, Any]]) -> None:
        if not rows:
            return
        async with database.writing(lock=None) as connection:
            await connection.execute(insert(failures), rows)
            await connection.execute(delete(failures).where(failures.c.at < self._clock.now() - KEPT_FOR))
            for app_id in {row["app_id"] for row in rows}:
                of_app = failures.c.app_id == app_id
                oldest_kept = select(failures.c.id).where(of_app).order_by(failures.c.id.desc()).offset(KEPT).limit(1)
                oldest = await connection.scalar(oldest_kept)
                if oldest is not None:
                    await connection.execute(delete(failures).where(of_app, failures.c.id <= oldest))
