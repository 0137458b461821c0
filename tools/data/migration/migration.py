"""Plans the change from one catalogue to another: the statements that a database needs, and which of them lose
data.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.errors import InvalidSchema, TableLimit
from baobab.tools.data.expressions.constraints import (
    compile_constraints,
    find_check,
    list_checks,
)
from baobab.tools.data.expressions.expressions import quote
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.history.usage import Counter
from baobab.tools.data.migration.change import Change
from baobab.tools.data.migration.ddl import TableDdl
from baobab.tools.data.migration.losses import build_refusal
from baobab.tools.data.migration.present_rows import PresentRows
from baobab.tools.data.migration.renaming import find_renames, rename_catalogue, rename_records, set_records_aside
from baobab.tools.data.queries.views import compile_view
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, TableInfo, View
from baobab.tools.data.schema.document import (
    MOST_TABLES,
    Wanted,
    check_references,
    keep_policies,
    order_by_reference,
    require_free_names,
)
from baobab.tools.data.schemas import BrokenCheck

_LONGEST_NAME = 63


class MigrationPlan:
    """The steps from the current catalogue to the one that a document asks for. Raises InvalidSchema or
    DestructiveChange.
    """

    def __init__(
        self, store: DataStore, app_id: str, current: Catalogue, target: Wanted, now: str, parser: Any = None
    ) -> None:
        """parser: of expressions; None if those of the document are compiled already, or it has none."""
        self._store = store
        self._app_id = app_id
        self.original = current
        self.renames = find_renames(current, target.renamed_tables, target.renamed_columns)
        if self.renames:
            current = rename_catalogue(parser, current, self.renames, keeps_views=target.views is None)
        self._current = current
        """What the database has, under the new names."""
        self.target = target
        self._now = now
        self._ddl = TableDdl(store, app_id)
        self._parser = parser
        self.result = self._build_result()
        self.changes = list(self._list_changes())

    def require_authorised(self) -> None:
        """Raises DestructiveChange if a step loses data and the document does not allow it, and ReservedTable for a new
        table or view whose name is taken.
        """
        older, newer = self.original, self.result
        require_free_names((newer.tables.keys() | newer.views.keys()) - older.tables.keys() - older.views.keys())
        unauthorised_changes = [change for change in self.changes if change.destructive and change.authorise]
        if unauthorised_changes:
            raise build_refusal(self._current, self.target, unauthorised_changes)

    def apply(self, statements: Statements) -> None:
        if self._store.dialect == "postgresql" and self._uses_vectors():
            statements.rows("CREATE EXTENSION IF NOT EXISTS vector")
        counter = Counter(statements, self._store, self._app_id)
        older, newer = self._current.tables, self.result.tables
        renamed_tables = [table for table in self.original.tables.values() if self.renames.affects(table.name)]
        new_names = {self.renames.table(table.name) for table in renamed_tables}
        changed_tables = [
            table
            for table in newer.values()
            if table.name in new_names or not _is_stored_alike(table, older.get(table.name))
        ]
        for table in [
            *renamed_tables,
            *(older[each.name] for each in changed_tables if each.name in older and each.name not in new_names),
        ]:
            counter.stop(table)
        for table in renamed_tables:
            counter.forget(table)
        set_records_aside(statements, self._store, self._app_id, newer.keys() - self.original.tables.keys())
        if renamed_tables:
            rename_records(statements, self._store, self._app_id, self.original, self.renames)
        self._apply(statements)
        for name in older.keys() - newer.keys():
            counter.forget(older[name])
        for table in changed_tables:
            counter.start(table)

    def _apply(self, statements: Statements) -> None:
        present_rows = PresentRows(statements, self._store, self._app_id, self._now)
        for change in self.changes:
            if change.check_rows is not None:
                present_rows.require_checks(change.check_rows)
            if change.check_nulls is not None:
                present_rows.require_no_nulls(*change.check_nulls)
            if change.sql:
                statements.rows(change.sql)
            if change.fill is not None:
                present_rows.fill(*change.fill)

    def _uses_vectors(self) -> bool:
        columns = (column for table in self.result.tables.values() for column in table.columns.values())
        return any(column.type.name == "vector" for column in columns)

    def _build_result(self) -> Catalogue:
        current, target = self._current, self.target
        replaced_names = target.tables.keys() | target.dropped_tables
        tables = {name: table for name, table in current.tables.items() if name not in replaced_names}
        for name, table in target.tables.items():
            older = current.tables.get(name)
            newer = keep_policies(table, older)
            if older is not None:
                # A column that the document leaves out stays as it is.
                dropped_columns = target.dropped_columns.get(name, frozenset())
                unnamed_columns = {
                    n: column
                    for n, column in older.columns.items()
                    if n not in table.columns and n not in dropped_columns
                }
                newer = replace(
                    newer, columns={**{n: c for n, c in older.columns.items() if n in unnamed_columns}, **newer.columns}
                )
            tables[name] = newer if self._parser is None else compile_constraints(self._parser, newer)
        if len(tables) > MOST_TABLES:
            raise TableLimit(details={"limit": MOST_TABLES, "current": len(tables)})
        check_references(tables)
        return Catalogue(tables, current.version + 1, self._build_views(Catalogue(tables)), channels=current.channels)

    def _build_views(self, catalogue: Catalogue) -> dict[str, View]:
        """Compiles the views, which must fit the new tables."""
        texts = {name: view.text for name, view in self._current.views.items()}
        if self.target.views is not None:
            texts = dict(self.target.views)
        for name in texts.keys() & catalogue.tables.keys():
            raise InvalidSchema(f"`{name}` is a table and a view.")
        return {name: compile_view(self._parser, name, text, catalogue) for name, text in texts.items()}

    def _list_renames(self) -> Iterator[Change]:
        """Lists the renames, which come before all other changes. SQLite makes the indexes anew that have the old
        name in theirs.
        """
        for older in self.original.tables.values():
            if not self.renames.affects(older.name):
                continue
            newer = self._current.tables[self.renames.table(older.name)]
            pairs = list(zip(self._ddl.list_indexes(older), self._ddl.list_indexes(newer), strict=True))
            renamed_indexes = [
                (old, new) for old, new in pairs if self._ddl.name_index(older, old) != self._ddl.name_index(newer, new)
            ]
            if self._store.dialect == "sqlite":
                yield from (self._ddl.drop_index(older, old) for old, _ in renamed_indexes)
            for old_name, new_name in self.renames.columns.get(older.name, {}).items():
                sql = f"ALTER TABLE {self._ddl.name(older.name)} RENAME COLUMN {quote(old_name)} TO {quote(new_name)}"
                yield Change(sql, f"rename the column {older.name}.{old_name} to {new_name}")
            if newer.name != older.name:
                sql = f"ALTER TABLE {self._ddl.name(older.name)} RENAME TO {quote(newer.name)}"
                yield Change(sql, f"rename the table {older.name} to {newer.name}")
            if self._store.dialect == "sqlite":
                yield from (self._ddl.create_index(newer, new) for _, new in renamed_indexes)
                continue
            yield from self._rename_constraints(older, newer)
            for old, new in renamed_indexes:
                place = self._ddl.name("x").replace('"x"', quote(self._ddl.name_index(older, old)))
                sql = f"ALTER INDEX IF EXISTS {place} RENAME TO {quote(self._ddl.name_index(newer, new))}"
                yield Change(sql, f"rename the index {old.name}")

    def _rename_constraints(self, older: TableInfo, newer: TableInfo) -> Iterator[Change]:
        """Renames the constraints of Postgres that have the name of a column or table in theirs."""
        names = list(
            zip((name for name, _ in list_checks(older)), (name for name, _ in list_checks(newer)), strict=True)
        )
        names += [
            (older.name_reference(old), newer.name_reference(new))
            for old, new in zip(older.columns.values(), newer.columns.values(), strict=True)
            if old.references is not None
        ]
        for old_name, new_name in names:
            if old_name != new_name and max(len(old_name), len(new_name)) <= _LONGEST_NAME:
                sql = (
                    f"ALTER TABLE {self._ddl.name(newer.name)} RENAME CONSTRAINT {quote(old_name)} TO {quote(new_name)}"
                )
                yield Change(sql, f"rename a condition on the rows of {newer.name}")

    def _list_changes(self) -> Iterator[Change]:
        yield from self._list_renames()
        current, target = self._current, self.target
        for name in sorted(target.dropped_tables & current.tables.keys()):
            yield Change(
                f"DROP TABLE {self._ddl.name(name)}{self._ddl.cascade}",
                f"drop the table {name}",
                destructive=True,
            )
        for name in sorted(current.tables.keys() - target.tables.keys() - target.dropped_tables):
            yield Change("", f"drop the table {name}", destructive=True, authorise=f'"_drop": ["{name}"]')
        new_tables = {name: table for name, table in self.result.tables.items() if name not in current.tables}
        for table in order_by_reference(new_tables):
            yield self._ddl.create(table, table.name)
            yield from (self._ddl.create_index(table, index) for index in self._ddl.list_indexes(table))
        for name, older in current.tables.items():
            if name in target.tables:
                yield from self._alter(older, self.result.tables[name], target.dropped_columns.get(name, frozenset()))

        yield from self._list_views()

    def _list_views(self) -> Iterator[Change]:
        """Lists the changed views. They need no statements, because they are stored in the catalogue only."""
        older, newer = self._current.views, self.result.views
        for name in sorted(older.keys() | newer.keys()):
            if name not in newer:
                yield Change("", f"drop the view {name}")
            elif name not in older or older[name] != newer[name]:
                yield Change("", f"{'change' if name in older else 'create'} the view {name}")

    def _alter(  # noqa: PLR0912 - one branch for each thing that can change
        self, older: TableInfo, newer: TableInfo, dropped_columns: frozenset[str]
    ) -> Iterator[Change]:
        table = older.name
        old_indexes = dict.fromkeys(self._ddl.list_indexes(older))
        new_indexes = dict.fromkeys(self._ddl.list_indexes(newer))
        for index in old_indexes:
            if index not in new_indexes:
                yield self._ddl.drop_index(older, index)
        if older.seed != newer.seed:
            yield Change("", f"{'copy' if newer.seed else 'no longer copy'} the rows of {table} into clones of the app")
        yield from self._drop_constraints(older, newer)
        is_renamed = any(self.renames.affects(name) for name in (table, *self._find_older_name(table)))
        # In SQLite, the names of conditions have the name of the table in theirs.
        rebuild = _has_other_constraints(older, newer) or (is_renamed and any(list_checks(newer)))
        for name, column in newer.columns.items():
            older_column = older.columns.get(name)
            if column.generated is not None or (older_column is not None and older_column.generated is not None):
                if older_column is not None:
                    self._require_generated(table, older_column, column)
                continue
            if older_column is None:
                yield from self._add_column(newer, column)
                continue
            if older_column.primary_key != column.primary_key:
                raise InvalidSchema(f"`{table}.{name}`: the key of an existing table cannot be changed.")
            if older_column.type != column.type:
                yield from self._change_type(newer, older_column, column)
            if older_column.needs_value != column.needs_value:
                yield Change(
                    "",
                    f"{'require' if column.needs_value else 'no longer require'} a value of {table}.{name}",
                    check_nulls=(newer, column) if column.needs_value else None,
                )
            if older_column.default != column.default:
                yield Change("", f"change the default of {table}.{name}")
            if older_column.on_update != column.on_update:
                yield Change("", f"change what an update sets {table}.{name} to")
            if older_column.references != column.references:
                yield from self._change_reference(table, older_column, column)
                rebuild = True
        # Generated columns are dropped before the columns that they are computed from.
        for name in sorted(
            dropped_columns & older.columns.keys(), key=lambda each: (older.columns[each].generated is None, each)
        ):
            if name in older.key:
                raise InvalidSchema(f"`{table}.{name}` is in the key of the table, and cannot be dropped.")
            if older.columns[name].references is not None:
                rebuild = True
            drop = f"ALTER TABLE {self._ddl.name(table)} DROP COLUMN {quote(name)}"
            is_rebuilt = (rebuild or bool(newer.checks)) and self._store.dialect == "sqlite"
            rebuild = rebuild or is_rebuilt
            yield Change("" if is_rebuilt else drop, f"drop the column {table}.{name}", destructive=True)
        if rebuild and self._store.dialect == "sqlite":
            old_checks = dict(list_checks(older))
            for constraint, tree in list_checks(newer):
                if old_checks.get(constraint) != tree:
                    yield Change("", _describe_addition(newer, constraint))
            yield from self._rebuild(newer)
            # The indexes were dropped with the old table.
            yield from (self._ddl.create_index(newer, index) for index in new_indexes)
        else:
            yield from self._add_constraints(older, newer)
            # The indexes of a generated column were dropped with it.
            recomputed_columns = _list_recomputed(older, newer)
            yield from (
                self._ddl.create_index(newer, index)
                for index in new_indexes
                if index not in old_indexes or recomputed_columns.intersection(index.columns)
            )

    def _find_older_name(self, table: str) -> list[str]:
        return [old for old, new in self.renames.tables.items() if new == table]

    def _require_generated(self, table: str, older_column: Column, column: Column) -> None:
        """Refuses to turn a plain column into a generated one, because its values would be lost. The reverse is
        allowed.
        """
        if older_column.generated is None or (column.generated is None and older_column.type != column.type):
            raise InvalidSchema(
                f"`{table}.{column.name}` exists already, with other values.",
                remediation="Give the computed column another name, and keep this one until you have compared their "
                "values.",
            )

    def _drop_constraints(self, older: TableInfo, newer: TableInfo) -> Iterator[Change]:
        """Drops constraints before columns change, in Postgres only. SQLite builds the table anew instead."""
        is_postgres, table = self._store.dialect == "postgresql", self._ddl.name(older.name)
        new_checks, recomputed_columns = dict(list_checks(newer)), _list_recomputed(older, newer)
        for constraint, tree in list_checks(older):
            if new_checks.get(constraint) != tree or _names_any(tree, recomputed_columns):
                drop = f"ALTER TABLE {table} DROP CONSTRAINT IF EXISTS {quote(constraint)}" if is_postgres else ""
                is_own = constraint not in new_checks and find_check(older, constraint)[0] is not None
                description = f"drop the check {_name_check(constraint)} of {older.name}" if is_own else ""
                if drop or description:
                    yield Change(drop, description or f"drop a condition on the rows of {older.name}")
        for name in sorted(recomputed_columns):
            column = newer.columns[name]
            if name in older.columns and is_postgres:
                keeps_column = column.generated is None
                drop = f"ALTER COLUMN {quote(name)} DROP EXPRESSION" if keeps_column else f"DROP COLUMN {quote(name)}"
                yield Change(f"ALTER TABLE {table} {drop}", f"no longer compute {older.name}.{name} as before")
            elif name in older.columns:
                yield Change("", f"no longer compute {older.name}.{name} as before")

    def _add_constraints(self, older: TableInfo, newer: TableInfo) -> Iterator[Change]:
        """Adds constraints after columns have changed, in Postgres only."""
        table, recomputed_columns = self._ddl.name(newer.name), _list_recomputed(older, newer)
        old_checks = dict(list_checks(older))
        constraints = [
            (constraint, tree)
            for constraint, tree in list_checks(newer)
            if old_checks.get(constraint) != tree or _names_any(tree, recomputed_columns)
        ]
        if constraints:
            yield Change("", f"require that the rows of {newer.name} fulfil its conditions", check_rows=newer)
        for column in newer.columns.values():
            if column.name in recomputed_columns and column.generated is not None:
                sql = f"ALTER TABLE {table} ADD COLUMN {self._ddl.declare(column)}"
                yield Change(sql, f"compute the column {newer.name}.{column.name}")
        for constraint, tree in constraints:
            sql = f"ALTER TABLE {table} ADD {self._ddl.constrain(newer, constraint, tree)}"
            yield Change(sql, _describe_addition(newer, constraint))

    def find_broken_checks(self, statements: Statements) -> list[BrokenCheck]:
        """Finds the new conditions that present rows break, before anything changes."""
        present_rows = PresentRows(statements, self._store, self._app_id, self._now)
        broken_checks: list[BrokenCheck] = []
        for name, today in self._current.tables.items():
            table = self.result.tables.get(name)
            if name not in self.original.tables or self.renames.affects(name):
                # The database does not have these names yet.
                continue
            if table is not None and _has_other_constraints(today, table):
                broken_checks += present_rows.find_broken(table, today)
        return broken_checks

    def _add_column(self, table: TableInfo, column: Column) -> Iterator[Change]:
        if column.primary_key:
            raise InvalidSchema(f"`{table.name}.{column.name}`: the key of an existing table cannot be changed.")
        sql = f"ALTER TABLE {self._ddl.name(table.name)} ADD COLUMN {self._ddl.declare(column)}"
        if column.references is not None:
            sql += f" {self._ddl.refer(column)}"
        yield Change(sql, f"add the column {table.name}.{column.name}", fill=(table, column))
        if column.needs_value:
            yield Change("", f"require a value of {table.name}.{column.name}", check_nulls=(table, column))

    def _change_type(self, table: TableInfo, older_column: Column, column: Column) -> Iterator[Change]:
        description = f"change the type of {table.name}.{column.name} from {older_column.type} to {column.type}"
        if not column.type.accepts(older_column.type):
            yield Change(
                "",
                description,
                destructive=True,
                authorise=f"add a column of the type {column.type} under another name, copy the values, and then "
                f'"_dropColumns": ["{column.name}"]',
            )
            return
        is_stored_alike = column.type.declare(self._store.dialect) == older_column.type.declare(self._store.dialect)
        kind = column.type.declare(self._store.dialect)
        sql = f"ALTER TABLE {self._ddl.name(table.name)} ALTER COLUMN {quote(column.name)} TYPE {kind}"
        yield Change("" if is_stored_alike else sql, description)

    def _change_reference(self, table: str, older_column: Column, column: Column) -> Iterator[Change]:
        description = f"change what {table}.{column.name} refers to"
        if self._store.dialect == "sqlite":
            yield Change("", description)
            return
        constraint = quote(f"{table}_{column.name}_fkey")
        if older_column.references is not None:
            yield Change(f"ALTER TABLE {self._ddl.name(table)} DROP CONSTRAINT IF EXISTS {constraint}", description)
        if column.references is not None:
            sql = f"ALTER TABLE {self._ddl.name(table)} ADD CONSTRAINT {constraint} FOREIGN KEY ({quote(column.name)})"
            yield Change(f"{sql} {self._ddl.refer(column)}", description)

    def _rebuild(self, table: TableInfo) -> Iterator[Change]:
        """Builds the table anew, because SQLite cannot change its references otherwise."""
        temporary = f"_new_{table.name}"
        columns = ", ".join(quote(column.name) for column in table.writable_columns)
        anew = self._ddl.create(table, temporary)
        yield replace(anew, description=f"make the table {table.name} anew", check_rows=table)
        yield Change(
            f"INSERT INTO {quote(temporary)} ({columns}) SELECT {columns} FROM {quote(table.name)}", "copy its rows"
        )
        yield Change(f"DROP TABLE {quote(table.name)}", "drop the older one")
        yield Change(f"ALTER TABLE {quote(temporary)} RENAME TO {quote(table.name)}", "give the new one its name")


def _name_check(constraint: str) -> str:
    return constraint.removeprefix("_check_").removeprefix("_enum_")


def _describe_addition(table: TableInfo, constraint: str) -> str:
    check, column = find_check(table, constraint)
    if check is not None:
        return f"add the check {check.name} to {table.name}"
    return f"require that {table.name}.{column.name if column else ''} fits its type"


def _names_any(tree: Expression, columns: set[str]) -> bool:
    return any(name in columns for _, name in list_names(tree))


def _list_recomputed(older: TableInfo, newer: TableInfo) -> set[str]:
    """Returns the generated columns that are new, changed, or generated no longer."""

    def describe_types(table: TableInfo, column: Column) -> list[str]:
        names = sorted(name for _, name in list_names(column.generated_tree))
        return [str(column.type), *(str(table.columns[name].type) for name in names)]

    recomputed_columns: set[str] = set()
    for name, column in newer.columns.items():
        older_column = older.columns.get(name)
        if older_column is None or (older_column.generated is None and column.generated is None):
            if column.generated is not None:
                recomputed_columns.add(name)
        elif older_column.generated_tree != column.generated_tree or (
            describe_types(older, older_column) != describe_types(newer, column)
        ):
            recomputed_columns.add(name)
    return recomputed_columns


def _has_other_constraints(older: TableInfo, newer: TableInfo) -> bool:
    return bool(_list_recomputed(older, newer)) or dict(list_checks(older)) != dict(list_checks(newer))


def _is_stored_alike(table: TableInfo, older: TableInfo | None) -> bool:
    if older is None:
        return False
    return (table.columns, table.indexes, table.checks) == (older.columns, older.indexes, older.checks)
