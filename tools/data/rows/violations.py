"""Translates the errors of databases about constraints into those of the API."""

import sqlite3
from typing import Any

from sqlalchemy.exc import IntegrityError

from baobab.tools.core import BaobabError
from baobab.tools.data.errors import (
    CheckViolation,
    ForeignKeyViolation,
    NotNullViolation,
    UniqueViolation,
    Violation,
)
from baobab.tools.data.expressions.constraints import find_check
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.rows.broken_references import translate_reference
from baobab.tools.data.schema.catalogue import Catalogue


def translate_violation(error: IntegrityError | sqlite3.IntegrityError, catalogue: Catalogue) -> BaobabError:
    """Translates an error of a database into one of the API.

    error: as the driver of SQLite raises it within a transaction, or as SQLAlchemy does.
    """
    cause: Any = getattr(error, "orig", error)
    diagnosis = getattr(cause, "diag", None)
    if diagnosis is not None:
        return _translate_postgres(cause.sqlstate, diagnosis, catalogue)
    text = str(cause)
    kind, _, place = text.partition(" constraint failed: ")
    if kind == "CHECK":
        name, _, constraint = place.partition(".")
        return _describe_check(catalogue, name, constraint)
    table, _, column = place.partition(", ")[0].partition(".")
    if kind == "UNIQUE":
        return _unique(table, [part.partition(".")[2] for part in place.split(", ")])
    if text.startswith("FOREIGN KEY"):
        return ForeignKeyViolation()
    if kind == "NOT NULL":
        return NotNullViolation(
            f"`{column}` of `{table}` must have a value.", details={"column": column, "table": table}
        )
    return Violation()


def _translate_postgres(state: str, diagnosis: Any, catalogue: Catalogue) -> BaobabError:
    if state == "23514":
        return _describe_check(catalogue, diagnosis.table_name or "", diagnosis.constraint_name or "")
    if state == "23505":
        # The columns stand in the detail: `Key (a, b)=(...) already exists.`
        column_list = (diagnosis.message_detail or "").partition("(")[2].partition(")")[0]
        return _unique(diagnosis.table_name or "", [name.strip().strip('"') for name in column_list.split(",")])
    if state == "23503":
        return translate_reference(diagnosis, catalogue)
    if state == "23502":
        column = diagnosis.column_name or ""
        return NotNullViolation(f"`{column}` must have a value.", details={"column": column})
    return Violation()


def _describe_check(catalogue: Catalogue, name: str, constraint: str) -> BaobabError:
    table = catalogue.tables.get(name)
    check, column = (None, None) if table is None else find_check(table, constraint)
    if check is not None:
        columns = sorted({column_name for _, column_name in list_names(check.tree)})
        return CheckViolation(
            f"The row does not fulfil the check `{check.name}` of `{name}`: {check.text[:200]}",
            details={"table": name, "check": check.name, "columns": columns, "expression": check.text},
        )
    if column is not None:
        columns = sorted({column_name for _, column_name in list_names(column.generated_tree)})
        return CheckViolation(
            f"`{column.name}` of `{name}` would be larger than a value of {column.type} can be.",
            details={"table": name, "column": column.name, "columns": columns, "expression": column.generated},
        )
    return Violation()


def _unique(table: str, columns: list[str]) -> UniqueViolation:
    column_list = ", ".join(f"`{column}`" for column in columns)
    return UniqueViolation(
        f"`{table}` has a row with this value of {column_list} already.",
        details={"constraint": f"{table}_{'_'.join(columns)}_unique", "column": columns[0], "columns": columns},
    )
