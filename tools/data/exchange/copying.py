"""Copies the tables of an app from one store to another, which may be of another kind of database."""

import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.statements import Statements
from baobab.storage.transfer.digest import Digest, hash_item
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.errors import AnswerTooLarge
from baobab.tools.data.migration.migration import MigrationPlan
from baobab.tools.data.migration.own_tables import OWN_TABLES, create_own_tables
from baobab.tools.data.queries.selection import read_selection
from baobab.tools.data.rows.row_reader import MOST_BYTES
from baobab.tools.data.rows.row_security import raise_guard
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo, read_catalogue, write_catalogue
from baobab.tools.data.schema.document import Wanted, order_by_reference
from baobab.tools.data.schemas import Row

_AT_ONCE = 500
_LOG_AT_ONCE = 50


async def copy_tables(source: DataStore, dest: DataStore, app_id: str) -> None:
    """Copies the tables. Running it again is safe: it first removes what the destination has of the app."""
    await dest.erase(app_id)
    if not await source.exists(app_id):
        return
    catalogue = await source.read(app_id, lambda old: read_catalogue(old, source, app_id))
    migration = MigrationPlan(dest, app_id, Catalogue(), Wanted(catalogue.tables), "")

    def create(statements: Statements) -> None:
        create_own_tables(statements, dest, app_id)
        migration.apply(statements)
        table = dest.name_table(app_id, "_catalogue")
        # `write_catalogue` adds one to the version.
        statements.rows(f"UPDATE {table} SET version = ?", catalogue.version - 1)
        write_catalogue(statements, dest, app_id, raise_guard(statements, dest, app_id, Catalogue(), catalogue))

    await dest.alter(app_id, create)
    for table in order_by_reference(catalogue.tables):
        async for rows in read_pages(source, app_id, catalogue, table):
            try:
                await dest.write(app_id, _Load(dest, app_id, catalogue, table, rows))
            except DatabaseUnavailable as exc:
                await _load_one_by_one(dest, app_id, catalogue, table, rows)
                # Each by itself was taken: it was no value that the database refused.
                raise exc from None
    for name, columns in OWN_TABLES.items():
        # The triggers count the bytes as the rows are written.
        if name not in ("_catalogue", "_usage", "_changes"):
            await _copy_own(source, dest, app_id, name, [column.split()[0] for column in columns.split(", ")])
    await _copy_log(source, dest, app_id)


async def _load_one_by_one(
    dest: DataStore, app_id: str, catalogue: Catalogue, table: TableInfo, rows: list[Row]
) -> None:
    """Raises DatabaseUnavailable for the first row that the database does not take, with its key in the reason."""
    for row in rows:
        try:
            await dest.write(app_id, _Load(dest, app_id, catalogue, table, [row]))
        except DatabaseUnavailable as exc:
            key = ", ".join(f"{name}={row[name]}" for name in table.key) or "one without a key"
            raise DatabaseUnavailable(str(exc), f"table {table.name}, row {key}: {exc.reason}") from exc


async def count_rows(store: DataStore, app_id: str) -> int:
    """Counts the rows of all tables of an app."""
    if not await store.exists(app_id):
        return 0

    def count(statements: Statements) -> int:
        names = [store.name_table(app_id, name) for name in read_catalogue(statements, store, app_id).tables]
        return sum(statements.rows(f"SELECT count(*) FROM {name}")[0][0] for name in names)

    return await store.read(app_id, count)


async def find_vector_column(store: DataStore, app_ids: Iterable[str]) -> str | None:
    """Returns the name of a column of vectors, as `APP.TABLE.COLUMN`; None if there is none."""
    for app_id in app_ids:
        if not await store.exists(app_id):
            continue
        catalogue = await store.read(app_id, partial(read_catalogue, store=store, app_id=app_id))
        for table in catalogue.tables.values():
            for column in table.columns.values():
                if column.type.name == "vector":
                    return f"{app_id}.{table.name}.{column.name}"
    return None


async def survey_tables(store: DataStore, app_ids: Iterable[str]) -> dict[str, Digest]:
    """Returns the digest of each table, named `APP.TABLE`, and of each app's catalogue."""
    digests: dict[str, Digest] = {}
    for app_id in app_ids:
        if not await store.exists(app_id):
            continue
        catalogue = await store.read(app_id, partial(read_catalogue, store=store, app_id=app_id))
        digests[app_id] = Digest()
        digests[app_id].add([catalogue.encode(), catalogue.version, [rule.as_json for rule in catalogue.channels]])
        for table in catalogue.tables.values():
            digest = digests[f"{app_id}.{table.name}"] = Digest()
            async for rows in read_pages(store, app_id, catalogue, table):
                for row in rows:
                    digest.add([row])
    return digests


async def find_difference(source: DataStore, dest: DataStore, app_id: str, table_name: str) -> str | None:
    """Returns the key of the first row of a table that is not the same in both stores, and the columns that differ,
    such as `id=5 (price)`; None if all rows are the same. Of a table without a key it returns how many rows differ.
    """
    catalogues = [
        await store.read(app_id, partial(read_catalogue, store=store, app_id=app_id)) for store in (source, dest)
    ]
    table = catalogues[0].tables[table_name]
    hashes: list[dict[str, dict[str, bytes]]] = []
    for store, catalogue in zip((source, dest), catalogues, strict=True):
        hashes_by_key: dict[str, dict[str, bytes]] = {}
        async for rows in read_pages(store, app_id, catalogue, table):
            for row in rows:
                key = ", ".join(f"{name}={row[name]}" for name in table.key) or hash_item([row]).hex()
                hashes_by_key[key] = {name: hash_item([value]) for name, value in row.items()}
        hashes.append(hashes_by_key)
    differing_keys = [key for key in hashes[0] | hashes[1] if hashes[0].get(key) != hashes[1].get(key)]
    if not differing_keys:
        return None
    if not table.key:
        return f"{len(differing_keys)} rows"
    first_key = differing_keys[0]
    here, there = (hashes_by_key.get(first_key, {}) for hashes_by_key in hashes)
    columns = [name for name in here | there if here.get(name) != there.get(name)]
    return f"{first_key} ({', '.join(columns)})"


async def read_pages(store: DataStore, app_id: str, catalogue: Catalogue, table: TableInfo) -> AsyncIterator[list[Row]]:
    """Yields the rows of a table in the order of its key, some hundred at a time; without a key, all at once."""
    after: Row | None = None
    size = _AT_ONCE
    while True:
        try:
            rows = await store.read(app_id, _Page(store, app_id, catalogue, table, after, size))
        except AnswerTooLarge:
            size = max(1, size // 8)
            continue
        if rows:
            yield rows
        if len(rows) < size or not table.key:
            return
        after = rows[-1]


class _Page:
    """Reads the next rows of a table in the order of their keys, after a given row. A table without a key is read
    whole.
    """

    def __init__(
        self, store: DataStore, app_id: str, catalogue: Catalogue, table: TableInfo, after: Row | None, size: int
    ) -> None:
        self._place = (store, app_id, catalogue)
        self._table = table
        self._after = after
        self._size = size

    def __call__(self, statements: Statements) -> list[Row]:
        store, app_id, catalogue = self._place
        selection = read_selection(catalogue, self._table, None)
        selection.limit = self._size if self._table.key else None
        # A single row is read whatever its size.
        most = MOST_BYTES if selection.limit not in (None, 1) else sys.maxsize
        rows = Rows(statements, store, app_id, catalogue, SERVICE, "", most)
        key: Expression | None = None if self._after is None else ["or", *_come_after(self._table, self._after)]
        return rows.select(selection, key=key)


class _Load:
    def __init__(self, store: DataStore, app_id: str, catalogue: Catalogue, table: TableInfo, rows: list[Row]) -> None:
        self._place = (store, app_id, catalogue)
        self._table = table
        self._rows = rows

    def __call__(self, statements: Statements) -> None:
        store, app_id, catalogue = self._place
        Rows(statements, store, app_id, catalogue, SERVICE, "").insert(self._table, self._rows)


def _come_after(table: TableInfo, row: Row) -> Iterator[Expression]:
    equal_columns: list[Expression] = []
    for name in table.key:
        kind = table.columns[name].type
        value: Expression = ["value", kind.name, kind.clean(row[name], name)]
        yield ["and", *equal_columns, [">", ["column", "", name], value]]
        equal_columns.append(["=", ["column", "", name], value])


async def _copy_own(source: DataStore, dest: DataStore, app_id: str, name: str, columns: list[str]) -> None:
    origin, target = source.name_table(app_id, name), dest.name_table(app_id, name)
    columns_text = ", ".join(columns)
    rows = await source.read(app_id, lambda statements: statements.rows(f"SELECT {columns_text} FROM {origin}"))
    text = f"INSERT INTO {target} ({columns_text}) VALUES ({', '.join('?' * len(columns))})"
    if rows:
        await dest.write(app_id, lambda statements: statements.execute_many(text, rows))


async def _copy_log(source: DataStore, dest: DataStore, app_id: str) -> None:
    """Copies the change log in pages, because it can be large."""
    columns = [column.split()[0] for column in OWN_TABLES["_changes"].split(", ")]
    columns_text, origin, target = (
        ", ".join(columns),
        source.name_table(app_id, "_changes"),
        dest.name_table(app_id, "_changes"),
    )
    page = f"SELECT {columns_text} FROM {origin} WHERE id > ? ORDER BY id LIMIT {_LOG_AT_ONCE}"
    text = f"INSERT INTO {target} ({columns_text}) VALUES ({', '.join('?' * len(columns))})"
    after = 0
    while rows := await source.read(app_id, partial(_read_rows, text=page, after=after)):
        await dest.write(app_id, partial(_write_rows, text=text, rows=rows))
        after = rows[-1][0]


def _read_rows(statements: Statements, text: str, after: int) -> list[tuple[Any, ...]]:
    return statements.rows(text, after)


def _write_rows(statements: Statements, text: str, rows: list[tuple[Any, ...]]) -> None:
    statements.execute_many(text, rows)
