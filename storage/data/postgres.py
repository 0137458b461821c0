"""The tables of apps in Postgres: a schema for each app, named after the app."""

import asyncio
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Literal, TypeVar

from sqlalchemy import text

from baobab.storage.data.row_security import SQL_ROLES, RowSecurity, prepare_roles
from baobab.storage.fair_slots import FairSlots
from baobab.storage.sql.database import Database, StatementTimeout, Unit
from baobab.storage.sql.statements import Statements

T = TypeVar("T")

_QUICK_SECONDS = 0.75
"""How long a read may take among all reads. What takes longer is stopped and begins anew among the slow ones."""
_SECONDS = 15
"""How long a read may take, and how long it may wait for its turn among the slow ones."""

_LIST = text(
    "SELECT schemaname FROM pg_tables AS known WHERE tablename = '_catalogue' AND NOT EXISTS ("
    "SELECT 1 FROM pg_attribute WHERE attrelid = to_regclass(format('%I.%I', schemaname, CAST(:table AS text))) "
    "AND attname = CAST(:column AS text) AND NOT attisdropped) ORDER BY schemaname"
)
_DROP_ROLE = (
    # Another database of the server may still need it, for a copy of the app.
    'DO $$ BEGIN DROP ROLE IF EXISTS "{name}"; EXCEPTION WHEN dependent_objects_still_exist THEN NULL; END $$'
)
_EXISTS = text("SELECT to_regclass(:catalogue) IS NOT NULL")


class SchemaStore:
    dialect: Literal["postgresql"] = "postgresql"

    def __init__(self, database: Database) -> None:
        self._database = database
        # Of a worker's connections (`POOL`), those that are left serve writes and whatever else it does. Places for
        # quick reads become free within a second, so slow reads delay nobody but each other, and one app's no other
        # app's.
        self._quick = FairSlots(4, of_key=3, of_caller=2)
        self._slow = FairSlots(3, of_key=2, of_caller=1)
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
        caller: Hashable | None = None,
    ) -> T:
        if unit is not None and unit.database is self._database and not unit.is_untouched:
            return await unit.run_statements(work)
        try:
            async with self._quick.acquire_slot(app_id, caller):
                return await self._read_within(_QUICK_SECONDS, work, single=single)
        except StatementTimeout:
            pass
        async with AsyncExitStack() as stack:
            try:
                async with asyncio.timeout(_SECONDS):
                    await stack.enter_async_context(self._slow.acquire_slot(app_id, caller))
            except TimeoutError as exc:
                raise StatementTimeout("other slow reads were running") from exc
            return await self._read_within(_SECONDS, work, single=single)

    async def _read_within(self, seconds: float, work: Callable[[Statements], T], *, single: bool) -> T:
        async with self._database.reading(single=single, seconds=seconds) as connection:
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
            if self.row_security is not None:
                for role in SQL_ROLES:
                    await writing.execute(text(_DROP_ROLE.format(name=self.row_security.name_sql_role(app_id, role))))

    async def close(self) -> None:
        """Does nothing, because the caller who opened the database closes it."""

    @asynccontextmanager
    async def _unit(self, app_id: str, unit: Unit | None) -> AsyncIterator[Unit]:
        if unit is not None and unit.database is self._database and unit.writes:
            yield unit
            return
        async with self._database.writing_unit(lock=app_id, bulk=True) as own:
            yield own
