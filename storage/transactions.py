"""Fast transactions: each is one synchronous function, for code that makes hundreds of them a second.

In SQLite, `Database.writing` hands each statement to a thread and back several times, and compiles it anew; that is
most of the cost of a short transaction. Here statements are text, and the function runs as a whole.
"""

import asyncio
import contextlib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection

from baobab.storage.cancellation import run_to_completion
from baobab.storage.database import Database, DatabaseBusy, DatabaseUnavailable, Unit
from baobab.storage.sqlite import SqliteDatabase
from baobab.storage.sqlite_writer import SqliteWriter, bind_values, encode_values

T = TypeVar("T")

_MAX_CONSECUTIVE = 250
"""Transactions on the event loop in a row, before a thread must make one, which checkpoints a long WAL."""


class Statements(Protocol):
    """Runs the statements of one transaction, in Postgres's SQL with two exceptions: `?` is a value, and `IN ?` a list
    of texts.

    `FOR NO KEY UPDATE OF locked` locks the rows of the table with the alias `locked`, where the database locks rows.
    Days and instants are given as `date` and `datetime`, and come back as the database stores them.
    """

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]: ...

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        """Runs the same statement for each row of values."""
        ...


class TransactionRunner(Protocol):
    """Runs transactions without the write lock where the database allows it: the function must lock the rows that it
    decides on.
    """

    async def run(self, work: Callable[[Statements], T], *, durable: bool = True, announce: bool = False) -> T:
        """Commits and returns the function's result, or rolls back and raises what it raised.

        durable: False to return before the transaction is on disk. It survives the end of the process; a power failure
        may lose the last such transactions, each as a whole, but none that a durable one has followed.

        announce: tell other processes to look for what was written, as `Unit.announce` does.

        The transaction finishes even if the caller is cancelled. Raises DatabaseUnavailable, and SQLAlchemy's
        IntegrityError.
        """
        ...

    def run_now(self, work: Callable[[Statements], T]) -> T:
        """Does the same synchronously and not durably. Raises DatabaseBusy, with nothing done, if it would have to
        wait.
        """
        ...

    async def close(self) -> None: ...


def build_runner(database: Database) -> TransactionRunner:
    if isinstance(database, SqliteDatabase):
        return SqliteTransactionRunner(database)
    return PostgresTransactionRunner(database)


async def run_in_unit(unit: Unit, work: Callable[[Statements], T]) -> T:
    """Runs `work` as part of a unit that writes, and returns its result; it is committed or rolled back with
    the unit.
    """
    statements_type = _SqliteStatements if isinstance(unit.database, SqliteDatabase) else _PostgresStatements
    return await unit.run(lambda connection: work(statements_type(connection)))


class TransactionRunners:
    """The transaction runners of several databases, each built when it is first needed."""

    def __init__(self) -> None:
        self._runners: dict[Database, TransactionRunner] = {}

    def get_runner(self, database: Database) -> TransactionRunner:
        if database not in self._runners:
            self._runners[database] = build_runner(database)
        return self._runners[database]

    async def close(self) -> None:
        for runner in self._runners.values():
            await runner.close()


class PostgresTransactionRunner:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, work: Callable[[Statements], T], *, durable: bool = True, announce: bool = False) -> T:
        def run_work(connection: Connection) -> T:
            if not durable:
                connection.exec_driver_sql("SET LOCAL synchronous_commit TO off")
            result = work(_PostgresStatements(connection))
            if announce:
                self._database.announce_in(connection)
            return result

        return await run_to_completion(self._run_in_transaction(run_work))

    async def _run_in_transaction(self, work: Callable[[Connection], T]) -> T:
        async with self._database.writing(write_lock=False) as connection:
            return await connection.run_sync(work)

    def run_now(self, work: Callable[[Statements], T]) -> T:
        raise DatabaseBusy("a Postgres transaction has to wait for the server")

    async def close(self) -> None:
        """Does nothing: the runner has no connection of its own."""


class _PostgresStatements:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        cursor = self._connection.exec_driver_sql(_translate_placeholders(text), values)
        return [tuple(row) for row in cursor] if cursor.returns_rows else []

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.exec_driver_sql(_translate_placeholders(text), [tuple(row) for row in rows])


class _SqliteStatements:
    """The statements of a unit; SqliteTransactionRunner uses SqliteWriter instead."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        statement, bound_values = bind_values(text, values)
        cursor = self._connection.exec_driver_sql(statement, tuple(bound_values))
        return [tuple(row) for row in cursor] if cursor.returns_rows else []

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.exec_driver_sql(text, [tuple(encode_values(row)) for row in rows])


@cache
def _translate_placeholders(text: str) -> str:
    return text.replace("IN ?", "= ANY(?)").replace("?", "%s")


class SqliteTransactionRunner:
    """Takes the write lock like another process would.

    A transaction that is not durable runs at once on the event loop if the lock is free: that takes less time than
    handing it to a thread. All others run in a thread.
    """

    def __init__(self, database: SqliteDatabase) -> None:
        self._database = database
        self._path = database.path
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transactions")
        self._closed = False
        self._waiting_writer: SqliteWriter | None = None
        self._immediate_writer: SqliteWriter | None = None
        self._consecutive = 0

    async def run(self, work: Callable[[Statements], T], *, durable: bool = True, announce: bool = False) -> T:
        result = await self._run_or_queue(work, durable)
        if announce:
            self._database.ring_bell()
        return result

    async def _run_or_queue(self, work: Callable[[Statements], T], durable: bool) -> T:
        if self._closed:
            raise DatabaseUnavailable("the database is closed")
        if not durable:
            # If the lock is held, the thread waits for it.
            with contextlib.suppress(DatabaseBusy):
                return self.run_now(work)
        self._consecutive = 0
        return await run_to_completion(self._run_in_thread(work, durable))

    async def _run_in_thread(self, work: Callable[[Statements], T], durable: bool) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work, durable)

    def run_now(self, work: Callable[[Statements], T]) -> T:
        writer = self._immediate_writer
        if (
            writer is None
            or self._closed
            or self._consecutive >= _MAX_CONSECUTIVE
            or not writer.acquire_lock(wait=False)
        ):
            raise DatabaseBusy("another writer holds the write lock")
        self._consecutive += 1
        try:
            return writer.run(work, durable=False)
        finally:
            writer.release_lock()

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown()

    def _run(self, work: Callable[[Statements], T], durable: bool) -> T:
        if self._waiting_writer is None:
            self._waiting_writer = SqliteWriter(self._path)
        self._waiting_writer.acquire_lock(wait=True)
        try:
            if self._immediate_writer is None:
                # It never checkpoints, because a checkpoint waits for the disk.
                self._immediate_writer = SqliteWriter(self._path, busy_timeout=0, wal_autocheckpoint=0)
            return self._waiting_writer.run(work, durable=durable)
        finally:
            self._waiting_writer.release_lock()

    def _close(self) -> None:
        for writer in (self._immediate_writer, self._waiting_writer):
            if writer is not None:
                writer.close()
