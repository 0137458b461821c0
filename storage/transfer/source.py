"""The database of the installation that is moved, locked against all other processes."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import psycopg

from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.databases import SQLITE
from baobab.storage.sql.deadline import Deadline
from baobab.storage.sql.migrate import list_revisions, read_revision
from baobab.storage.sql.pooler import leads_to_pooler
from baobab.storage.sql.postgres import PostgresDatabase
from baobab.storage.sql.sqlite import SqliteDatabase
from baobab.storage.transfer.errors import TransferRefused

_NAME = "baobab transfer"
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'baobab%' AND application_name <> 'baobab transfer'
"""
_LOOKS, _LOOK_SECONDS = 20, 0.1
_IN_USE = "the source database is in use; stop its servers, workers and commands first"
_POOLED = "the source is behind a pooler, which hides who uses it; give the address of Postgres itself"


def build_source(url: str) -> SqliteSource | PostgresSource:
    """Returns the database of a URL for the transfer alone, not open yet."""
    if url.startswith(SQLITE):
        return SqliteSource(Path(url.removeprefix(SQLITE)))
    return PostgresSource(url)


class SqliteSource(SqliteDatabase):
    """A SQLite file that no other process has open, or can open before this one is closed.

    SQLite's exclusive locking mode is enough for that. A server, a worker or a command holds a connection as long as it
    runs, and the first connection here is refused while there is another. Later processes are refused too. Since an
    application opens its database before anything else, that also protects its key-value store and its objects.

    The source is read-only: `writing` raises DatabaseUnavailable.
    """

    async def open(self) -> None:
        if not self.path.is_file():
            raise TransferRefused(f"there is no installation in {self.path}")
        try:
            revision = await read_revision(self)
        except DatabaseUnavailable as exc:
            if "locked" in exc.reason:
                raise TransferRefused(f"{self.path} is in use; stop its servers, workers and commands first") from exc
            raise TransferRefused(f"{self.path} cannot be opened: {exc.reason}") from exc
        _require_revision(str(self.path), revision)

    def _prepare(self, connection: sqlite3.Connection, deadline: Deadline) -> None:
        connection.execute("PRAGMA locking_mode=EXCLUSIVE")


class PostgresSource(PostgresDatabase):
    """A Postgres database that no other process uses, or can use before this one is closed.

    Every process reads the schema's revision first, and that table is locked as long as this is open. Processes that
    have started already are found by their connections, of which each has at least one.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, _NAME)
        self._address = url
        self._lock: psycopg.AsyncConnection[Any] | None = None

    async def open(self) -> None:
        try:
            await super().open()
            revision = await read_revision(self)
            self._lock = await psycopg.AsyncConnection.connect(self._address, application_name=_NAME)
            if await leads_to_pooler(self._lock):
                raise TransferRefused(_POOLED)
            await self._lock.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
            await self._lock.execute("SET LOCAL lock_timeout = '5s'")
            if revision is not None:
                await self._lock.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
            has_others = await _has_others(self._lock)
        except psycopg.errors.LockNotAvailable as exc:
            raise TransferRefused(_IN_USE) from exc
        except psycopg.Error as exc:
            raise TransferRefused(f"the source: {str(exc).strip().splitlines()[0]}") from exc
        if has_others:
            raise TransferRefused(_IN_USE)
        _require_revision("the source database", revision)

    async def close(self) -> None:
        if self._lock is not None:
            await self._lock.close()
        await super().close()


async def _has_others(connection: psycopg.AsyncConnection[Any]) -> bool:
    """Returns whether other processes use the database. The server may take a moment to see that one has ended."""
    for _ in range(_LOOKS):
        # Within a transaction, the server shows what it showed at first.
        await connection.execute("SELECT pg_stat_clear_snapshot()")
        others = await (await connection.execute(_OTHERS)).fetchone()
        if others == (0,):
            return False
        await asyncio.sleep(_LOOK_SECONDS)
    return True


def _require_revision(where: str, revision: str | None) -> None:
    revisions = list_revisions()
    if revision not in revisions:
        raise TransferRefused(f"{where} is at revision {revision or 'none'}, which this version does not know")
    if revision != revisions[-1]:
        raise TransferRefused(f"{where} is at revision {revision}, not {revisions[-1]}; run `baobab migrate` first")
