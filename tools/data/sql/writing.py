"""Makes the writes of statements.

The text of a statement never writes: its query tells which rows change and what they become, confined like any query,
and the rows are then written by the code that writes all others. So they have policies, checks, defaults, a log, undo,
quotas and subscribers, whatever the text says.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed, SqlTooLarge
from baobab.tools.data.expressions.expressions import FALSE, both
from baobab.tools.data.fields import MOST_ROWS
from baobab.tools.data.queries.preferences import read_preferences
from baobab.tools.data.rows.row_requests import find_upsert, open_table
from baobab.tools.data.rows.rows import Rows, Upsert
from baobab.tools.data.schema.catalogue import Catalogue, Column, Command, Expression, TableInfo
from baobab.tools.data.schemas import Row, SqlAnswer
from baobab.tools.data.sql.names import Scope, quote, read_name, refuse, take_args
from baobab.tools.data.sql.pieces import Piece, compose, join
from baobab.tools.data.sql.queries import Output, QueryWriter
from baobab.tools.data.sql.reading import Reader
from baobab.tools.data.sql.statements import Statement
from baobab.tools.data.sql.values import Given, clean_value

_DEFAULT = object()
"""Stands for `default` among the values of a row."""
_INSERT_FLAGS = ("is_function",)


@dataclass(frozen=True, slots=True)
class _Target:
    table: TableInfo
    alias: str


class StatementWriter:
    """Makes the write of one statement, in one transaction."""

    def __init__(self, rows: Rows, catalogue: Catalogue, writer: QueryWriter, reader: Reader) -> None:
        self._rows = rows
        self._catalogue = catalogue
        self._writer = writer
        self._reader = reader

    def run(self, statement: Statement) -> SqlAnswer:
        """Raises what the tools for rows would raise, and the errors of statements."""
        write = {"insert": self._insert, "update": self._update, "delete": self._delete}[statement.kind]
        return write(statement.tree)

    # UPDATE and DELETE.

    def _update(self, node: Any) -> SqlAnswer:
        arguments = take_args(node, "this", "expressions", "from_", "where", "returning", "with_")
        target = self._open(arguments["this"], "UPDATE")
        answer = self._read_returning(arguments.get("returning"), target)
        sets = dict(self._read_sets(arguments["expressions"], target))
        scope = Scope()
        from_node = arguments.get("from_")
        query, outputs, values = self._write_query(
            node, target, sets, from_node and [from_node.this], arguments.get("where"), scope
        )
        self._writer.values.require_all_used()
        found_rows = self._reader.read(self._writer, query, outputs)
        changed_rows = self._apply(target.table, sets, values, found_rows)
        return self._answer(changed_rows, answer)

    def _apply(
        self, table: TableInfo, sets: Mapping[str, Any], values: Mapping[str, Any], found_rows: Sequence[Sequence[Any]]
    ) -> list[Row]:
        """Changes the rows that a query has found.

        values: of the columns whose values stand in the statement; the others are computed. found: of each row, its
        key and the values that were computed.
        """
        key_count = len(table.key)
        computed_columns = [name for name in sets if name not in values]
        groups: dict[str, tuple[dict[str, Any], list[Sequence[Any]]]] = {}
        seen_keys: set[str] = set()
        for row in found_rows:
            key, results = row[:key_count], row[key_count:]
            name = json.dumps(key, default=str)
            if name in seen_keys:
                raise SqlInvalid(
                    f"The statement joins one row of `{table.name}` to several rows, so it is not known what it "
                    "becomes.",
                    remediation="Narrow the rows of FROM to one for each row, or compute the value by a subquery.",
                )
            seen_keys.add(name)
            changes = {
                **values,
                **{
                    each: _fit(table.columns[each], value)
                    for each, value in zip(computed_columns, results, strict=True)
                },
            }
            changes = {each: changes[each] for each in sets}
            groups.setdefault(json.dumps(changes, default=str), (changes, []))[1].append(key)
        changed_rows: list[Row] = []
        for changes, keys in groups.values():
            changed_rows += self._rows.update(table, changes, [_find_keys(table, keys)])
        return changed_rows

    def _delete(self, node: Any) -> SqlAnswer:
        arguments = take_args(node, "this", "using", "where", "returning", "with_")
        target = self._open(arguments["this"], "DELETE")
        answer = self._read_returning(arguments.get("returning"), target)
        query, outputs, _ = self._write_query(
            node, target, {}, arguments.get("using") or None, arguments.get("where"), Scope()
        )
        self._writer.values.require_all_used()
        keys = self._reader.read(self._writer, query, outputs)
        deleted_rows = self._rows.delete(target.table, [_find_keys(target.table, keys)]) if keys else []
        return self._answer(deleted_rows, answer)

    def _write_query(
        self,
        node: Any,
        target: _Target,
        sets: Mapping[str, Any],
        sources: Sequence[Any] | None,
        where: Any,
        scope: Scope,
    ) -> tuple[Piece, list[Output], dict[str, Any]]:
        """Writes the query for the keys of the rows that change, and for the values that must be computed. Returns
        also the values that stand in the statement.
        """
        table = target.table
        if not table.key:
            raise SqlNotAllowed(
                f"`{table.name}` has no primary key, so a statement cannot say which of its rows it changes.",
                remediation="Use data_update_many, or data_delete_many only if the rows are to go.",
            )
        writer = self._writer
        with_clause = writer.write_with(node, scope)
        text = writer.add_table(table.name, target.alias, scope)
        for source in sources or ():
            text = compose(
                "{} JOIN {}" if writer.is_sqlite else "{} CROSS JOIN {}", text, writer.write_source(source, scope)
            )
        items = [scope.find_column(name, target.alias) for name in table.key]
        outputs = [Output(name, table.columns[name].type) for name in table.key]
        values: dict[str, Any] = {}
        for name, value in sets.items():
            constant = writer.values.find(value)
            if constant is not None:
                values[name] = _read_given(table.columns[name], constant)
                continue
            piece = writer.expressions.write(value, scope, table.columns[name].type)
            items.append(piece)
            outputs.append(Output(name, piece.kind))
        named_items = [compose(f"{{}} AS {quote(f'c{number}')}", piece) for number, piece in enumerate(items)]
        distinct = "DISTINCT " if sources and not sets else ""
        query = compose(f"{{}}SELECT {distinct}{{}} FROM {{}}", with_clause, join(", ", named_items), text)
        if where:
            condition = writer.expressions.condition(take_args(where, "this")["this"], scope)
            query = compose("{} WHERE {}", query, condition)
        return query, outputs, values

    def _read_sets(self, nodes: Sequence[Any], target: _Target) -> list[tuple[str, Any]]:
        sets: list[tuple[str, Any]] = []
        for node in nodes:
            if type(node).__name__ != "EQ":
                raise refuse(node)
            arguments = take_args(node, "this", "expression")
            place, value = arguments["this"], arguments["expression"]
            if type(place).__name__ == "Tuple":
                raise SqlNotAllowed("Set one column at a time: `set a = 1, b = 2`.")
            if type(place).__name__ != "Column" or take_args(place, "this").get("this") is None:
                raise refuse(node)
            column = target.table.column(read_name(place.this))
            if column.generated is not None:
                raise SqlInvalid(f"`{column.name}` is computed by the database, and cannot be set.")
            if column.name in {name for name, _ in sets}:
                raise SqlInvalid(f"The statement sets `{column.name}` twice.")
            if _is_default(value):
                raise SqlNotAllowed("`default` stands only among the values of INSERT.")
            sets.append((column.name, value))
        return sets

    # INSERT.

    def _insert(self, node: Any) -> SqlAnswer:
        arguments = take_args(node, "this", "expression", "conflict", "returning", "with_", "default", *_INSERT_FLAGS)
        place = arguments["this"]
        names: list[str] | None = None
        if type(place).__name__ == "Schema":
            names = [read_name(each) for each in take_args(place, "this", "expressions")["expressions"]]
            place = place.this
        target = self._open(place, "INSERT")
        table = target.table
        names = [column.name for column in table.writable_columns] if names is None else names
        for name in names:
            if table.column(name).generated is not None:
                raise SqlInvalid(f"`{name}` is computed by the database, and cannot be set.")
        if len({*names}) < len(names):
            raise SqlInvalid("INSERT names a column twice.")
        answer = self._read_returning(arguments.get("returning"), target)
        new_rows = [{}] if arguments.get("default") else self._read_new(node, arguments["expression"], table, names)
        if len(new_rows) > MOST_ROWS:
            raise SqlTooLarge(f"A statement inserts at most {MOST_ROWS} rows.", details={"limit": MOST_ROWS})
        written_rows = self._put(target, new_rows, arguments.get("conflict"))
        return self._answer(written_rows, answer)

    def _read_new(self, node: Any, source: Any, table: TableInfo, names: Sequence[str]) -> list[Row]:
        """Returns the rows of an INSERT, with the values that it gives them."""
        if source is None:
            raise refuse(node)
        if type(source).__name__ != "Values":
            scope = Scope()
            with_clause = self._writer.write_with(node, scope)
            query, outputs = self._writer.write_query(source, Scope(outer=scope))
            if len(outputs) > len(names):
                raise SqlInvalid(f"The query of the INSERT has {len(outputs)} columns for {len(names)}.")
            if with_clause.text:
                query = compose("{}SELECT * FROM ({}) AS _p", with_clause, query)
            found_rows = self._reader.read(self._writer, query, outputs)
            return [
                {name: _fit(table.columns[name], value) for name, value in zip(names, row, strict=False)}
                for row in found_rows
            ]
        if node.args.get("with_"):
            raise SqlNotAllowed("WITH stands before an INSERT that takes its rows from a SELECT.")
        rows = take_args(source, "expressions")["expressions"]
        if len(rows) > MOST_ROWS:
            raise SqlTooLarge(f"A statement inserts at most {MOST_ROWS} rows.", details={"limit": MOST_ROWS})
        return [self._read_row(row, table, names) for row in rows]

    def _read_row(self, row: Any, table: TableInfo, names: Sequence[str]) -> Row:
        nodes = take_args(row, "expressions")["expressions"] if type(row).__name__ == "Tuple" else [row]
        if len(nodes) > len(names):
            raise SqlInvalid(f"A row of the INSERT has {len(nodes)} values for {len(names)} columns.")
        self._writer.begin()
        values: Row = {}
        computed_columns: list[tuple[str, Piece]] = []
        for name, node in zip(names, nodes, strict=False):
            if _is_default(node):
                continue
            constant = self._writer.values.find(node)
            if constant is not None:
                values[name] = _read_given(table.columns[name], constant)
            else:
                computed_columns.append((name, self._writer.expressions.write(node, Scope(), table.columns[name].type)))
        if computed_columns:
            items = [
                compose(f"{{}} AS {quote(f'c{number}')}", piece) for number, (_, piece) in enumerate(computed_columns)
            ]
            outputs = [Output(name, piece.kind) for name, piece in computed_columns]
            [found_rows] = self._reader.read(self._writer, compose("SELECT {}", join(", ", items)), outputs)
            values |= {
                name: _fit(table.columns[name], value)
                for (name, _), value in zip(computed_columns, found_rows, strict=True)
            }
        return values

    def _put(self, target: _Target, new_rows: list[Row], conflict: Any) -> list[Row]:
        table = target.table
        if not conflict:
            self._writer.values.require_all_used()
            return self._rows.insert(table, new_rows) if new_rows else []
        arguments = take_args(conflict, "action", "conflict_keys", "expressions", "where")
        keys = [self._read_conflict_key(each) for each in arguments.get("conflict_keys") or ()]
        if not keys:
            raise SqlNotAllowed("`on conflict` names the columns that are unique: `on conflict (id) do nothing`.")
        upsert = find_upsert(table, ",".join(keys), read_preferences("resolution=ignore-duplicates"))
        assert upsert is not None
        if not arguments.get("expressions"):
            if arguments["action"].name.upper() != "DO NOTHING":
                raise refuse(conflict)
            self._writer.values.require_all_used()
            return self._rows.insert(table, new_rows, upsert) if new_rows else []
        sets = dict(self._read_sets(arguments["expressions"], target))
        open_table(self._catalogue, self._rows, table.name, "UPDATE")
        written_rows: list[Row] = []
        for row in new_rows:
            written_rows += self._put_one(target, row, upsert, sets, arguments.get("where"))
        return written_rows

    def _put_one(self, target: _Target, row: Row, upsert: Upsert, sets: Mapping[str, Any], where: Any) -> list[Row]:
        """Inserts a row, or changes the present row that the caller sees in its place. One that is hidden refuses the
        insert, as its unique columns do in any insert.
        """
        table = target.table
        self._writer.begin()
        excluded_values = {
            name: self._writer.values.write(Given(row.get(name)), column.type) for name, column in table.columns.items()
        }
        scope = Scope(stand_ins={"excluded": excluded_values})
        text = self._writer.add_table(table.name, target.alias, scope)
        conditions = [
            compose("({} = {})", scope.find_column(name, target.alias), excluded_values[name])
            for name in upsert.columns
        ]
        keys = [scope.find_column(name, target.alias) for name in table.key]
        if not table.key:
            raise SqlNotAllowed(f"`{table.name}` has no primary key: `do update` cannot say which row it changes.")
        outputs = [Output(name, table.columns[name].type) for name in table.key]
        values: dict[str, Any] = {}
        items = list(keys)
        for name, value in sets.items():
            constant = self._writer.values.find(value)
            if constant is not None:
                values[name] = _read_given(table.columns[name], constant)
                continue
            piece = self._writer.expressions.write(value, scope, table.columns[name].type)
            items.append(piece)
            outputs.append(Output(name, piece.kind))
        is_chosen = Piece("TRUE")
        if where:
            is_chosen = self._writer.expressions.condition(take_args(where, "this")["this"], scope)
        items.append(compose("({})", is_chosen))
        outputs.append(Output("chosen", None))
        self._writer.values.require_all_used()
        named_items = [compose(f"{{}} AS {quote(f'c{number}')}", piece) for number, piece in enumerate(items)]
        query = compose("SELECT {} FROM {} WHERE {}", join(", ", named_items), text, join(" AND ", conditions))
        found_rows = self._reader.read(self._writer, query, outputs)
        if not found_rows:
            return self._rows.insert(table, [row])
        chosen_rows = [each[:-1] for each in found_rows if each[-1]]
        return self._apply(table, sets, values, chosen_rows)

    def _read_conflict_key(self, node: Any) -> str:
        column = take_args(node, "this", "nulls_first")["this"] if type(node).__name__ == "Ordered" else node
        if type(column).__name__ != "Column":
            raise refuse(node)
        return read_name(take_args(column, "this")["this"])

    # What they share.

    def _open(self, node: Any, command: Command) -> _Target:
        if type(node).__name__ != "Table":
            raise refuse(node)
        arguments = take_args(node, "this", "alias", "db")
        if arguments.get("db") and read_name(arguments["db"]) != "public":
            raise SqlNotAllowed(f"There is no schema `{read_name(arguments['db'])}`, only `public`.")
        name = read_name(arguments["this"])
        alias = arguments.get("alias")
        table = open_table(self._catalogue, self._rows, name, command)
        return _Target(table, read_name(take_args(alias, "this")["this"]) if alias else name)

    def _read_returning(self, node: Any, target: _Target) -> list[tuple[str, str]] | None:
        """Returns the columns of RETURNING, with the names that they get; None without one."""
        if not node:
            return None
        columns: list[tuple[str, str]] = []
        for each in take_args(node, "expressions")["expressions"]:
            shown_node, name = each, None
            if type(each).__name__ == "Alias":
                arguments = take_args(each, "this", "alias")
                shown_node, name = arguments["this"], read_name(arguments["alias"])
            is_star = type(shown_node).__name__ == "Star"
            if type(shown_node).__name__ == "Column":
                arguments = take_args(shown_node, "this", "table")
                if arguments.get("table") and read_name(arguments["table"]) != target.alias:
                    raise SqlNotAllowed("RETURNING names columns of the table that is written.")
                is_star = type(shown_node.this).__name__ == "Star"
            elif not is_star:
                raise SqlNotAllowed("RETURNING names columns, and computes nothing: read the rows afterwards.")
            if is_star:
                columns += [(column, column) for column in target.table.columns]
            else:
                column = target.table.column(read_name(shown_node.this)).name
                columns.append((column, name or column))
        if len({name for _, name in columns}) < len(columns):
            raise SqlInvalid("RETURNING calls two columns by one name.")
        return columns

    def _answer(self, rows: Sequence[Row], returning: Sequence[tuple[str, str]] | None) -> SqlAnswer:
        shown_rows = [{name: row[column] for column, name in returning} for row in rows] if returning else []
        return {"rows": shown_rows, "rowCount": len(rows)}


def _is_default(node: Any) -> bool:
    name = type(node).__name__
    if name == "Var":
        return str(node.this).upper() == "DEFAULT"
    return (
        name == "Column"
        and not node.args.get("table")
        and not node.this.args.get("quoted")
        and (str(node.this.this).lower() == "default")
    )


def _read_given(column: Column, constant: Given) -> Any:
    """Returns a value of the statement as a JSON body would give it for a column."""
    value = constant.value
    if value is None or not isinstance(value, str) or column.type.has_text_in_json:
        return _fit(column, value)
    return _show(column, clean_value(value, column.type, column.name))


def _fit(column: Column, value: Any) -> Any:
    """Returns a value that a query has computed, as a JSON body would give it for a column."""
    kind = column.type
    if value is None:
        return None
    if kind.is_text and isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if kind.name == "boolean" and not kind.array and type(value) is int and value in (0, 1):
        return bool(value)
    if isinstance(value, str) and not kind.has_text_in_json and kind.name != "vector" and not kind.is_json:
        return _show(column, clean_value(value, kind, column.name))
    if hasattr(value, "as_tuple"):
        return _show(column, clean_value(value, kind, column.name))
    return value


def _show(column: Column, canonical: Any) -> Any:
    if column.type.name in ("json", "jsonb") and not column.type.array:
        return json.loads(canonical)
    if isinstance(canonical, bytes):
        return f"\\x{canonical.hex()}"
    return canonical


def _find_keys(table: TableInfo, keys: Sequence[Sequence[Any]]) -> Expression:
    """Returns the condition that a row has one of these keys."""
    columns = [table.columns[name] for name in table.key]
    trees = [
        [
            ["value", column.type.name, column.type.clean(value, column.name)]
            for column, value in zip(columns, key, strict=True)
        ]
        for key in keys
    ]
    if len(columns) == 1:
        return ["in", ["column", "", columns[0].name], [value for [value] in trees]]
    pairs = [both(*(["=", ["column", "", c.name], v] for c, v in zip(columns, tree, strict=True))) for tree in trees]
    return _join_either(pairs)


def _join_either(conditions: list[Expression]) -> Expression:
    """Joins conditions with OR in halves, because SQLite allows a depth of 1000 only."""
    if len(conditions) < 2:
        return conditions[0] if conditions else FALSE
    half = len(conditions) // 2
    return ["or", _join_either(conditions[:half]), _join_either(conditions[half:])]
