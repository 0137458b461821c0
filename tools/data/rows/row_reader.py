"""Reads the rows of one app in one transaction as one actor. Rows that policies hide are treated as if they did not
exist.
"""

import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import ByteBudget, RowsTooLarge, Statements
from baobab.tools.core import BadRequest
from baobab.tools.data.actor import Actor
from baobab.tools.data.advice.slow_statements import Operation, Slow, note_slow
from baobab.tools.data.errors import AnswerTooLarge, InvalidFilter
from baobab.tools.data.expressions.barrier import place_behind
from baobab.tools.data.expressions.expressions import Shift, SqlWriter, allowed_rows, quote
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.history.images import decode_rows
from baobab.tools.data.queries.filters import FilterReader
from baobab.tools.data.queries.selection import Embed, Order, Selection, read_order
from baobab.tools.data.queries.views import write_view_rows
from baobab.tools.data.rows.row_security import is_guarded, run_as
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, TableInfo
from baobab.tools.data.schemas import QueryPlan, Row
from baobab.tools.data.values.column_types import ColumnType
from baobab.tools.data.values.selection_items import Item
from baobab.tools.data.values.temporal_values import shift_moment

_MOST_RELATED = 10_000
"""The most rows of one embedded table in one answer."""
MOST_BYTES = 16 * 2**20
"""The most bytes of the rows of one answer, as the database returns them."""
_MOST_BUFFERED = 32
"""The most columns of unknown size that are read at once. Each may have a megabyte."""
_STAND_INS: list[Any] = [object() for _ in range(4)]
_KEY, _USER_ID, _USER_ROLE, _NOW = _STAND_INS
_CLAIMS: dict[str, Any] = {name: object() for name in ("email", "email_verified", "is_anonymous")}
"""Stand for the values that differ between two reads of a row."""


class _KeyRead(NamedTuple):
    """The statement that reads one row by its key, for callers of one role."""

    text: str
    values: tuple[Any, ...]
    key: Column
    kinds: tuple[ColumnType, ...]
    decoders: list[tuple[str, Callable[[Any], Any] | None]]


class _Explained(Exception):
    """Ends a read whose statement was explained instead."""

    def __init__(self, plan: QueryPlan) -> None:
        super().__init__()
        self.plan = plan


class RowReader:
    def __init__(
        self,
        statements: Statements,
        store: DataStore,
        app_id: str,
        catalogue: Catalogue,
        actor: Actor,
        now: str,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        """most_bytes: of all rows that are read and answered."""
        self.slow: list[Slow] = []
        """The statements that took longer than `slow_seconds`."""
        self.slow_seconds = float("inf")
        self._explanation: Callable[[str, list[Any]], QueryPlan] | None = None
        """Explains a statement instead of running it."""
        self._statements = statements
        self._budget = ByteBudget(most_bytes)
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self.actor = actor
        self._now = now

    def select(self, selection: Selection, *, key: Expression | None = None) -> list[Row]:
        """Returns the rows of a selection with their embedded rows.

        key: a further condition.
        """
        began = time.monotonic()
        try:
            rows, _ = self._read(selection, [] if key is None else [key], related_by=None)
        finally:
            # Also for a statement that was stopped.
            self._note_slow("select", selection, began)
        if selection.embeds and _measure_rows(rows, selection, {}) > MOST_BYTES:
            raise AnswerTooLarge(f"The rows, each with those embedded in it, have more than {MOST_BYTES} bytes.")
        return rows

    def explain(self, selection: Selection, options: Sequence[str] = (), *, as_text: bool = False) -> QueryPlan:
        """Returns how the database would run the statement that reads the table of a selection.

        options: of Postgres' EXPLAIN. as_text: whether the steps are lines of text.
        """
        self._explanation = partial(self._explain, options, as_text=as_text)
        try:
            self._read(selection, [], related_by=None)
        except _Explained as explained:
            return explained.plan
        finally:
            self._explanation = None
        raise RuntimeError("nothing was read")

    def _explain(self, options: Sequence[str], text: str, values: list[Any], *, as_text: bool) -> QueryPlan:
        if self._store.dialect == "sqlite":
            steps = self._statements.rows(f"EXPLAIN QUERY PLAN {text}", *values)
            names = ("id", "parent", "detail")
            plan = [dict(zip(names, (step[0], step[1], step[3]), strict=True)) for step in steps]
            return {"sql": text, "plan": [{"QUERY PLAN": step["detail"]} for step in plan] if as_text else plan}
        words = ", ".join([*map(str.upper, options), f"FORMAT {'TEXT' if as_text else 'JSON'}"])
        answer = self._statements.rows(f"EXPLAIN ({words}) {text}", *values)
        return {"sql": text, "plan": [{"QUERY PLAN": line} for (line,) in answer] if as_text else answer[0][0]}

    def read_by_key(self, table: TableInfo, text: str) -> Row | None:
        """Returns the row whose key a text names, with all columns; None if the actor sees no such row.

        The statement is written once for each role, because writing it takes longer than reading the row.
        """
        name = (self._store.dialect, table.name, self.actor.role)
        read: _KeyRead | None = self._catalogue.key_reads.get(name)
        if read is None:
            read = self._catalogue.key_reads[name] = self._write_key_read(table)
        kind = read.key.type
        differing = {
            _KEY: kind.encode(kind.parse(text, read.key.name), self._store.dialect),
            _USER_ID: self.actor.user_id,
            _USER_ROLE: self.actor.user_role,
            _NOW: self._now,
            **{stand_in: self.actor.find_claim(claim) for claim, stand_in in _CLAIMS.items()},
        }
        values = [differing.get(value, value) if type(value) is object else value for value in read.values]
        values = [shift_moment(self._now, value.seconds) if type(value) is Shift else value for value in values]
        began = time.monotonic()
        try:
            with self._run_as_actor():
                answer = self._fetch(read.text, values, read.kinds, is_single=True)
        finally:
            seconds = time.monotonic() - began
            if seconds >= self.slow_seconds:
                self.slow.append(note_slow("select", table, [key_condition(table, text)], (), seconds))
        rows = decode_rows(read.decoders, answer)
        return rows[0] if rows else None

    def _write_key_read(self, table: TableInfo) -> _KeyRead:
        actor = Actor(self.actor.role, _USER_ID, _USER_ROLE, tuple(_CLAIMS.items()))
        writer = SqlWriter(self._store, self._app_id, self._catalogue, actor, _NOW)
        writer.has_own_rows_by_function = is_guarded(self._store, self._catalogue, self.actor)
        alias, dialect = quote(table.name), self._store.dialect
        key = _find_key(table)
        columns = list(table.columns.values())
        shown_columns = [column.type.show(f"{alias}.{quote(column.name)}", dialect) for column in columns]
        where = f"({alias}.{quote(key.name)} = {writer.value(_KEY, key.type.bind(dialect))})"
        where += f" AND {writer.write(allowed_rows(table, 'SELECT', actor), {'': alias})}"
        text = (
            f"SELECT {', '.join(shown_columns)} FROM {writer.name_table(table.name)} AS {alias} WHERE {where} LIMIT 1"
        )
        decoders = [(column.name, column.type.decoder(dialect)) for column in columns]
        return _KeyRead(text, tuple(writer.values), key, tuple(column.type for column in columns), decoders)

    def count(self, selection: Selection, most: int | None = None) -> int:
        """Returns how many rows match, whatever the limit of the selection. most: where to stop counting."""
        writer = self._writer()
        # Groups may be named by their position among the columns.
        items = [] if selection.groups is None else selection.items
        columns = ", ".join(_show(writer, item, {"": quote(selection.table.name)}) for item in items)
        source, where = self._write_matching(writer, selection, [])
        text = f"SELECT count(*) FROM {source} WHERE {where}"
        if selection.groups is not None:
            group = self._group(writer, selection)
            text = f"SELECT count(*) FROM (SELECT {columns} FROM {source} WHERE {where}{group}) AS _g"
        elif most is not None:
            text = f"SELECT count(*) FROM (SELECT 1 FROM {source} WHERE {where} LIMIT {most}) AS _g"
        began = time.monotonic()
        try:
            with self._run_as_actor():
                return int(self._statements.rows(text, *writer.values)[0][0])
        finally:
            self._note_slow("count", selection, began)

    def _run_as_actor(self, *, writes: bool = False, upserts: bool = False) -> AbstractContextManager[None]:
        """Runs statements in the role of the actor, while the context is open.

        upserts: whether an inserted row may become an update of another row.
        """
        arguments = (self._statements, self._store, self._catalogue, self.actor, self._now)
        return run_as(*arguments, writes=writes, upserts=upserts)

    def _note_slow(self, operation: Operation, selection: Selection, began: float) -> None:
        """Remembers the columns of a statement that took longer than `slow_seconds`.

        began: when the statement began, by the clock of this process.
        """
        seconds = time.monotonic() - began
        if seconds >= self.slow_seconds:
            table = selection.table
            orders = read_order(selection) if operation == "select" else []
            order = tuple(name for each in orders if each.embed is None for _, name in list_names(each.tree))
            self.slow.append(note_slow(operation, table, FilterReader(table).read(selection.where), order, seconds))

    def _read(
        self, selection: Selection, further: Sequence[Expression], related_by: str | None
    ) -> tuple[list[Row], list[Any]]:
        """Returns the rows, and for each row its value of the column that relates it to the row around it."""
        table = selection.table
        writer = self._writer()
        scope = {"": quote(table.name)}
        items = selection.items
        hidden_columns = [*([related_by] if related_by else []), *(embed.ours for embed in selection.embeds)]
        # The placeholders of the columns come before those of the conditions.
        expressions = [_show(writer, item, scope) for item in items]
        expressions += [
            f"{quote(table.name)}.{quote(name)} AS _h{position}" for position, name in enumerate(hidden_columns)
        ]
        orders = read_order(selection)
        if related_by is not None and (selection.limit is not None or selection.offset):
            if selection.groups is not None:
                raise InvalidFilter(
                    f"Aggregates of `{table.name}` are of all related rows: they take no `limit` and no `offset`.",
                    remediation="Leave them out, or filter the related rows by their columns.",
                )
            text = self._number_related(writer, selection, further, related_by, expressions, orders)
        else:
            source, where = self._write_matching(writer, selection, further)
            if selection.groups is None:
                order = self._order(writer, table, orders)
            else:
                order = self._group(writer, selection, related_by) + self._order_groups(writer, selection, orders)
            limit = _MOST_RELATED + 1 if related_by is not None else selection.limit
            text = f"SELECT {', '.join(expressions) or '1'} FROM {source} WHERE {where}{order}"
            if limit is not None:
                text += f" LIMIT {limit} OFFSET {0 if related_by else selection.offset}"
        kinds = [*(item.type for item in items), *(table.columns[name].type for name in hidden_columns)]
        with self._run_as_actor():
            answer = self._fetch(text, writer.values, kinds, is_single=related_by is None and selection.limit == 1)
        if related_by is not None and len(answer) > _MOST_RELATED:
            raise BadRequest(
                f"`{table.name}`: more than {_MOST_RELATED} embedded rows.",
                remediation=f"Limit them, as in `{table.name}.limit=10`, or ask for fewer rows.",
            )
        decoders = [(item.name, item.type.decoder(self._store.dialect)) for item in items]
        rows = decode_rows(decoders, answer)
        start = len(items) + (1 if related_by else 0)
        for position, embed in enumerate(selection.embeds):
            if not embed.is_shown:
                continue
            keys = [values[start + position] for values in answer]
            self._embed(rows, keys, embed)
        return rows, [values[len(items)] for values in answer] if related_by else []

    def _fetch(
        self, text: str, values: list[Any], kinds: Sequence[ColumnType], *, is_single: bool = False
    ) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement. Raises AnswerTooLarge.

        kinds: the types of its columns. is_single: whether it has at most one row, which fits into memory and is faster
        to read from a server at once.
        """
        if self._explanation is not None:
            raise _Explained(self._explanation(text, values))
        large = sum(not kind.is_small for kind in kinds)
        if not large:
            return self._statements.rows(text, *values)
        try:
            if is_single:
                rows = self._statements.rows(text, *values)
                for row in rows:
                    self._budget.take(row)
                return rows
            return self._statements.rows_within(self._budget, max(1, _MOST_BUFFERED // large), text, *values)
        except RowsTooLarge as exc:
            raise AnswerTooLarge(f"The rows have more than {MOST_BYTES} bytes.") from exc

    def _number_related(
        self,
        writer: SqlWriter,
        selection: Selection,
        further: Sequence[Expression],
        related_by: str,
        expressions: list[str],
        orders: list[Order],
    ) -> str:
        """Writes a query for the first rows that are related to each row."""
        table = selection.table
        shown_expressions = [
            f"{expression} AS _c{index}" for index, expression in enumerate(expressions[: len(selection.items)])
        ]
        hidden_expressions = expressions[len(selection.items) :]
        order = self._order(writer, table, orders)
        number = f"row_number() OVER (PARTITION BY {quote(table.name)}.{quote(related_by)}{order}) AS _n"
        source, where = self._write_matching(writer, selection, further)
        columns = ", ".join(
            [*(f"_c{i}" for i in range(len(shown_expressions))), *(f"_h{i}" for i in range(len(hidden_expressions)))]
        )
        inner = f"SELECT {', '.join([*shown_expressions, *hidden_expressions, number])} FROM {source} WHERE {where}"
        last = selection.offset + (_MOST_RELATED if selection.limit is None else selection.limit)
        return (
            f"SELECT {columns} FROM ({inner}) AS _r WHERE _n > {selection.offset} AND _n <= {last} "
            f"ORDER BY _n LIMIT {_MOST_RELATED + 1}"
        )

    def _embed(self, rows: list[Row], keys: list[Any], embed: Embed) -> None:
        distinct_keys = list(dict.fromkeys(key for key in keys if key is not None))
        related_rows: list[Row] = []
        owners: list[Any] = []
        if distinct_keys:
            related_rows, owners = self._read(embed.selection, [["among", embed.theirs, distinct_keys]], embed.theirs)
        groups: dict[Any, list[Row]] = {}
        for owner, row in zip(owners, related_rows, strict=True):
            groups.setdefault(owner, []).append(row)
        for row, key in zip(rows, keys, strict=True):
            rows_of_key = groups.get(key) or _aggregate_nothing(embed.selection)
            if embed.is_spread:
                row.update(rows_of_key[0] if rows_of_key else dict.fromkeys(embed.names))
            else:
                row[embed.name] = rows_of_key if embed.many else (rows_of_key[0] if rows_of_key else None)

    def _write_matching(
        self, writer: SqlWriter, selection: Selection, further: Sequence[Expression], alias: str = ""
    ) -> tuple[str, str]:
        """Writes where a query reads the rows that fulfil its filters, and further conditions, and that the actor may
        see: its source and its condition. Their placeholders belong one after the other.

        alias: the table's alias in the statement, if it is not its own name.
        """
        table = selection.table
        alias = alias or quote(table.name)
        conditions = [*FilterReader(table).read(selection.where), *further]
        conditions += [self._ask_presence(writer, embed) for embed in selection.embeds if embed.has_any is not None]
        if table.view is not None:
            return write_view_rows(writer, table, self.actor, alias, conditions)
        condition = place_behind(table, allowed_rows(table, "SELECT", self.actor), conditions)
        return f"{writer.name_table(table.name)} AS {alias}", writer.write(condition, {"": alias})

    def _ask_presence(self, writer: SqlWriter, embed: Embed) -> Expression:
        """Returns the condition that a row has related rows, or has none."""

        def write(scope: Mapping[str, str]) -> str:
            exists = f"EXISTS (SELECT 1 {self._write_related(writer, scope[''], embed, writer.name_alias())})"
            return exists if embed.has_any else f"NOT {exists}"

        return ["written", write]

    def _write_related(self, writer: SqlWriter, outer: str, embed: Embed, alias: str) -> str:
        """Writes the source of a subquery for the related rows that the actor may see.

        outer: the alias of its table in the statement.
        """
        source, where = self._write_matching(writer, embed.selection, [], alias)
        return f"FROM {source} WHERE {where} AND {alias}.{quote(embed.theirs)} = {outer}.{quote(embed.ours)}"

    def _order_value(self, writer: SqlWriter, outer: str, order: Order) -> str:
        """Writes the value by which rows are ordered. A related row that the actor may not see has no value."""
        if order.embed is None:
            return writer.write(order.tree, {"": outer})
        alias = writer.name_alias()
        value = writer.write(order.tree, {"": alias})
        sql = f"(SELECT {value} {self._write_related(writer, outer, order.embed, alias)})"
        # In SQLite, the result of a subquery has no collation.
        is_exact = writer.dialect == "sqlite" and order.type.name == "numeric"
        return f"{sql} COLLATE decimal" if is_exact else sql

    def _order(self, writer: SqlWriter, table: TableInfo, orders: list[Order]) -> str:
        """Writes the order. Equal rows are ordered by their keys, so that pages neither repeat nor miss a row."""
        scope = {"": quote(table.name)}
        parts = [
            f"{self._order_value(writer, scope[''], order)} {'DESC' if order.descending else 'ASC'} "
            f"NULLS {'FIRST' if order.nulls_first else 'LAST'}"
            for order in orders
        ]
        # The rows of a view have no key, so they are ordered by all their columns.
        key = (
            table.key if table.view is None else [name for name, each in table.columns.items() if each.type.is_ordered]
        )
        nulls = "" if table.view is None else " NULLS LAST"
        parts += [f"{scope['']}.{quote(name)} ASC{nulls}" for name in key]
        return f" ORDER BY {', '.join(parts)}" if parts else ""

    def _group(self, writer: SqlWriter, selection: Selection, related_by: str | None = None) -> str:
        """Writes the GROUP BY clause of a query; an empty text if nothing is grouped.

        related_by: the column of embedded rows by which their groups are kept apart.
        """
        groups = self._name_groups(writer, selection)
        if related_by is not None:
            groups.append(f"{quote(selection.table.name)}.{quote(related_by)}")
        return f" GROUP BY {', '.join(groups)}" if groups else ""

    def _order_groups(self, writer: SqlWriter, selection: Selection, orders: list[Order]) -> str:
        """Writes the order of groups. Equal groups are ordered by what they are grouped by."""
        names = self._name_groups(writer, selection)
        by = dict(zip((str(item.tree) for item in selection.groups or ()), names, strict=True))
        parts: list[str] = []
        for order in orders:
            if str(order.tree) not in by:
                raise InvalidFilter("Groups are ordered by what `select` names beside the aggregates.")
            direction = "DESC" if order.descending else "ASC"
            parts.append(f"{by[str(order.tree)]} {direction} NULLS {'FIRST' if order.nulls_first else 'LAST'}")
        parts += [f"{name} ASC NULLS LAST" for name in names]
        return f" ORDER BY {', '.join(parts)}" if parts else ""

    def _name_groups(self, writer: SqlWriter, selection: Selection) -> list[str]:
        """Returns what rows are grouped by: an expression, or its position among the columns if it has
        placeholders.
        """
        scope = {"": quote(selection.table.name)}
        return [
            str(position) if item.tree[0] == "json" else writer.write(item.tree, scope)
            for position, item in enumerate(selection.items, 1)
            if item.tree[0] != "aggregate"
        ]

    def see_as(self, actor: Actor) -> "RowReader":
        """Reads the same rows as another actor, in the same transaction and within the same limit of bytes."""
        rows = RowReader(self._statements, self._store, self._app_id, self._catalogue, actor, self._now)
        rows._budget = self._budget
        return rows

    @property
    def statements(self) -> Statements:
        """The statements of the transaction, for what is read beside the rows."""
        return self._statements

    def _writer(self) -> SqlWriter:
        writer = SqlWriter(self._store, self._app_id, self._catalogue, self.actor, self._now)
        writer.has_own_rows_by_function = is_guarded(self._store, self._catalogue, self.actor)
        return writer


def _aggregate_nothing(selection: Selection) -> list[Row]:
    """Returns the embedded value of a row without related rows: aggregates over no rows, unless grouped, or none."""
    if selection.groups != []:
        return []
    return [{item.name: 0 if item.tree[1] == "count" else None for item in selection.items}]


def _measure_rows(rows: Iterable[Row], selection: Selection, sizes: dict[int, int]) -> int:
    """Returns about how many bytes rows have in an answer, with their embedded rows.

    Many rows may embed the same one, which is read once and answered many times. sizes: of the rows that have been
    measured, by their `id`.
    """
    total = 0
    for row in rows:
        size = sizes.get(id(row))
        if size is None:
            size = sizes[id(row)] = _measure_row(row, selection, sizes)
        total += size
    return total


def _measure_row(row: Row, selection: Selection, sizes: dict[int, int]) -> int:
    embedded_names = {embed.name for embed in selection.embeds if not embed.is_spread}
    names = {item.name for item in selection.items} - embedded_names
    size = sum([len(name) + _measure_value(row[name]) for name in names])
    for embed in selection.embeds:
        if embed.is_spread or not embed.is_shown:
            size += _measure_row(row, embed.selection, sizes)
        elif embedded_value := row[embed.name]:
            size += _measure_rows(embedded_value if embed.many else [embedded_value], embed.selection, sizes)
    return size


def _measure_value(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return len(json.dumps(value)) if isinstance(value, (dict, list)) else 8


def _show(writer: SqlWriter, item: Item, scope: Mapping[str, str]) -> str:
    expression = writer.write(item.tree, scope)
    # A path into JSON returns JSON. SQLite's `->` does; Postgres needs a function.
    if item.tree[0] == "json" and not item.tree[3]:
        return expression if writer.dialect == "sqlite" else f"({expression})::text"
    return item.type.show(expression, writer.dialect)


def key_condition(table: TableInfo, text: str) -> Expression:
    """Returns the condition that a row has this key. Raises BadRequest for a table whose key is not one column."""
    column = _find_key(table)
    return ["=", ["column", "", column.name], ["value", column.type.name, column.type.parse(text, column.name)]]


def _find_key(table: TableInfo) -> Column:
    """Returns the column that is the key. Raises BadRequest for a table whose key is not one column."""
    if len(table.key) != 1:
        raise BadRequest(
            f"`{table.name}` has no key of one column, so a row of it has no address.",
            remediation="Filter by its columns instead.",
        )
    return table.column(table.key[0])
