"""Queries of a statement, written anew: each table in them is replaced by a subquery of the rows that the caller may
read, before anything of the statement is evaluated on them.
"""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from baobab.storage.data.functions import FUNCTIONS as OWN_FUNCTIONS
from baobab.storage.data.store import DataStore
from baobab.storage.sql.confinement import NAMED
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed
from baobab.tools.data.expressions.expressions import FALSE, FENCES, TRUE, SqlWriter, allowed_rows
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.queries.views import write_view_rows
from baobab.tools.data.schema.catalogue import Catalogue, TableInfo
from baobab.tools.data.sql.expressions import ExpressionWriter
from baobab.tools.data.sql.functions import find_function, list_own_names
from baobab.tools.data.sql.names import UNNAMED, Columns, Scope, Shown, quote, read_name, refuse, take_args
from baobab.tools.data.sql.pieces import Piece, compose, join
from baobab.tools.data.sql.values import Values
from baobab.tools.data.values.column_types import ColumnType

PREFIX = f"_b{secrets.token_hex(8)}_"
"""Of the names of the subqueries that stand for tables. A statement cannot name them."""
_OF_SQLITE = (
    "decimal_sum -> ->> iif json_type json min max count sum avg substr length upper coalesce exact_round round"
)
SQLITE_FUNCTIONS = frozenset((*OWN_FUNCTIONS, *list_own_names(), *_OF_SQLITE.split()))
"""The functions that statements and policies call on SQLite."""
_SET_OPERATIONS = {"Union": "UNION", "Intersect": "INTERSECT", "Except": "EXCEPT"}
_QUERIES = ("Select", "Subquery", "Values", *_SET_OPERATIONS)
_JOINS = {"": "JOIN", "INNER": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "FULL": "FULL JOIN"}
_PARTS = ("with_", "expressions", "distinct", "from_", "joins", "where", "group", "having", "order", "limit", "offset")
_MOST_TABLES = 16
_MOST_COLUMNS = 100
_MOST_PARTS = 40

OpenTable = Callable[[str], TableInfo]
"""Returns a table or a view that the caller may read. Raises TableNotFound or UserRequired."""


@dataclass(frozen=True, slots=True)
class Output:
    """A column of a result. name: None if it has none. weight: of what it stands for."""

    name: str | None
    kind: ColumnType | None
    weight: int = 1


class QueryWriter:
    def __init__(
        self,
        store: DataStore,
        app_id: str,
        catalogue: Catalogue,
        actor: Actor,
        now: str,
        params: Sequence[Any],
        open_table: OpenTable,
        *,
        has_own_rows_by_function: bool,
    ) -> None:
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self._actor = actor
        self._now = now
        self._open = open_table
        self._has_own_rows_by_function = has_own_rows_by_function
        self.values = Values(store.dialect, params)
        self.expressions = ExpressionWriter(store, app_id, actor, now, self.values, self)
        self._tables: dict[str, tuple[str, Columns]] = {}
        """The tables of the statement, each with the name of its subquery."""
        self._definitions: list[Piece] = []
        self._parts = 0
        self.counted: set[str] = set()
        """The tables of which the caller sees all rows or none."""

    @property
    def is_sqlite(self) -> bool:
        return self._store.dialect == "sqlite"

    def begin(self) -> None:
        """Begins a further query of the same statement, such as that of its next row."""
        self._parts = 0

    def place_tables(self, query: Piece) -> Piece:
        """Puts the subqueries of the tables before a query that reads them."""
        if not self._definitions:
            return query
        return compose("WITH {} SELECT * FROM ({}) AS _r", join(", ", self._definitions), query)

    def write_subquery(self, node: Any, scope: Scope) -> tuple[Piece, Columns]:
        query, outputs = self.write_query(node, Scope(outer=scope))
        return query, _name_columns(outputs)

    def write_query(self, node: Any, scope: Scope) -> tuple[Piece, list[Output]]:
        """Writes a query. scope: its own, without any source yet."""
        self._parts += 1
        if self._parts > _MOST_PARTS:
            raise SqlInvalid(f"A statement has at most {_MOST_PARTS} queries.")
        name = type(node).__name__
        if name == "Select":
            return self._select(node, scope)
        if name in _SET_OPERATIONS:
            return self._combine(node, scope)
        if name == "Values":
            return self._list_values(take_args(node, "expressions")["expressions"], scope)
        if name == "Subquery":
            take_args(node, "this", "alias", "with_")
            with_clause = self.write_with(node, scope)
            inner, outputs = self.write_query(node.this, Scope(outer=scope))
            return compose("{}SELECT * FROM ({}) AS _p", with_clause, inner), outputs
        raise refuse(node)

    # SELECT.

    def _select(self, node: Any, scope: Scope) -> tuple[Piece, list[Output]]:
        arguments = take_args(node, *_PARTS)
        with_clause = self.write_with(node, scope)
        source = self._from(arguments.get("from_"), arguments.get("joins"), scope)
        items = [item for each in arguments["expressions"] for item in self._item(each, scope)]
        if not 0 < len(items) <= _MOST_COLUMNS:
            raise SqlInvalid(f"A query has 1 to {_MOST_COLUMNS} columns.")
        outputs = [Output(name, piece.kind, piece.weight) for name, piece in items]
        words = "SELECT DISTINCT" if self._read_distinct(arguments.get("distinct")) else "SELECT"
        named_items = [
            compose(f"{{}} AS {quote(name or f'_u{number}')}", self.expressions.collate(piece))
            for number, (name, piece) in enumerate(items)
        ]
        parts = [compose(f"{words} {{}}", join(", ", named_items))]
        if source is not None:
            parts.append(compose("FROM {}", source))
        if arguments.get("where"):
            condition = self.expressions.condition(take_args(arguments["where"], "this")["this"], scope)
            parts.append(compose("WHERE {}", condition))
        if arguments.get("group"):
            groups = take_args(arguments["group"], "expressions")["expressions"]
            parts.append(compose("GROUP BY {}", join(", ", [self._group(each, scope, items) for each in groups])))
        if arguments.get("having"):
            condition = self.expressions.condition(take_args(arguments["having"], "this")["this"], scope)
            parts.append(compose("HAVING {}", condition))
        parts += self._order(arguments.get("order"), scope, outputs)
        parts += self._limit(arguments)
        return compose("{}{}", with_clause, join(" ", parts)), outputs

    def _item(self, node: Any, scope: Scope) -> Iterator[tuple[str | None, Piece]]:
        """Yields the columns that an item of the list of a query stands for, with their names."""
        name = type(node).__name__
        if name == "Star":
            take_args(node)
            yield from self._all_columns(scope, None)
        elif name == "Column" and type(node.this).__name__ == "Star":
            take_args(node.this)
            yield from self._all_columns(scope, read_name(take_args(node, "this", "table")["table"]))
        elif name == "Alias":
            arguments = take_args(node, "this", "alias")
            yield read_name(arguments["alias"]), self.expressions.write(arguments["this"], scope)
        elif name == "Column":
            yield read_name(node.this), self.expressions.write(node, scope)
        else:
            called_node = node
            while type(called_node).__name__ in ("Window", "Filter"):
                called_node = called_node.this
            function = find_function(called_node)
            yield (function.sql_name if function else None), self.expressions.write(node, scope)

    def _all_columns(self, scope: Scope, alias: str | None) -> Iterator[tuple[str, Piece]]:
        if alias is not None and alias not in scope.sources:
            raise SqlInvalid(f"The statement has no table `{alias}`.")
        if not scope.sources:
            raise SqlInvalid("`*` needs a table.")
        shown_names: set[str] = set()
        for each, columns in scope.sources.items():
            if alias not in (None, each):
                continue
            for name in columns:
                if alias is None and name in scope.merged:
                    if name not in shown_names:
                        shown_names.add(name)
                        yield name, scope.find_column(name, None)
                else:
                    yield name, scope.find_column(name, each)

    def _read_distinct(self, node: Any) -> bool:
        if node is None:
            return False
        if any(node.args.values()):
            raise SqlNotAllowed("`distinct on` is not offered: number the rows with `row_number() over (...)`.")
        return True

    def _group(self, node: Any, scope: Scope, items: Sequence[tuple[str | None, Piece]]) -> Piece:
        constant = self.values.find(node)
        if constant is not None and type(node).__name__ == "Literal":
            return Piece(str(_read_position(constant.value, len(items))))
        if type(node).__name__ == "Column" and not node.args.get("table"):
            name = read_name(node.this)
            try:
                return scope.find_column(name, None)
            except SqlInvalid:
                position = next((number for number, item in enumerate(items, 1) if item[0] == name), None)
                if position is None:
                    raise
                return Piece(str(position))
        return self.expressions.write(node, scope)

    def _order(self, node: Any, scope: Scope, outputs: Sequence[Output], *, is_combined: bool = False) -> list[Piece]:
        if not node:
            return []
        parts = [
            self._order_by(each, scope, outputs, is_combined) for each in take_args(node, "expressions")["expressions"]
        ]
        return [compose("ORDER BY {}", join(", ", parts))]

    def _order_by(self, node: Any, scope: Scope, outputs: Sequence[Output], is_combined: bool) -> Piece:
        value = node.this
        if type(value).__name__ == "Literal":
            constant = self.values.find(value)
            assert constant is not None
            return self.expressions.order(node, scope, Piece(str(_read_position(constant.value, len(outputs)))))
        if type(value).__name__ == "Column" and not value.args.get("table"):
            name = read_name(value.this)
            if any(output.name == name for output in outputs):
                return self.expressions.order(node, scope, Piece(quote(name)))
        if is_combined:
            raise SqlInvalid("The order of a UNION names columns of its result.")
        return self.expressions.order(node, scope)

    def _limit(self, arguments: Mapping[str, Any]) -> list[Piece]:
        numbers: dict[str, int] = {}
        for name in ("limit", "offset"):
            node = arguments.get(name)
            if not node:
                continue
            if type(node).__name__ not in ("Limit", "Offset"):
                raise refuse(node)
            constant = self.values.find(take_args(node, "expression")["expression"])
            if (
                constant is None
                or isinstance(constant.value, bool)
                or not isinstance(constant.value, int)
                or constant.value < 0
            ):
                raise SqlInvalid(f"`{name}` takes a whole number that is not negative.")
            numbers[name] = min(constant.value, 2**62)
        if not numbers:
            return []
        limit = numbers.get("limit", 2**62)
        return [Piece(f"LIMIT {limit} OFFSET {numbers.get('offset', 0)}")]

    # Sources.

    def _from(self, node: Any, joins: Sequence[Any] | None, scope: Scope) -> Piece | None:
        if not node:
            return None
        text = self.write_source(take_args(node, "this")["this"], scope)
        for each in joins or ():
            text = self._join(text, each, scope)
        return text

    def _join(self, left: Piece, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "side", "kind", "on", "using")
        side, kind = (str(arguments.get(name) or "").upper() for name in ("side", "kind"))
        present_columns = {name for columns in scope.sources.values() for name in columns}
        right = self.write_source(arguments["this"], scope)
        if kind == "CROSS" or not (side or kind or arguments.get("on") or arguments.get("using")):
            # For SQLite, CROSS would fix the order in which the tables are read.
            return compose("{} JOIN {}" if self.is_sqlite else "{} CROSS JOIN {}", left, right)
        word = _JOINS.get(side if kind in ("", "OUTER", "INNER") and side else kind)
        if word is None:
            raise refuse(node)
        if arguments.get("using"):
            names = [read_name(each) for each in arguments["using"]]
            added_columns = list(scope.sources.values())[-1]
            for name in names:
                if name not in added_columns or name not in present_columns:
                    raise SqlInvalid(f"`using ({name})` needs a column of that name on both sides.")
            scope.merged.update(names)
            return compose(f"{{}} {word} {{}} USING ({', '.join(map(quote, names))})", left, right)
        if not arguments.get("on"):
            raise SqlInvalid("A join needs `on` or `using`.")
        return compose(f"{{}} {word} {{}} ON {{}}", left, right, self.expressions.condition(arguments["on"], scope))

    def write_source(self, node: Any, scope: Scope) -> Piece:
        name = type(node).__name__
        if name == "Table":
            return self._table(node, scope)
        if name in ("Subquery", "Values"):
            return self._write_derived(node, scope)
        raise refuse(node)

    def _table(self, node: Any, scope: Scope) -> Piece:
        arguments = take_args(node, "this", "alias", "db")
        alias_node = arguments.get("alias")
        if alias_node and take_args(alias_node, "this").get("this") is None:
            raise refuse(node)
        name = read_name(arguments["this"])
        if arguments.get("db") and read_name(arguments["db"]) != "public":
            raise SqlNotAllowed(f"There is no schema `{read_name(arguments['db'])}`, only `public`.")
        alias = read_name(alias_node.this) if alias_node else name
        columns = None if arguments.get("db") else scope.find_cte(name)
        if columns is not None:
            scope.add(alias, columns)
            return Piece(f"{quote(f'{NAMED}{name}')} AS {quote(alias)}")
        return self.add_table(name, alias, scope)

    def add_table(self, name: str, alias: str, scope: Scope) -> Piece:
        """Adds a table of the app to a scope, and writes it as the subquery of its visible rows."""
        if name not in self._tables:
            if len(self._tables) >= _MOST_TABLES:
                raise SqlInvalid(f"A statement reads at most {_MOST_TABLES} tables.")
            table = self._open(name)
            inner_name = f"{PREFIX}{len(self._tables)}"
            columns: Columns = {column.name: Shown(column.type) for column in table.columns.values()}
            self._tables[name] = inner_name, columns
            self._definitions.append(self._define(inner_name, table))
        inner_name, columns = self._tables[name]
        scope.add(alias, columns)
        return Piece(f"{inner_name} AS {quote(alias)}")

    def _define(self, inner_name: str, table: TableInfo) -> Piece:
        """Writes the subquery of the rows of a table that the caller may read."""
        writer = SqlWriter(self._store, self._app_id, self._catalogue, self._actor, self._now)
        writer.has_own_rows_by_function = self._has_own_rows_by_function
        alias = quote(table.name)
        columns = ", ".join(f"{alias}.{quote(name)}" for name in table.columns)
        if table.view is not None:
            source, condition = write_view_rows(writer, table, self._actor, alias, [])
            sources = {source_of_view["table"] for source_of_view in table.view["tables"]}
            policies = [allowed_rows(self._catalogue.table(name), "SELECT", self._actor) for name in sources]
            self.counted |= {name for name, policy in zip(sources, policies, strict=True) if not list_names(policy)}
        else:
            policy = allowed_rows(table, "SELECT", self._actor)
            source = f"{writer.name_table(table.name)} AS {alias}"
            condition = writer.write(policy, {"": alias})
            policies = [policy]
            if not list_names(policy):
                self.counted.add(table.name)
        text = f"SELECT {columns} FROM {source} WHERE {condition}"
        if all(policy in (TRUE, FALSE) for policy in policies):
            return Piece(f"{inner_name} AS NOT MATERIALIZED ({text})", tuple(writer.values))
        return Piece(f"{inner_name} AS ({text} {FENCES[self._store.dialect]})", tuple(writer.values))

    def _write_derived(self, node: Any, scope: Scope) -> Piece:
        alias_node = node.args.get("alias")
        if not alias_node or not alias_node.this:
            raise SqlInvalid("A query in FROM needs a name: `from (select ...) as name`.")
        # The parser gives this name to VALUES without one.
        is_unnamed = type(node).__name__ == "Values" and alias_node.this.this == "_values"
        alias = f"{PREFIX}v" if is_unnamed else read_name(take_args(alias_node, "this", "columns")["this"])
        outer = Scope(outer=_hide_sources(scope))
        if type(node).__name__ == "Values":
            query, outputs = self._list_values(take_args(node, "expressions", "alias")["expressions"], outer)
        else:
            query, outputs = self.write_query(take_args(node, "this", "alias")["this"], outer)
        names = [read_name(each) for each in alias_node.args.get("columns") or ()]
        if not names:
            scope.add(alias, _name_columns(outputs))
            return compose(f"({{}}) AS {quote(alias)}", query)
        columns = _rename(names, outputs)
        scope.add(alias, columns)
        # SQLite names the columns of a query in FROM only within it.
        column_list = ", ".join(quote(name) for name in names)
        inner = f"{PREFIX}q{self._parts}"
        return compose(f"(WITH {inner}({column_list}) AS ({{}}) SELECT * FROM {inner}) AS {quote(alias)}", query)

    def _list_values(self, rows: Sequence[Any], scope: Scope) -> tuple[Piece, list[Output]]:
        texts: list[Piece] = []
        outputs: list[Output] = []
        if len(rows) > 500:
            raise SqlInvalid("`values` has at most 500 rows here.")
        for row in rows:
            nodes = take_args(row, "expressions")["expressions"] if type(row).__name__ == "Tuple" else [row]
            kinds = [output.kind for output in outputs] or [None] * len(nodes)
            if len(kinds) != len(nodes) or len(nodes) > _MOST_COLUMNS:
                raise SqlInvalid("The rows of `values` have equally many values.")
            pieces = [self.expressions.write(node, scope, kind) for node, kind in zip(nodes, kinds, strict=True)]
            outputs = outputs or [Output(f"column{number}", piece.kind) for number, piece in enumerate(pieces, 1)]
            named_items = [compose(f'{{}} AS "column{number}"', piece) for number, piece in enumerate(pieces, 1)]
            texts.append(compose("SELECT {}", join(", ", named_items)))
        return join(" UNION ALL ", texts), outputs

    # WITH and UNION.

    def write_with(self, node: Any, scope: Scope) -> Piece:
        clause = node.args.get("with_")
        if not clause:
            return Piece("")
        arguments = take_args(clause, "expressions", "recursive")
        parts: list[Piece] = []
        for each in arguments["expressions"]:
            cte = take_args(each, "this", "alias", "materialized")
            alias = take_args(cte["alias"], "this", "columns")
            name = read_name(alias["this"])
            if name in scope.ctes:
                raise SqlInvalid(f"`with` names `{name}` twice.")
            names = [read_name(column) for column in alias.get("columns") or ()]
            if type(cte["this"]).__name__ not in _QUERIES:
                raise SqlNotAllowed("`with` holds queries that read: write rows in a statement of their own.")
            is_recursive = arguments.get("recursive") and type(cte["this"]).__name__ == "Union"
            inner = Scope(outer=_hide_sources(scope))
            if is_recursive:
                query, outputs = self._combine(cte["this"], inner, lambda outputs: (name, _columns(names, outputs)))  # noqa: B023 - called at once
            else:
                query, outputs = self.write_query(cte["this"], inner)
            scope.ctes[name] = _columns(names, outputs)
            column_list = ", ".join(quote(column) for column in _listed_names(names, outputs))
            parts.append(compose(f"{quote(f'{NAMED}{name}')}({column_list}) AS ({{}})", query))
        return compose(f"WITH {'RECURSIVE ' if arguments.get('recursive') else ''}{{}} ", join(", ", parts))

    def _combine(
        self,
        node: Any,
        scope: Scope,
        name_itself: Callable[[list[Output]], tuple[str, Columns]] | None = None,
    ) -> tuple[Piece, list[Output]]:
        """Writes a UNION, INTERSECT or EXCEPT.

        name_itself: of a query that refers to itself: returns its name and columns, by those of its first part.
        """
        arguments = take_args(node, "this", "expression", "distinct", "with_", "order", "limit", "offset")
        with_clause = self.write_with(node, scope)
        left, outputs = self._part(arguments["this"], scope)
        if name_itself is not None:
            name, columns = name_itself(outputs)
            scope.ctes[name] = columns
        right, others = self._part(arguments["expression"], scope)
        if len(outputs) != len(others):
            raise SqlInvalid("The parts of a UNION have equally many columns.")
        for output, other in zip(outputs, others, strict=True):
            if output.kind is not None and other.kind is not None and output.kind.family() != other.kind.family():
                raise SqlInvalid(f"A UNION joins {output.kind} with {other.kind}: cast one of them.")
        word = _SET_OPERATIONS[type(node).__name__]
        if not arguments.get("distinct"):
            if word != "UNION":
                raise refuse(node)
            word += " ALL"
        outputs = [
            Output(output.name, output.kind if output.kind == other.kind else None, max(output.weight, other.weight))
            for output, other in zip(outputs, others, strict=True)
        ]
        parts = [compose(f"{{}} {word} {{}}", left, right)]
        parts += self._order(arguments.get("order"), Scope(), outputs, is_combined=True)
        parts += self._limit(arguments)
        return compose("{}{}", with_clause, join(" ", parts)), outputs

    def _part(self, node: Any, scope: Scope) -> tuple[Piece, list[Output]]:
        """Writes one part of a UNION. What is no single SELECT becomes one, because the databases differ in which of
        several operations comes first.
        """
        query, outputs = self.write_query(node, Scope(outer=scope))
        if type(node).__name__ == "Select" and not any(node.args.get(each) for each in ("order", "limit", "with_")):
            return query, outputs
        return compose("SELECT * FROM ({}) AS _p", query), outputs

    @cached_property
    def tables(self) -> frozenset[str]:
        """The tables that subqueries may read: also those that policies ask."""
        return frozenset({*self._catalogue.tables, "json_each"})


def _hide_sources(scope: Scope) -> Scope:
    """Returns a scope without the sources of a query, which its own subqueries in FROM do not see."""
    return Scope(outer=scope.outer, ctes=scope.ctes)


def _columns(names: Sequence[str], outputs: Sequence[Output]) -> Columns:
    return _rename(names, outputs) if names else _name_columns(outputs)


def _rename(names: Sequence[str], outputs: Sequence[Output]) -> Columns:
    if len(names) != len(outputs) or len({*names}) < len(names):
        raise SqlInvalid(f"The query has {len(outputs)} columns, each of which needs a name of its own.")
    return {name: Shown(output.kind, output.weight) for name, output in zip(names, outputs, strict=True)}


def _listed_names(names: Sequence[str], outputs: Sequence[Output]) -> list[str]:
    return list(names) or [output.name or f"_u{number}" for number, output in enumerate(outputs)]


def _name_columns(outputs: Sequence[Output]) -> Columns:
    """Returns the columns of a query by their names."""
    columns: dict[str, Shown] = {}
    for number, output in enumerate(outputs):
        name = output.name or f"_u{number}"
        if name.lower() in {each.lower() for each in columns}:
            raise SqlInvalid(f"Two columns of a query are called `{name}`.", remediation="Name one of them with `as`.")
        columns[name] = Shown(output.kind, output.weight)
    return columns


def name_outputs(outputs: Sequence[Output]) -> list[str]:
    """Returns the names of the columns of an answer. Raises SqlInvalid if two are called alike."""
    names = [output.name or UNNAMED for output in outputs]
    for name in names:
        if names.count(name) > 1:
            raise SqlInvalid(
                f"Two columns of the result are called `{name}`, and a row can show only one.",
                remediation="Name one of them with `as`, and write the columns instead of `*`.",
            )
    return names


def _read_position(value: Any, count: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= count:
        raise SqlInvalid(f"A position among the columns is a number from 1 to {count}.")
    return value
