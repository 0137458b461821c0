"""Finds out which reference a refused write would break. Postgres names the constraint, SQLite names nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.storage.sql.statements import Statements
from baobab.tools.data.errors import ForeignKeyViolation
from baobab.tools.data.expressions.expressions import SqlWriter, quote
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, TableInfo

_ACTING = ("CASCADE", "SET NULL", "SET DEFAULT")
_MOST_ASKED = 1000
"""How many values of one column are looked up at most."""


def describe_missing(table: TableInfo, column: Column) -> ForeignKeyViolation:
    """Returns the error for a row that refers to a row that does not exist."""
    to = column.references
    assert to is not None
    return ForeignKeyViolation(
        f"`{column.name}` of `{table.name}` refers to a row of `{to.table}` that is not there.",
        details={"table": table.name, "column": column.name, "references": f"{to.table}.{to.column}"},
        remediation=f"Insert the row of `{to.table}` first, or send the `{to.column}` of one that is there.",
    )


def describe_held(table: TableInfo, column: Column) -> ForeignKeyViolation:
    """Returns the error for a row that other rows still refer to.

    table, column: the referring column.
    """
    to = column.references
    assert to is not None
    return ForeignKeyViolation(
        f"`{column.name}` of `{table.name}` refers to this row of `{to.table}`.",
        details={"table": table.name, "column": column.name, "references": f"{to.table}.{to.column}"},
        remediation=f"Leave the row, or change `{column.name}` of those rows of `{table.name}` first, so that they "
        "refer to another row or to none.",
    )


def translate_reference(diagnosis: Any, catalogue: Catalogue) -> ForeignKeyViolation:
    """Builds the error from the diagnosis of Postgres."""
    table = catalogue.tables.get(diagnosis.table_name or "")
    if table is not None:
        for column in table.columns.values():
            if column.references is not None and table.name_reference(column) == diagnosis.constraint_name:
                # Postgres names the referring table first only if the statement wrote to that table.
                begins_with = (diagnosis.message_primary or "").split('"')[1:2]
                is_held = begins_with == [column.references.table] and begins_with != [table.name]
                if column.references.table == table.name:
                    is_held = not (diagnosis.message_primary or "").startswith("insert")
                return (describe_held if is_held else describe_missing)(table, column)
    return ForeignKeyViolation()


class ReferenceFinder:
    """Looks up which reference a statement broke, after SQLite has refused it."""

    def __init__(self, statements: Statements, catalogue: Catalogue) -> None:
        self._statements = statements
        self._catalogue = catalogue

    def find_missing(
        self, writer: SqlWriter, table: TableInfo, rows: Sequence[Mapping[str, Any]]
    ) -> ForeignKeyViolation | None:
        """Finds the first column whose value refers to a row that does not exist.

        rows: the written rows, with canonical values.
        """
        for column in table.columns.values():
            to = column.references
            if to is None:
                continue
            references = {row[column.name] for row in rows if row.get(column.name) is not None}
            if to.table == table.name:
                references -= {row.get(to.column) for row in rows}
            source, key = writer.name_table(to.table), quote(to.column)
            encode = self._catalogue.table(to.table).column(to.column).type.encode
            for value in list(references)[:_MOST_ASKED]:
                text = f"SELECT 1 FROM {source} WHERE {key} = ?"
                if not self._statements.rows(text, encode(value, writer.dialect)):
                    return describe_missing(table, column)
        return None

    def find_held(
        self, writer: SqlWriter, table: TableInfo, condition: Expression, *, deletes: bool
    ) -> ForeignKeyViolation | None:
        """Finds the first reference that would break if the rows that fulfil a condition were deleted or changed."""
        for child, column, to in self._catalogue.references_to(table.name):
            if (to.on_delete if deletes else to.on_update) in _ACTING:
                continue
            writer.values.clear()
            where = writer.write(condition, {"": quote(table.name)})
            keys = (
                f"SELECT {quote(to.column)} FROM {writer.name_table(table.name)} AS {quote(table.name)} WHERE {where}"
            )
            text = f"SELECT 1 FROM {writer.name_table(child.name)} WHERE {quote(column.name)} IN ({keys}) LIMIT 1"
            if self._statements.rows(text, *writer.values):
                return describe_held(child, column)
        return None
