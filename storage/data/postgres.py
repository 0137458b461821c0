"""The tables of apps in Postgres: a schema for each app, named after the app."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Literal, TypeVar

from sqlalchemy import text

from baobab.storage.data.row_security import RowSecurity, prepare_roles
from baobab.storage.database import Database, Unit
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.storage.postgres import POOL
from baobab.storage.statements import Statements

T = TypeVar("T")

_LIST = text(
    "SELECT schemaname FROM pg_tables AS known WHERE tablename = '_catalogue' AND NOT EXISTS ("
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(format('%I.%I', schemaname, CAST(:table AS text))) "
    "AND attname = CAST(:column AS text) AND NOT attisdropped) ORDER BY schemaname"
)
_EXISTS = text("SELECT to_regclass(:catalogue) IS NOT NULL")


class SchemaStore:
    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, database: Database) -> None:
        self._database = database
        # A query of a stranger may take half a minute. Of the few connections, those who ask one app hold one at most,
        # and all together leave one for whatever else the worker does.
        self._turns = KeyedSemaphore(1)
        self._readers = asyncio.Semaphore(POOL - 1)
        self.row_security: RowSecurity | None = None

    async def open_row_security(self) -> None:
        self.row_security = await prepare_roles(self._database)

    def name_table(self, app_id: str, table: str) -> str:
        return f'"{app_id}"."{table}"'

    async def exists(self, app_id: str) -> bool:
        async with self._database.reading() as connection:
            answer = await connection.execute(_EXISTS, {"catalogue": self.name_table(app_id, "_catalogue")})
            return bool(answer.scalar())

    async def read(
        self,
        app_id: str,
        work: Callable[[Statements], T],
        unit: Unit | None = None,
        *,
        quick: bool = False,
        single: bool = False,
    ) -> T:
        if unit is not None and unit.database is self._database and not unit.is_untouched:
            return await unit.run_statements(work)
        reading = self._database.reading(single=single)
        async with self._turns.acquire_slot(app_id), self._readers, reading as connection:
            return await self._database.run_statements(connection, work)

    async def write(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        async with self._unit(app_id, unit) as writing:
            return await writing.run_statements(work)

    async def alter(self, app_id: str, work: Callable[[Statements], T], unit: Unit | None = None) -> T:
        async with self._unit(app_id, unit) as writing:
            await writing.execute(text(f'CREATE SCHEMA IF NOT EXISTS "{app_id}"'))
            return await writing.run_statements(work)

    async def list_apps(self, *, without: tuple[str, str] | None = None) -> list[str]:
        table, column = without or (None, None)
        async with self._database.reading() as connection:
            return list((await connection.execute(_LIST, {"table": table, "column": column})).scalars())

    async def erase(self, app_id: str, unit: Unit | None = None) -> None:
        async with self._unit(app_id, unit) as writing:
            await writing.execute(text(f'DROP SCHEMA IF EXISTS "{app_id}" CASCADE'))

    async def close(self) -> None:
        """Does nothing, because the caller who opened the database closes it."""

    @asynccontextmanager
    async def _unit(self, app_id: str, unit: Unit | None) -> AsyncIterator[Unit]:
        if unit is not None and unit.database is self._database and unit.writes:
            yield unit
            return
        async with self._database.writing_unit(lock=app_id, bulk=True) as own:
            yield own
