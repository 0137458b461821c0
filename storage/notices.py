"""Notices tell other processes what one process has changed, through the database itself."""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from datetime import timedelta

from sqlalchemy import Column, Integer, String, Table, delete, func, insert, select

from baobab.storage.clock import Clock, Ids
from baobab.storage.database import Database, DatabaseUnavailable, Unit
from baobab.storage.tables import Instant, metadata

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

_INSERT = insert(notices)
POLL_SECONDS = 0.5
_PAUSE_SECONDS = 0.02
_KEPT = timedelta(days=1)

_log = logging.getLogger(__name__)


class Notices:
    """Publishes notices in the caller's transaction. Subscribers in this process get them at the commit, others within
    a poll.
    """

    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._origin = ids.uuid()
        self._subscribers: dict[str, list[Callable[[str], None]]] = {}
        self._on_wake: list[Callable[[], None]] = []
        self._seen = 0
        self._watcher: asyncio.Task[None] | None = None

    def subscribe(self, topic: str, listener: Callable[[str], None]) -> None:
        self._subscribers.setdefault(topic, []).append(listener)

    def on_wake(self, listener: Callable[[], None]) -> None:
        """Calls the listener at each announcement in the database, and at least every half second."""
        self._on_wake.append(listener)

    async def publish(self, unit: Unit, topic: str, subject: str) -> None:
        row = {"topic": topic, "subject": subject, "origin": self._origin, "created_at": self._clock.now()}
        await unit.execute(_INSERT, row)
        unit.announce()
        unit.after_commit(lambda: self._notify(topic, subject))

    async def start(self) -> None:
        async with self._database.reading() as connection:
            self._seen = await connection.scalar(select(func.max(notices.c.id))) or 0
        self._watcher = asyncio.create_task(self._watch(), name="notices")

    async def stop(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watcher
            self._watcher = None

    async def poll(self) -> None:
        """Delivers what other processes have published since the last poll."""
        columns = (notices.c.id, notices.c.topic, notices.c.subject, notices.c.origin)
        async with self._database.reading() as connection:
            rows = (await connection.execute(select(*columns).where(notices.c.id > self._seen).order_by("id"))).all()
        for row in rows:
            self._seen = row.id
            if row.origin != self._origin:
                self._notify(row.topic, row.subject)

    async def prune(self) -> None:
        async with self._database.writing() as connection:
            await connection.execute(delete(notices).where(notices.c.created_at < self._clock.now() - _KEPT))

    async def _watch(self) -> None:
        while True:
            await self._database.wait_for_announcement(POLL_SECONDS)
            try:
                for listener in self._on_wake:
                    listener()
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
