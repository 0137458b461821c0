"""Views: named queries of one SELECT, parsed, stored as trees, and written anew for each reader.

A view is not an object of the database. Each table in it is narrowed to the rows that the policies open to the reader,
so a view never shows more than its tables do.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import (
    InvalidExpression,
    InvalidFilter,
    InvalidSchema,
    MismatchedTypes,
    UnsafeExpression,
)
from baobab.tools.data.expressions.barrier import part_conditions
from baobab.tools.data.expressions.compiler import LONGEST, ExpressionCompiler, ExpressionScope, require_small
from baobab.tools.data.expressions.expressions import FALSE, FENCES, TRUE, SqlWriter, allowed_rows, both, quote
from baobab.tools.data.expressions.trees import infer_type, is_leakproof
from baobab.tools.data.queries.aggregates import find_type
from baobab.tools.data.schema.catalogue import NAME, Catalogue, Column, Expression, TableInfo, View
from baobab.tools.data.values.column_types import ColumnType

_MOST_COLUMNS = 200
_MOST_TABLES = 8
_PARTS = {"expressions", "from_", "joins", "where", "group", "kind"}
_JOINS = {"": "JOIN", "INNER": "JOIN", "LEFT": "LEFT JOIN"}
_SHAPE = "A view is `select ... from table join ... on ... where ... group by ...`, and nothing more."
_ORDER = "A view has no order and no limit: name them when you read it."


def compile_view(parser: Any, name: str, text: str, catalogue: Catalogue) -> View:
    """Compiles a view. Raises InvalidSchema, which names the view and what is wrong."""
    try:
        return _ViewCompiler(parser, catalogue).compile(name, text)
    except (InvalidExpression, MismatchedTypes, UnsafeExpression, InvalidFilter) as exc:
        raise InvalidSchema(
            f"The view `{name}`: {exc.message}",
            remediation="Correct the query of the view; it reads no rows until then, and loses none.",
        ) from exc


class _ViewCompiler:
    def __init__(self, parser: Any, catalogue: Catalogue) -> None:
        self._parser = parser
        self._catalogue = catalogue
        self._expressions = ExpressionCompiler(catalogue)
        self._scope = ExpressionScope()

    def compile(self, name: str, text: str) -> View:
        select = self._parse(text)
        sources = [self._open(select.args["from_"].this, None)]
        sources += [self._join(join) for join in select.args.get("joins") or ()]
        if len(sources) > _MOST_TABLES:
            raise InvalidExpression(f"It joins more than {_MOST_TABLES} tables.")
        where = select.args.get("where")
        condition = self._expressions.condition(where.this, self._scope, 0) if where is not None else None
        group = select.args.get("group")
        groups = self._read_groups(group) if group is not None else []
        items = [self._read_item(each) for each in select.expressions]
        if not 0 < len(items) <= _MOST_COLUMNS or len({item[0] for item in items}) < len(items):
            raise InvalidExpression(f"It has 1 to {_MOST_COLUMNS} columns, each with a name of its own.")
        if groups or any(item[1][0] == "aggregate" for item in items):
            for column, tree, _ in items:
                if tree[0] != "aggregate" and tree not in groups:
                    raise InvalidExpression(f"`{column}` is neither an aggregate nor in `group by`.")
        query = {"tables": sources, "where": condition, "groups": groups, "items": [tree for _, tree, _ in items]}
        require_small(query)
        columns = {column: Column(column, kind) for column, _, kind in items}
        return View(name, text, query, columns)

    def _parse(self, text: str) -> Any:
        if len(text) > LONGEST:
            raise InvalidExpression(f"It has more than {LONGEST} characters.")
        try:
            select = self._parser.parse_one(text, dialect="postgres")
        except (self._parser.errors.SqlglotError, RecursionError) as exc:
            raise InvalidExpression("This is not one SELECT of SQL.") from exc
        if type(select).__name__ != "Select" or select.args.get("from_") is None:
            raise UnsafeExpression(_SHAPE)
        parts = {name for name, value in select.args.items() if value}
        if parts & {"order", "limit", "offset"}:
            raise UnsafeExpression(_ORDER)
        if parts - _PARTS:
            raise UnsafeExpression(f"{_SHAPE} It may not have `{min(parts - _PARTS)}`.")
        return select

    def _open(self, node: Any, join: str | None) -> dict[str, Any]:
        """Reads one table of the query.

        join: how it is joined to the tables before it; None for the first one.
        """
        is_plain = type(node).__name__ == "Table" and not {
            name for name, value in node.args.items() if value and name not in ("this", "alias")
        }
        if not is_plain or type(node.this).__name__ != "Identifier":
            raise UnsafeExpression("`from` and `join` name tables of this app.")
        alias = node.alias or node.name
        if node.name not in self._catalogue.tables:
            raise UnsafeExpression(f"`{node.name[:60]}` is not a table of this app. A view cannot be made of views.")
        if not NAME.fullmatch(alias) or alias in self._scope.tables:
            raise InvalidExpression(f"`{alias[:60]}` names two tables, or is not a name.")
        self._scope.tables[alias] = self._catalogue.tables[node.name]
        return {"table": node.name, "alias": alias, "join": join, "on": None}

    def _join(self, node: Any) -> dict[str, Any]:
        parts = {name for name, value in node.args.items() if value} - {"this", "on", "side", "kind"}
        kind = _JOINS.get((node.args.get("side") or node.args.get("kind") or "").upper())
        if parts or kind is None or node.args.get("on") is None:
            raise UnsafeExpression("Tables are joined by `join table on condition` or `left join table on condition`.")
        source = self._open(node.this, kind)
        return {**source, "on": self._expressions.condition(node.args["on"], self._scope, 0)}

    def _read_groups(self, group: Any) -> list[Expression]:
        if {name for name, value in group.args.items() if value} - {"expressions"}:
            raise UnsafeExpression("`group by` names columns.")
        groups = [self._expressions.compile(each, self._scope, 0)[0] for each in group.expressions]
        for tree in groups:
            if tree[0] != "column" or not self._find_type(tree[1], tree[2]).is_ordered:
                raise InvalidExpression("`group by` names columns whose type has an order.")
        return groups

    def _read_item(self, node: Any) -> tuple[str, Expression, ColumnType]:
        value = node.this if type(node).__name__ == "Alias" else node
        if type(node).__name__ not in ("Alias", "Column"):
            raise InvalidExpression(
                f"`{node.sql(dialect='postgres', comments=False)[:60]}` needs a name: `... as name`."
            )
        name = node.alias if type(node).__name__ == "Alias" else node.name
        if not NAME.fullmatch(name):
            raise InvalidExpression(f"`{name[:60]}` is not a name for a column.")
        function = type(value).__name__.lower()
        if function in ("count", "sum", "avg", "min", "max"):
            tree, kind = self._aggregate(function, value)
            return name, tree, kind
        tree, family = self._expressions.compile(value, self._scope, 0)
        return name, *infer_type(tree, family, self._find_type)

    def _aggregate(self, function: str, node: Any) -> tuple[Expression, ColumnType]:
        if {part for part, value in node.args.items() if value} - {"this", "big_int"}:
            raise UnsafeExpression(f"`{function}` takes one value.")
        if type(node.this).__name__ == "Star":
            if function != "count":
                raise UnsafeExpression(f"`{function}` takes one value.")
            return ["aggregate", "count", None, ""], find_type("count", ColumnType("integer"), "*")
        tree, family = self._expressions.compile(node.this, self._scope, 0)
        tree, kind = infer_type(tree, family, self._find_type)
        return ["aggregate", function, tree, str(kind)], find_type(function, kind, function)

    def _find_type(self, alias: str, name: str) -> ColumnType:
        return self._scope.find_type(alias, name)


def write_view_rows(
    writer: SqlWriter, table: TableInfo, actor: Actor, alias: str, conditions: Sequence[Expression]
) -> tuple[str, str]:
    """Writes where a query reads the rows of a view that fulfil conditions: its source and its condition. Their
    placeholders belong one after the other.
    """
    assert table.view is not None
    source = f"({_write_query(writer, table.view, table.columns, actor)}) AS {alias}"
    computed_columns = {
        name for name, tree in zip(table.columns, table.view["items"], strict=True) if tree[0] != "column"
    }
    names = {each["table"] for each in table.view["tables"]}
    if all(allowed_rows(writer.find_table(name), "SELECT", actor) in (TRUE, FALSE) for name in names):
        return source, writer.write(both(*conditions), {"": alias})
    leakproof, others = part_conditions(conditions, computed_columns)
    if others:
        inner = f"SELECT * FROM {source} WHERE {writer.write(both(*leakproof), {'': alias})}"
        source = f"({inner} {FENCES[writer.dialect]}) AS {alias}"
        leakproof = others
    return source, writer.write(both(*leakproof), {"": alias})


def _write_query(writer: SqlWriter, query: Mapping[str, Any], columns: Mapping[str, Column], actor: Actor) -> str:
    scope = {source["alias"]: f"_v{position}" for position, source in enumerate(query["tables"])}
    items = [
        f"{_write_item(writer, tree, column.type, scope)} AS {quote(column.name)}"
        for tree, column in zip(query["items"], columns.values(), strict=True)
    ]
    text = f"SELECT {', '.join(items)} FROM "
    conditions = [each for each in (query["where"], *(source["on"] for source in query["tables"])) if each is not None]
    is_leaky = not all(is_leakproof(condition) for condition in conditions)
    for source in query["tables"]:
        table = writer.find_table(source["table"])
        alias = scope[source["alias"]]
        policy = allowed_rows(table, "SELECT", actor)
        fence = f" {FENCES[writer.dialect]}" if is_leaky and policy not in (TRUE, FALSE) else ""
        condition = writer.write(policy, {"": alias})
        place = f"(SELECT * FROM {writer.name_table(table.name)} AS {alias} WHERE {condition}{fence}) AS {alias}"
        if source["join"] is None:
            text += place
        else:
            text += f" {source['join']} {place} ON {writer.write(source['on'], scope)}"
    if query["where"] is not None:
        text += f" WHERE {writer.write(query['where'], scope)}"
    groups = ", ".join(writer.write(tree, scope) for tree in query["groups"])
    return f"{text} GROUP BY {groups}" if groups else text


def _write_item(writer: SqlWriter, tree: Expression, kind: ColumnType, scope: Mapping[str, str]) -> str:
    """Writes a value with the type of its column, so that it compares and sorts like a column of a table."""
    if tree[0] == "column" or (tree[0] == "json" and not tree[3]):
        return writer.write(tree, scope)
    is_sqlite, is_aggregate = writer.dialect == "sqlite", tree[0] == "aggregate"
    if kind.name == "numeric":
        sql = writer.write(tree if is_aggregate else ["generated", tree, "numeric"], scope)
        return f"CAST({sql} AS TEXT) COLLATE decimal" if is_sqlite else f"({sql})::numeric"
    sql = writer.write(tree, scope)
    if is_sqlite:
        return f"CAST({sql} AS {kind.declare('sqlite')})"
    # The sum of integers may be too large for their type.
    if is_aggregate:
        return sql
    collation = ' COLLATE "C"' if kind.declare("postgresql").startswith("text") else ""
    return f"({sql})::{kind.cast_name}{collation}"
