"""The statements that define the tables and indexes of an app, for both databases."""

from baobab.storage.data.store import DataStore
from baobab.tools.data.expressions.constraints import ConstraintWriter, list_checks, name_constraint
from baobab.tools.data.expressions.expressions import quote
from baobab.tools.data.migration.change import Change
from baobab.tools.data.schema.catalogue import Column, Expression, Index, TableInfo


class TableDdl:
    """Writes the definitions of one app's tables."""

    def __init__(self, store: DataStore, app_id: str) -> None:
        self._store = store
        self._app_id = app_id

    @property
    def cascade(self) -> str:
        return "" if self._store.dialect == "sqlite" else " CASCADE"

    def name(self, table: str) -> str:
        return self._store.name_table(self._app_id, table)

    def create(self, table: TableInfo, name: str) -> Change:
        parts = [self.declare(column) for column in table.columns.values()]
        parts += [self.constrain(table, constraint, tree) for constraint, tree in list_checks(table)]
        if table.key:
            parts.append(f"PRIMARY KEY ({', '.join(map(quote, table.key))})")
        parts += [
            f"FOREIGN KEY ({quote(column.name)}) {self.refer(column)}"
            for column in table.columns.values()
            if column.references is not None
        ]
        strict = " STRICT" if self._store.dialect == "sqlite" else ""
        return Change(f"CREATE TABLE {self.name(name)} ({', '.join(parts)}){strict}", f"create the table {table.name}")

    def declare(self, column: Column) -> str:
        declaration = f"{quote(column.name)} {column.type.declare(self._store.dialect)}"
        if column.generated_tree is None:
            return declaration
        value = self._write_condition(["generated", column.generated_tree, str(column.type)])
        return f"{declaration} GENERATED ALWAYS AS ({value}) STORED"

    def constrain(self, table: TableInfo, constraint: str, tree: Expression) -> str:
        name = name_constraint(self._store, table.name, constraint)
        return f"CONSTRAINT {name} CHECK ({self._write_condition(tree)})"

    def _write_condition(self, tree: Expression) -> str:
        return ConstraintWriter(self._store, self._app_id).write(tree, {})

    def refer(self, column: Column) -> str:
        to = column.references
        assert to is not None
        # In SQLite, a reference names a table of the same file, without a schema.
        target = quote(to.table) if self._store.dialect == "sqlite" else self.name(to.table)
        return f"REFERENCES {target} ({quote(to.column)}) ON DELETE {to.on_delete} ON UPDATE {to.on_update}"

    def list_indexes(self, table: TableInfo) -> list[Index]:
        unique = [
            Index(f"_{table.name}_{column.name}_unique"[:63], (column.name,), unique=True)
            for column in table.columns.values()
            if column.unique and table.key != (column.name,)
        ]
        return [*unique, *table.indexes.values()]

    def create_index(self, table: TableInfo, index: Index) -> Change:
        name = self.name_index(table, index)
        unique = "UNIQUE " if index.unique else ""
        description = f"create the index {index.name}"
        if self._store.dialect == "sqlite":
            if index.method not in ("btree", "hash"):
                return Change("", f"{description}, which SQLite does without")
            columns = ", ".join(map(quote, index.columns))
            return Change(f"CREATE {unique}INDEX {quote(name)} ON {quote(table.name)} ({columns})", description)
        if index.method == "fts":
            words = ConstraintWriter(self._store, self._app_id).write_words(quote(index.columns[0]))
            text = f"CREATE INDEX {quote(name)} ON {self.name(table.name)} USING gin ({words})"
            return Change(text, description)
        opclass = index.opclass or ("vector_cosine_ops" if index.method in ("hnsw", "ivfflat") else "")
        columns = ", ".join(f"{quote(column)} {opclass}".strip() for column in index.columns)
        return Change(
            f"CREATE {unique}INDEX {quote(name)} ON {self.name(table.name)} USING {index.method} ({columns})",
            description,
        )

    def drop_index(self, table: TableInfo, index: Index) -> Change:
        name = quote(self.name_index(table, index))
        place = name if self._store.dialect == "sqlite" else self.name("x").replace('"x"', name)
        # The constraint of a reference that the document no longer has may still depend on it.
        return Change(f"DROP INDEX IF EXISTS {place}{self.cascade}", f"drop the index {index.name}")

    def name_index(self, table: TableInfo, index: Index) -> str:
        """Returns the name of an index in the database, which must be unique there; in a document it need not be."""
        return f"{table.name}.{index.name}"[-63:]
