"""The database in a SQLite file, which needs no server."""

import asyncio
import fcntl
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar

from sqlalchemy import Connection, event
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

from baobab.storage.cancellation import run_to_completion
from baobab.storage.database import Database, DatabaseDamaged, DatabaseUnavailable, Unit
from baobab.storage.sqlite_connection import SqliteConnection

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=10000",
)

_LOOK_SECONDS = 0.02


class SqliteDatabase(Database):
    """Writers hold a lock within the process, and a file lock among processes.

    The locks cost nothing, since SQLite allows one writer anyway (readers never wait: WAL). They keep apart the writers
    and checkpoints of interpreters whose SQLite is older than 3.51.3 (docs/decisions/0003-sqlite-turns.md).
    """

    _reading: ClassVar = {"begin": "BEGIN"}
    _writing: ClassVar = {"begin": "BEGIN IMMEDIATE"}

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock_file: int | None = None
        self._seen_bell: int | None = None
        super().__init__(
            create_async_engine(
                make_url("sqlite+aiosqlite://").set(database=str(path)),
                # Unexpected errors are logged, but without the values of their statement.
                hide_parameters=True,
                async_creator=self._connect,
                pool_size=4,
                max_overflow=4,
            )
        )
        event.listen(self._engine.sync_engine, "connect", on_connect)
        event.listen(self._engine.sync_engine, "begin", on_begin)

    async def open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        async with self.writing():
            # Processes that start together would race for the switch to WAL, so the first connection needs the lock.
            pass

    async def close(self) -> None:
        await super().close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    async def ping(self) -> None:
        if self.damage is not None:
            raise DatabaseDamaged("damaged", self.damage)
        async with self.reading() as connection:
            # Unlike `SELECT 1`, this reads the file.
            await connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")

    async def _connect(self) -> SqliteConnection:
        connection = SqliteConnection(self.path)
        await connection
        return connection

    async def announce_at_commit(self, unit: Unit) -> None:
        unit.after_commit(self.ring_bell)

    async def wait_for_announcement(self, seconds: float) -> None:
        """Polls the modification time of the lock file (the bell), which costs microseconds. A missed change is seen
        later.
        """
        until = asyncio.get_running_loop().time() + seconds
        while (left := until - asyncio.get_running_loop().time()) > 0:
            if self._read_bell() != self._seen_bell:
                break
            await asyncio.sleep(min(_LOOK_SECONDS, left))
        self._seen_bell = self._read_bell()

    def ring_bell(self) -> None:
        """Tells other processes to look for what has just been committed."""
        if self._lock_file is not None:
            # An explicit time, because the system's own file times advance only every few milliseconds.
            now = time.time_ns()
            os.utime(self._lock_file, ns=(now, now))

    def _read_bell(self) -> int | None:
        return None if self._lock_file is None else os.fstat(self._lock_file).st_mtime_ns

    async def _begin_writing(self, connection: AsyncConnection) -> None:
        """Does nothing: `BEGIN IMMEDIATE` has locked the file."""

    @asynccontextmanager
    async def _lock_among_processes(self) -> AsyncIterator[None]:
        if self._lock_file is None:
            raise DatabaseUnavailable("the database is closed")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await _wait_for_lock(self._lock_file)
        try:
            yield
        finally:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)


async def _wait_for_lock(lock_file: int) -> None:
    """Waits for the file lock. If the caller is cancelled, releases the lock that its thread may still acquire."""
    try:
        await run_to_completion(asyncio.to_thread(fcntl.flock, lock_file, fcntl.LOCK_EX))
    except asyncio.CancelledError:
        fcntl.flock(lock_file, fcntl.LOCK_UN)
        raise


def on_connect(connection: Any, _record: object) -> None:
    # Disables the driver's own transactions, whose deferred BEGIN loses updates and fails with "locked".
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def on_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN IMMEDIATE"))
