"""Says which reference a refused write would break: Postgres names its constraint, and SQLite nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.storage.statements import Statements
from baobab.tools.data.catalogue import Catalogue, Column, Expression, TableInfo
from baobab.tools.data.errors import ForeignKeyViolation
from baobab.tools.data.expressions import SqlWriter, quote

_ACTING = ("CASCADE", "SET NULL", "SET DEFAULT")
_MOST_ASKED = 1000
"""Values of one column that are looked up."""


def describe_missing(table: TableInfo, column: Column) -> ForeignKeyViolation:
    """The error of a row that refers to one that is not there."""
    to = column.references
    assert to is not None
    return ForeignKeyViolation(
        f"`{column.name}` of `{table.name}` refers to a row of `{to.table}` that is not there.",
        details={"table": table.name, "column": column.name, "references": f"{to.table}.{to.column}"},
        remediation=f"Insert the row of `{to.table}` first, or send the `{to.column}` of one that is there.",
    )


def describe_held(table: TableInfo, column: Column) -> ForeignKeyViolation:
    """The error of a row to which others refer. table, column: those that refer."""
    to = column.references
    assert to is not None
    return ForeignKeyViolation(
        f"`{column.name}` of `{table.name}` refers to this row of `{to.table}`.",
        details={"table": table.name, "column": column.name, "references": f"{to.table}.{to.column}"},
        remediation=f"Delete or change the rows of `{table.name}` first, or give the reference an `onDelete`.",
    )


def translate_reference(diagnosis: Any, catalogue: Catalogue) -> ForeignKeyViolation:
    """The error by what Postgres says of it."""
    table = catalogue.tables.get(diagnosis.table_name or "")
    if table is not None:
        for column in table.columns.values():
            if column.references is not None and table.name_reference(column) == diagnosis.constraint_name:
                # Postgres names the table that refers first only where that is the one that is written.
                begins_with = (diagnosis.message_primary or "").split('"')[1:2]
                is_held = begins_with == [column.references.table] and begins_with != [table.name]
                if column.references.table == table.name:
                    is_held = not (diagnosis.message_primary or "").startswith("insert")
                return (describe_held if is_held else describe_missing)(table, column)
    return ForeignKeyViolation()


class ReferenceFinder:
    """Looks up, after SQLite has refused a statement, what it is about."""

    def __init__(self, statements: Statements, catalogue: Catalogue) -> None:
        self._statements = statements
        self._catalogue = catalogue

    def find_missing(
        self, writer: SqlWriter, table: TableInfo, rows: Sequence[Mapping[str, Any]]
    ) -> ForeignKeyViolation | None:
        """The first column of written rows, in canonical values, that refers to a row that is not there."""
        for column in table.columns.values():
            to = column.references
            if to is None:
                continue
            wanted = {row[column.name] for row in rows if row.get(column.name) is not None}
            if to.table == table.name:
                wanted -= {row.get(to.column) for row in rows}
            source, key = writer.name_table(to.table), quote(to.column)
            encode = self._catalogue.table(to.table).column(to.column).type.encode
            for value in list(wanted)[:_MOST_ASKED]:
                text = f"SELECT 1 FROM {source} WHERE {key} = ?"
                if not self._statements.rows(text, encode(value, writer.dialect)):
                    return describe_missing(table, column)
        return None

    def find_held(
        self, writer: SqlWriter, table: TableInfo, condition: Expression, *, deletes: bool
    ) -> ForeignKeyViolation | None:
        """The first reference of another row to one of those that fulfil a condition, which would break with it."""
        for other, column, to in self._catalogue.references_to(table.name):
            if (to.on_delete if deletes else to.on_update) in _ACTING:
                continue
            writer.values.clear()
            where = writer.write(condition, {"": quote(table.name)})
            keys = (
                f"SELECT {quote(to.column)} FROM {writer.name_table(table.name)} AS {quote(table.name)} WHERE {where}"
            )
            text = f"SELECT 1 FROM {writer.name_table(other.name)} WHERE {quote(column.name)} IN ({keys}) LIMIT 1"
            if self._statements.rows(text, *writer.values):
                return describe_held(other, column)
        return None
