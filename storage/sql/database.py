"""The database: SQLAlchemy Core over SQLite or Postgres, in short transactions."""

import sqlite3
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, Dialect, Executable
from sqlalchemy.exc import DBAPIError, IntegrityError
from sqlalchemy.exc import TimeoutError as NoConnectionFree

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.prepared_statements import Result
from baobab.storage.sql.statements import Statements

T = TypeVar("T")
S = TypeVar("S", bound=Executable)

_DAMAGE = ("SQLITE_CORRUPT", "SQLITE_NOTADB")
_LONG = {"is_long": True}


def mark_long(statement: S) -> S:
    """Marks a statement that reads for milliseconds. Where the database is a file, it runs in a thread from the
    beginning, so that other work goes on meanwhile.
    """
    marked_statement: S = statement.execution_options(**_LONG)
    return marked_statement


def is_long(statement: Executable) -> bool:
    """Returns whether a statement was marked by `mark_long`."""
    return _LONG.items() <= statement.get_execution_options().items()


class Execute(Protocol):
    """A function that runs one statement in some transaction."""

    async def __call__(self, statement: Executable, values: Any = None, /) -> Result: ...


class Reader(Protocol):
    """Runs queries in some transaction: a connection, or a unit of work."""

    async def execute(self, statement: Executable, values: Any = None, /) -> Result: ...


class DatabaseUnavailable(Exception):
    """The database did not answer. `reason` is for operators, not for callers: it may hold the server's own message."""

    def __init__(self, message: str, reason: str = "") -> None:
        super().__init__(message)
        self.reason = reason or message


class DatabaseDamaged(DatabaseUnavailable):
    """The database file is corrupt; only a backup helps."""


class PrivilegeRefused(DatabaseUnavailable):
    """The database's user lacks a privilege, which only whoever runs the database can grant."""


class DatabaseBusy(DatabaseUnavailable):
    """Another writer holds the lock, and the caller asked not to wait."""


class DatabaseConnection(Protocol):
    """A connection within a transaction. What it reads is in memory when `execute` returns."""

    @property
    def dialect(self) -> Dialect: ...

    async def execute(self, statement: Executable, values: Any = None, /) -> Result:
        """Runs one statement. Build statements that run often once: from the second time on they cost a fraction."""
        ...

    async def scalar(self, statement: Executable, values: Any = None, /) -> Any: ...

    async def write(self, statement: Executable, values: Any = None, /) -> None:
        """Runs a statement whose result is not needed. It is sent with the next statement or the commit, which raises
        its error.
        """
        ...

    async def execute_all(self, queries: Sequence[tuple[Executable, Any]], /) -> list[Result]:
        """Runs several queries, which are sent to a server together and run one after the other."""
        ...

    async def exec_driver_sql(self, statement: str, /) -> Result: ...

    async def run_sync(self, work: Callable[[Connection], T], /) -> T:
        """Calls a function that runs several statements and does no other waiting. In a transaction that only reads it
        may be called twice.
        """
        ...

    def stream(self, statement: Executable, /) -> AbstractAsyncContextManager["RowStream"]:
        """Yields the rows of a statement in batches."""
        ...


class RowStream:
    """The rows of a statement, as SQLAlchemy's AsyncResult has them."""

    def __init__(self, result: Any, run: Callable[[Callable[[], Any]], Awaitable[Any]]) -> None:
        """result: a result of SQLAlchemy's. run: calls the function that reads a batch, in a context where it may
        wait.
        """
        self._result = result
        self._run = run

    def mappings(self) -> "RowStream":
        return RowStream(self._result.mappings(), self._run)

    async def partitions(self) -> AsyncIterator[list[Any]]:
        batches = self._result.partitions()
        while (batch := await self._run(partial(next, batches, None))) is not None:
            yield batch

    async def __aiter__(self) -> AsyncIterator[Any]:
        async for batch in self.partitions():
            for row in batch:
                yield row


class StatementTimeout(DatabaseUnavailable):
    """A statement took too long and was stopped."""


class LockTimeout(DatabaseUnavailable):
    """A statement waited too long for a lock, or for one whose holder waited for it."""


class StatementRefused(DatabaseUnavailable):
    """The database answers, and does not run a statement: it is too large, or a function fails for a value in it."""


class StatementOutdated(DatabaseUnavailable):
    """A statement names a table or column that is not there, or was prepared for a table that has changed since."""


_OUTDATED_STATES = ("0A000", "42703", "42P01")
"""Postgres's codes for a prepared statement whose table has changed, an unknown column, and an unknown table."""
_LOCK_STATES = ("55P03", "40P01")
"""Postgres's codes for a lock that is not available, and for a deadlock."""
INSTALLATION = "*"
"""The lock of what belongs to no tenant: the schema, the first account, a transfer."""


class Database(ABC):
    """One database.

    A transaction that writes holds the lock of one tenant: an app, or else an organisation. Of the transactions with
    the same lock, in all processes, each sees everything that was written before it, and nothing else is written while
    it runs. Transactions of other tenants do not wait for it, where the database allows that. A reader never waits for
    a writer.
    """

    def __init__(self) -> None:
        self.damage: str | None = None
        """The error of the first statement that found damage; kept until the database is opened again."""

    @abstractmethod
    async def open(self) -> None: ...

    @abstractmethod
    async def close(self) -> None: ...

    @abstractmethod
    async def ping(self) -> None:
        """Runs a query that only a working database can answer. Raises DatabaseUnavailable."""

    @abstractmethod
    def reading(
        self, *, single: bool = False, seconds: float | None = None
    ) -> AbstractAsyncContextManager[DatabaseConnection]:
        """Opens a transaction that sees one state of the rows and changes nothing.

        single: whether it has one statement, which costs a server less. seconds: how long the database may take for
        all of its statements, after which it raises StatementTimeout.
        """

    @abstractmethod
    def writing(
        self, *, lock: str | None = INSTALLATION, bulk: bool = False
    ) -> AbstractAsyncContextManager[DatabaseConnection]:
        """Opens a transaction that commits when the block ends and rolls back when it raises.

        lock: the tenant whose lock it holds from its first statement on, by the id of an app, or else of an
        organisation or account. None for statements that are correct whoever writes at the same time
        (docs/decisions/0025-tenant-locks.md).

        bulk: True for statements that may take longer than a few milliseconds, such as those that change thousands of
        rows: they must not run on the event loop.
        """

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        """Runs one statement that reads, in a transaction of its own. This costs a server less than `reading`."""
        async with self.reading(single=True) as connection:
            return await connection.execute(statement, values)

    async def write(self, statement: Executable, values: Any = None) -> Result:
        """Runs one statement that is correct whoever else writes at the same time, in a transaction of its own."""
        async with self.writing(lock=None) as connection:
            return await connection.execute(statement, values)

    @abstractmethod
    async def transact(
        self, work: Callable[[Statements], T], *, durable: bool = True, announce: Collection[str] = ()
    ) -> T:
        """Calls a function in a transaction of its own. Commits and returns its result, or rolls back and raises its
        exception. The function must lock the rows on which it decides, because the transaction does not hold the write
        lock where the database allows it to run without.

        work: may be called more than once, if a durable transaction that it shares on files is rolled back because of
        another caller. Its last call counts, so it must keep nothing of an earlier one.

        durable: False to return before the transaction is on disk. It survives the end of the process; a power failure
        may lose the last such transactions, each as a whole, but none that a durable one has followed.

        announce: subjects of which other processes are told, as `Unit.announce` does.

        The transaction finishes even if the caller is cancelled. Raises DatabaseUnavailable, and SQLAlchemy's
        IntegrityError.
        """

    @abstractmethod
    def transact_now(self, work: Callable[[Statements], T]) -> T:
        """Runs a transaction like `transact`, at once and not durably. Raises DatabaseBusy, with nothing done, if it
        would have to wait.
        """

    @abstractmethod
    async def run_statements(self, connection: Any, work: Callable[[Statements], T]) -> T:
        """Calls a function within the transaction of a connection; `Unit.run_statements` uses this."""

    @property
    @abstractmethod
    def dialect(self) -> str:
        """`sqlite` or `postgresql`, for the few statements that differ between the two."""

    @property
    @abstractmethod
    def connections_in_use(self) -> int:
        """The number of this process's connections that are in use."""

    @abstractmethod
    async def take_lock(self, connection: Any, lock: str) -> None:
        """Takes another tenant's lock in a transaction that has begun; `Unit.hold` uses this."""

    @abstractmethod
    async def announce_at_commit(self, unit: "Unit", subjects: Collection[str]) -> None:
        """Wakes the processes that wait for an announcement, when the unit is committed; `Unit.announce` uses this."""

    @abstractmethod
    async def announce(self, subject: str) -> None:
        """Wakes the processes that wait for an announcement, now."""

    @abstractmethod
    async def wait_for_announcement(self, seconds: float) -> Collection[str] | None:
        """Returns the subjects that other processes have announced. None if they may be any: after `seconds`, and
        where the database does not pass them on.
        """

    def build_unit(self, *, write: bool, lock: str | None = INSTALLATION) -> "Unit":
        return Unit(self, write=write, lock=lock)

    @asynccontextmanager
    async def writing_unit(self, *, lock: str | None = INSTALLATION, bulk: bool = False) -> AsyncIterator["Unit"]:
        """Yields a unit that writes: committed when the block ends, rolled back when it raises."""
        unit = Unit(self, write=True, lock=lock, bulk=bulk)
        try:
            yield unit
        except BaseException as exc:
            await unit.rollback(exc)
            raise
        await unit.commit()


class Unit:
    """The unit of work of one call: a transaction that begins at its first statement, if it has any."""

    __slots__ = ("_after", "_announcing", "_bulk", "_connection", "_context", "_lock", "database", "writes")

    def __init__(self, database: Database, *, write: bool, lock: str | None = None, bulk: bool = False) -> None:
        """lock, bulk: those of `Database.writing`."""
        self.database = database
        self.writes = write
        self._lock = lock
        self._bulk = bulk
        self._context: Any = None
        self._connection: DatabaseConnection | None = None
        self._after: list[Callable[[], None]] | None = None
        self._announcing: set[str] | None = None

    @property
    def is_untouched(self) -> bool:
        """Whether there is nothing to commit."""
        return self._connection is None and self._after is None

    def lock_for(self, tenant: str | None) -> None:
        """Sets the tenant whose lock this unit will hold; None for no lock. Call it before the first statement."""
        if self._connection is None:
            self._lock = tenant

    async def hold(self, tenant: str) -> None:
        """Holds the lock of a tenant from now on, so that what is read afterwards stays unchanged until the unit
        ends.
        """
        if not self.writes or self._lock == tenant:
            return
        connection = await self._begin()
        with ErrorTranslator(self.database):
            await self.database.take_lock(connection, tenant)

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        """Runs one statement. An IntegrityError passes through, since only the caller knows what it means.

        Build statements that run often once: from the second time on they cost a fraction.
        """
        connection = self._connection or await self._begin()
        # Translate here too: the caller must see the translated error before the context is left.
        with ErrorTranslator(self.database):
            return await connection.execute(statement, values)

    async def write(self, statement: Executable, values: Any = None) -> None:
        """Runs a statement whose result is not needed, such as an insert that cannot conflict. A server gets it with
        the next statement or the commit, which raises its error.
        """
        connection = self._connection or await self._begin()
        with ErrorTranslator(self.database):
            await connection.write(statement, values)

    async def execute_all(self, *queries: tuple[Executable, Any]) -> list[Result]:
        """Runs several queries. None of them needs the result of another: a server gets them together."""
        connection = self._connection or await self._begin()
        with ErrorTranslator(self.database):
            return await connection.execute_all(queries)

    async def run_statements(self, work: Callable[[Statements], T]) -> T:
        """Calls a function that runs statements as text, as `Database.transact` does."""
        connection = await self._begin()
        with ErrorTranslator(self.database):
            return await self.database.run_statements(connection, work)

    def announce(self, subject: str) -> None:
        """Tells other processes to look for what this unit has written, as soon as it is committed. Only those
        listeners look that `Notices.on_announcement` has for the subject.
        """
        if self._announcing is None:
            self._announcing = set()
        self._announcing.add(subject)

    def after_commit(self, action: Callable[[], None]) -> None:
        """Calls an action once the unit is committed; never if it is rolled back."""
        if self._after is None:
            self._after = []
        self._after.append(action)

    async def commit(self) -> None:
        """Commits, then runs the actions of `after_commit`. Both finish even if the caller is cancelled, which then
        takes effect.
        """
        if self._context is None:
            self._run_after_commit()
        elif self.writes:
            await run_to_completion(self._commit())
        else:
            await self._close_transaction(None)
            self._run_after_commit()

    async def _commit(self) -> None:
        if self._announcing is not None:
            await self._announce(self._announcing)
        await self._close_transaction(None)
        self._run_after_commit()

    def _run_after_commit(self) -> None:
        after, self._after = self._after, None
        for action in after or ():
            action()

    async def rollback(self, reason: BaseException) -> None:
        self._after = None
        await self._close_transaction(reason)

    async def _begin(self) -> DatabaseConnection:
        if self._connection is None:
            context = self._open_transaction()
            self._connection = await context.__aenter__()
            # Set only once the context has been entered, so that it is never left otherwise.
            self._context = context
        return self._connection

    def _open_transaction(self) -> AbstractAsyncContextManager[DatabaseConnection]:
        if self.writes:
            return self.database.writing(lock=self._lock, bulk=self._bulk)
        return self.database.reading()

    async def _announce(self, subjects: Collection[str]) -> None:
        self._announcing = None
        try:
            await self.database.announce_at_commit(self, subjects)
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
    """Turns SQLAlchemy's errors into ours. An IntegrityError passes through, since only the caller knows what it
    means.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, sqlite3.IntegrityError):
            # Deferred constraints are checked by the commit, which does not go through SQLAlchemy.
            raise IntegrityError(None, None, error) from error
        if isinstance(error, DBAPIError | sqlite3.Error) and not isinstance(error, IntegrityError):
            cause = error.orig if isinstance(error, DBAPIError) else error
            reason = str(cause).strip().partition("\n")[0]
            if getattr(cause, "sqlite_errorname", "").startswith(_DAMAGE):
                self._database.damage = reason
                raise DatabaseDamaged(type(cause).__name__, reason) from error
            if getattr(cause, "sqlstate", None) in _LOCK_STATES:
                raise LockTimeout(type(cause).__name__, reason) from error
            if getattr(cause, "sqlstate", None) == "42501":
                raise PrivilegeRefused(type(cause).__name__, reason) from error
            if _is_outdated(cause, reason):
                raise StatementOutdated(type(cause).__name__, reason) from error
            if _is_timeout(cause):
                raise StatementTimeout(type(cause).__name__, reason) from error
            if _is_refusal(cause):
                raise StatementRefused(type(cause).__name__, reason) from error
            # The lower byte of a code of SQLite is the primary error.
            busy = getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
            raise (DatabaseBusy if busy else DatabaseUnavailable)(type(cause).__name__, reason) from error
        if isinstance(error, NoConnectionFree):
            raise DatabaseUnavailable("no connection is free") from error


def _is_outdated(cause: Any, reason: str) -> bool:
    return getattr(cause, "sqlstate", None) in _OUTDATED_STATES or reason.startswith(
        ("no such column", "no such table")
    )


def _is_refusal(cause: Any) -> bool:
    """Returns whether a statement was refused by a database that works: SQLite's general error, one of Postgres's
    limits, such as the depth of its stack, or a value that it cannot compute with.
    """
    is_refused = getattr(cause, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_ERROR, sqlite3.SQLITE_TOOBIG)
    return is_refused or (getattr(cause, "sqlstate", None) or "").startswith(("54", "22"))


def _is_timeout(cause: Any) -> bool:
    """Returns whether the database stopped a statement: Postgres after `statement_timeout`, SQLite at our deadline."""
    was_interrupted = getattr(cause, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_INTERRUPT
    return was_interrupted or getattr(cause, "sqlstate", None) == "57014"
