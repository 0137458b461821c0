"""The catalogue of an app: its tables with their columns, indexes and policies. It is stored beside the rows."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from baobab.storage.cache import Cache
from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Services
from baobab.tools.data.errors import INSTEAD_OF_RPC, ColumnNotFound, ReservedTable, TableNotFound
from baobab.tools.data.schema.channels import ChannelRule
from baobab.tools.data.values.column_types import ColumnType, parse_type
from baobab.tools.data.values.selection_items import Item

NAME = re.compile(r"[a-z_][a-z0-9_]{0,62}")
NOTICE = "data_catalogue"
_VIEWS = "_views"
"""The key of the views in the document of a catalogue. No table can have this name."""
Command = Literal["SELECT", "INSERT", "UPDATE", "DELETE"]
Expression = list[Any]
"""A condition as a tree, in JSON: `["=", ["column", "", "owner"], ["user"]]` (expressions/expressions.py)."""


@dataclass(frozen=True, slots=True)
class Reference:
    table: str
    column: str
    on_delete: str = "NO ACTION"
    on_update: str = "NO ACTION"


@dataclass(frozen=True, slots=True)
class Column:
    name: str
    type: ColumnType
    primary_key: bool = False
    nullable: bool = True
    default: str | None = None
    unique: bool = False
    references: Reference | None = None
    generated: str | None = None
    """The expression of SQL that the database computes it by, as its author wrote it."""
    generated_tree: Expression | None = None
    on_update: str | None = None
    """What the column becomes at each update of its row, in the forms of a default."""
    enum: tuple[str, ...] | None = None
    """The only texts that the column may have."""

    @property
    def needs_value(self) -> bool:
        return not self.nullable or self.primary_key


@dataclass(frozen=True, slots=True)
class Index:
    name: str
    columns: tuple[str, ...]
    unique: bool = False
    method: str = "btree"
    opclass: str | None = None


@dataclass(frozen=True, slots=True)
class Check:
    """A condition that every row of a table must fulfil. `text` is what its author wrote."""

    name: str
    text: str
    tree: Expression | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Which rows a role may reach by a command. `using` and `check` are what its author wrote."""

    name: str
    command: Command | Literal["ALL"] = "ALL"
    role: Literal["anon", "user"] | None = None
    using: str | None = None
    check: str | None = None
    restrictive: bool = False
    using_tree: Expression | None = None
    check_tree: Expression | None = None


@dataclass(frozen=True)
class TableInfo:
    name: str
    columns: Mapping[str, Column]
    indexes: Mapping[str, Index] = field(default_factory=dict)
    seed: bool = False
    secured: bool = True
    """Whether row-level security is on: users and visitors reach only what policies open."""
    policies: Mapping[str, Policy] = field(default_factory=dict)
    fill_user: str | None = None
    """If an insert of a user leaves this column out, it is filled with the user's id."""
    live_since: str | None = None
    """Since when changes of the table's rows are sent to subscribers. None if they are not."""
    checks: Mapping[str, Check] = field(default_factory=dict)
    own_text: bool = False
    """Whether an admin has marked its rows as the app's own texts. It ends when users or visitors may write rows."""
    view: Mapping[str, Any] | None = None
    """The query of a view (tools/data/queries/views.py), which is read like a table. None for a table."""

    @cached_property
    def key(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns.values() if column.primary_key)

    @cached_property
    def items(self) -> tuple[Item, ...]:
        """All columns, which a query without `select` answers."""
        return tuple(Item(name, ["column", "", name], column.type) for name, column in self.columns.items())

    @cached_property
    def writable_columns(self) -> tuple[Column, ...]:
        """The columns that a write can set: all but the generated ones."""
        return tuple(column for column in self.columns.values() if column.generated is None)

    def name_reference(self, column: Column) -> str:
        """Returns the name that Postgres gives to the foreign key. Clients choose one of several relations by it."""
        return f"{self.name}_{column.name}_fkey"

    def is_unique(self, column: Column) -> bool:
        """Returns whether at most one row has a value of this column. Of the rows of a view that is not known."""
        uniques = [self.key, *(index.columns for index in self.indexes.values() if index.unique)]
        return self.view is None and (column.unique or (column.name,) in uniques)

    def column(self, name: str) -> Column:
        column = self.columns.get(name)
        if column is None:
            raise ColumnNotFound(
                f"The table `{self.name}` has no column `{name[:63]}`.", details={"columns": list(self.columns)}
            )
        return column


@dataclass(frozen=True, slots=True)
class View:
    """A query under a name. `text` is what its author wrote, `query` the trees of its parts."""

    name: str
    text: str
    query: Mapping[str, Any]
    columns: Mapping[str, Column]

    @property
    def tables(self) -> list[str]:
        return list(dict.fromkeys(source["table"] for source in self.query["tables"]))

    def list_origins(self) -> Iterator[tuple[str, str, str]]:
        """Yields the view's columns that show a column of a table unchanged: name in the view, table, name in the
        table.
        """
        tables = {source["alias"]: source["table"] for source in self.query["tables"]}
        for name, tree in zip(self.columns, self.query["items"], strict=True):
            if tree[0] == "column":
                yield name, tables[tree[1]], tree[2]


@dataclass(frozen=True)
class Catalogue:
    tables: Mapping[str, TableInfo] = field(default_factory=dict)
    version: int = 0
    """Of the whole catalogue: each change of a table or policy adds one. 0 if the app has no database yet."""
    views: Mapping[str, View] = field(default_factory=dict)
    guard: str | None = None
    """The mark of the roles for which Postgres's row-level security holds these policies. None if it holds none."""
    channels: Sequence[ChannelRule] = ()
    """Who may join channels and send to them. Not part of the document, which earlier versions could not read."""
    key_reads: dict[tuple[str, str, str], Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """The statements that `RowReader.read_by_key` has written for these tables and policies."""
    memory: dict[str, Any] = field(default_factory=dict, init=False, compare=False, repr=False)
    """What others have found out about these tables and policies."""

    def table(self, name: str) -> TableInfo:
        info = self.tables.get(name)
        if info is None and name in self.views:
            tables = " or ".join(f"`{table}`" for table in self.views[name].tables)
            raise TableNotFound(f"`{name}` is a view, and this is for tables.", remediation=f"Name {tables} instead.")
        if info is None and name.startswith("_"):
            raise ReservedTable(f"`{name[:63]}` begins with `_`: it is not a table of the app's own.")
        if info is None:
            raise TableNotFound(
                f"The app has no table `{name[:63]}`.",
                details={"tables": sorted(self.tables)},
                remediation=INSTEAD_OF_RPC if name == "rpc" else None,
            )
        return info

    def find_readable(self, name: str) -> TableInfo:
        """Returns a table, or a view in the form of a table. Raises TableNotFound."""
        return self._views_as_tables.get(name) or self.table(name)

    def find_columns(self, readable: TableInfo, table: str, column: str) -> list[str]:
        """Returns the names under which a table or view shows a column of a table unchanged."""
        view = self.views.get(readable.name)
        if view is None:
            return [column] if readable.name == table else []
        return [name for name, *origin in view.list_origins() if origin == [table, column]]

    @cached_property
    def _views_as_tables(self) -> Mapping[str, TableInfo]:
        return {view.name: self._as_table(view) for view in self.views.values()}

    def _as_table(self, view: View) -> TableInfo:
        """Returns a view in the form of a table, so that the same code reads both.

        It has no policies, because those of its tables apply. A column that is shown unchanged keeps its reference.
        """
        columns = {**view.columns}
        for name, table, column in view.list_origins():
            origin = self.tables[table].columns[column] if table in self.tables else None
            columns[name] = replace(columns[name], references=origin.references if origin else None)
        return TableInfo(view.name, columns, secured=False, view=view.query)

    def with_table(self, table: TableInfo) -> "Catalogue":
        return replace(self, tables={**self.tables, table.name: table})

    def references_to(self, name: str) -> Iterator[tuple[TableInfo, Column, Reference]]:
        for table in self.tables.values():
            for column in table.columns.values():
                if column.references is not None and column.references.table == name:
                    yield table, column, column.references

    def encode(self) -> str:
        document: dict[str, Any] = {name: _encode_table(table) for name, table in self.tables.items()}
        if self.views:
            document[_VIEWS] = [_encode_view(view) for view in self.views.values()]
        return json.dumps(document)


def decode_catalogue(text: str, version: int, guard: str | None, channels: str | None = None) -> Catalogue:
    document = json.loads(text)
    views = [_decode_view(each) for each in document.pop(_VIEWS, ())]
    tables = {name: _decode_table(name, each) for name, each in document.items()}
    rules = tuple(ChannelRule(**each) for each in json.loads(channels or "[]"))
    mark, _, guarded_version = (guard or "").rpartition(":")
    # A server of an earlier version may have changed the catalogue without updating the guard.
    is_guarded = guarded_version == str(version)
    return Catalogue(tables, version, {view.name: view for view in views}, mark if is_guarded else None, rules)


def read_catalogue(statements: Statements, store: DataStore, app_id: str) -> Catalogue:
    """Reads the catalogue within a transaction."""
    table = store.name_table(app_id, "_catalogue")
    [row] = statements.rows(f"SELECT document, version, guard, channels FROM {table}")
    return decode_catalogue(*row)


def is_frozen(statements: Statements, store: DataStore, app_id: str) -> bool:
    table = store.name_table(app_id, "_catalogue")
    return bool(statements.rows(f"SELECT frozen FROM {table}")[0][0])


def write_catalogue(statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue) -> None:
    table = store.name_table(app_id, "_catalogue")
    guard = "CAST(? AS text) || ':' || (version + 1)"
    text = f"UPDATE {table} SET document = ?, guard = {guard}, channels = ?, version = version + 1"
    channels = json.dumps([rule.as_json for rule in catalogue.channels])
    statements.rows(text, catalogue.encode(), catalogue.guard, channels)


class Catalogues:
    """The catalogues of apps, cached in memory.

    A change in any process clears the app's entry within half a second. A write checks the version itself.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._cache: Cache[str, Catalogue] = Cache(self._load, services.clock, size=2000)
        services.notices.subscribe(NOTICE, self._cache.forget)
        services.notices.subscribe("app", self._cache.forget)

    async def get(self, app_id: str) -> Catalogue:
        return await self._cache.get(app_id) or Catalogue()

    def forget(self, app_id: str) -> None:
        self._cache.forget(app_id)

    async def _load(self, app_id: str) -> Catalogue | None:
        app = await self._services.directory.app(app_id)
        store = self._services.stores_of(app.region).data
        if not await store.exists(app_id):
            return None
        return await store.read(app_id, lambda statements: read_catalogue(statements, store, app_id), quick=True)


def _encode_table(table: TableInfo) -> dict[str, Any]:
    return {
        "columns": [
            {
                "name": column.name,
                "type": str(column.type),
                "primary_key": column.primary_key,
                "nullable": column.nullable,
                "default": column.default,
                "unique": column.unique,
                "references": None if column.references is None else _as_dict(column.references),
                "generated": column.generated,
                "generated_tree": column.generated_tree,
                **({} if column.on_update is None else {"on_update": column.on_update}),
                **({} if column.enum is None else {"enum": column.enum}),
            }
            for column in table.columns.values()
        ],
        "indexes": [_as_dict(index) for index in table.indexes.values()],
        "seed": table.seed,
        "secured": table.secured,
        "policies": [_as_dict(policy) for policy in table.policies.values()],
        "fill_user": table.fill_user,
        "live_since": table.live_since,
        **({"own_text": True} if table.own_text else {}),
        "checks": [_as_dict(check) for check in table.checks.values()],
    }


def _encode_view(view: View) -> dict[str, Any]:
    columns = {column.name: str(column.type) for column in view.columns.values()}
    return {"name": view.name, "text": view.text, "query": view.query, "columns": columns}


def _decode_view(text: Mapping[str, Any]) -> View:
    columns = {name: Column(name, parse_type(kind)) for name, kind in text["columns"].items()}
    return View(text["name"], text["text"], text["query"], columns)


def _as_dict(record: Reference | Index | Policy | Check) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _decode_table(name: str, text: Mapping[str, Any]) -> TableInfo:
    columns = [
        Column(
            **{
                **each,
                "type": parse_type(each["type"]),
                "references": None if each["references"] is None else Reference(**each["references"]),
                "enum": tuple(each["enum"]) if each.get("enum") is not None else None,
            }
        )
        for each in text["columns"]
    ]
    indexes = [Index(**{**each, "columns": tuple(each["columns"])}) for each in text["indexes"]]
    policies = [Policy(**each) for each in text["policies"]]
    return TableInfo(
        name,
        {column.name: column for column in columns},
        {index.name: index for index in indexes},
        text["seed"],
        text["secured"],
        {policy.name: policy for policy in policies},
        text["fill_user"],
        text.get("live_since"),
        {each["name"]: Check(**each) for each in text.get("checks", [])},
        text.get("own_text", False),
    )
