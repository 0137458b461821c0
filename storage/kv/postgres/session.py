"""A connection to Postgres that reconnects by itself."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
from psycopg import AsyncConnection
from psycopg.pq import TransactionStatus

from baobab.storage.kv.postgres.statements import Statement

Rows = list[tuple[Any, ...]]

# Seconds after which this side cuts what the server has not ended by its own timeout.
_GRACE = 1.0

# Each connection plans once, perhaps while the tables are empty, so the plans are made to use the indexes. If the
# database acknowledges commits before they are on disk by default, the last statement turns that off.
_SETTINGS = """
SET statement_timeout = {milliseconds};
SET idle_in_transaction_session_timeout = {milliseconds};
SET plan_cache_mode = force_generic_plan;
SET enable_seqscan = off;
SET enable_bitmapscan = off;
SET enable_hashjoin = off;
SET enable_mergejoin = off;
SET jit = off;
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');
"""

# A worker that freezes during a transaction must not keep its locks. The Flush that psycopg sends after a pipeline
# stops the server's idle timeout. Servers with transaction_timeout use that instead; on an older one, a statement
# outside of a pipeline starts the idle timeout again.
_MEASURES_TRANSACTIONS = 170000
_LIMIT = "SET transaction_timeout = {milliseconds}"


class Session:
    """Used by one task at a time. It connects at the first use, and again after `drop`."""

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._connection: AsyncConnection[tuple[Any, ...]] | None = None

    async def connect(self) -> AsyncConnection[tuple[Any, ...]]:
        if self._connection is None:
            connection = await AsyncConnection.connect(
                self._url,
                autocommit=True,
                connect_timeout=max(2, int(self._timeout)),
                keepalives_idle=5,
                keepalives_interval=2,
                keepalives_count=3,
                application_name="baobab kv",
            )
            self._connection = connection
            settings = _SETTINGS.format(milliseconds=int(self._timeout * 1000))
            with self._cut_on_timeout(connection):
                await connection.execute(settings.encode())
                if connection.info.server_version >= _MEASURES_TRANSACTIONS:
                    # Long enough for one wait for a lock and the statements after it.
                    await connection.execute(_LIMIT.format(milliseconds=int(self._timeout * 2000)).encode())
        return self._connection

    async def start(self, *statements: Statement) -> list[Rows]:
        """Like `run`, for statements that may be sent twice: retries on a new connection if the server has been
        restarted.
        """
        reused = self._connection is not None
        try:
            return await self.run(*statements)
        except psycopg.OperationalError:
            if not (reused and self.is_broken):
                raise
            await self.drop()
            return await self.run(*statements)

    async def run(self, *statements: Statement) -> list[Rows]:
        """Sends the statements together and returns the rows of each. Raises psycopg.Error."""
        connection = await self.connect()
        with self._cut_on_timeout(connection):
            async with connection.pipeline():
                cursors = [
                    await connection.execute(text, parameters, prepare=True, binary=True)
                    for text, parameters in statements
                ]
            if connection.info.server_version < _MEASURES_TRANSACTIONS and _is_in_transaction(connection):
                await connection.execute(b"SELECT 1")
            return [await cursor.fetchall() if cursor.description else [] for cursor in cursors]

    @property
    def is_broken(self) -> bool:
        return self._connection is None or self._connection.closed

    async def drop(self) -> None:
        """Closes the connection; the server rolls back an open transaction."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @contextmanager
    def _cut_on_timeout(self, connection: AsyncConnection[Any]) -> Iterator[None]:
        """Cuts the connection if the server neither answers nor closes it."""
        watch = asyncio.get_running_loop().call_later(self._timeout + _GRACE, _cut_socket, connection)
        try:
            yield
        finally:
            watch.cancel()


def _is_in_transaction(connection: AsyncConnection[Any]) -> bool:
    return connection.info.transaction_status is TransactionStatus.INTRANS


def _cut_socket(connection: AsyncConnection[Any]) -> None:
    if not connection.closed:
        with socket.socket(fileno=os.dup(connection.fileno())) as line:
            line.shutdown(socket.SHUT_RDWR)
