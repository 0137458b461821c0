"""The rows: SQLAlchemy Core over SQLite, one short transaction at a time."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, CursorResult, Executable, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine

_PRAGMAS = (
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    "PRAGMA busy_timeout=10000",
)
_READ = {"begin": "BEGIN"}
_WRITE = {"begin": "BEGIN IMMEDIATE"}


class DatabaseUnavailable(Exception):
    """The database did not answer; its own words stay in the log."""


class Database:
    """One database of rows.

    Writes take turns: within the process by a lock, among processes by a file lock. A reader never waits for a
    writer (WAL). Turns cost nothing, since SQLite has one writer anyway, and they keep writers and checkpoints
    of interpreters whose SQLite is older than 3.51.3 apart (docs/decisions/0003-sqlite-turns.md).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._turn = asyncio.Lock()
        self._gate: int | None = None
        self._engine = create_async_engine(
            make_url("sqlite+aiosqlite://").set(database=str(path)), pool_size=4, max_overflow=4
        )
        event.listen(self._engine.sync_engine, "connect", _on_connect)
        event.listen(self._engine.sync_engine, "begin", _on_begin)

    async def open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._gate = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        async with self.writing():
            # Processes that start together would race for the switch to WAL; the first connection is made in turn.
            pass

    async def close(self) -> None:
        await self._engine.dispose()
        if self._gate is not None:
            os.close(self._gate)
            self._gate = None

    async def ping(self) -> None:
        async with self.reading() as connection:
            # Unlike `SELECT 1`, this reads the file.
            await connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that sees one state of the rows and changes nothing."""
        with _Translated():
            async with self._engine.connect() as connection:
                await connection.execution_options(**_READ)
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits when the block ends and leaves nothing when it raises."""
        with _Translated():
            async with self._turn, self._among_processes(), self._engine.connect() as connection:
                await connection.execution_options(**_WRITE)
                async with connection.begin():
                    yield connection

    def unit(self, *, write: bool) -> "Unit":
        return Unit(self, write=write)

    @asynccontextmanager
    async def _among_processes(self) -> AsyncIterator[None]:
        if self._gate is None:
            raise DatabaseUnavailable("the database is closed")
        try:
            fcntl.flock(self._gate, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            await _granted(self._gate)
        try:
            yield
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)


async def _granted(gate: int) -> None:
    """Wait for the lock of a file; a caller that is cancelled gives back what its thread still takes."""
    waiting = asyncio.ensure_future(asyncio.to_thread(fcntl.flock, gate, fcntl.LOCK_EX))
    try:
        await asyncio.shield(waiting)
    except asyncio.CancelledError:
        while not waiting.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.shield(waiting)
        fcntl.flock(gate, fcntl.LOCK_UN)
        raise


class Unit:
    """The unit of work of one call: a transaction that begins at its first statement, if it has any."""

    __slots__ = ("_after", "_connection", "_context", "_database", "writes")

    def __init__(self, database: Database, *, write: bool) -> None:
        self._database = database
        self.writes = write
        self._context: Any = None
        self._connection: AsyncConnection | None = None
        self._after: list[Callable[[], None]] | None = None

    @property
    def untouched(self) -> bool:
        """Whether there is nothing to commit."""
        return self._connection is None and self._after is None

    async def execute(self, statement: Executable, rows: Any = None) -> CursorResult[Any]:
        """Run one statement; IntegrityError is the caller's to translate, for only it knows what it means."""
        if self._connection is None:
            self._context = self._database.writing() if self.writes else self._database.reading()
            self._connection = await self._context.__aenter__()
        return await self._connection.execute(statement, rows)

    def after_commit(self, action: Callable[[], None]) -> None:
        if self._after is None:
            self._after = []
        self._after.append(action)

    async def commit(self) -> None:
        if self._context is not None:
            await self._leave(None)
        after, self._after = self._after, None
        for action in after or ():
            action()

    async def rollback(self, reason: BaseException) -> None:
        self._after = None
        await self._leave(reason)

    async def _leave(self, reason: BaseException | None) -> None:
        context, self._context, self._connection = self._context, None, None
        if context is None:
            return
        if reason is None:
            await context.__aexit__(None, None, None)
            return
        try:
            await context.__aexit__(type(reason), reason, reason.__traceback__)
        except BaseException as exc:
            # The context re-raises what it was given; the caller holds that one already.
            if exc is not reason and not isinstance(exc, DatabaseUnavailable):
                raise


class _Translated:
    """Foreign exceptions become ours at this boundary; a broken constraint passes, its meaning is the caller's."""

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError):
            raise DatabaseUnavailable(type(error.orig).__name__) from error


def _on_connect(connection: Any, _record: object) -> None:
    # The driver must leave transactions to us: its own deferred BEGIN loses updates and answers "locked".
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _on_begin(connection: Connection) -> None:
    connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN IMMEDIATE"))
