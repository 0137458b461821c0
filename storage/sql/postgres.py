"""The database in Postgres, for many workers on many machines."""

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import psycopg
from sqlalchemy import Executable, false, text
from sqlalchemy.dialects.postgresql import insert

from baobab.storage.cancellation import run_to_completion
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.storage.sql.database import (
    INSTALLATION,
    Database,
    DatabaseBusy,
    DatabaseUnavailable,
    ErrorTranslator,
    Unit,
    is_long,
)
from baobab.storage.sql.pooler import leads_to_pooler
from baobab.storage.sql.postgres_connection import PostgresConnection, build_engine
from baobab.storage.sql.postgres_listener import PostgresListener
from baobab.storage.sql.postgres_session import PostgresSession
from baobab.storage.sql.postgres_shared_reads import SharedReads
from baobab.storage.sql.prepared_statements import PreparedStatements, Result
from baobab.storage.sql.statements import Statements
from baobab.storage.sql.tables import tenant_locks

T = TypeVar("T")

CHANNEL = "baobab"
POOL = 8
"""The connections of one worker. One more listens for notices."""

# Any number that no other application uses in the database.
_LOCK_INSTALLATION = text("SELECT pg_advisory_xact_lock(7243392001)")
_INSERT_TENANT = insert(tenant_locks)
# The row is locked, whether it was there or not, and never changed.
_LOCK_TENANT = _INSERT_TENANT.on_conflict_do_update(
    index_elements=["tenant"], set_={"tenant": _INSERT_TENANT.excluded.tenant}, where=false()
)
_NOTIFY = text("SELECT pg_notify(:channel, :told)")
_CONNECT_SECONDS = 5
_PING_SECONDS = 5
_FREE_SECONDS = 10
_READING = (b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",)
_WRITING = (b"BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE",)
_RELAXED = (*_WRITING, b"SET LOCAL synchronous_commit = off")

_log = logging.getLogger(__name__)


class PostgresDatabase(Database):
    """Postgres, where the lock of a tenant is a row lock. The server releases it when the transaction or its connection
    ends.

    So code that decides on what it has just read is right, as on SQLite (docs/decisions/0025-tenant-locks.md).
    """

    def __init__(self, url: str, name: str = "baobab", *, notices_url: str = "") -> None:
        """url: `postgresql://user:password@host:port/name?sslmode=...`, as libpq takes it. It may lead to a pooler.

        name: the application name of our connections in Postgres.

        notices_url: the server to listen to for notices, by default the same one. A transaction pooler does not pass
        them on.
        """
        self._url = url
        self._notices_url = notices_url
        self._hears_notices = True
        self._origin = uuid.uuid4().hex
        self._listener: PostgresListener | None = None
        self._name = name
        super().__init__()
        self._engine = build_engine()
        self._prepared_statements = PreparedStatements(self._engine.dialect)
        self._free: list[PostgresConnection] = []
        self._slots = asyncio.Semaphore(POOL)
        self._in_use = 0
        self._is_closed = False
        self._turns = KeyedSemaphore(1)
        self._shared_reads = SharedReads(self.reading)

    async def open(self) -> None:
        self._is_closed = False
        await self.ping()

    async def close(self) -> None:
        self._is_closed = True
        await self._stop_listening()
        free, self._free = self._free, []
        for connection in free:
            await connection.close()

    @property
    def dialect(self) -> str:
        return "postgresql"

    @property
    def connections_in_use(self) -> int:
        return self._in_use

    @asynccontextmanager
    async def reading(self, *, single: bool = False, seconds: float | None = None) -> AsyncIterator[PostgresConnection]:
        with ErrorTranslator(self):
            async with self._take_connection() as connection:
                connection.begin(*_READING, single=single, reads=True)
                if seconds is not None:
                    connection.limit_time(seconds)
                yield connection

    @asynccontextmanager
    async def writing(
        self, *, lock: str | None = INSTALLATION, bulk: bool = False
    ) -> AsyncIterator[PostgresConnection]:
        if lock is None:
            async with self._open_transaction(_WRITING) as connection:
                yield connection
            return
        # A task that waits for a tenant in this process waits without a connection, which others may need.
        async with self._turns.acquire_slot(lock), self._open_transaction(_WRITING) as connection:
            if lock == INSTALLATION:
                # There may be no table yet. Whoever holds it also reads what is not in the database: it is taken now.
                await connection.execute(_LOCK_INSTALLATION)
                if bulk:
                    # A migration may rewrite tables of any size, and nobody else writes meanwhile.
                    await connection.lift_time_limit()
            else:
                # Sent with the first statement, which the server runs when it has the lock.
                await connection.write(_LOCK_TENANT, {"tenant": lock})
            yield connection

    async def execute(self, statement: Executable, values: Any = None) -> Result:
        if self._slots.locked() and not is_long(statement) and self._prepared_statements.has_seen(statement):
            result = await self._shared_reads.execute(statement, values)
            if result is not None:
                return result
        with ErrorTranslator(self):
            async with self._take_connection() as connection:
                connection.begin(*_READING, single=True, reads=True)
                return await connection.execute(statement, values)

    async def write(self, statement: Executable, values: Any = None) -> Result:
        async def run() -> Result:
            with ErrorTranslator(self):
                async with self._take_connection() as connection:
                    connection.begin(*_WRITING, single=True)
                    result = await connection.execute(statement, values)
                    await connection.commit()
                    return result

        return await run_to_completion(run())

    async def take_lock(self, connection: PostgresConnection, lock: str) -> None:
        await connection.execute(_LOCK_TENANT, {"tenant": lock})

    @asynccontextmanager
    async def _open_transaction(self, begin: tuple[bytes, ...]) -> AsyncIterator[PostgresConnection]:
        """Begins a transaction that is committed when the block ends, unless it raises."""
        with ErrorTranslator(self):
            async with self._take_connection() as connection:
                connection.begin(*begin)
                yield connection
                await connection.commit()

    def _take_connection(self) -> "_TakenConnection":
        return _TakenConnection(self)

    async def acquire_connection(self) -> PostgresConnection:
        """Returns a free connection. Raises DatabaseUnavailable if none becomes free."""
        if self._slots.locked():
            try:
                async with asyncio.timeout(_FREE_SECONDS):
                    await self._slots.acquire()
            except TimeoutError as exc:
                raise DatabaseUnavailable("no connection is free") from exc
        else:
            await self._slots.acquire()
        self._in_use += 1
        return (
            self._free.pop()
            if self._free
            else PostgresConnection(self._engine, self._prepared_statements, self._open_session)
        )

    async def release_connection(self, connection: PostgresConnection) -> None:
        """Ends the transaction of a connection and makes it free."""
        connection.end()
        self._in_use -= 1
        self._slots.release()
        if self._is_closed:
            await connection.close()
        else:
            self._free.append(connection)

    async def _open_session(self) -> PostgresSession:
        return await PostgresSession.open(self._url, self._name)

    async def ping(self) -> None:
        async with self.reading() as connection:
            watch = asyncio.get_running_loop().call_later(_PING_SECONDS, connection.cut)
            try:
                await connection.execute(text("SELECT 1"))
            finally:
                watch.cancel()

    async def announce_at_commit(self, unit: Unit, subjects: Collection[str]) -> None:
        await unit.write(_NOTIFY, self._announcement(subjects))

    async def announce(self, subject: str) -> None:
        # What nobody hears after a failure of the server need not be on its disk.
        await self.transact(lambda _: None, durable=False, announce=[subject])

    def _announcement(self, subjects: Collection[str]) -> dict[str, str]:
        return {"channel": CHANNEL, "told": " ".join([self._origin, *sorted(subjects)])}

    async def transact(
        self, work: Callable[[Statements], T], *, durable: bool = True, announce: Collection[str] = ()
    ) -> T:
        async def run() -> T:
            async with self._open_transaction(_WRITING if durable else _RELAXED) as connection:
                result = await connection.run_statements(work)
                if announce:
                    await connection.write(_NOTIFY, self._announcement(announce))
                return result

        return await run_to_completion(run())

    def transact_now(self, work: Callable[[Statements], T]) -> T:
        raise DatabaseBusy("a Postgres transaction has to wait for the server")

    async def run_statements(self, connection: PostgresConnection, work: Callable[[Statements], T]) -> T:
        return await connection.run_statements(work)

    async def wait_for_announcement(self, seconds: float) -> Collection[str] | None:
        try:
            listener = await self._open_listener()
            if listener is not None:
                return await listener.wait(seconds)
        except (psycopg.Error, OSError):
            # The caller polls anyway, and the next call opens a new listener.
            await self._stop_listening()
        await asyncio.sleep(seconds)
        return None

    async def _open_listener(self) -> PostgresListener | None:
        """Returns the connection that listens; None if a pooler would not pass notices on."""
        if self._hears_notices and self._listener is None:
            self._listener = await self._connect_listener()
            self._hears_notices = self._listener is not None
        return self._listener

    async def _connect_listener(self) -> PostgresListener | None:
        connection = await psycopg.AsyncConnection.connect(
            self._notices_url or self._url,
            autocommit=True,
            connect_timeout=_CONNECT_SECONDS,
            application_name="baobab listener",
        )
        try:
            if self._notices_url or not await leads_to_pooler(connection):
                await connection.execute(f"LISTEN {CHANNEL}".encode())
                return PostgresListener(connection, self._origin)
        except BaseException:
            await connection.close()
            raise
        _log.warning("notices: the database is behind a pooler, so changes are looked for twice a second")
        await connection.close()
        return None

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await listener.close()


class _TakenConnection:
    """A connection for the duration of a block. Every read comes through here: a generator would take twice as long."""

    __slots__ = ("_connection", "_database")

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def __aenter__(self) -> PostgresConnection:
        self._connection = await self._database.acquire_connection()
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        await self._database.release_connection(self._connection)
