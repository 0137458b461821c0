"""What calls of functions leave behind: a row for the log of each, and counts by the hour, written every second."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from sqlalchemy import delete, func, insert, select

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.database import Database
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import AppNotFound, Services, Unavailable
from baobab.tools.core.auth.directory import App
from baobab.tools.core.outages import STORE_OUTAGES
from baobab.tools.functions.errors import InvocationsExhausted
from baobab.tools.functions.tables import FREEZES, invocations, usage

T = TypeVar("T")
KEPT = 10_000
"""The most rows of one app's log."""
_PENDING = 20_000
_TRIM_AFTER = 500
_COUNT_SECONDS = 60.0
FAILED = 500
"""The least status of an answer that counts as an error."""
TOTAL = "total"
"""The name of the row that counts all hours of a function."""
_LONGEST_ERROR, _LONGEST_STACK, _LONGEST_LOGS = 4000, 16_000, 64_000
_invocations, _usage = invocations.c, usage.c
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Count:
    month: str
    count: int
    counted_at: float


@dataclass(slots=True)
class _Hour:
    invocations: int = 0
    errors: int = 0
    duration_ms: float = 0.0
    last_at: datetime | None = None
    last_status: int = 0


class InvocationLog:
    """A service of the domain. A kill loses at most what was logged in the last second."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._rows: deque[dict[str, Any]] = deque(maxlen=_PENDING)
        self._hours: dict[tuple[str, str, str], _Hour] = {}
        self._counts: dict[str, _Count] = {}
        self._since_trim: dict[str, int] = {}
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[Any]] = set()
        services.flushes.append(self.flush)

    async def begin(self, app: App) -> None:
        """Counts a call. Raises InvocationsExhausted where the plan has no more of them this month."""
        limit = app.plan.function_invocations
        if limit is None:
            return
        now = self._services.clock.now()
        month = now.strftime("%Y-%m")
        count = self._counts.get(app.id)
        if count is None or count.month != month or now.timestamp() - count.counted_at > _COUNT_SECONDS:
            count = self._counts[app.id] = _Count(month, await self._read_count(app, month), now.timestamp())
        if count.count >= limit:
            details = {"plan": app.plan.name, "what": "function invocations", "limit": limit, "current": count.count}
            raise InvocationsExhausted(details=details)
        count.count += 1

    def follow(self, work: Coroutine[Any, Any, T]) -> "asyncio.Task[T]":
        """Has something done after the answer, to its end also if the client leaves."""
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._end_task)
        return task

    def _end_task(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (exc := task.exception()) is not None:
            _log.error("what a function did could not be written down", exc_info=exc)

    def record(self, row: dict[str, Any]) -> None:
        """Adds a row to the log, and counts it."""
        row = {**row, "error": _cut(row["error"], _LONGEST_ERROR), "stack": _cut(row["stack"], _LONGEST_STACK)}
        row["logged_at"] = self._services.clock.now()
        row["path"], row["console_logs"] = row["path"][:700], _cut_logs(row["console_logs"])
        self._rows.append(row)
        for name in (row["started_at"].strftime("%Y-%m-%dT%H"), TOTAL):
            hour = self._hours.setdefault((row["app_id"], row["function_id"], name), _Hour())
            hour.invocations += 1
            hour.errors += row["status_code"] >= FAILED
            hour.duration_ms += row["duration_ms"]
            if hour.last_at is None or row["started_at"] >= hour.last_at:
                hour.last_at, hour.last_status = row["started_at"], row["status_code"]

    async def settle(self) -> None:
        """Waits for what still happens after answers, and writes all of it: for tests and for the stop."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.flush()

    async def flush(self) -> None:
        """Writes what was collected. Runs to its end even if cancelled."""
        await run_to_completion(self._flush())

    async def _flush(self) -> None:
        async with self._turn:
            rows, hours = list(self._rows), self._hours
            if not rows and not hours:
                return
            self._rows.clear()
            self._hours = {}
            by_app: dict[str, tuple[list[dict[str, Any]], dict[tuple[str, str, str], _Hour]]] = {}
            for row in rows:
                by_app.setdefault(row["app_id"], ([], {}))[0].append(row)
            for key, hour in hours.items():
                by_app.setdefault(key[0], ([], {}))[1][key] = hour
            for app_id, (rows_of_app, hours_of_app) in by_app.items():
                if not await self._write(app_id, rows_of_app, hours_of_app):
                    self._keep(rows_of_app, hours_of_app)

    def _keep(self, rows: list[dict[str, Any]], hours: dict[tuple[str, str, str], _Hour]) -> None:
        room = _PENDING - len(self._rows)
        self._rows.extendleft(reversed(rows[-room:] if room else []))
        for key, kept_hour in hours.items():
            hour = self._hours.setdefault(key, _Hour())
            hour.invocations += kept_hour.invocations
            hour.errors += kept_hour.errors
            hour.duration_ms += kept_hour.duration_ms
            if hour.last_at is None:
                hour.last_at, hour.last_status = kept_hour.last_at, kept_hour.last_status

    async def _write(self, app_id: str, rows: list[dict[str, Any]], hours: dict[tuple[str, str, str], _Hour]) -> bool:
        """Writes what belongs to one app; returns whether it is written, or need not be written any more."""
        try:
            app = await self._services.directory.app(app_id)
            database = self._services.stores_of(app.region).database
            async with database.writing(lock=None) as connection:
                if await FREEZES.is_frozen(connection.execute, app_id):
                    return False
                if rows:
                    await connection.execute(insert(invocations), rows)
                # In one order, or two workers that write at once would wait for each other.
                for key in sorted(hours):
                    await connection.execute(_add_hour(database, key, hours[key]))
                count = self._since_trim.get(app_id, 0) + len(rows)
                if count >= _TRIM_AFTER:
                    await _trim(connection.execute, app_id)
                    count = 0
                self._since_trim[app_id] = count
        except AppNotFound:
            return True
        except (Unavailable, *STORE_OUTAGES):
            return False
        return True

    async def _read_count(self, app: App, month: str) -> int:
        await self.flush()
        query = select(func.sum(_usage.invocations)).where(
            _usage.app_id == app.id, _usage.hour >= month, _usage.hour < f"{month}~"
        )
        async with self._services.stores_of(app.region).database.reading() as connection:
            return int((await connection.execute(query)).scalar() or 0)


def _add_hour(database: Database, key: tuple[str, str, str], hour: _Hour) -> Any:
    app_id, function_id, name = key
    assert hour.last_at is not None
    values = {"invocations": hour.invocations, "errors": hour.errors, "duration_ms": hour.duration_ms}
    last = {"last_at": hour.last_at, "last_status": hour.last_status}
    row = {"app_id": app_id, "function_id": function_id, "hour": name, **values, **last}
    added_counts = {column: _usage[column] + value for column, value in values.items()}
    statement = build_upsert(database.dialect, usage).values(row)
    return statement.on_conflict_do_update(
        index_elements=["app_id", "function_id", "hour"], set_={**added_counts, **last}
    )


async def _trim(execute: Any, app_id: str) -> None:
    of_app = _invocations.app_id == app_id
    oldest = select(_invocations.logged_at).where(of_app).order_by(_invocations.logged_at.desc()).offset(KEPT).limit(1)
    moment = (await execute(oldest)).scalar()
    if moment is not None:
        await execute(delete(invocations).where(of_app, _invocations.logged_at <= moment))


def _cut(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else f"{text[:most]}… ({len(text)} characters in all)"


def _cut_logs(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Returns the lines that fit. What is left out is named in a last line."""
    kept_lines: list[dict[str, Any]] = []
    size = 0
    for number, line in enumerate(lines):
        size += len(line["message"]) + 60
        if size > _LONGEST_LOGS:
            rest = f"{len(lines) - number} more lines are not kept."
            return [*kept_lines, {**line, "level": "warn", "message": rest}]
        kept_lines.append(line)
    return kept_lines
