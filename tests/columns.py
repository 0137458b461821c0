"""The two columns of the house, of which a run of the suite tests one: embedded on files, grown on real servers.

pytest                    embedded
pytest --column grown     the same tests with the rows in Postgres
"""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from baobab.storage.databases import database_at
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.migrate import migrate
from tests.servers import PostgresServer

_TEMPLATE = "baobab_template"


class Embedded:
    """A file with the schema and nothing else is copied for each installation: migrating costs more than most tests."""

    def __init__(self, folder: Path) -> None:
        self._template = folder / "baobab.db"
        asyncio.run(_migrated(f"sqlite:///{self._template}"))

    def begin(self, data: Path) -> dict[str, str]:
        data.mkdir(parents=True, exist_ok=True)
        if not (data / "baobab.db").exists():
            shutil.copyfile(self._template, data / "baobab.db")
        return {}

    def end(self, data: Path) -> None:
        """Nothing: the folder goes with the test."""

    def kept(self, data: Path) -> bytes:
        return b"".join(file.read_bytes() for file in data.glob("baobab.db*"))


class Grown:
    """A database of its own for each data folder; given back, it is emptied for another."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._taken: dict[Path, str] = {}
        self._free: list[str] = []
        self._made = 0
        url = server.database(_TEMPLATE)
        asyncio.run(_migrated(url))
        asyncio.run(_with_engine(url))

    def begin(self, data: Path) -> dict[str, str]:
        data.mkdir(parents=True, exist_ok=True)
        if data not in self._taken:
            self._taken[data] = self._free.pop() if self._free else self._another()
        return {"BAOBAB_DATABASE_URL": self._taken[data]}

    def end(self, data: Path) -> None:
        url = self._taken.pop(data)
        with psycopg.connect(url, autocommit=True) as connection:
            every = sql.SQL(", ").join(_tables(connection))
            connection.execute(sql.SQL("TRUNCATE {} RESTART IDENTITY CASCADE").format(every))
        self._free.append(url)

    def kept(self, data: Path) -> bytes:
        with psycopg.connect(self._taken[data]) as connection:
            each = sql.SQL("SELECT t::text FROM {} t")
            rows = [connection.execute(each.format(table)) for table in _tables(connection)]
            return "\n".join(text for found in rows for (text,) in found).encode()

    def empty(self) -> str:
        """A database with nothing in it, not even the schema."""
        self._made += 1
        return self._server.database(f"baobab_{self._made}")

    def _another(self) -> str:
        self._made += 1
        return self._server.database(f"baobab_{self._made}", _TEMPLATE)


Column = Embedded | Grown
CHOSEN: list[Column] = []
"""The column of this run, once the session has begun."""


def begin(data: Path) -> dict[str, str]:
    """Prepare a data folder that needs no migration; the environment of an installation on it."""
    return CHOSEN[0].begin(data)


def address(data: Path) -> str:
    """The database of an installation on a data folder."""
    return begin(data).get("BAOBAB_DATABASE_URL", f"sqlite:///{data / 'baobab.db'}")


def end(data: Path) -> None:
    """Give back what an installation, now closed, was on."""
    CHOSEN[0].end(data)


def kept(data: Path) -> bytes:
    """Everything that the database of an installation holds, as it would be read by a thief."""
    return CHOSEN[0].kept(data)


def _tables(connection: psycopg.Connection[Any]) -> list[sql.Identifier]:
    tables = "SELECT schemaname, tablename FROM pg_tables WHERE schemaname IN ('public', 'kv')"
    found = connection.execute(tables + " AND tablename NOT IN ('alembic_version', 'version')")
    return [sql.Identifier(*names) for names in found]


async def _with_engine(url: str) -> None:
    engine = PostgresEngine(url)
    await engine.open()
    await engine.close()


async def _migrated(url: str) -> None:
    database = database_at(url)
    await database.open()
    await migrate(database)
    await database.close()
