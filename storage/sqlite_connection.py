"""An aiosqlite connection that cleans up before a cancelled caller continues."""

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
    """Waits for the thread and rolls back when a caller is cancelled.

    aiosqlite's thread still runs what a cancelled caller has asked for. A transaction that begins after its caller has
    gone would belong to nobody, and the file would stay locked until garbage collection.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(lambda: sqlite3.connect(path, check_same_thread=False), _ROWS_AT_ONCE)
        # The end of the process does not wait for the thread.
        self._thread.daemon = True
        self._stopped: asyncio.Future[Any] | None = None

    async def _execute(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        try:
            return await super()._execute(fn, *args, **kwargs)  # type: ignore[no-untyped-call]
        except asyncio.CancelledError:
            await run_to_completion(self._undo_statement(fn))
            raise

    async def _undo_statement(self, fn: Callable[..., Any]) -> None:
        """Queued behind the cancelled statement, so that it has finished by then."""
        # If the connection has been closed meanwhile, its transaction was rolled back.
        with contextlib.suppress(ValueError, sqlite3.ProgrammingError):
            await super()._execute(_undo, self._conn, getattr(fn, "__self__", None))  # type: ignore[no-untyped-call]

    def stop(self) -> "asyncio.Future[Any] | None":
        # SQLAlchemy may stop a closing connection again; a thread that has ended would never answer.
        if self._stopped is None:
            self._stopped = super().stop()
        return self._stopped


def _undo(connection: sqlite3.Connection, asked: Any) -> None:
    if isinstance(asked, sqlite3.Cursor):
        # A statement that was not read to its end keeps its locks, even after the connection is closed.
        asked.close()
    if connection.in_transaction:
        connection.rollback()
