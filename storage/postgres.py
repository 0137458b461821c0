"""The database in Postgres, for many workers on many machines."""

import asyncio
import contextlib
import logging
import os
import socket
import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

import psycopg
from pydantic_core import from_json
from sqlalchemy import Connection, bindparam, select, text
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.dialects.postgresql.psycopg import PGDialectAsync_psycopg
from sqlalchemy.engine import URL, make_url
from sqlalchemy.ext.asyncio import AsyncConnection, create_async_engine
from sqlalchemy.pool import PoolProxiedConnection, QueuePool
from sqlalchemy.util import await_only

from baobab.storage.cancellation import run_to_completion
from baobab.storage.database import INSTALLATION, Database, DatabaseBusy, ErrorTranslator, Unit
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.storage.pooler import leads_to_pooler
from baobab.storage.statements import PostgresStatements, Statements
from baobab.storage.tables import tenant_locks

T = TypeVar("T")

CHANNEL = "baobab"
POOL = 4
"""Connections of one worker. One more listens."""

# Any number works that nobody else uses in the database.
_LOCK_INSTALLATION = text("SELECT pg_advisory_xact_lock(7243392001)")
_LOCK_TENANT = select(tenant_locks.c.tenant).where(tenant_locks.c.tenant == bindparam("tenant")).with_for_update()
_ADD_TENANT = insert(tenant_locks).on_conflict_do_nothing()
_NOTIFY = text("SELECT pg_notify(:channel, :me)")
_CONNECT_SECONDS = 5
_PING_SECONDS = 5
_SILENCE_SECONDS = 31
"""Longer than a statement may take, so that a running server would have answered."""
# A worker that freezes during a transaction must neither hold the write lock for ever nor commit when it wakes.
_SETTINGS = {
    "timezone": "UTC",
    "lock_timeout": "10s",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "10s",
}
_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_WRITING = "BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE"
_RELAXED = f"{_WRITING}; SET LOCAL synchronous_commit = off"
_BEGIN = "begin"
_PREPARE_THRESHOLD = 5

_log = logging.getLogger(__name__)


class _Dialect(PGDialectAsync_psycopg):
    """Begins a transaction and makes its settings in one message, so that they cost no round trip.

    They are the transaction's and not the session's, which a pooler may give to somebody else afterwards
    (docs/decisions/0026-behind-a-pooler.md).
    """

    supports_statement_cache = True

    @classmethod
    def get_async_dialect_cls(cls, url: URL) -> type["_Dialect"]:  # noqa: ARG003 - the hook's own signature
        return cls

    def do_begin(self, dbapi_connection: PoolProxiedConnection) -> None:
        connection = dbapi_connection.driver_connection
        assert connection is not None
        await_only(connection.execute(dbapi_connection.info[_BEGIN].encode(), prepare=False))


registry.register("postgresql.baobab", __name__, _Dialect.__name__)


class _WatchedConnection(psycopg.AsyncConnection[Any]):
    """A connection that is cut if the server is silent for too long. Postgres's own timeouts need a running server."""

    async def wait(self, *given: Any, **named: Any) -> Any:
        watch = asyncio.get_running_loop().call_later(_SILENCE_SECONDS, _cut_socket, self)
        try:
            return await super().wait(*given, **named)
        finally:
            watch.cancel()


class PostgresDatabase(Database):
    """The lock of a tenant is a row, which the server releases when the transaction or its connection ends.

    So code that decides on what it has just read is right here for the same reason as on SQLite
    (docs/decisions/0025-tenant-locks.md).
    """

    def __init__(self, url: str, name: str = "baobab", *, notices_url: str = "") -> None:
        """url: `postgresql://user:password@host:port/name?sslmode=...`, as libpq takes it. It may lead to a pooler.

        name: the application name of our connections in Postgres.

        notices_url: where to listen for notices; the same, if empty. Behind a pooler of transactions there are none.
        """
        self._url = url
        self._notices_url = notices_url
        self._hears_notices = True
        self._origin = uuid.uuid4().hex
        self._listener: psycopg.AsyncConnection[Any] | None = None
        self._settings = "".join(f"; SET LOCAL {name} = '{value}'" for name, value in _SETTINGS.items())
        super().__init__()
        self._engine = create_async_engine(
            make_url(url).set(drivername="postgresql+baobab"),
            # Unexpected errors are logged, but without the values of their statement.
            hide_parameters=True,
            json_deserializer=from_json,
            # Without it, an insert does not tell whether its row was there already.
            execution_options={"preserve_rowcount": True},
            pool_size=POOL,
            max_overflow=0,
            pool_timeout=_CONNECT_SECONDS * 2,
            connect_args={
                "connect_timeout": _CONNECT_SECONDS,
                "application_name": name,
                # `do_begin` begins transactions, and not the driver.
                "autocommit": True,
                "async_creator_fn": _connect,
            },
        )
        self._turns = KeyedSemaphore(1)

    async def open(self) -> None:
        await self.ping()

    async def close(self) -> None:
        await self._stop_listening()
        await self._engine.dispose()

    @property
    def dialect(self) -> str:
        return "postgresql"

    @property
    def connections_in_use(self) -> int:
        return cast(QueuePool, self._engine.pool).checkedout()

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        async with self._open_transaction(_READING) as connection:
            yield connection

    @asynccontextmanager
    async def writing(self, *, lock: str | None = INSTALLATION, bulk: bool = False) -> AsyncIterator[AsyncConnection]:
        if lock is None:
            async with self._open_transaction(_WRITING) as connection:
                yield connection
            return
        # Whoever waits for a tenant in this process waits without a connection, which others may need.
        async with self._turns.acquire_slot(lock), self._open_transaction(_WRITING) as connection:
            await self.take_lock(connection, lock)
            yield connection

    async def take_lock(self, connection: AsyncConnection, lock: str) -> None:
        if lock == INSTALLATION:
            # There may be no table yet.
            await connection.execute(_LOCK_INSTALLATION)
            return
        while (await connection.execute(_LOCK_TENANT, {"tenant": lock})).first() is None:
            await connection.execute(_ADD_TENANT, {"tenant": lock})

    @asynccontextmanager
    async def _open_transaction(self, begin: str) -> AsyncIterator[AsyncConnection]:
        with ErrorTranslator(self):
            async with self._engine.connect() as connection:
                (await connection.get_raw_connection()).info[_BEGIN] = begin + self._settings
                async with connection.begin():
                    yield connection

    async def ping(self) -> None:
        async with self.reading() as connection:
            driver_connection = (await connection.get_raw_connection()).driver_connection
            assert driver_connection is not None
            watch = asyncio.get_running_loop().call_later(_PING_SECONDS, _cut_socket, driver_connection)
            try:
                await connection.execute(text("SELECT 1"))
            finally:
                watch.cancel()

    async def announce_at_commit(self, unit: Unit) -> None:
        await unit.execute(_NOTIFY, {"channel": CHANNEL, "me": self._origin})

    async def transact(self, work: Callable[[Statements], T], *, durable: bool = True, announce: bool = False) -> T:
        def run(connection: Connection) -> T:
            result = work(PostgresStatements(connection))
            if announce:
                connection.execute(_NOTIFY, {"channel": CHANNEL, "me": self._origin})
            return result

        async def run_in_transaction() -> T:
            async with self._open_transaction(_WRITING if durable else _RELAXED) as connection:
                return await connection.run_sync(run)

        return await run_to_completion(run_in_transaction())

    def transact_now(self, work: Callable[[Statements], T]) -> T:
        raise DatabaseBusy("a Postgres transaction has to wait for the server")

    async def run_statements(self, connection: AsyncConnection, work: Callable[[Statements], T]) -> T:
        return await connection.run_sync(lambda sync: work(PostgresStatements(sync)))

    async def wait_for_announcement(self, seconds: float) -> None:
        try:
            listener = await self._open_listener()
            if listener is None:
                await asyncio.sleep(seconds)
                return
            async for notice in listener.notifies(timeout=seconds):
                if notice.payload != self._origin:
                    return
        except (psycopg.Error, OSError):
            # The caller polls anyway, and the next call opens a new listener.
            await self._stop_listening()
            await asyncio.sleep(seconds)

    async def _open_listener(self) -> psycopg.AsyncConnection[Any] | None:
        """Returns the connection that listens; None if a pooler would not pass notices on."""
        if self._hears_notices and (self._listener is None or self._listener.closed):
            self._listener = await psycopg.AsyncConnection.connect(
                self._notices_url or self._url,
                autocommit=True,
                connect_timeout=_CONNECT_SECONDS,
                application_name="baobab listener",
            )
            if not self._notices_url and await leads_to_pooler(self._listener):
                _log.warning("notices: the database is behind a pooler, so changes are looked for twice a second")
                self._hears_notices = False
                await self._stop_listening()
            else:
                await self._listener.execute(f"LISTEN {CHANNEL}".encode())
        return self._listener

    async def _stop_listening(self) -> None:
        listener, self._listener = self._listener, None
        if listener is not None:
            with contextlib.suppress(psycopg.Error, OSError):
                await listener.close()


async def _connect(*given: Any, **named: Any) -> psycopg.AsyncConnection[Any]:
    connection = await _WatchedConnection.connect(*given, prepare_threshold=None, **named)
    try:
        if not await leads_to_pooler(connection):
            connection.prepare_threshold = _PREPARE_THRESHOLD
    except BaseException:
        await connection.close()
        raise
    return connection


def _cut_socket(line: psycopg.AsyncConnection[Any]) -> None:
    if not line.closed:
        with socket.socket(fileno=os.dup(line.fileno())) as end:
            end.shutdown(socket.SHUT_RDWR)
