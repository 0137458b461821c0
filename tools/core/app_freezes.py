"""Freezes: apps whose rows must not be written now; they are being moved, or are a copy that a move left behind.

Each family that keeps rows of apps freezes, thaws and erases its own, in the transactions in which it does so.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, Executable, String, Table, and_, bindparam, delete, exists, select

from baobab.storage.sql.database import Execute, Unit
from baobab.storage.sql.prepared_statements import Result
from baobab.storage.sql.tables import build_upsert, metadata
from baobab.tools.core.call import Call
from baobab.tools.core.errors import AppMigrating

app_freezes = Table(
    "app_freezes",
    metadata,
    Column("family", String(40), primary_key=True),
    Column("app_id", String(36), primary_key=True),
)

_columns = app_freezes.c
# Built once: every write of an app asks this.
_FIND_FREEZE = select(_columns.app_id).where(
    _columns.family == bindparam("family"), _columns.app_id == bindparam("app")
)


@dataclass(frozen=True, slots=True)
class Freezes:
    """The freezes of one toolset."""

    family: str

    async def freeze(self, execute: Execute, dialect: str, app_id: str) -> None:
        freezing = build_upsert(dialect, app_freezes).values(family=self.family, app_id=app_id)
        await execute(freezing.on_conflict_do_nothing())

    async def thaw(self, execute: Execute, app_id: str) -> None:
        await execute(delete(app_freezes).where(_columns.family == self.family, _columns.app_id == app_id))

    async def is_frozen(self, execute: Execute, app_id: str) -> bool:
        """Returns whether the app is frozen."""
        return (await execute(_FIND_FREEZE, {"family": self.family, "app": app_id})).first() is not None

    async def require_thawed(self, execute: Execute, app_id: str) -> None:
        """Raises AppMigrating while the app is frozen. Under the write lock, the answer holds to the end."""
        if await self.is_frozen(execute, app_id):
            raise AppMigrating

    @asynccontextmanager
    async def writing(self, call: Call) -> AsyncIterator[Unit]:
        """Opens a transaction in the database of the app's region. Raises AppMigrating while the app is frozen.

        It is the call's own transaction if that is in the same database, so that the audit row is committed with it.
        """
        async with self.writing_after(call) as (unit, _):
            yield unit

    @asynccontextmanager
    async def writing_after(
        self, call: Call, *queries: tuple[Executable, Mapping[str, Any]]
    ) -> AsyncIterator[tuple[Unit, list[Result]]]:
        """Does the same, and yields the results of queries too. A server gets them together with what is asked here:
        other writers of the app wait for each answer that this one waits for.
        """
        app_id = call.require_app().id
        if call.unit.database is call.stores.database:
            yield call.unit, await self._read_thawed(call.unit, app_id, queries)
            return
        async with call.stores.database.writing_unit(lock=app_id) as unit:
            yield unit, await self._read_thawed(unit, app_id, queries)

    async def _read_thawed(
        self, unit: Unit, app_id: str, queries: Sequence[tuple[Executable, Mapping[str, Any]]]
    ) -> list[Result]:
        freezes, *answers = await unit.execute_all((_FIND_FREEZE, {"family": self.family, "app": app_id}), *queries)
        if freezes.first() is not None:
            raise AppMigrating
        return answers

    def is_thawed(self, app_id: ColumnElement[str]) -> ColumnElement[bool]:
        """Returns a condition that selects rows of apps that are not frozen. app_id: the column that names the app."""
        return ~exists().where(self._of(app_id))

    def _of(self, app_id: Any) -> ColumnElement[bool]:
        return and_(_columns.family == self.family, _columns.app_id == app_id)
