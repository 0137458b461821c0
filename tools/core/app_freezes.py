"""Which apps' rows are not written just now: they are being moved, or are a copy that a move has left behind.

Each family that keeps rows of apps freezes, thaws and erases its own, in the transactions in which it does so.
"""

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Column, ColumnElement, String, Table, and_, delete, exists, select

from baobab.storage.database import Execute
from baobab.storage.tables import build_upsert, metadata
from baobab.tools.core.errors import AppMigrating

app_freezes = Table(
    "app_freezes",
    metadata,
    Column("family", String(40), primary_key=True),
    Column("app_id", String(36), primary_key=True),
)

_columns = app_freezes.c


@dataclass(frozen=True, slots=True)
class Freezes:
    """Those of one family."""

    family: str

    async def freeze(self, execute: Execute, dialect: str, app_id: str) -> None:
        freezing = build_upsert(dialect, app_freezes).values(family=self.family, app_id=app_id)
        await execute(freezing.on_conflict_do_nothing())

    async def thaw(self, execute: Execute, app_id: str) -> None:
        await execute(delete(app_freezes).where(_columns.family == self.family, _columns.app_id == app_id))

    async def is_frozen(self, execute: Execute, app_id: str) -> bool:
        """Whether the app is frozen."""
        return (await execute(select(_columns.app_id).where(self._of(app_id)))).first() is not None

    async def require_thawed(self, execute: Execute, app_id: str) -> None:
        """AppMigrating while the app is frozen. In a transaction that writes, and so has its turn, it stays true."""
        if await self.is_frozen(execute, app_id):
            raise AppMigrating

    def is_thawed(self, app_id: ColumnElement[str]) -> ColumnElement[bool]:
        """The same of the rows that a statement finds. app_id: their column."""
        return ~exists().where(self._of(app_id))

    def _of(self, app_id: Any) -> ColumnElement[bool]:
        return and_(_columns.family == self.family, _columns.app_id == app_id)
