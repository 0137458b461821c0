"""The rows of the installation that is carried over, kept from everybody else meanwhile."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import event

from baobab.storage.database import DatabaseUnavailable
from baobab.storage.databases import SQLITE
from baobab.storage.migrate import list_revisions, read_revision
from baobab.storage.postgres import PostgresDatabase
from baobab.storage.sqlite import SqliteDatabase
from baobab.storage.transfer.errors import TransferRefused

_NAME = "baobab transfer"
_OTHERS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'baobab%' AND application_name <> 'baobab transfer'
"""
_IN_USE = "the source database is in use; stop its servers, workers and commands first"


def build_source(url: str) -> SqliteSource | PostgresSource:
    """The rows at an address, to be read by nobody but the transfer. It is not open yet."""
    if url.startswith(SQLITE):
        return SqliteSource(Path(url.removeprefix(SQLITE)))
    return PostgresSource(url)


class SqliteSource(SqliteDatabase):
    """A file of rows that no other process has open, and that none can open before this one is closed.

    SQLite's exclusive locking mode is all it takes. A server, a worker or a command has a connection for as long as it
    runs, and the first connection here is refused at once while there is another. Whoever comes later is refused too;
    and since a house opens its rows before anything else, that keeps its key-value store and its objects still as well.

    It cannot be written to: `writing` finds it closed.
    """

    async def open(self) -> None:
        if not self.path.is_file():
            raise TransferRefused(f"there is no installation in {self.path}")
        # First of all, so that nothing is read before the file is ours.
        event.listen(self._engine.sync_engine, "connect", _take, insert=True)
        try:
            found = await read_revision(self)
        except DatabaseUnavailable as exc:
            if "locked" in exc.reason:
                raise TransferRefused(f"{self.path} is in use; stop its servers, workers and commands first") from exc
            raise TransferRefused(f"{self.path} does not open: {exc.reason}") from exc
        _require_revision(str(self.path), found)


class PostgresSource(PostgresDatabase):
    """A database of rows that no other process uses, and on which none can start before this one is closed.

    Whoever starts reads the schema's revision first, and that table is locked for as long as this is open. Who has
    started already is seen by the connections it holds, of which each process has at least one.
    """

    def __init__(self, url: str) -> None:
        super().__init__(url, _NAME)
        self._address = url
        self._lock: psycopg.AsyncConnection[Any] | None = None

    async def open(self) -> None:
        try:
            await super().open()
            found = await read_revision(self)
            self._lock = await psycopg.AsyncConnection.connect(self._address, application_name=_NAME)
            await self._lock.execute("SET idle_in_transaction_session_timeout = 0")
            await self._lock.execute("SET lock_timeout = '5s'")
            if found is not None:
                await self._lock.execute("LOCK TABLE alembic_version IN ACCESS EXCLUSIVE MODE")
            others = await (await self._lock.execute(_OTHERS)).fetchone()
        except psycopg.errors.LockNotAvailable as exc:
            raise TransferRefused(_IN_USE) from exc
        except psycopg.Error as exc:
            raise TransferRefused(f"the source: {str(exc).strip().splitlines()[0]}") from exc
        assert others is not None
        if others[0]:
            raise TransferRefused(_IN_USE)
        _require_revision("the source database", found)

    async def close(self) -> None:
        if self._lock is not None:
            await self._lock.close()
        await super().close()


def _require_revision(where: str, found: str | None) -> None:
    known = list_revisions()
    if found not in known:
        raise TransferRefused(f"{where} is at revision {found or 'none'}, which this version does not know")
    if found != known[-1]:
        raise TransferRefused(f"{where} is at revision {found}, not {known[-1]}; run `baobab migrate` first")


def _take(connection: Any, _record: object) -> None:
    cursor = connection.cursor()
    cursor.execute("PRAGMA busy_timeout=0")
    cursor.execute("PRAGMA locking_mode=EXCLUSIVE")
    cursor.close()
