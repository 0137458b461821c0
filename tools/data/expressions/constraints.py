"""Compiles checks and generated columns from their SQL, and writes them into the definitions of the database.

A definition takes no parameters, so values are written as literals here, and nowhere else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.tools.core import BaobabError
from baobab.tools.data.actor import SERVICE
from baobab.tools.data.errors import InvalidExpression, InvalidSchema, MismatchedTypes, UnsafeExpression
from baobab.tools.data.expressions.compiler import compile_condition, compile_value
from baobab.tools.data.expressions.expressions import Scope, SqlWriter, quote
from baobab.tools.data.expressions.trees import is_exact, list_names
from baobab.tools.data.schema.catalogue import Catalogue, Check, Column, Expression, TableInfo
from baobab.tools.data.values.column_types import ColumnType

_CHECK = "_check_"
_FITS = "_fits_"
_ENUM = "_enum_"
_OF_CALLERS = {
    "user": "current_user_id()",
    "user_uuid": "current_user_id()",
    "role": "current_user_role()",
    "now": "now()",
    "claim": "auth.jwt()",
}
_REMEDY = "Use the row's own columns, values, comparisons, `and`, `or`, `not`, `+ - *`, `||`, lower, upper, coalesce."


def compile_constraints(parser: Any, table: TableInfo) -> TableInfo:
    """Returns a table with the trees of its checks and generated columns. Raises InvalidSchema, which names a wrong
    one.

    An expression may depend on its row alone: its value is the same for every caller and at every time.
    """
    writable_table = replace(table, columns={column.name: column for column in table.writable_columns})
    columns = {
        name: column
        if column.generated is None
        else replace(column, generated_tree=_compile_generated(parser, writable_table, column, column.generated))
        for name, column in table.columns.items()
    }
    compiled_table = replace(table, columns=columns)
    return replace(
        compiled_table,
        checks={name: _compile_check(parser, compiled_table, each) for name, each in table.checks.items()},
    )


def _compile_check(parser: Any, table: TableInfo, check: Check) -> Check:
    try:
        tree = compile_condition(parser, check.text, Catalogue(), table)
        _require_own_row(tree, table)
    except (InvalidExpression, MismatchedTypes, UnsafeExpression) as exc:
        raise _explain(f"The check `{check.name}` of `{table.name}`", exc) from exc
    return replace(check, tree=tree)


def _compile_generated(parser: Any, table: TableInfo, column: Column, text: str) -> Expression:
    """Compiles the expression of a generated column. Raises InvalidSchema if it is not valid.

    table: has only the columns that the expression may name, which are those that are not generated.
    """
    try:
        tree, family = compile_value(parser, text, Catalogue(), table)
        _require_own_row(tree, table)
        if tree[0] == "literal" or not list_names(tree):
            raise InvalidExpression("It names no column.")
        _require_type(column.type, tree, family or "", table)
    except (InvalidExpression, MismatchedTypes, UnsafeExpression) as exc:
        raise _explain(f"The generated column `{table.name}.{column.name}`", exc) from exc
    return tree


def _explain(place: str, error: BaobabError) -> InvalidSchema:
    return InvalidSchema(f"{place}: {error.message}", remediation=_REMEDY)


def _require_own_row(tree: Any, table: TableInfo) -> None:
    match tree:
        case [str(kind), *_] if kind in _OF_CALLERS:
            raise UnsafeExpression(f"`{_OF_CALLERS[kind]}` is not the same for all writers at all times.")
        case ["exists" | "in_rows" | "lookup" | "count_rows", *_]:
            raise UnsafeExpression("It may not ask other rows.")
        case ["json", inner, _, _]:
            _require_own_row(inner, table)
        case ["cast", ["column", _, str(name)], _] if _is_written_alike(table.columns[name].type):
            return
        case ["cast", *_]:
            raise MismatchedTypes("Only columns that are integers, numerics, UUIDs or texts can be cast to text here.")
        case list():
            for part in tree:
                _require_own_row(part, table)


def _is_written_alike(kind: ColumnType) -> bool:
    """Returns whether both databases turn a value into the same text, whatever their settings."""
    return kind.is_exact or kind.is_text or (kind.name == "uuid" and not kind.array)


def _require_type(kind: ColumnType, tree: Expression, family: str, table: TableInfo) -> None:
    if kind.is_text and kind.name != "text":
        raise MismatchedTypes(f"Its type is `text`, and not {kind}.")
    if family != kind.family() or kind.is_json or kind.name in ("vector", "bytea"):
        raise MismatchedTypes(f"The expression is {family or 'a value of no type'}, and the column {kind}.")
    if kind.is_exact and not is_exact(tree, lambda _, name: table.columns[name].type):
        raise MismatchedTypes(f"The expression is a double precision, and the column {kind}.")


def list_checks(table: TableInfo) -> Iterator[tuple[str, Expression]]:
    """Returns the conditions that a table's rows must meet, by the names of their constraints: its checks, and that the
    values of generated columns fit their types.
    """
    for check in table.checks.values():
        assert check.tree is not None
        yield f"{_CHECK}{check.name}", check.tree
    for column in table.columns.values():
        if column.enum is not None:
            yield f"{_ENUM}{column.name}", _build_enum(column, column.enum)
        if column.generated_tree is not None and column.type.is_exact and column.type.bounds is not None:
            yield f"{_FITS}{column.name}", ["fits", column.generated_tree, str(column.type)]


def _build_enum(column: Column, words: tuple[str, ...]) -> Expression:
    return ["in", ["column", "", column.name], [["value", "text", word] for word in words]]


def find_check(table: TableInfo, constraint: str) -> tuple[Check | None, Column | None]:
    """Returns the check or the generated column of a constraint."""
    if constraint.startswith(_CHECK):
        return table.checks.get(constraint.removeprefix(_CHECK)), None
    column = table.columns.get(constraint.removeprefix(_ENUM)) if constraint.startswith(_ENUM) else None
    if column is not None and column.enum is not None:
        words = ", ".join(f"'{word}'" for word in column.enum)
        return Check(column.name, f"{column.name} in ({words})", _build_enum(column, column.enum)), None
    return None, table.columns.get(constraint.removeprefix(_FITS)) if constraint.startswith(_FITS) else None


def see_today(tree: Any, table: TableInfo, today: TableInfo | None, defaults: Mapping[str, Expression]) -> Any:
    """Rewrites a condition for the rows that exist now: a generated column becomes its expression, and a column that
    does not exist yet becomes its default.
    """
    match tree:
        case ["column", "", str(name)]:
            column = table.columns[name]
            if column.generated_tree is not None:
                return _convert(see_today(column.generated_tree, table, today, defaults), column.type)
            return tree if today is None or name in today.columns else defaults[name]
        case list():
            return [see_today(part, table, today, defaults) for part in tree]
    return tree


def _convert(tree: Expression, kind: ColumnType) -> Expression:
    return ["generated", tree, str(kind)]


def name_constraint(store: DataStore, table: str, constraint: str) -> str:
    # SQLite names the constraint that a row breaks, but not its table.
    return quote(f"{table}.{constraint}" if store.dialect == "sqlite" else constraint)


class LiteralWriter(SqlWriter):
    """Writes conditions with literal values, because the definitions of a database take no placeholders."""

    def value(self, value: Any, placeholder: str = "?") -> str:
        return placeholder.replace("?", self._write_literal(value), 1)

    def _write_literal(self, value: Any) -> str:
        if isinstance(value, bytes):
            return f"X'{value.hex()}'" if self.dialect == "sqlite" else f"E'\\\\x{value.hex()}'"
        if isinstance(value, list):
            return f"ARRAY[{', '.join(map(self._write_literal, value))}]"
        if value is None or isinstance(value, bool | int):
            return "NULL" if value is None else f"({value!r})".upper()
        if isinstance(value, float):
            return f"({value!r})".replace("inf", "9e999")
        text = str(value).replace("'", "''")
        if self.dialect == "sqlite":
            return f"'{text}'"
        # A question mark would be read as a placeholder of the statement around it.
        return "E'" + text.replace("\\", "\\\\").replace("?", "\\x3F") + "'"


class ConstraintWriter(LiteralWriter):
    """Writes a condition on one row for the definition of a table."""

    def __init__(self, store: DataStore, app_id: str) -> None:
        super().__init__(store, app_id, Catalogue(), SERVICE, "")

    def _write_own_column(self, tree: Expression, scope: Scope) -> str:
        del scope
        return quote(tree[2])

    writers: Mapping[str, Any] = {**SqlWriter.writers, "column": _write_own_column}
