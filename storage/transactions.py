"""Transactions made by one function that waits for nothing outside, for those who make hundreds of them a second.

`Database.writing` hands each statement over to a thread and back where the database is a file, several times over, and
makes each statement anew; that is most of what a short transaction costs. Here statements are text, and the function
is run as a whole.
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
"""Transactions made at once, between two that move the log into the file if it is long: some thousand pages."""


class Statements(Protocol):
    """The statements of one transaction, in Postgres's words but for `?`, a value, and `IN ?`, a list of texts.

    `FOR NO KEY UPDATE OF locked` is for the rows of whatever table is called so, where the database locks rows. Days
    and instants are given as such and come back as the database has them.
    """

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]: ...

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        """The same statement for each row of values."""
        ...


class TransactionRunner(Protocol):
    """Not in turn where the database can do without: what the function decides on, it must lock."""

    async def run(self, work: Callable[[Statements], T], *, durable: bool = True, announce: bool = False) -> T:
        """Its result, committed; what it raised, with nothing left; DatabaseUnavailable, IntegrityError (SQLAlchemy's).

        durable: False to return before the disk has it. It outlives the process all the same; a failure of power may
        take the last of such transactions, whole ones, and none that a durable one has followed.
        announce: have other processes look for what was written, as `Unit.announce` does.

        A caller who is cancelled hears of that when it is over, whichever way.
        """
        ...

    def run_now(self, work: Callable[[Statements], T]) -> T:
        """The same, before this returns and not durable. Busy, with nothing done, where that would have to wait."""
        ...

    async def close(self) -> None: ...


def build_runner(database: Database) -> TransactionRunner:
    if isinstance(database, SqliteDatabase):
        return SqliteTransactionRunner(database)
    return PostgresTransactionRunner(database)


async def run_in_unit(unit: Unit, work: Callable[[Statements], T]) -> T:
    """The work's result, as a part of a unit that writes: committed with all else that it does, or not at all."""
    statements_type = _SqliteStatements if isinstance(unit.database, SqliteDatabase) else _PostgresStatements
    return await unit.run(lambda connection: work(statements_type(connection)))


class TransactionRunners:
    """Those on each of several databases, made when they are first asked for."""

    def __init__(self) -> None:
        self._runners: dict[Database, TransactionRunner] = {}

    def get_runner(self, database: Database) -> TransactionRunner:
        if database not in self._runners:
            self._runners[database] = build_runner(database)
        return self._runners[database]

    async def close(self) -> None:
        for transactions in self._runners.values():
            await transactions.close()


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
        raise DatabaseBusy("the database is elsewhere")

    async def close(self) -> None:
        """Nothing of its own is open."""


class _PostgresStatements:
    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        found = self._connection.exec_driver_sql(_translate_placeholders(text), values)
        return [tuple(row) for row in found] if found.returns_rows else []

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.exec_driver_sql(_translate_placeholders(text), [tuple(row) for row in rows])


class _SqliteStatements:
    """Those of a unit; all others are a SqliteLine's."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        worded, given = bind_values(text, values)
        found = self._connection.exec_driver_sql(worded, tuple(given))
        return [tuple(row) for row in found] if found.returns_rows else []

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.exec_driver_sql(text, [tuple(encode_values(row)) for row in rows])


@cache
def _translate_placeholders(text: str) -> str:
    return text.replace("IN ?", "= ANY(?)").replace("?", "%s")


class SqliteTransactionRunner:
    """Takes its turn among writers as another process does.

    Where the turn is free and the disk is not waited for, a transaction is made at once, on the event loop: that takes
    less time than to hand it over to a thread. A thread makes all others.
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
            # The thread can wait.
            with contextlib.suppress(DatabaseBusy):
                return self.run_now(work)
        self._consecutive = 0
        return await run_to_completion(self._run_in_thread(work, durable))

    async def _run_in_thread(self, work: Callable[[Statements], T], durable: bool) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work, durable)

    def run_now(self, work: Callable[[Statements], T]) -> T:
        quick = self._immediate_writer
        if quick is None or self._closed or self._consecutive >= _MAX_CONSECUTIVE or not quick.acquire_lock(wait=False):
            raise DatabaseBusy("somebody else has the turn")
        self._consecutive += 1
        try:
            return quick.run(work, durable=False)
        finally:
            quick.release_lock()

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
                # It never moves the log into the file: that waits for the disk.
                self._immediate_writer = SqliteWriter(self._path, busy_timeout=0, wal_autocheckpoint=0)
            return self._waiting_writer.run(work, durable=durable)
        finally:
            self._waiting_writer.release_lock()

    def _close(self) -> None:
        for line in (self._immediate_writer, self._waiting_writer):
            if line is not None:
                line.close()
