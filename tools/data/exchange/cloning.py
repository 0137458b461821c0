"""What a clone of an app has of its tables: schema and policies, and the rows of tables that are marked `_seed`."""

from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core.app_clones import Ability, ClonedStore, CloneRefused, CloneRule, Cloning, Place, never_clone
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.advice.open_tables import find_open_tables
from baobab.tools.data.exchange.copying import read_pages
from baobab.tools.data.migration.migration import MigrationPlan
from baobab.tools.data.migration.own_tables import create_own_tables
from baobab.tools.data.rows.row_security import raise_guard
from baobab.tools.data.rows.rows import Rows, Upsert
from baobab.tools.data.schema.catalogue import Catalogue, TableInfo, read_catalogue, write_catalogue
from baobab.tools.data.schema.document import Wanted, order_by_reference
from baobab.tools.data.schemas import Row


async def load_catalogue(place: Place) -> Catalogue:
    """Returns the tables of an app; of one that never had any, none."""
    store: DataStore = place.stores.data
    if not await store.exists(place.app_id):
        return Catalogue()
    return await store.read(place.app_id, lambda statements: read_catalogue(statements, store, place.app_id))


async def _copy_schema(cloning: Cloning) -> None:
    """Creates the tables with their policies in one transaction, unless it has been done."""
    source = await load_catalogue(cloning.source)
    if not source.tables:
        return
    now = cloning.started_at.isoformat()
    tables = {
        # The copy's texts are a stranger's, whoever marked the source's.
        name: replace(table, own_text=False, live_since=None if table.live_since is None else now)
        for name, table in source.tables.items()
    }
    catalogue = replace(source, tables=tables, version=0, guard=None)
    store, app_id = cloning.dest.stores.data, cloning.dest.app_id
    plan = MigrationPlan(store, app_id, Catalogue(), Wanted(tables), "")

    def create(statements: Statements) -> None:
        create_own_tables(statements, store, app_id)
        if read_catalogue(statements, store, app_id).tables:
            return
        plan.apply(statements)
        write_catalogue(statements, store, app_id, raise_guard(statements, store, app_id, Catalogue(), catalogue))

    await store.alter(app_id, create)


async def _copy_rows(cloning: Cloning) -> None:
    """Copies the rows of the marked tables. A row that is there already stays, so that it may be done twice."""
    source, dest = cloning.source, cloning.dest
    catalogue = await load_catalogue(source)
    copied_catalogue = await load_catalogue(dest)
    for table in order_by_reference(catalogue.tables):
        if not table.seed:
            continue
        if table.name not in copied_catalogue.tables:
            raise CloneRefused(f"The template got the table `{table.name}` meanwhile. Clone it again.")
        async for rows in read_pages(source.stores.data, source.app_id, catalogue, table):
            _require_whole(catalogue, table, rows)
            load = _Load(dest, copied_catalogue, copied_catalogue.tables[table.name], rows, cloning)
            await dest.stores.data.write(dest.app_id, load)


def _require_whole(catalogue: Catalogue, table: TableInfo, rows: Iterable[Row]) -> None:
    """Raises CloneRefused for rows that refer to a table whose rows are not copied."""
    for column in table.columns.values():
        reference = column.references
        if reference is None or catalogue.tables[reference.table].seed:
            continue
        if any(row[column.name] is not None for row in rows):
            raise CloneRefused(
                f"Rows of `{table.name}` refer to `{reference.table}`, which is not marked `_seed`, so they cannot be "
                "copied. The template's owner can mark it too."
            )


class _Load:
    def __init__(self, dest: Place, catalogue: Catalogue, table: TableInfo, rows: list[Row], cloning: Cloning) -> None:
        self._dest, self._catalogue, self._table, self._rows = dest, catalogue, table, rows
        self._now = cloning.started_at.isoformat()

    def __call__(self, statements: Statements) -> None:
        store, app_id, table = self._dest.stores.data, self._dest.app_id, self._table
        rows = Rows(statements, store, app_id, self._catalogue, SERVICE, self._now)
        if table.key:
            rows.insert(table, self._rows, Upsert(table.key, merge=False))
        elif not statements.rows(f"SELECT 1 FROM {store.name_table(app_id, table.name)} LIMIT 1"):
            # Without a key, a row that is there cannot be recognised; all of them are written at once.
            rows.insert(table, self._rows)


async def _outline(place: Place) -> Mapping[str, list[Any]]:
    catalogue = await load_catalogue(place)
    tables = sorted(catalogue.tables.values(), key=lambda table: table.name)
    return {"tables": [{"name": table.name, "column_count": len(table.columns)} for table in tables]}


async def _list_abilities(place: Place) -> Iterable[Ability]:
    catalogue = await load_catalogue(place)
    abilities = [Ability("open_table", finding["table"], finding["message"]) for finding in find_open_tables(catalogue)]
    for name in sorted(name for name, table in catalogue.tables.items() if table.own_text):
        says = f"Agents take the texts of the table {name} for the app's own."
        abilities.append(Ability("own_text", f"table {name}", says, tool="schema_own_text"))
    return abilities


async def _read_texts(place: Place) -> AsyncIterator[tuple[str, str]]:
    catalogue = await load_catalogue(place)
    for table in catalogue.tables.values():
        if table.seed:
            async for rows in read_pages(place.stores.data, place.app_id, catalogue, table):
                for row in rows:
                    for name, value in row.items():
                        if isinstance(value, str | dict | list):
                            yield f"rows of {table.name}.{name}", value if isinstance(value, str) else str(value)


CLONES: tuple[CloneRule, ...] = (
    ClonedStore(
        "tables",
        "tables with columns, indexes, checks, views and channels, with their policies",
        {"replaying_schema": _copy_schema},
        outline=_outline,
        list_abilities=_list_abilities,
    ),
    ClonedStore(
        "seed rows",
        "the rows of tables that are marked `_seed`",
        {"seeding_data": _copy_rows},
        read_texts=_read_texts,
    ),
    *never_clone("data", "rows of other tables"),
    *never_clone("history", "change log", "migrations", "slow statements", "messages of channels"),
    *never_clone("marks of what came from outside", "marks of rows"),
)
