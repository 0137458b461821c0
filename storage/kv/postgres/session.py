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

from baobab.storage.kv.postgres import statements
from baobab.storage.kv.postgres.statements import Statement
from baobab.storage.sql.pooler import leads_to_pooler

Rows = list[tuple[Any, ...]]

# Seconds after which this side cuts what the server has not ended by its own timeout.
_GRACE = 1.0

# A session of our own plans once, perhaps while the tables are empty, so the plans are made to use the indexes.
_PLANS = {
    "plan_cache_mode": "force_generic_plan",
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
}

# A worker that freezes during a transaction must not keep its locks. The Flush that psycopg sends after a pipeline
# stops the server's idle timeout. Servers with transaction_timeout use that instead; on an older one, a statement
# outside of a pipeline starts the idle timeout again.
_MEASURES_TRANSACTIONS = 170000


class Session:
    """Used by one task at a time. It connects at the first use, and again after `drop`.

    The settings are made once for the connection, and its statements are prepared. Behind a pooler of transactions
    nothing of that would be left at the next transaction: there each one makes the settings anew, in the round trip of
    its first statements, and prepares nothing (docs/decisions/0026-behind-a-pooler.md).
    """

    def __init__(self, url: str, timeout: float) -> None:
        self._url = url
        self._timeout = timeout
        self._connection: AsyncConnection[tuple[Any, ...]] | None = None
        self._is_pooled = False

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
            with self._cut_on_timeout(connection):
                self._is_pooled = await leads_to_pooler(connection)
                if not self._is_pooled:
                    await connection.execute(
                        *statements.settings(self._list_settings(connection) | _PLANS, local=False)
                    )
        return self._connection

    async def begin(self, *batch: Statement) -> list[Rows]:
        """Begins a transaction with its first statements."""
        return await self._retry_start((statements.BEGIN,), batch)

    async def read(self, query: Statement) -> Rows:
        """Runs one statement in a transaction of its own."""
        [rows] = await self._retry_start((), (query,))
        return rows

    async def _retry_start(self, begin: tuple[Statement, ...], batch: tuple[Statement, ...]) -> list[Rows]:
        """Starts a transaction; once more, on a new connection, if the server has been restarted."""
        is_reused = self._connection is not None
        try:
            return await self._start(begin, batch)
        except psycopg.OperationalError:
            if not (is_reused and self.is_broken):
                raise
            await self.drop()
            return await self._start(begin, batch)

    async def _start(self, begin: tuple[Statement, ...], batch: tuple[Statement, ...]) -> list[Rows]:
        connection = await self.connect()
        if self._is_pooled:
            begin = (*begin, statements.settings(self._list_settings(connection), local=True))
        return (await self.run(*begin, *batch))[len(begin) :]

    def _list_settings(self, connection: AsyncConnection[Any]) -> dict[str, str]:
        milliseconds = int(self._timeout * 1000)
        settings = {
            "statement_timeout": str(milliseconds),
            "idle_in_transaction_session_timeout": str(milliseconds),
            "jit": "off",
            "synchronous_commit": "on",
        }
        if connection.info.server_version >= _MEASURES_TRANSACTIONS:
            # Long enough for one wait for a lock and the statements after it.
            settings["transaction_timeout"] = str(2 * milliseconds)
        return settings

    async def run(self, *batch: Statement) -> list[Rows]:
        """Sends the statements together and returns the rows of each. Raises psycopg.Error."""
        connection = await self.connect()
        with self._cut_on_timeout(connection):
            async with connection.pipeline():
                cursors = [
                    await connection.execute(text, parameters, prepare=not self._is_pooled, binary=True)
                    for text, parameters in batch
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
