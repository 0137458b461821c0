"""The database: SQLAlchemy Core over SQLite or Postgres, in short transactions."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, ClassVar, Protocol, TypeVar

from sqlalchemy import Connection, CursorResult, Executable
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from sqlalchemy.pool import QueuePool

from baobab.storage.cancellation import run_to_completion

T = TypeVar("T")

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")


class Execute(Protocol):
    """A function that runs one statement in some transaction."""

    async def __call__(self, statement: Executable, rows: Any = None, /) -> CursorResult[Any]: ...


class DatabaseUnavailable(Exception):
    """The database did not answer. `reason` is for operators, not for callers: it may hold the server's own message."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class DatabaseDamaged(DatabaseUnavailable):
    """The database file is corrupt; only a backup helps."""


class DatabaseBusy(DatabaseUnavailable):
    """The write lock is held by somebody else, and the caller asked not to wait."""


class Database(ABC):
    """One database.

    Transactions that write exclude each other, across processes too: a writer sees everything that was written before,
    and nothing is written in between. A reader never waits for a writer.
    """

    _reading: ClassVar[Mapping[str, Any]]
    """The options of a transaction that sees one state of the rows and changes nothing."""
    _writing: ClassVar[Mapping[str, Any]]
    _always_locks: ClassVar[bool] = True
    """Whether any two transactions that write exclude each other, whatever rows they change."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._write_lock = asyncio.Lock()
        self.damage: str | None = None
        """The error of the first statement that found damage; kept until the database is opened again."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def ping(self) -> None:
        """Runs a query that only a working database can answer. Raises DatabaseUnavailable."""

    @abstractmethod
    def _lock_among_processes(self) -> AbstractAsyncContextManager[None]:
        """Holds the write lock among processes, if the database takes it before a transaction begins."""

    @abstractmethod
    async def _begin_writing(self, connection: AsyncConnection) -> None:
        """Runs the first statement of a transaction that writes."""

    @abstractmethod
    async def announce_at_commit(self, unit: "Unit") -> None:
        """Wakes other processes that wait for an announcement, when the unit is committed; called for
        `Unit.announce`.
        """

    def announce_in(self, connection: Connection) -> None:  # noqa: B027 - most need not
        """Does the same in a transaction of `storage.transactions`, if the announcement is part of the transaction."""

    @abstractmethod
    async def wait_for_announcement(self, seconds: float) -> None:
        """Returns when another process has announced something, or after `seconds`."""

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction that sees one state of the rows and changes nothing."""
        with ErrorTranslator(self):
            async with self._engine.connect() as connection:
                await connection.execution_options(**self._reading)
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def writing(self, *, write_lock: bool = True) -> AsyncIterator[AsyncConnection]:
        """Opens a transaction that commits when the block ends and rolls back when it raises.

        write_lock: False for a single statement that is correct without the lock; where the database allows it, it then
        waits for no other writer (docs/decisions/0012-postgres-turns.md).
        """
        with ErrorTranslator(self):
            async with self._hold_write_lock(write_lock or self._always_locks), self._engine.connect() as connection:
                await connection.execution_options(**self._writing)
                async with connection.begin():
                    if write_lock:
                        await self._begin_writing(connection)
                    yield connection

    @asynccontextmanager
    async def _hold_write_lock(self, needed: bool) -> AsyncIterator[None]:
        if not needed:
            yield
            return
        async with self._write_lock, self._lock_among_processes():
            yield

    @property
    def connections_in_use(self) -> int:
        """How many connections of this process are in use at the moment."""
        pool = self._engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`, for the few statements that differ between the two."""
        return self._engine.dialect.name

    def build_unit(self, *, write: bool) -> "Unit":
        return Unit(self, write=write)

    @asynccontextmanager
    async def writing_unit(self) -> AsyncIterator["Unit"]:
        """Yields a unit that writes: committed when the block ends, rolled back when it raises."""
        unit = self.build_unit(write=True)
        try:
            yield unit
        except BaseException as exc:
            await unit.rollback(exc)
            raise
        await unit.commit()


class Unit:
    """The unit of work of one call: a transaction that begins at its first statement, if it has any."""

    __slots__ = ("_after", "_announcing", "_connection", "_context", "database", "writes")

    def __init__(self, database: Database, *, write: bool) -> None:
        self.database = database
        self.writes = write
        self._context: Any = None
        self._connection: AsyncConnection | None = None
        self._after: list[Callable[[], None]] | None = None
        self._announcing = False

    @property
    def is_untouched(self) -> bool:
        """Whether there is nothing to commit."""
        return self._connection is None and self._after is None

    async def execute(self, statement: Executable, rows: Any = None) -> CursorResult[Any]:
        """Runs one statement. An IntegrityError passes through, since only the caller knows what it means."""
        connection = await self._begin()
        # Translate here too: the caller must see the translated error before the context is left.
        with ErrorTranslator(self.database):
            return await connection.execute(statement, rows)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Calls a function that runs several statements and waits for nothing else. An IntegrityError passes
        through.
        """
        connection = await self._begin()
        with ErrorTranslator(self.database):
            return await connection.run_sync(work)

    def announce(self) -> None:
        """Tells other processes to look for what this unit has written, as soon as it is committed."""
        self._announcing = True

    def after_commit(self, action: Callable[[], None]) -> None:
        if self._after is None:
            self._after = []
        self._after.append(action)

    async def commit(self) -> None:
        """Commits, then runs the actions of `after_commit`. Both finish even if the caller is cancelled, which then
        takes effect.
        """
        if self._context is None:
            self._run_after_commit()
        else:
            await run_to_completion(self._commit())

    async def _commit(self) -> None:
        if self._announcing:
            await self._announce()
        await self._close_transaction(None)
        self._run_after_commit()

    def _run_after_commit(self) -> None:
        after, self._after = self._after, None
        for action in after or ():
            action()

    async def rollback(self, reason: BaseException) -> None:
        self._after = None
        await self._close_transaction(reason)

    async def _begin(self) -> AsyncConnection:
        if self._connection is None:
            context = self.database.writing() if self.writes else self.database.reading()
            self._connection = await context.__aenter__()
            # Set only once the context has been entered, so that it is never left otherwise.
            self._context = context
        return self._connection

    async def _announce(self) -> None:
        self._announcing = False
        try:
            await self.database.announce_at_commit(self)
        except BaseException as exc:
            await self.rollback(exc)
            raise

    async def _close_transaction(self, reason: BaseException | None) -> None:
        context, self._context, self._connection = self._context, None, None
        if context is None:
            return
        if reason is None:
            await context.__aexit__(None, None, None)
            return
        try:
            await context.__aexit__(type(reason), reason, reason.__traceback__)
        except BaseException as exc:
            # The context raises `reason` again, which the caller handles already.
            if exc is not reason and not isinstance(exc, DatabaseUnavailable):
                raise


class ErrorTranslator:
    """Turns SQLAlchemy's errors into ours. An IntegrityError passes through, since only the caller knows what
    it means.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, DBAPIError) and not isinstance(error, IntegrityError):
            reason = str(error.orig).strip().partition("\n")[0]
            if getattr(error.orig, "sqlite_errorname", "").startswith(_DAMAGE):
                self._database.damage = reason
                raise DatabaseDamaged(type(error.orig).__name__, reason) from error
            raise DatabaseUnavailable(type(error.orig).__name__, reason) from error
        if isinstance(error, NoConnectionFree):
            raise DatabaseUnavailable("no connection is free") from error
