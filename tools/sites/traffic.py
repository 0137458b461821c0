"""What a site sends, counted by month. A process counts in memory, and adds to the rows every second."""

from collections import defaultdict
from datetime import datetime
from typing import Any

from sqlalchemy import select

from baobab.storage.sql.database import DatabaseUnavailable, Execute
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppNotFound, BaobabError, Services
from baobab.tools.sites.schemas import MonthTraffic
from baobab.tools.sites.tables import FREEZES, site_traffic

_columns = site_traffic.c


class TrafficCounter:
    """The traffic of a second or so, by app and month. A killed process loses what it has not written yet."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pending: defaultdict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
        services.flushes.append(self.flush)

    def add(self, app_id: str, now: datetime, sent_bytes: int) -> None:
        counts = self._pending[app_id, name_month(now)]
        counts[0] += sent_bytes
        counts[1] += 1

    async def flush(self) -> None:
        for key in list(self._pending):
            counts = self._pending.pop(key)
            try:
                await self._write(*key, *counts)
            except AppNotFound:
                continue
            except (BaobabError, DatabaseUnavailable):
                # The app is being moved, or its region does not answer: it is written with the next ones.
                pending = self._pending[key]
                pending[0], pending[1] = pending[0] + counts[0], pending[1] + counts[1]

    async def _write(self, app_id: str, month: str, sent_bytes: int, requests: int) -> None:
        app = await self._services.directory.app(app_id)
        async with self._services.stores_of(app.region).database.writing_unit(lock=app_id) as unit:
            await FREEZES.require_thawed(unit.execute, app_id)
            row = {"app_id": app_id, "month": month, "sent_bytes": sent_bytes, "requests": requests}
            changes = {"sent_bytes": _columns.sent_bytes + sent_bytes, "requests": _columns.requests + requests}
            insertion = build_upsert(unit.database.dialect, site_traffic).values(**row)
            await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id", "month"], set_=changes))


def name_month(now: datetime) -> str:
    return f"{now:%Y-%m}"


async def read_traffic(execute: Execute, app_id: str, now: datetime) -> MonthTraffic:
    """Returns the traffic of this month."""
    month = name_month(now)
    query = select(site_traffic).where(_columns.app_id == app_id, _columns.month == month)
    row: Any = (await execute(query)).first()
    return {
        "month": month,
        "sent_bytes": 0 if row is None else row.sent_bytes,
        "requests": 0 if row is None else row.requests,
    }
