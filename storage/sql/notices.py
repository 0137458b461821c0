"""Notices tell other processes about changes, through the database itself."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from sqlalchemy import Column, Integer, String, Table, bindparam, delete, func, insert, select

from baobab.storage.clock import Clock, Ids
from baobab.storage.sql.database import Database, DatabaseUnavailable, Unit
from baobab.storage.sql.tables import Instant, metadata

notices = Table(
    "notices",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("topic", String(40), nullable=False),
    Column("subject", String(200), nullable=False),
    Column("origin", String(36), nullable=False),
    Column("created_at", Instant, nullable=False, index=True),
    sqlite_autoincrement=True,
)

# Nobody needs the number that it gets.
_INSERT = insert(notices).inline()
POLL_SECONDS = 0.5
_PUBLISHED = "notices"
"""The subject of announcements of notices."""
_PAUSE_SECONDS = 0.02
_LATE_SECONDS, _MOST_MISSING = 60.0, 1000
# Two statements: for one with `OR`, SQLite reads the notices of a whole day.
_READ = select(notices.c.id, notices.c.topic, notices.c.subject, notices.c.origin).order_by(notices.c.id)
_NEW = _READ.where(notices.c.id > bindparam("seen"))
_LATE = _READ.where(notices.c.id.in_(bindparam("missing", expanding=True)))
_KEPT = timedelta(days=1)

_log = logging.getLogger(__name__)


class Notices:
    """Publishes notices in the caller's transaction. Subscribers in this process get them at the commit, and those in
    other processes at their next poll.
    """

    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._origin = ids.uuid()
        self._subscribers: dict[str, list[Callable[[str], None]]] = {}
        self._listeners: list[tuple[str, Callable[[], None]]] = []
        self._last_seen = 0
        self._missing: dict[int, float] = {}
        """The numbers below `_last_seen` that are still missing, oldest first, each with the time at which it is given
        up.
        """
        self._watcher: asyncio.Task[None] | None = None

    def subscribe(self, topic: str, listener: Callable[[str], None]) -> None:
        self._subscribers.setdefault(topic, []).append(listener)

    def on_announcement(self, subject: str, listener: Callable[[], None]) -> None:
        """Calls the listener at each announcement of the subject in the database, and at least every half second."""
        self._listeners.append((subject, listener))

    async def publish(self, unit: Unit, topic: str, subject: str) -> None:
        row = {"topic": topic, "subject": subject, "origin": self._origin, "created_at": self._clock.now()}
        await unit.write(_INSERT, row)
        unit.announce(_PUBLISHED)
        unit.after_commit(lambda: self._notify(topic, subject))

    async def start(self) -> None:
        latest = select(notices.c.id, notices.c.created_at).order_by(notices.c.id.desc()).limit(_MOST_MISSING)
        async with self._database.reading() as connection:
            rows = (await connection.execute(latest)).all()
        long_ago = self._clock.now() - timedelta(seconds=_LATE_SECONDS)
        for row in reversed(rows):
            if row.created_at < long_ago:
                # What is missing before it was swept or rolled back.
                self._last_seen = row.id
            else:
                # Numbers that are not there may be those of transactions that will be committed in a moment.
                self._note_seen(row.id)
        self._watcher = asyncio.create_task(self._watch(), name="notices")

    async def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None

    async def poll(self) -> None:
        """Delivers what other processes have published since the last poll."""
        rows: list[Any] = []
        if self._missing:
            rows += await self._database.execute(_LATE, {"missing": list(self._missing)})
        rows += await self._database.execute(_NEW, {"seen": self._last_seen})
        for row in rows:
            self._note_seen(row.id)
            if row.origin != self._origin:
                self._notify(row.topic, row.subject)

    def _note_seen(self, number: int) -> None:
        """Remembers which numbers before this one are missing: their transactions may be committed later."""
        now = self._clock.monotonic()
        if self._missing.pop(number, None) is None:
            skipped_numbers = range(max(self._last_seen + 1, number - _MOST_MISSING), number)
            self._missing |= dict.fromkeys(skipped_numbers, now + _LATE_SECONDS)
            self._last_seen = number
        while self._missing and (len(self._missing) > _MOST_MISSING or next(iter(self._missing.values())) < now):
            # Its transaction was rolled back.
            del self._missing[next(iter(self._missing))]

    async def prune(self) -> None:
        """Deletes old notices except the last one, after which a new process begins to read."""
        last = select(func.max(notices.c.id)).scalar_subquery()
        old = (notices.c.created_at < self._clock.now() - _KEPT, notices.c.id < last)
        async with self._database.writing(lock=None) as connection:
            await connection.execute(delete(notices).where(*old))

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        looked_at = loop.time()
        while True:
            subjects = await self._database.wait_for_announcement(max(looked_at + POLL_SECONDS - loop.time(), 0))
            if subjects is None or loop.time() >= looked_at + POLL_SECONDS:
                subjects, looked_at = None, loop.time()
            try:
                for subject, listener in self._listeners:
                    if subjects is None or subject in subjects:
                        listener()
                if subjects is None or _PUBLISHED in subjects:
                    await self.poll()
            except DatabaseUnavailable:
                # While the database is down nobody can change anything in it either, and caches expire by themselves.
                _log.warning("notices: the database does not answer")
            except Exception:  # noqa: BLE001 - a process that stops polling would keep serving stale data
                _log.exception("notices: could not be read")
            # Poll at most fifty times a second, however much is announced.
            await asyncio.sleep(_PAUSE_SECONDS)

    def _notify(self, topic: str, subject: str) -> None:
        for listener in self._subscribers.get(topic, ()):
            listener(subject)
