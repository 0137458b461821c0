"""The rows: SQLAlchemy Core over SQLite or Postgres, one short transaction at a time."""

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
    """What runs one statement in some transaction."""

    async def __call__(self, statement: Executable, rows: Any = None, /) -> CursorResult[Any]: ...


class DatabaseUnavailable(Exception):
    """The database did not answer. `reason` is for operators, not for callers: it may hold what the server said."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class DatabaseDamaged(DatabaseUnavailable):
    """What the database has is not what it wrote: only a backup helps."""


class DatabaseBusy(DatabaseUnavailable):
    """Somebody else would have to be waited for."""


class Database(ABC):
    """One database of rows.

    Writes take turns, among processes too: whoever writes sees what everybody wrote before, and nobody writes in
    between. A reader never waits for a writer.
    """

    _reading: ClassVar[Mapping[str, Any]]
    """The options of a transaction that sees one state of the rows and changes nothing."""
    _writing: ClassVar[Mapping[str, Any]]
    _always_locks: ClassVar[bool] = True
    """Whether two transactions that write exclude each other whatever they do."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._write_lock = asyncio.Lock()
        self.damage: str | None = None
        """What the first statement said that met damage; it stays so until the database is opened anew."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def ping(self) -> None:
        """Ask the database for something that only it can answer; DatabaseUnavailable."""

    @abstractmethod
    def _lock_among_processes(self) -> AbstractAsyncContextManager[None]:
        """The turn among processes, where it is taken before a transaction begins."""

    @abstractmethod
    async def _begin_writing(self, connection: AsyncConnection) -> None:
        """What a transaction that writes does first."""

    @abstractmethod
    async def announce_at_commit(self, unit: "Unit") -> None:
        """Wake other processes that await an announcement, when the unit is committed; what `Unit.announce` is for."""

    def announce_in(self, connection: Connection) -> None:  # noqa: B027 - most need not
        """The same in a transaction of `storage.transactions`, where it is the transaction that says it."""

    @abstractmethod
    async def wait_for_announcement(self, seconds: float) -> None:
        """Return when another process has announced something, and after so many seconds at the latest."""

    async def close(self) -> None:
        await self._engine.dispose()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """A transaction that sees one state of the rows and changes nothing."""
        with ErrorTranslator(self):
            async with self._engine.connect() as connection:
                await connection.execution_options(**self._reading)
                async with connection.begin():
                    yield connection

    @asynccontextmanager
    async def writing(self, *, write_lock: bool = True) -> AsyncIterator[AsyncConnection]:
        """A transaction that commits when the block ends and leaves nothing when it raises.

        turn: False for a single statement that is exact by itself; it then waits for nobody's turn where the database
        can do without (docs/decisions/0012-postgres-turns.md).
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
        """How many connections of this process somebody works with at the moment."""
        pool = self._engine.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

    @property
    def dialect(self) -> str:
        """`sqlite` or `postgresql`, for the few statements that the two say differently."""
        return self._engine.dialect.name

    def build_unit(self, *, write: bool) -> "Unit":
        return Unit(self, write=write)

    @asynccontextmanager
    async def writing_unit(self) -> AsyncIterator["Unit"]:
        """A unit that writes: committed when the block ends, with nothing left when it raises."""
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
        """Run one statement; IntegrityError is the caller's to translate, for only it knows what it means."""
        connection = await self._begin()
        # Here too: what the context makes of an error when it is left comes too late for the caller.
        with ErrorTranslator(self.database):
            return await connection.execute(statement, rows)

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Call a function that makes several statements and waits for nothing else; IntegrityError as above."""
        connection = await self._begin()
        with ErrorTranslator(self.database):
            return await connection.run_sync(work)

    def announce(self) -> None:
        """Have other processes look for what this unit has written, as soon as it is committed."""
        self._announcing = True

    def after_commit(self, action: Callable[[], None]) -> None:
        if self._after is None:
            self._after = []
        self._after.append(action)

    async def commit(self) -> None:
        """Whole, with what is to follow it: a caller who is cancelled meanwhile hears of that afterwards."""
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
            # Only now is there something to leave.
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
            # The context re-raises what it was given; the caller holds that one already.
            if exc is not reason and not isinstance(exc, DatabaseUnavailable):
                raise


class ErrorTranslator:
    """Foreign exceptions become ours at this boundary; a broken constraint passes, its meaning is the caller's."""

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
