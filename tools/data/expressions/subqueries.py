"""Compiles the subqueries of expressions: rows of tables of the app, joined if need be, and the caller's own rows."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from baobab.tools.data.errors import InvalidExpression, MismatchedTypes, UnsafeExpression
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.values.column_types import ColumnType

if TYPE_CHECKING:
    from baobab.tools.data.expressions.compiler import ExpressionCompiler, ExpressionScope

OWN_ROWS, OWN_VALUES = "current_user_rows", "current_user_values"
_MOST_TABLES = 4
_JOINS = {"": "JOIN", "INNER": "JOIN", "LEFT": "LEFT JOIN"}
_SHAPE = "A subquery is `select column from table join table on condition where condition`, and nothing more."


class SubqueryCompiler:
    """Compiles subqueries into the form that `SqlWriter` writes.

    A table is `{table, alias}`, with `own`, a column, for the rows in which that column is the caller; one that is
    joined also has `join` and `on`. The first one also has the other parts of the query: `joins`, `where`, `column`.
    """

    def __init__(self, compiler: "ExpressionCompiler", catalogue: Catalogue) -> None:
        self._compiler = compiler
        self._catalogue = catalogue

    def compile(
        self, select: Any, inner: "ExpressionScope", depth: int, *, with_column: bool
    ) -> tuple[dict[str, Any], str | None]:
        """Returns the rows of a subquery, and the family of its column.

        inner: the scope of the subquery, without tables.
        """
        if not self._catalogue.tables:
            raise UnsafeExpression("It may not ask other rows.")
        values = _find_own_values(select)
        if values is not None:
            return self.compile_own_values(values, inner)
        source = select.args.get("from_") if type(select).__name__ == "Select" else None
        parts = {name for name, value in select.args.items() if value}
        if source is None or parts - {"expressions", "from_", "joins", "where", "kind"}:
            raise UnsafeExpression(_SHAPE)
        rows = self._open(source.this, inner)
        rows["joins"] = [self._join(join, inner, depth) for join in select.args.get("joins") or ()]
        if len(inner.tables) > _MOST_TABLES:
            raise InvalidExpression(f"A subquery has at most {_MOST_TABLES} tables.")
        where = select.args.get("where")
        rows["where"] = self._compiler.condition(where.this, inner, depth) if where is not None else None
        rows["column"], family = None, None
        if with_column:
            if len(select.expressions) != 1:
                raise InvalidExpression("A subquery whose values are used selects one column.")
            rows["column"], family = self._compiler.compile(select.expressions[0], inner, depth)
        return rows, family

    def compile_own_values(self, node: Any, inner: "ExpressionScope") -> tuple[dict[str, Any], str | None]:
        """Compiles `current_user_values('members', 'user_id', 'org_id')`."""
        names = _read_names(node, 3, "('members', 'user_id', 'org_id')")
        rows = self._open_own(names[0], names[1], names[0], inner)
        kind = self._find_column(inner.tables[names[0]], names[2])
        return {**rows, "joins": [], "where": None, "column": ["column", names[0], names[2]]}, kind.family()

    def _open(self, node: Any, inner: "ExpressionScope") -> dict[str, Any]:
        is_plain = type(node).__name__ == "Table" and not {
            name for name, value in node.args.items() if value and name not in ("this", "alias")
        }
        if not is_plain:
            raise UnsafeExpression(_SHAPE)
        if type(node.this).__name__ == "Anonymous" and node.this.name.lower() == OWN_ROWS:
            names = _read_names(node.this, 2, "('members', 'user_id')")
            return self._open_own(names[0], names[1], node.alias or names[0], inner)
        if type(node.this).__name__ != "Identifier" or node.name not in self._catalogue.tables:
            raise UnsafeExpression(f"`{node.sql()[:60]}` is not a table of this app.")
        alias = node.alias or node.name
        self._name(inner, alias, self._catalogue.tables[node.name])
        return {"table": node.name, "alias": alias}

    def _open_own(self, name: str, column: str, alias: str, inner: "ExpressionScope") -> dict[str, Any]:
        if not self._compiler.may_find_own_rows:
            raise UnsafeExpression(f"`{OWN_ROWS}` and `{OWN_VALUES}` belong in policies.")
        if name not in self._catalogue.tables:
            raise UnsafeExpression(f"`{name[:60]}` is not a table of this app.")
        table = self._catalogue.tables[name]
        kind = self._find_column(table, column)
        if not (kind.is_text or kind.name == "uuid") or kind.array:
            raise MismatchedTypes(f"`{name}.{column}` is {kind}, and the id of a user a uuid or a text.")
        self._name(inner, alias, table)
        return {"table": name, "alias": alias, "own": column}

    def _find_column(self, table: TableInfo, name: str) -> ColumnType:
        if name not in table.columns:
            raise InvalidExpression(f"The table `{table.name}` has no column `{name[:63]}`.")
        return table.columns[name].type

    def _name(self, inner: "ExpressionScope", alias: str, table: TableInfo) -> None:
        if alias in inner.tables:
            raise InvalidExpression(f"`{alias[:60]}` names two tables: give one another name, `{table.name} as other`.")
        inner.tables[alias] = table

    def _join(self, node: Any, inner: "ExpressionScope", depth: int) -> dict[str, Any]:
        parts = {name for name, value in node.args.items() if value} - {"this", "on", "side", "kind"}
        kind = _JOINS.get((node.args.get("side") or node.args.get("kind") or "").upper())
        if parts or kind is None or node.args.get("on") is None:
            raise UnsafeExpression("Tables are joined by `join table on condition` or `left join table on condition`.")
        source = self._open(node.this, inner)
        return {**source, "join": kind, "on": self._compiler.condition(node.args["on"], inner, depth)}


def _find_own_values(select: Any) -> Any | None:
    """Returns the call of `select current_user_values(...)`; None for any other subquery."""
    if type(select).__name__ != "Select" or select.args.get("from_") or len(select.expressions) != 1:
        return None
    [node] = select.expressions
    return node if is_own_values(node) else None


def is_own_values(node: Any) -> bool:
    return type(node).__name__ == "Anonymous" and str(node.name).lower() == OWN_VALUES


def _read_names(node: Any, count: int, example: str) -> list[str]:
    """Returns the names that a call of a lookup of own rows has as arguments."""
    names = [argument.name for argument in node.expressions if type(argument).__name__ in ("Literal", "Column")]
    if len(names) != count or len(node.expressions) != count:
        raise InvalidExpression(
            f"Write `{node.name}{example}`: the table, the column that has the caller's id"
            f"{', and the column whose values you want' if count > 2 else ''}."
        )
    return names


def list_own_rows(tree: Any) -> set[tuple[str, str]]:
    """Returns the tables whose own rows of the caller a tree looks up, each with the column of the caller's id."""
    match tree:
        case {"table": str(table), "own": str(column), **others}:
            return {(table, column)}.union(*(list_own_rows(part) for part in others.values()))
        case dict():
            return set().union(*(list_own_rows(part) for part in tree.values()))
        case list():
            return set().union(*map(list_own_rows, tree)) if tree else set()
    return set()


def advise_against_circle(table: TableInfo) -> str:
    """Returns the remedy for policies that lead back to their own table, with the names of that table."""
    own = next((name for policy in table.policies.values() for name in _list_caller_columns(policy.using_tree)), "")
    own = own or next((name for name in ("user_id", "owner_id", "member_id", "id") if name in table.columns), "user_id")
    value = next((column.name for column in table.columns.values() if column.references and column.name != own), "")
    value = value or next((name for name in table.columns if name.endswith("_id") and name != own), own)
    return (
        f"Look up the caller's own rows of `{table.name}`, which no policy narrows: `{value} in (select {value} from "
        f"{OWN_ROWS}('{table.name}', '{own}'))`, with any `where` after it, or shorter "
        f"`{value} in ({OWN_VALUES}('{table.name}', '{own}', '{value}'))`. docs/data.md shows both under `Teams`."
    )


def _list_caller_columns(tree: Any) -> list[str]:
    """Returns the columns that a condition compares with the caller's id."""
    match tree:
        case ["=", ["column", _, str(name)], ["user" | "user_uuid"]] | [
            "=",
            ["user" | "user_uuid"],
            ["column", _, str(name)],
        ]:
            return [name]
        case list():
            return [name for part in tree for name in _list_caller_columns(part)]
        case Mapping():
            return [name for part in tree.values() for name in _list_caller_columns(part)]
    return []


def show_own_rows(table: TableInfo, column: str) -> Expression:
    """Returns the condition for the caller's own rows of a table."""
    user = "user_uuid" if table.columns[column].type.name == "uuid" else "user"
    return ["=", ["column", "", column], [user]]
