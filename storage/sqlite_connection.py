"""A connection of aiosqlite whose thread has put things in order before a caller who is cancelled goes on."""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiosqlite

from baobab.storage.cancellation import run_to_completion

_ROWS_AT_ONCE = 64


class SqliteConnection(aiosqlite.Connection):
    """What a cancelled caller has asked for is done by the thread all the same, and later.

    A transaction that it begins after its caller is gone is nobody's: the file would stay locked until the garbage
    collector finds it. So whoever is cancelled waits until the thread is done and nothing is open any more.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(lambda: sqlite3.connect(path, check_same_thread=False), _ROWS_AT_ONCE)
        # A process that is told to end does not wait for it.
        self._thread.daemon = True
        self._stopped: asyncio.Future[Any] | None = None

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            await run_to_completion(self._undo_statement(fn))
            raise

    async def _undo_statement(self, fn: Callable[..., Any]) -> None:
        """Behind what was asked last, so that it is over by then."""
        # What has closed it meanwhile has undone it, too.
        with contextlib.suppress(ValueError, sqlite3.ProgrammingError):
            await super()._execute(_undo, self._conn, getattr(fn, "__self__", None))  # type: ignore[no-untyped-call]

    def stop(self) -> "asyncio.Future[Any] | None":
        # SQLAlchemy may stop what is closing already; a thread that has ended answers nobody.
        if self._stopped is None:
            self._stopped = super().stop()
        return self._stopped


def _undo(connection: sqlite3.Connection, asked: Any) -> None:
    if isinstance(asked, sqlite3.Cursor):
        # A statement that is not read to its end keeps the connection, closed as it may be, and what it has locked.
        asked.close()
    if connection.in_transaction:
        connection.rollback()
