"""The data of an app in the stores of its region, as moving and deleting an app need it."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, cast

from sqlalchemy import ColumnElement, Table, delete, func, insert, select, tuple_

from baobab.storage.objects.store import ObjectStore
from baobab.storage.sql.database import Database, Execute, Unit
from baobab.tools.core.app_freezes import Freezes
from baobab.tools.core.stores import Stores

MOVE_ENDED = "app.move_ended"
"""The event at the end of an app's move, wherever the app is then. It has `migration_id` and `outcome`."""
_LARGEST_OBJECT = 2**40
_KEYS_AT_ONCE = 500
_ROWS_AT_ONCE = 500


class AppData(Protocol):
    """The data that one toolset stores for an app. Each method may be called twice."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        """Refuses every write from now on, in every process, until the data is thawed or erased."""
        ...

    async def thaw(self, stores: Stores, app_id: str) -> None: ...

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        """Copies the frozen data to the destination, which may already hold parts of it from an attempt before."""
        ...

    async def erase(self, stores: Stores, app_id: str) -> None:
        """Deletes all of the data, frozen or not."""
        ...

    async def count(self, stores: Stores, app_id: str) -> Mapping[str, int]:
        """Counts what there is, for the progress of a move: by what people call it, such as `rows`."""
        ...


@dataclass(frozen=True, slots=True)
class AppTable:
    """A table in the region of its apps, as a toolset declares it. Its rows name their app in the column `app_id`."""

    table: Table
    copied_as: Mapping[str, Any] = field(default_factory=dict)
    """The values that replace some columns in the copy of a row."""
    counted_as: str | None = None
    """What people call its rows, if the progress of a move counts them."""
    counted_if: ColumnElement[bool] | None = None
    """The condition for rows that count; None if all do."""

    def where(self, app_id: str) -> ColumnElement[bool]:
        return self.table.c.app_id == app_id


Stop = Callable[[Execute, str], Awaitable[None]]
"""Takes an app's rows away from whoever works with them now, in the transaction that freezes or erases them."""


@dataclass(frozen=True, slots=True)
class AppRows:
    """The rows that a toolset stores for an app: frozen, copied and erased table by table."""

    family: str
    tables: Sequence[AppTable]
    """A table comes after those that it refers to."""
    stop: Stop | None = None

    async def freeze(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing(lock=app_id, bulk=True) as connection:
            await Freezes(self.family).freeze(connection.execute, stores.database.dialect, app_id)
            if self.stop is not None:
                await self.stop(connection.execute, app_id)

    async def thaw(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing(lock=app_id, bulk=True) as connection:
            await Freezes(self.family).thaw(connection.execute, app_id)

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        async with dest.database.writing(lock=app_id, bulk=True) as connection:
            await self._delete_rows(connection.execute, app_id)
        for app_table in self.tables:
            async for rows in _read_rows(source.database, app_table, app_id):
                async with dest.database.writing(lock=app_id, bulk=True) as connection:
                    await connection.execute(insert(app_table.table), rows)

    async def erase(self, stores: Stores, app_id: str) -> None:
        async with stores.database.writing(lock=app_id, bulk=True) as connection:
            await self._delete_rows(connection.execute, app_id)
            await Freezes(self.family).thaw(connection.execute, app_id)

    async def count(self, stores: Stores, app_id: str) -> Mapping[str, int]:
        counts: dict[str, int] = {}
        async with stores.database.reading() as connection:
            for app_table in self.tables:
                if app_table.counted_as is not None:
                    query = select(func.count()).select_from(app_table.table).where(app_table.where(app_id))
                    if app_table.counted_if is not None:
                        query = query.where(app_table.counted_if)
                    counts[app_table.counted_as] = (await connection.execute(query)).scalar_one()
        return counts

    async def _delete_rows(self, execute: Execute, app_id: str) -> None:
        if self.stop is not None:
            # First, because this waits for workers that are writing.
            await self.stop(execute, app_id)
        for app_table in reversed(self.tables):
            await execute(delete(app_table.table).where(app_table.where(app_id)))


async def _read_rows(database: Database, app_table: AppTable, app_id: str) -> AsyncIterator[list[dict[str, Any]]]:
    """Yields the rows of an app, some hundred at a time, because an app may have more of them than fit into memory."""
    key_columns = app_table.table.primary_key.columns
    # The app's id is left out: with it, SQLite would read all rows of the app before the last one.
    columns = [column for column in key_columns if column.name != "app_id"] or list(key_columns)
    key = tuple_(*columns)
    query = select(app_table.table).where(app_table.where(app_id)).order_by(*columns).limit(_ROWS_AT_ONCE)
    page_query = query
    while True:
        async with database.reading() as connection:
            rows = [dict(row) for row in (await connection.execute(page_query)).mappings()]
        if not rows:
            return
        last = [rows[-1][column.name] for column in columns]
        yield [{**row, **app_table.copied_as} for row in rows]
        page_query = query.where(key > tuple_(*last))


async def erase_app(toolsets: Iterable[Any], stores: Stores, app_id: str, unit: Unit | None = None) -> None:
    """Deletes everything that the stores of a region hold of an app. May be called twice.

    unit: an open unit that holds the write lock of its database; rows of that database are deleted in it.
    """
    if unit is not None and unit.database is stores.database:
        stores = replace(stores, database=cast(Any, _UnitDatabase(unit)))
    for toolset in toolsets:
        for data in toolset.app_data:
            await data.erase(stores, app_id)
    await stores.objects.delete_all(f"{app_id}/")


class _UnitDatabase:
    """A database whose transactions are all the same open unit, which they do not end."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.dialect = unit.database.dialect

    @asynccontextmanager
    async def writing(self, *, lock: str | None, bulk: bool = False) -> AsyncIterator[Unit]:
        """Yields the open unit, which holds the lock already."""
        del lock, bulk
        yield self.unit


async def copy_objects(source: ObjectStore, dest: ObjectStore, app_id: str) -> None:
    """Copies the files of an app, except those that are complete at the destination already."""
    after, prefix = "", f"{app_id}/"
    while keys := await source.list(prefix, after, _KEYS_AT_ONCE):
        for key in keys:
            await copy_object(source, key, dest, key)
        after = keys[-1]


async def copy_object(source: ObjectStore, key: str, dest: ObjectStore, dest_key: str) -> bool:
    """Copies an object, unless it is complete at the destination already. Returns whether there is such an object."""
    reader = await source.get(key)
    if reader is None:
        return False
    try:
        if await dest.head(dest_key) != reader.info:
            await dest.put(dest_key, _chunks(reader), content_type=reader.info.content_type, max_bytes=_LARGEST_OBJECT)
    finally:
        await reader.aclose()
    return True


async def _chunks(reader: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in reader:
        yield chunk
