"""The database in a SQLite file, which needs no server."""

import asyncio
import fcntl
import os
import sqlite3
import time
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Executable

from baobab.storage.cancellation import run_to_completion
from baobab.storage.sql.database import (
    INSTALLATION,
    Database,
    DatabaseBusy,
    DatabaseDamaged,
    DatabaseUnavailable,
    ErrorTranslator,
    Unit,
)
from baobab.storage.sql.deadline import Deadline
from baobab.storage.sql.prepared_statements import Result
from baobab.storage.sql.sqlite_connection import GroupedWork, SqliteConnection
from baobab.storage.sql.statements import Statements

T = TypeVar("T")

_READER_SECONDS = 30.0
_LOOK_SECONDS, _IDLE_LOOK_SECONDS = 0.02, 0.1
_IDLE_AFTER_SECONDS = 5.0
"""How long nobody has written anything when other processes' changes are looked for less often. Waking up is most of
what an idle server does.
"""
_MAX_CONSECUTIVE = 250
"""The most consecutive transactions on the event loop. Then one runs in a thread, where it can checkpoint a long
WAL.
"""

_MOST_IN_GROUP = 64


class SqliteDatabase(Database):
    """Writers hold a lock within the process, and a file lock among processes.

    The locks cost nothing, since SQLite allows one writer anyway (readers never wait: WAL). They keep apart the writers
    and checkpoints of interpreters whose SQLite is older than 3.51.3 (docs/decisions/0003-sqlite-write-lock.md).
    """

    readers = 8
    """The most connections that read at the same time."""

    def __init__(self, path: Path, *, statement_seconds: float | None = None) -> None:
        """statement_seconds: how long a read may take; None if only our own code decides what is read."""
        super().__init__()
        self.path = path
        self._statement_seconds = statement_seconds
        self._lock_file: int | None = None
        self._seen_bell: int | None = None
        self._rung_at = 0.0
        self._write_lock = asyncio.Lock()
        self._writer: SqliteConnection | None = None
        self._group: list[GroupedWork[Any]] = []
        """The durable work that runs, waits to run, or whose caller has not fetched its result yet; oldest first."""
        self._consecutive = 0
        self._free_readers: list[SqliteConnection] = []
        self._readers = asyncio.Semaphore(self.readers)
        self._reading = 0

    async def open(self) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._lock_file = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        async with self.writing():
            # Processes that start together would race for the switch to WAL, so the first connection needs the lock.
            pass

    async def close(self) -> None:
        connections, self._free_readers = self._free_readers, []
        if self._writer is not None:
            connections.append(self._writer)
            self._writer = None
        for connection in connections:
            await connection.close()
        if self._lock_file is not None:
            os.close(self._lock_file)
            self._lock_file = None

    async def ping(self) -> None:
        if self.damage is not None:
            raise DatabaseDamaged("damaged", self.damage)
        async with self.reading() as connection:
            # Unlike `SELECT 1`, this reads the file.
            await connection.exec_driver_sql("SELECT count(*) FROM sqlite_master")

    @property
    def dialect(self) -> str:
        return "sqlite"

    @property
    def connections_in_use(self) -> int:
        return self._reading + self._write_lock.locked()

    @asynccontextmanager
    async def reading(self, *, single: bool = False, seconds: float | None = None) -> AsyncIterator[SqliteConnection]:
        with ErrorTranslator(self):
            connection = await self._acquire_reader()
            try:
                connection.read_seconds = seconds
                await connection.begin(write=False)
                yield connection
            finally:
                connection.read_seconds = None
                connection.rollback()
                self._release_reader(connection)

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        """Runs the query alone, which SQLite does in a transaction of its own without being asked to."""
        with ErrorTranslator(self):
            connection = await self._acquire_reader()
            try:
                return await connection.execute(statement, values)
            finally:
                self._release_reader(connection)

    @asynccontextmanager
    async def writing(self, *, lock: str | None = INSTALLATION, bulk: bool = False) -> AsyncIterator[SqliteConnection]:
        """Excludes all other writers, whatever `lock` says: SQLite has one at a time."""
        with ErrorTranslator(self):
            async with self._lock_writer() as connection:
                connection.in_thread = bulk
                try:
                    await connection.begin(write=True)
                    yield connection
                    await connection.commit()
                finally:
                    connection.in_thread = False
                    connection.rollback()

    async def transact(
        self, work: Callable[[Statements], T], *, durable: bool = True, announce: Collection[str] = ()
    ) -> T:
        """Runs a transaction that is not durable at once on the event loop if the lock is free, and any other one in a
        thread. Durable ones that wait for the write lock at the same time share a transaction.
        """
        try:
            if durable:
                raise DatabaseBusy("what waits for the disk must not do so on the event loop")
            result = self.transact_now(work)
        except DatabaseBusy:
            result = await run_to_completion(
                self._transact_in_group(work) if durable else self._transact_in_thread(work)
            )
        if announce:
            self.ring_bell()
        return result

    @property
    def has_free_reader(self) -> bool:
        """Whether a connection for `read_now` is open and free."""
        return bool(self._free_readers)

    def read_now(self, work: Callable[[Statements], T], *, single: bool) -> T:
        """Calls a function that reads, at once, on the event loop. Raises DatabaseBusy if it takes too long there.

        single: whether it runs one statement.
        """
        with ErrorTranslator(self):
            # Nobody else runs before it is done.
            return self._free_readers[-1].read_now(work, single=single)

    def transact_now(self, work: Callable[[Statements], T]) -> T:
        if (
            self._writer is None
            or self._write_lock.locked()
            or self._consecutive >= _MAX_CONSECUTIVE
            or not self._try_lock_file()
        ):
            raise DatabaseBusy("another writer holds the write lock")
        self._consecutive += 1
        try:
            with ErrorTranslator(self):
                return self._writer.transact(work, durable=False, checkpoint=False)
        finally:
            self._unlock_file()

    async def take_lock(self, connection: SqliteConnection, lock: str) -> None:
        """Does nothing: the transaction excludes all others."""

    async def run_statements(self, connection: SqliteConnection, work: Callable[[Statements], T]) -> T:
        return await connection.run_statements(work)

    async def alter(self, work: Callable[[Statements], T]) -> T:
        """Runs a durable `transact` that may change tables: references between rows are checked only at its end, so
        that a table can be rebuilt. Raises IntegrityError if a row refers to one that does not exist.
        """

        async def run() -> T:
            with ErrorTranslator(self):
                async with self._lock_writer() as connection:
                    return await connection.alter_in_thread(work)

        return await run_to_completion(run())

    async def _transact_in_thread(self, work: Callable[[Statements], T]) -> T:
        with ErrorTranslator(self):
            async with self._lock_writer() as connection:
                return await connection.transact_in_thread(work, durable=False)

    async def _transact_in_group(self, work: Callable[[Statements], T]) -> T:
        """Runs work in a transaction that it may share: the first that gets the write lock also runs the work of
        those that wait for it, in their order.
        """
        grouped_work = GroupedWork(work)
        self._group.append(grouped_work)
        try:
            with ErrorTranslator(self):
                async with self._write_lock:
                    while not grouped_work.is_done:
                        async with self._lock_file_for_writer() as connection:
                            waiting = [other for other in self._group if not other.is_done]
                            await connection.transact_group_in_thread(waiting[:_MOST_IN_GROUP])
                return grouped_work.get_result()
        finally:
            self._group.remove(grouped_work)

    @asynccontextmanager
    async def _lock_writer(self) -> AsyncIterator[SqliteConnection]:
        """Holds the writers' lock, which all processes share, and yields the connection that writes."""
        async with self._write_lock, self._lock_file_for_writer() as connection:
            yield connection

    @asynccontextmanager
    async def _lock_file_for_writer(self) -> AsyncIterator[SqliteConnection]:
        """Yields the connection that writes, with the lock among processes. The caller holds the lock within this
        one.
        """
        if not self._try_lock_file():
            assert self._lock_file is not None
            await _wait_for_lock(self._lock_file)
        try:
            self._consecutive = 0
            if self._writer is None:
                await run_to_completion(self._open_writer())
            assert self._writer is not None
            yield self._writer
        finally:
            self._unlock_file()

    def _try_lock_file(self) -> bool:
        if self._lock_file is None:
            raise DatabaseUnavailable("the database is closed")
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def _unlock_file(self) -> None:
        if self._lock_file is not None:
            fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    async def _acquire_reader(self) -> SqliteConnection:
        if self._readers.locked():
            try:
                await asyncio.wait_for(self._readers.acquire(), _READER_SECONDS)
            except TimeoutError as exc:
                raise DatabaseUnavailable("no connection is free") from exc
        else:
            await self._readers.acquire()
        self._reading += 1
        try:
            return self._free_readers.pop() if self._free_readers else await self._open_reader()
        except BaseException:
            self._reading -= 1
            self._readers.release()
            raise

    def _release_reader(self, connection: SqliteConnection) -> None:
        self._free_readers.append(connection)
        self._reading -= 1
        self._readers.release()

    async def _open_writer(self) -> None:
        self._writer = await SqliteConnection.open(self.path, self._prepare, self._statement_seconds)

    async def _open_reader(self) -> SqliteConnection:
        opened_connections: list[SqliteConnection] = []

        async def open_one() -> None:
            opened_connections.append(await SqliteConnection.open(self.path, self._prepare, self._statement_seconds))

        try:
            await run_to_completion(open_one())
        except BaseException:
            # The caller was cancelled; another one will use the connection.
            self._free_readers += opened_connections
            raise
        return opened_connections[0]

    def _prepare(self, connection: sqlite3.Connection, deadline: Deadline) -> None:
        """Prepares a new connection before anything is read from it.

        deadline: of what the connection runs, which its functions must look at.
        """

    async def announce_at_commit(self, unit: Unit, subjects: Collection[str]) -> None:
        unit.after_commit(self.ring_bell)

    async def announce(self, subject: str) -> None:
        self.ring_bell()

    async def wait_for_announcement(self, seconds: float) -> Collection[str] | None:
        """Polls the modification time of the lock file (the bell), which costs microseconds. A change that is missed is
        seen at the next poll.
        """
        until = time.monotonic() + seconds
        while (seconds_left := until - time.monotonic()) > 0:
            if self._read_bell() != self._seen_bell:
                self._rung_at = time.monotonic()
                break
            is_idle = time.monotonic() - self._rung_at > _IDLE_AFTER_SECONDS
            await asyncio.sleep(min(_IDLE_LOOK_SECONDS if is_idle else _LOOK_SECONDS, seconds_left))
        self._seen_bell = self._read_bell()
        return None

    def ring_bell(self) -> None:
        """Tells other processes to look for newly committed changes."""
        if self._lock_file is None:
            return
        self._rung_at = time.monotonic()
        heard_all = self._read_bell() == self._seen_bell
        # An explicit time, because the system's own file times advance only every few milliseconds.
        now = time.time_ns()
        os.utime(self._lock_file, ns=(now, now))
        if heard_all:
            # This process need not look for what it has written itself.
            self._seen_bell = now

    def _read_bell(self) -> int | None:
        return None if self._lock_file is None else os.fstat(self._lock_file).st_mtime_ns


async def _wait_for_lock(lock_file: int) -> None:
    """Waits for the file lock. If the caller is cancelled, the lock is released as soon as its thread gets it."""
    try:
        await run_to_completion(asyncio.to_thread(fcntl.flock, lock_file, fcntl.LOCK_EX))
    except asyncio.CancelledError:
        fcntl.flock(lock_file, fcntl.LOCK_UN)
        raise
