"""The backends of rows, of which a run of the suite tests one: SQLite files, or a Postgres server.

pytest                        with rows in SQLite
pytest --backend postgres     the same tests with the rows in Postgres
pytest --backend pgbouncer    and with a pooler of transactions before it
"""

import asyncio
import atexit
import functools
import shutil
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql

from baobab import region_stores
from baobab.storage.backup.backup import Source, back_up
from baobab.storage.backup.restore import restore
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import SQLITE, database_at
from baobab.storage.sql.migrate import migrate
from tests.servers import PostgresServer

_TEMPLATE = "baobab_template"
# Only tables that anything was written to: to truncate all hundred of them costs more than most tests.
_EMPTY = r"""
DO $$
DECLARE
    name text;
    written text;
BEGIN
    FOR name IN SELECT quote_ident(nspname) FROM pg_namespace WHERE nspname LIKE 'app\_%' LOOP
        EXECUTE 'DROP SCHEMA ' || name || ' CASCADE';
    END LOOP;
    SELECT string_agg(format('%I.%I', schemaname, tablename), ', ') INTO written FROM pg_tables
        WHERE schemaname IN ('public', 'kv') AND tablename NOT IN ('alembic_version', 'version')
        AND pg_relation_size(format('%I.%I', schemaname, tablename)::regclass) > 0;
    IF written IS NOT NULL THEN
        EXECUTE 'TRUNCATE ' || written || ' RESTART IDENTITY CASCADE';
    END IF;
END $$
"""


class SqliteBackend:
    def prepare(self, data: Path) -> dict[str, str]:
        copy_migrated_file(data / "baobab.db")
        return {}

    def release(self, data: Path) -> None:
        """Nothing: the folder goes with the test."""

    def drop(self, folder: Path) -> None:
        """Nothing: the files go with the folder."""

    def copy(self, data: Path, copy: Path) -> None:
        back_up(Source(data, data / "baobab.db"), data.with_name("backup"), "0")
        restore(data.with_name("backup"), copy)

    def read_contents(self, data: Path) -> bytes:
        return b"".join(file.read_bytes() for file in data.glob("baobab.db*"))


class PostgresBackend:
    """A database of its own for each data folder; given back, it is emptied for another."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._in_use: dict[Path, str] = {}
        self._free: list[str] = []
        self._count = 0
        server.create_database(_TEMPLATE)
        # Past the pooler, whose connections would keep others from copying it.
        url = server.url(_TEMPLATE)
        asyncio.run(_migrate_database(url))
        asyncio.run(_create_kv_tables(url))

    def prepare(self, data: Path) -> dict[str, str]:
        data.mkdir(parents=True, exist_ok=True)
        if data not in self._in_use:
            self._in_use[data] = self._free.pop() if self._free else self._create_database()
        name = self._in_use[data]
        if self._server.pooler is None:
            return {"BAOBAB_DATABASE_URL": self._server.url(name)}
        return {"BAOBAB_DATABASE_URL": self._server.pooler.url(name), "BAOBAB_NOTICES_URL": self._server.url(name)}

    def release(self, data: Path) -> None:
        name = self._in_use.pop(data)
        with psycopg.connect(self._server.url(name), autocommit=True) as connection:
            connection.execute(_EMPTY)
        self._free.append(name)

    def drop(self, folder: Path) -> None:
        """Drops the databases of the installations that were in a folder: of a whole run they would fill the memory."""
        for data in [each for each in self._in_use if each.is_relative_to(folder)]:
            self._server.execute(f'DROP DATABASE "{self._in_use.pop(data)}" WITH (FORCE)')

    def copy(self, data: Path, copy: Path) -> None:
        """Copies the database as a restored dump would be, into one of another number."""
        self._count += 1
        name = f"baobab_{self._count}"
        self._server.create_database(name, self._in_use[data])
        self._in_use[copy] = name
        shutil.copytree(data, copy)

    def read_contents(self, data: Path) -> bytes:
        with psycopg.connect(self._server.url(self._in_use[data])) as connection:
            each = sql.SQL("SELECT t::text FROM {} t")
            rows = [connection.execute(each.format(table)) for table in _list_tables(connection)]
            return "\n".join(text for table_rows in rows for (text,) in table_rows).encode()

    def create_empty(self) -> str:
        """A database with nothing in it, not even the schema."""
        self._count += 1
        return self._server.create_database(f"baobab_{self._count}")

    def _create_database(self) -> str:
        self._count += 1
        name = f"baobab_{self._count}"
        self._server.create_database(name, _TEMPLATE)
        return name


Backend = SqliteBackend | PostgresBackend
ACTIVE_BACKEND: list[Backend] = []
"""The backend of this run, once the session has begun."""


def copy_migrated_file(path: Path) -> None:
    """Make a SQLite database with the schema and nothing else, if there is none: migrating one takes a second."""
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_migrate_file(), path)


def copy_data(data: Path, copy: Path) -> None:
    """Makes a copy of an installation that is stopped: from a backup of its files, or of its database."""
    ACTIVE_BACKEND[0].copy(data, copy)


def migrate_by_copying(patch: pytest.MonkeyPatch) -> None:
    """Let each installation in this process find its new SQLite databases, those of further regions too, migrated."""

    def copy_and_find(url: str, notices_url: str = "") -> Database:
        if url.startswith(SQLITE):
            copy_migrated_file(Path(url.removeprefix(SQLITE)))
        return database_at(url, notices_url)

    patch.setattr(region_stores, "database_at", copy_and_find)


def prepare_data(data: Path) -> dict[str, str]:
    """Prepare a data folder that needs no migration; the environment of an installation on it."""
    # No test asks the resolvers of others: at this port of loopback nobody answers.
    return {"BAOBAB_DNS_RESOLVERS": "127.0.0.1:9", **ACTIVE_BACKEND[0].prepare(data)}


def database_url(data: Path) -> str:
    """The database of an installation on a data folder."""
    return prepare_data(data).get("BAOBAB_DATABASE_URL", f"{SQLITE}{data / 'baobab.db'}")


def release_data(data: Path) -> None:
    """Give back what an installation, now closed, was on."""
    ACTIVE_BACKEND[0].release(data)


def read_database(data: Path) -> bytes:
    """Everything that the database of an installation holds, as it would be read by a thief."""
    return ACTIVE_BACKEND[0].read_contents(data)


def _list_tables(connection: psycopg.Connection[Any]) -> list[sql.Identifier]:
    tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 'kv')"
    result = connection.execute(tables + " AND tablename NOT IN ('alembic_version', 'version')")
    return [sql.Identifier(*names) for names in result]


@functools.cache
def _migrate_file() -> Path:
    """A migrated database that is copied, for as long as this process lives."""
    folder = Path(tempfile.mkdtemp(prefix="baobab-migrated-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    # In a thread, for whoever asks first may have an event loop that is running.
    with ThreadPoolExecutor(1) as threads:
        threads.submit(lambda: asyncio.run(_migrate_database(f"{SQLITE}{folder / 'baobab.db'}"))).result()
    return folder / "baobab.db"


async def _create_kv_tables(url: str) -> None:
    engine = PostgresEngine(url)
    await engine.open()
    await engine.close()


async def _migrate_database(url: str) -> None:
    database = database_at(url)
    await database.open()
    await migrate(database)
    await database.close()
