"""One connection to Postgres that comes back by itself."""

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

# What the server does not end by its own timeout, this side does so many seconds later.
_GRACE = 1.0

# Plans that are good for a full table are made while it is still empty, once for each connection: so they must use
# the indexes. A database whose default is to acknowledge before writing is told that we mean what we promise.
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

# A worker that stands still in the middle of a transaction must not keep its locks. What the server has for that is
# stopped again by the Flush that psycopg sends behind the end of a pipeline. Servers that measure whole transactions
# do that instead; an older one is asked something without a pipeline, and watches again.
_MEASURES_TRANSACTIONS = 170000
_LIMIT = "SET transaction_timeout = {milliseconds}"


class Session:
    """For one task at a time. Connects when it is first asked, and anew after `drop`."""

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
                    # Longer than one wait for a lock, and the statements after it.
                    await connection.execute(_LIMIT.format(milliseconds=int(self._timeout * 2000)).encode())
        return self._connection

    async def start(self, *statements: Statement) -> list[Rows]:
        """`run` for what may be sent twice: where the server has been restarted since, on a new connection."""
        reused = self._connection is not None
        try:
            return await self.run(*statements)
        except psycopg.OperationalError:
            if not (reused and self.is_broken):
                raise
            await self.drop()
            return await self.run(*statements)

    async def run(self, *statements: Statement) -> list[Rows]:
        """Sends them at once and answers the rows of each. Raises psycopg.Error."""
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
        """The server rolls back whatever was begun."""
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    @contextmanager
    def _cut_on_timeout(self, connection: AsyncConnection[Any]) -> Iterator[None]:
        """Cuts the line to a server that neither answers nor goes."""
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
