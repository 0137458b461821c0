"""One connection to a SQLite file, whose short statements run on the event loop.

Handing a statement to a thread and back costs ten times as much as SQLite needs for it. A read that turns out to be
long, or that would have to wait for another process, is stopped and run again in the connection's thread. Commits run
there too, because they wait for the disk.
"""

import asyncio
import sqlite3
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Any, Generic, TypeVar

import aiosqlite
from pydantic_core import from_json
from sqlalchemy import Connection, Dialect, Executable, create_engine
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.database import DatabaseBusy, RowStream, is_long
from baobab.storage.sql.deadline import Deadline
from baobab.storage.sql.prepared_statements import PreparedStatement, PreparedStatements, Result
from baobab.storage.sql.statements import SqliteStatements, Statements

T = TypeVar("T")

_BUDGET = 25_000
"""The instructions of SQLite's virtual machine after which it asks whether to stop. A read on the event loop may take
two budgets, one or two milliseconds.
"""
_SMALL_BUDGET, _SMALL_BUDGETS = 25, 2_000
"""The same for a read that a caller of an app has asked for, whose instructions may each take long: to reach a column
behind a text of 10 MB is one, and takes milliseconds. It must ask again within some rows.
"""
_LOOP_SECONDS = 0.005
"""How long such a read may take on the event loop."""
_WRITE_CALL_SECONDS = 2.0
"""How long the functions of a write may take: the other writers of the app wait for it."""
_BULK_ROWS = 64
"""A statement for more rows than this runs in the thread."""
_GROUP_SECONDS = 0.02
"""After this time, a transaction that several callers share begins no further work."""
_BUSY_MILLISECONDS = 10_000
_CHECKPOINT_PAGES = 1000
_INTERRUPTED = (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY)

_PRAGMAS = (
    f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}",
    "PRAGMA journal_mode=WAL",
    "PRAGMA synchronous=FULL",
    "PRAGMA foreign_keys=ON",
    # On the event loop nothing waits for another process.
    "PRAGMA busy_timeout=0",
)

_opened_connection: ContextVar[sqlite3.Connection] = ContextVar("opened")
# One engine for all files, so that a statement is compiled once in each process. Transactions are begun and ended below
# SQLAlchemy. Unexpected errors are logged, but without the values of their statement.
_engine = create_engine(
    "sqlite://",
    poolclass=NullPool,
    creator=_opened_connection.get,
    hide_parameters=True,
    isolation_level="AUTOCOMMIT",
    json_deserializer=from_json,
)
_prepared_statements = PreparedStatements(_engine.dialect)


class _Cursor(sqlite3.Cursor):
    """Reads all rows at once, so that no statement stays open between two iterations of the event loop."""

    _rows: deque[Any]
    connection: "_Connection"

    def execute(self, sql: str, parameters: Any = (), /) -> "_Cursor":
        super().execute(sql, parameters)
        if not self.connection.streams:
            self._rows = deque(super().fetchall() if self.description else ())
        return self

    def fetchone(self) -> Any:
        if self.connection.streams:
            return super().fetchone()
        return self._rows.popleft() if self._rows else None

    def fetchmany(self, size: int | None = None) -> list[Any]:
        size = size or self.arraysize
        if self.connection.streams:
            return super().fetchmany(size)
        return [self._rows.popleft() for _ in range(min(size, len(self._rows)))]

    def fetchall(self) -> list[Any]:
        if self.connection.streams:
            return super().fetchall()
        rows, self._rows = list(self._rows), deque()
        return rows


class _Connection(sqlite3.Connection):
    streams = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.deadline = Deadline()

    def cursor(self, factory: Any = _Cursor) -> Any:
        return super().cursor(factory)


class _Thread(aiosqlite.Connection):
    """The thread of a connection."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        super().__init__(connect, 1)
        # The end of the process does not wait for the thread.
        self._thread.daemon = True
        self._stop_future: asyncio.Future[Any] | None = None

    @property
    def connection(self) -> Any:
        return self._conn

    def stop(self) -> "asyncio.Future[Any] | None":
        # A thread that has ended would never answer, and one whose connection failed has been stopped already.
        if self._stop_future is None:
            self._stop_future = super().stop()
        return self._stop_future

    async def wait_until_stopped(self) -> None:
        stop_future = self.stop()
        if stop_future is not None:
            await stop_future

    def submit(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Queues a function for the thread, without a coroutine or a task around it: each commit comes through here."""
        if self._connection is None:
            raise ValueError("the connection is closed")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._tx.put_nowait((future, work))
        return future


class GroupedWork(Generic[T]):
    """A function that runs in a transaction which others may share, and its outcome."""

    def __init__(self, work: Callable[[Statements], T]) -> None:
        """work: may be called more than once. Its last call counts."""
        self._work = work
        self._result: T
        self.error: BaseException | None = None
        self.is_done = False
        """Whether it is committed, or has failed."""

    def run(self, statements: Statements) -> None:
        self.error = None
        try:
            self._result = self._work(statements)
        except BaseException as exc:  # noqa: BLE001  # `get_result` raises it
            self.error = exc

    def fail(self, error: BaseException) -> None:
        """Ends it with this error, unless it has failed by itself."""
        self.error = self.error or error
        self.is_done = True

    def get_result(self) -> T:
        """Returns what the function returned. Raises its error, or that of the commit."""
        if self.error is not None:
            raise self.error
        return self._result


class SqliteConnection:
    """A connection, used by one caller at a time."""

    def __init__(self, thread: _Thread, statement_seconds: float | None) -> None:
        """Use `open`."""
        self._thread = thread
        self._statement_seconds = statement_seconds
        self._raw: _Connection = thread.connection
        self._deadline: Deadline = self._raw.deadline
        # The engine asks for the connection that it is to use.
        token = _opened_connection.set(self._raw)
        self._sync = _engine.connect()
        _opened_connection.reset(token)
        # Always in one, so that nobody who asks begins and commits another (Alembic does).
        self._sync.begin()
        self._is_reading = True
        self._budgets: int | None = None
        """How many budgets may still begin on the event loop; None if nothing that may be stopped runs there."""
        self._pragmas: dict[str, object] = {}
        self.read_seconds: float | None = None
        """How long what is read now may take in the thread, if less than a statement may."""
        self.in_thread = False
        """Whether everything runs in the thread, because it may take long."""
        self._raw.set_progress_handler(self._must_stop, _BUDGET)

    @classmethod
    async def open(
        cls, path: Path, prepare: Callable[[sqlite3.Connection, Deadline], None], statement_seconds: float | None = None
    ) -> "SqliteConnection":
        """Opens a connection.

        prepare: called in the thread with the new connection, before anything is read. statement_seconds: how long a
        statement may take in the thread; None for no limit.
        """

        def connect() -> sqlite3.Connection:
            raw = sqlite3.connect(path, check_same_thread=False, timeout=0, isolation_level=None, factory=_Connection)
            try:
                prepare(raw, raw.deadline)
                for pragma in _PRAGMAS:
                    raw.execute(pragma)
            except BaseException:
                raw.close()
                raise
            return raw

        thread = _Thread(connect)
        try:
            await thread
        except BaseException:
            await thread.wait_until_stopped()
            raise
        return cls(thread, statement_seconds)

    @property
    def dialect(self) -> Dialect:
        return self._sync.dialect

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        """Runs one statement; its rows can be read at any time afterwards."""
        ready = _prepared_statements.prepare(statement, values)
        run = partial(self._sync.execute, statement, values) if ready is None else partial(self._run, ready, values)
        # Nobody knows how many rows a deletion finds: an app is one statement for each of its tables.
        many = getattr(statement, "is_delete", False) or (isinstance(values, list) and len(values) > _BULK_ROWS)
        many = many or is_long(statement)
        # The statement that writes cannot be stopped: SQLite would roll back the whole transaction.
        stops = self._is_reading or getattr(statement, "is_select", False)
        result: Result = await self._call(run, stops=stops, in_thread=many)
        return result

    async def write(self, statement: Executable, values: Any = None) -> None:
        """Runs the statement at once, because SQLite gains nothing from a delay."""
        await self.execute(statement, values)

    async def execute_all(self, queries: Sequence[tuple[Executable, Any]]) -> list[Result]:
        return [await self.execute(statement, values) for statement, values in queries]

    def _run(self, ready: PreparedStatement, values: Mapping[str, Any] | None) -> Result:
        try:
            cursor = sqlite3.Cursor(self._raw).execute(ready.text, ready.bind(values))
            return ready.build_result(cursor.fetchall(), None, cursor.rowcount)
        except sqlite3.Error as exc:
            raise DBAPIError.instance(ready.text, None, exc, sqlite3.Error, hide_parameters=True) from exc

    async def scalar(self, statement: Executable, values: Any = None) -> Any:
        return (await self.execute(statement, values)).scalar()

    async def exec_driver_sql(self, statement: str) -> Result:
        return await self._call(partial(self._sync.exec_driver_sql, statement), stops=self._is_reading)

    async def run_statements(self, work: Callable[[Statements], T], *, in_thread: bool = False) -> T:
        """Calls a function that runs statements as text. In a transaction that only reads it may be called twice.

        in_thread: whether it runs in the thread from the beginning, because it may call functions that SQLite cannot
        stop.
        """
        return await self._call(partial(work, self.statements), stops=self._is_reading, in_thread=in_thread)

    async def run_while_awaited(self, work: Callable[[Statements], T]) -> T:
        """Calls a function that reads, in the thread. If the caller is cancelled, what runs is stopped."""
        task = asyncio.ensure_future(self.run_statements(work, in_thread=True))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._deadline.pull()
            await run_to_completion(asyncio.gather(task, return_exceptions=True))
            self._deadline.set(None)
            raise

    def read_now(self, work: Callable[[Statements], T], *, single: bool) -> T:
        """Calls a function that reads, outside a transaction, on the event loop. Raises DatabaseBusy if it would take
        too long there.

        single: whether it runs one statement, which is a transaction by itself.
        """
        self._budgets = _SMALL_BUDGETS
        self._raw.set_progress_handler(self._must_stop, _SMALL_BUDGET)
        self._deadline.set(_LOOP_SECONDS)
        self._deadline.stops_comparisons = True
        try:
            if not single:
                self._raw.execute("BEGIN")
            return work(self.statements)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF not in _INTERRUPTED:
                raise
            raise DatabaseBusy("it takes too long for the event loop") from error
        finally:
            self._budgets = None
            self._deadline.set(None)
            self._raw.set_progress_handler(self._must_stop, _BUDGET)
            self.rollback()

    async def run_sync(self, work: Callable[[Connection], T]) -> T:
        """Calls a function that runs several statements. In a transaction that only reads it may be called twice."""
        return await self._call(partial(work, self._sync), stops=self._is_reading)

    @asynccontextmanager
    async def stream(self, statement: Executable) -> AsyncIterator[RowStream]:
        """Yields the rows of a statement with the execution option `yield_per`, read in the thread batch by batch."""
        self._raw.streams = True
        try:
            result = await self._run_in_thread(partial(self._sync.execute, statement))
            yield RowStream(result, self._run_in_thread)
            result.close()
        finally:
            self._raw.streams = False

    async def begin(self, *, write: bool) -> None:
        self._is_reading = not write
        if not write:
            self._raw.execute("BEGIN")
        elif self.in_thread or not self._try_to_begin_writing():
            await self._run_in_thread(partial(self._begin_writing, durable=True))

    async def commit(self) -> None:
        """Commits in the thread, because that waits for the disk."""
        await run_to_completion(self._thread.submit(self._commit))

    def rollback(self) -> None:
        # SQLite rolls back by itself after some errors, such as a full disk.
        if self._raw.in_transaction:
            self._raw.execute("ROLLBACK")

    @property
    def statements(self) -> Statements:
        return SqliteStatements(self._raw, self._deadline)

    async def transact_in_thread(self, work: Callable[[Statements], T], *, durable: bool) -> T:
        return await self._run_in_thread(partial(self.transact, work, durable=durable, checkpoint=True))

    async def transact_group_in_thread(self, group: Sequence[GroupedWork[Any]]) -> None:
        """Runs functions one after the other in one durable transaction, so that they share the wait for the disk.

        A function that raises is rolled back alone. Those that are not done afterwards have to run again: the time of a
        transaction is limited, and SQLite rolls back all of it after some errors of one function.
        """
        await self._run_in_thread(partial(self._transact_group, group))

    async def alter_in_thread(self, work: Callable[[Statements], T]) -> T:
        def alter(statements: Statements) -> T:
            result = work(statements)
            violations = statements.rows("PRAGMA foreign_key_check")
            if violations:
                raise sqlite3.IntegrityError(f"FOREIGN KEY constraint failed: {violations[0][0]} -> {violations[0][2]}")
            return result

        def run() -> T:
            # Within a transaction it could not be set; with it, dropping a table would delete what refers to its rows.
            self._raw.execute("PRAGMA foreign_keys=OFF")
            try:
                return self.transact(alter, durable=True, checkpoint=True)
            finally:
                self._raw.execute("PRAGMA foreign_keys=ON")

        return await self._run_in_thread(run)

    def transact(self, work: Callable[[Statements], T], *, durable: bool, checkpoint: bool) -> T:
        """Commits and returns the function's result, or rolls back and raises its exception.

        checkpoint: whether the commit may move a long WAL into the file, which waits for the disk.
        """
        self._begin_writing(durable=durable)
        try:
            result = work(self.statements)
            self._commit(checkpoint=checkpoint)
        except BaseException:
            self.rollback()
            raise
        return result

    def _transact_group(self, group: Sequence[GroupedWork[Any]]) -> None:
        ends_at = time.monotonic() + _GROUP_SECONDS
        reached_work: list[GroupedWork[Any]] = []
        self._begin_writing(durable=True)
        try:
            for grouped_work in group:
                self._set_deadline(_WRITE_CALL_SECONDS)
                self._raw.execute("SAVEPOINT grouped")
                grouped_work.run(self.statements)
                if not self._raw.in_transaction:
                    grouped_work.fail(sqlite3.OperationalError("SQLite has rolled back the transaction"))
                    return
                if grouped_work.error is not None:
                    self._raw.execute("ROLLBACK TO grouped")
                self._raw.execute("RELEASE grouped")
                reached_work.append(grouped_work)
                if time.monotonic() > ends_at:
                    break
            self._commit()
        except BaseException as exc:
            self.rollback()
            if not reached_work:
                raise
            for grouped_work in reached_work:
                grouped_work.fail(exc)
        for grouped_work in reached_work:
            grouped_work.is_done = True

    def _try_to_begin_writing(self) -> bool:
        """Returns False if it would have to wait for another process.

        The statement is not stopped by its budget, which SQLite counts over all executions of a prepared statement: one
        in some thousands would be reported as interrupted with its transaction begun.
        """
        try:
            self._begin_writing(durable=True)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY:
                raise
            return False
        return True

    def _begin_writing(self, *, durable: bool) -> None:
        self._is_reading = self._deadline.stops_comparisons = False
        self._set_pragma("synchronous", "FULL" if durable else "NORMAL")
        self._raw.execute("BEGIN IMMEDIATE")

    def _commit(self, *, checkpoint: bool = True) -> None:
        self._set_pragma("wal_autocheckpoint", _CHECKPOINT_PAGES if checkpoint else 0)
        self._raw.execute("COMMIT")

    def _set_pragma(self, name: str, value: object) -> None:
        if self._pragmas.get(name) != value:
            self._raw.execute(f"PRAGMA {name}={value}")
            self._pragmas[name] = value

    async def close(self) -> None:
        await self._thread.submit(self._sync.close)
        await self._thread.wait_until_stopped()

    def _set_deadline(self, call_seconds: float | None = None) -> None:
        """call_seconds: how long the functions that statements call may take, if less than the statements may."""
        self._deadline.stops_comparisons = self._is_reading
        self._deadline.set(self.read_seconds or self._statement_seconds)
        if self._statement_seconds is not None and call_seconds is not None:
            self._deadline.set_for_calls(call_seconds)

    def _must_stop(self) -> bool:
        """Returns whether SQLite must stop the running statement. SQLite asks each time when a budget is used up.

        It counts over all executions of a prepared statement, so it asks early the first time: a statement is stopped
        when it asks again. Otherwise one execution in some hundreds would be stopped, and Python 3.11 would compile
        the statement anew from then on, because it takes one that has failed for one that is in use.
        """
        if self._budgets is not None:
            self._budgets -= 1
            return self._budgets < 0 or self._deadline.has_passed
        return self._deadline.has_passed

    async def _call(self, work: Callable[[], T], *, stops: bool, in_thread: bool = False) -> T:
        if not (self.in_thread or in_thread):
            self._budgets = 1 if stops else None
            try:
                return work()
            except (OperationalError, sqlite3.OperationalError) as exc:
                error = exc.orig if isinstance(exc, OperationalError) else exc
                if not stops or getattr(error, "sqlite_errorcode", 0) & 0xFF not in _INTERRUPTED:
                    raise
            finally:
                self._budgets = None
        return await self._run_in_thread(work)

    async def _run_in_thread(self, work: Callable[[], T]) -> T:
        """Runs a function in the thread to its end, even if the caller is cancelled."""

        def run() -> T:
            self._raw.execute(f"PRAGMA busy_timeout={_BUSY_MILLISECONDS}")
            self._set_deadline()
            try:
                return work()
            finally:
                self._deadline.set(None)
                self._raw.execute("PRAGMA busy_timeout=0")

        return await run_to_completion(self._thread.submit(run))
