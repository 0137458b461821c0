"""What an app has sent to visitors, counted by month.

A process counts in memory, and adds to the rows every second.
"""

from collections import defaultdict
from datetime import datetime
from typing import Any, ClassVar

from sqlalchemy import BigInteger, Column, String, Table, select
from typing_extensions import TypedDict

from baobab.storage.sql.database import DatabaseUnavailable, Execute
from baobab.storage.sql.tables import build_upsert, metadata
from baobab.tools.core.app_freezes import Freezes
from baobab.tools.core.call import Call
from baobab.tools.core.errors import AppNotFound, BaobabError
from baobab.tools.core.services import Services


class MonthTraffic(TypedDict):
    month: str
    sent_bytes: int
    requests: int


def define_traffic(name: str) -> Table:
    """Defines a table of what an app has sent, in the database of its region."""
    return Table(
        name,
        metadata,
        Column("app_id", String(36), primary_key=True),
        # Such as `2027-01`, in UTC.
        Column("month", String(7), primary_key=True),
        Column("sent_bytes", BigInteger, nullable=False),
        Column("requests", BigInteger, nullable=False),
    )


class BandwidthExceeded(BaobabError):
    code = "QUOTA_BANDWIDTH_EXCEEDED"
    status = 429
    summary = "The app has sent as much to visitors this month as the plan of its organisation allows."
    remediation = "Wait for the next month, or ask the operator for another plan (`baobab plan`)."


class TrafficCounter:
    """The traffic of a second or so, by app and month. A killed process loses what it has not written yet.

    Each domain that sends has a subclass with its table and its freezes.
    """

    table: ClassVar[Table]
    freezes: ClassVar[Freezes]

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
            await self.freezes.require_thawed(unit.execute, app_id)
            row = {"app_id": app_id, "month": month, "sent_bytes": sent_bytes, "requests": requests}
            columns = self.table.c
            changes = {"sent_bytes": columns.sent_bytes + sent_bytes, "requests": columns.requests + requests}
            insertion = build_upsert(unit.database.dialect, self.table).values(**row)
            await unit.execute(insertion.on_conflict_do_update(index_elements=["app_id", "month"], set_=changes))


def name_month(now: datetime) -> str:
    return f"{now:%Y-%m}"


async def read_traffic(execute: Execute, table: Table, app_id: str, now: datetime) -> MonthTraffic:
    """Returns the traffic of this month."""
    month = name_month(now)
    query = select(table).where(table.c.app_id == app_id, table.c.month == month)
    row: Any = (await execute(query)).first()
    return {
        "month": month,
        "sent_bytes": 0 if row is None else row.sent_bytes,
        "requests": 0 if row is None else row.requests,
    }


async def require_bandwidth(call: Call, execute: Execute, table: Table) -> None:
    """Raises BandwidthExceeded if the app has sent what its plan allows for a month."""
    limit = call.require_app().plan.bandwidth_bytes
    if limit is None:
        return
    traffic = await read_traffic(execute, table, call.require_app().id, call.now)
    if traffic["sent_bytes"] >= limit:
        details = {"sent_bytes": traffic["sent_bytes"], "limit_bytes": limit, "month": traffic["month"]}
        raise BandwidthExceeded(details=details)
