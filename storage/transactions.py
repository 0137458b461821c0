"""Transactions made by one function that waits for nothing outside, for those who make hundreds of them a second.

`Database.writing` hands each statement over to a thread and back where the database is a file, several times over;
that is most of what a short transaction costs. Here the function itself is handed over, once.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import make_url

from baobab.storage.database import Database, DatabaseUnavailable, Translated
from baobab.storage.sqlite import SqliteDatabase, on_begin, on_connect

T = TypeVar("T")


class Transactions(Protocol):
    """Not in turn where the database can do without: what the function decides on, it must lock."""

    async def run(self, work: Callable[[Connection], T]) -> T:
        """Its result, committed; what it raised, with nothing left; DatabaseUnavailable."""
        ...

    async def close(self) -> None: ...


def transactions_on(database: Database) -> Transactions:
    return SqliteTransactions(database) if isinstance(database, SqliteDatabase) else PostgresTransactions(database)


class PostgresTransactions:
    def __init__(self, database: Database) -> None:
        self._database = database

    async def run(self, work: Callable[[Connection], T]) -> T:
        async with self._database.writing(turn=False) as connection:
            return await connection.run_sync(work)

    async def close(self) -> None:
        """Nothing of its own is open."""


class SqliteTransactions:
    """One thread with a connection of its own. It takes its turn among writers as another process does."""

    def __init__(self, database: SqliteDatabase) -> None:
        self._gate_path = database.path.with_suffix(".lock")
        self._gate: int | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="transactions")
        self._closed = False
        url = make_url("sqlite+pysqlite://").set(database=str(database.path))
        self._engine = create_engine(url, pool_size=1, max_overflow=0).execution_options(begin="BEGIN IMMEDIATE")
        event.listen(self._engine, "connect", on_connect)
        event.listen(self._engine, "begin", on_begin)

    async def run(self, work: Callable[[Connection], T]) -> T:
        if self._closed:
            raise DatabaseUnavailable("the database is closed")
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._run, work)

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
            self._thread.shutdown()

    def _run(self, work: Callable[[Connection], T]) -> T:
        if self._gate is None:
            self._gate = os.open(self._gate_path, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(self._gate, fcntl.LOCK_EX)
        try:
            with Translated(), self._engine.begin() as connection:
                return work(connection)
        finally:
            fcntl.flock(self._gate, fcntl.LOCK_UN)

    def _close(self) -> None:
        self._engine.dispose()
        if self._gate is not None:
            os.close(self._gate)
