"""Watches runs for this process: for readers of their events, and for executors that must notice a cancellation."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator

from sqlalchemy import bindparam, select

from baobab.runtime.agents.tables import runs
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.tools.core.services import Services

_LIST_STATES = select(runs.c.id, runs.c.last_seq, runs.c.status).where(runs.c.id.in_(bindparam("ids", expanding=True)))
RUN_EVENTS, RUN_CANCELS = "run_events", "run_cancels"
"""The subjects of announcements that a run has new events, and that somebody asks to cancel one."""
_log = logging.getLogger(__name__)


class RunNews:
    """Wakes one reader of a run. has_events: whether there may be events that it has not read."""

    def __init__(self) -> None:
        self._notification = asyncio.Event()
        self.has_events = True

    def tell(self, *, has_events: bool) -> None:
        self.has_events = self.has_events or has_events
        self._notification.set()

    async def wait(self) -> None:
        await self._notification.wait()

    def clear(self) -> None:
        self._notification.clear()
        self.has_events = False


class RunWatcher:
    """Watches runs; one for each process. An announcement of another process causes one query for all watched runs,
    if it is one that somebody here waits for.
    """

    def __init__(self, services: Services) -> None:
        self._listeners: dict[str, set[RunNews]] = {}
        self._cancels: dict[str, list[Callable[[], None]]] = {}
        self._databases: dict[str, Database] = {}
        self._last_seqs: dict[str, int] = {}
        self._refresh_task: asyncio.Task[None] | None = None
        self._is_stale = False
        services.notices.on_announcement(RUN_CANCELS, self.request_refresh)
        services.notices.on_announcement(RUN_EVENTS, self._refresh_for_readers)

    @contextlib.contextmanager
    def subscribe(self, run_id: str, database: Database) -> Iterator[RunNews]:
        """Yields what wakes a reader whenever the run may have something new to read."""
        news = RunNews()
        self._databases[run_id] = database
        self._listeners.setdefault(run_id, set()).add(news)
        try:
            yield news
        finally:
            listeners = self._listeners[run_id]
            listeners.discard(news)
            if not listeners:
                del self._listeners[run_id]
                self._forget_run(run_id)

    @contextlib.contextmanager
    def watch_cancellation(self, run_id: str, database: Database, cancel: Callable[[], None]) -> Iterator[None]:
        """Calls `cancel` when somebody asks to cancel the run."""
        self._databases[run_id] = database
        # Two jobs may drive a run for a moment, until one of them has claimed it.
        cancels = self._cancels.setdefault(run_id, [])
        cancels.append(cancel)
        try:
            yield
        finally:
            cancels.remove(cancel)
            if not cancels:
                del self._cancels[run_id]
                self._forget_run(run_id)

    def notify_listeners(self, run_id: str) -> None:
        """Wakes the readers of a run: there is something new to read."""
        for news in self._listeners.get(run_id, ()):
            news.tell(has_events=True)

    def notify_of_text(self, run_id: str) -> None:
        """Wakes the readers of a run: there is more of the text that a model is writing."""
        for news in self._listeners.get(run_id, ()):
            news.tell(has_events=False)

    def is_executing(self, run_id: str) -> bool:
        """Returns whether this process executes the run."""
        return run_id in self._cancels

    def _forget_run(self, run_id: str) -> None:
        if run_id not in self._listeners and run_id not in self._cancels:
            self._databases.pop(run_id, None)
            self._last_seqs.pop(run_id, None)

    def request_refresh(self) -> None:
        """Queries the watched runs soon."""
        self._is_stale = bool(self._databases)
        if self._is_stale and (self._refresh_task is None or self._refresh_task.done()):
            self._refresh_task = asyncio.create_task(self._refresh_until_fresh(), name="runs")

    def _refresh_for_readers(self) -> None:
        # Executors need not know of the events of other processes' runs, which are announced all the time.
        if self._listeners:
            self.request_refresh()

    async def _refresh_until_fresh(self) -> None:
        # A query may miss what was written after it began, so it is repeated.
        while self._is_stale:
            self._is_stale = False
            await self._refresh_once()

    async def _refresh_once(self) -> None:
        by_database: dict[Database, list[str]] = {}
        for run_id, database in self._databases.items():
            by_database.setdefault(database, []).append(run_id)
        for database, ids in by_database.items():
            try:
                await self._refresh_runs(database, ids)
            except DatabaseUnavailable as exc:
                _log.warning("runs: the database does not answer (%s)", exc)

    async def _refresh_runs(self, database: Database, ids: list[str]) -> None:
        for start in range(0, len(ids), 500):
            for row in (await database.execute(_LIST_STATES, {"ids": ids[start : start + 500]})).all():
                for cancel in self._cancels.get(row.id, ()) if row.status == "cancelling" else ():
                    cancel()
                if row.id in self._databases and self._last_seqs.get(row.id) != row.last_seq:
                    self._last_seqs[row.id] = row.last_seq
                    self.notify_listeners(row.id)
