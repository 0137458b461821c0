"""Reads and writes the rows of one app, in one transaction, as one actor. What policies do not open does not exist."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.statements import ByteBudget, RowsTooLarge, Statements
from baobab.tools.core.errors import BadRequest
from baobab.tools.data.actor import Actor
from baobab.tools.data.catalogue import Catalogue, Column, Expression, TableInfo
from baobab.tools.data.change_log import Change, ChangeLog
from baobab.tools.data.column_types import ColumnType
from baobab.tools.data.defaults import find_default
from baobab.tools.data.errors import AnswerTooLarge, InvalidFilter, NotNullViolation, PolicyViolation
from baobab.tools.data.expressions import FALSE, SqlWriter, allowed_after, allowed_rows, both, quote
from baobab.tools.data.filters import FilterReader
from baobab.tools.data.images import Images, decode_rows
from baobab.tools.data.schemas import Row
from baobab.tools.data.selection import Embed, Order, Selection, read_order
from baobab.tools.data.selection_items import Item

_MOST_RELATED = 10_000
"""Rows of one embedded table in one answer."""
_SMALL_CHANGE = 10_000
MOST_BYTES = 16 * 2**20
"""Of the rows of one answer, as the database gives them."""
_MOST_BUFFERED = 32
"""Columns of unknown size that are read at once, of which each may have a megabyte."""
_MOST_VALUES = 30_000
"""Values of one statement that inserts: SQLite takes 32 766."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """What an insert does where the columns have the values of a row that is there."""

    columns: tuple[str, ...]
    merge: bool


class Rows:
    def __init__(
        self,
        statements: Statements,
        store: DataStore,
        app_id: str,
        catalogue: Catalogue,
        actor: Actor,
        now: str,
        most_bytes: int = MOST_BYTES,
        log: ChangeLog | None = None,
    ) -> None:
        """most_bytes: of all rows that are read and answered.
        log: where each change is written down; None for copies.
        """
        self._statements = statements
        self._budget = ByteBudget(most_bytes)
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self.actor = actor
        self._now = now
        self._log = log

    # Reading.

    def select(self, selection: Selection, *, key: Expression | None = None) -> list[Row]:
        """The rows of a selection with their embedded rows. key: a further condition."""
        rows, _ = self._read(selection, [] if key is None else [key], related_by=None)
        if selection.embeds and _measure_rows(rows, selection, {}) > MOST_BYTES:
            raise AnswerTooLarge(f"The rows, each with those embedded in it, have more than {MOST_BYTES} bytes.")
        return rows

    def count(self, selection: Selection) -> int:
        writer = self._writer()
        where = self._where(writer, selection, [])
        table = selection.table.name
        text = f"SELECT count(*) FROM {writer.name_table(table)} AS {quote(table)} WHERE {where}"  # noqa: S608
        if selection.groups is not None:
            grouped = f"FROM {writer.name_table(table)} AS {quote(table)} WHERE {where}"
            group = self._group(writer, selection)
            text = f"SELECT count(*) FROM (SELECT count(*) {grouped}{group}) AS _g"  # noqa: S608
        return int(self._statements.rows(text, *writer.values)[0][0])

    def _read(
        self, selection: Selection, further: Sequence[Expression], related_by: str | None
    ) -> tuple[list[Row], list[Any]]:
        """The rows, and of each its value of the column by which it is related to what it is embedded in."""
        table = selection.table
        writer = self._writer()
        scope = {"": quote(table.name)}
        items = selection.items
        hidden = [*([related_by] if related_by else []), *(embed.ours for embed in selection.embeds)]
        # The placeholders of the columns come before those of the conditions.
        shown = [_show(writer, item, scope) for item in items]
        shown += [f"{quote(table.name)}.{quote(name)} AS _h{position}" for position, name in enumerate(hidden)]
        orders = read_order(table, selection.order)
        source = f"{writer.name_table(table.name)} AS {quote(table.name)}"
        if related_by is not None and (selection.limit is not None or selection.offset):
            text = self._number_related(writer, selection, further, related_by, shown, orders)
        else:
            where = self._where(writer, selection, further)
            if selection.groups is None:
                order = self._order(writer, table, orders)
            else:
                order = self._group(writer, selection) + self._order_groups(writer, selection, orders)
            limit = _MOST_RELATED + 1 if related_by is not None else selection.limit
            text = f"SELECT {', '.join(shown) or '1'} FROM {source} WHERE {where}{order}"  # noqa: S608
            if limit is not None:
                text += f" LIMIT {limit} OFFSET {0 if related_by else selection.offset}"
        kinds = [*(item.type for item in items), *(table.columns[name].type for name in hidden)]
        found = self._fetch(text, writer.values, kinds)
        if related_by is not None and len(found) > _MOST_RELATED:
            raise BadRequest(
                f"`{table.name}`: more than {_MOST_RELATED} embedded rows.",
                remediation=f"Limit them, as in `{table.name}.limit=10`, or ask for fewer rows.",
            )
        decoders = [(item.name, item.type.decoder(self._store.dialect)) for item in items]
        rows = decode_rows(decoders, found)
        start = len(items) + (1 if related_by else 0)
        for position, embed in enumerate(selection.embeds):
            keys = [values[start + position] for values in found]
            self._embed(rows, keys, embed)
        return rows, [values[len(items)] for values in found] if related_by else []

    def _fetch(self, text: str, values: list[Any], kinds: Sequence[ColumnType]) -> list[tuple[Any, ...]]:
        """The rows of a statement. Raises AnswerTooLarge. kinds: the types of its columns."""
        large = sum(not kind.is_small for kind in kinds)
        if not large:
            return self._statements.rows(text, *values)
        try:
            return self._statements.rows_within(self._budget, max(1, _MOST_BUFFERED // large), text, *values)
        except RowsTooLarge as exc:
            raise AnswerTooLarge(f"The rows have more than {MOST_BYTES} bytes.") from exc

    def _number_related(
        self,
        writer: SqlWriter,
        selection: Selection,
        further: Sequence[Expression],
        related_by: str,
        shown: list[str],
        orders: list[Order],
    ) -> str:
        """A query for the first rows of each row that they are related to."""
        table = selection.table
        named = [f"{expression} AS _c{index}" for index, expression in enumerate(shown[: len(selection.items)])]
        hidden = shown[len(selection.items) :]
        order = self._order(writer, table, orders)
        number = f"row_number() OVER (PARTITION BY {quote(table.name)}.{quote(related_by)}{order}) AS _n"
        where = self._where(writer, selection, further)
        columns = ", ".join([*(f"_c{i}" for i in range(len(named))), *(f"_h{i}" for i in range(len(hidden)))])
        inner = (
            f"SELECT {', '.join([*named, *hidden, number])} "  # noqa: S608
            f"FROM {writer.name_table(table.name)} AS {quote(table.name)} WHERE {where}"
        )
        last = selection.offset + (_MOST_RELATED if selection.limit is None else selection.limit)
        return (
            f"SELECT {columns} FROM ({inner}) AS _r WHERE _n > {selection.offset} AND _n <= {last} "  # noqa: S608
            f"ORDER BY _n LIMIT {_MOST_RELATED + 1}"
        )

    def _embed(self, rows: list[Row], keys: list[Any], embed: Embed) -> None:
        wanted = list(dict.fromkeys(key for key in keys if key is not None))
        related: list[Row] = []
        owners: list[Any] = []
        if wanted:
            related, owners = self._read(embed.selection, [["rows", embed.theirs, wanted]], embed.theirs)
        groups: dict[Any, list[Row]] = {}
        for owner, row in zip(owners, related, strict=True):
            groups.setdefault(owner, []).append(row)
        for row, key in zip(rows, keys, strict=True):
            found = groups.get(key, [])
            row[embed.name] = found if embed.many else (found[0] if found else None)

    def _where(self, writer: SqlWriter, selection: Selection, further: Sequence[Expression]) -> str:
        table = selection.table
        scope = {"": quote(table.name)}
        conditions = [*FilterReader(table).read(selection.where)]
        parts = [writer.write(condition, scope) for condition in conditions]
        for condition in further:
            if condition[0] == "rows":
                places = ", ".join(writer.value(value) for value in condition[2])
                parts.append(f"{scope['']}.{quote(condition[1])} IN ( {places})")
            else:
                parts.append(writer.write(condition, scope))
        parts += [self._exists(writer, table, embed) for embed in selection.embeds if embed.inner]
        allowed = allowed_rows(table, "SELECT", self.actor)
        return " AND ".join([*parts, writer.write(allowed, scope)])

    def _exists(self, writer: SqlWriter, table: TableInfo, embed: Embed) -> str:
        """That a row has related ones; nothing is embedded twice under one name, so that the names do not collide."""
        inner = embed.selection.table
        if inner.name == table.name:
            raise InvalidFilter("A table cannot be embedded in itself with `!inner`.")
        where = self._where(writer, embed.selection, [])
        joined = f"{quote(inner.name)}.{quote(embed.theirs)} = {quote(table.name)}.{quote(embed.ours)}"
        source = f"{writer.name_table(inner.name)} AS {quote(inner.name)}"
        return f"EXISTS (SELECT 1 FROM {source} WHERE {where} AND {joined})"  # noqa: S608

    def _order(self, writer: SqlWriter, table: TableInfo, orders: list[Order]) -> str:
        """Rows that are alike in the order have that of their keys, so that pages neither repeat nor miss any."""
        scope = {"": quote(table.name)}
        parts = [
            f"{writer.write(order.tree, scope)} {'DESC' if order.descending else 'ASC'} "
            f"NULLS {'FIRST' if order.nulls_first else 'LAST'}"
            for order in orders
        ]
        parts += [f"{scope['']}.{quote(name)} ASC" for name in table.key]
        return f" ORDER BY {', '.join(parts)}" if parts else ""

    def _group(self, writer: SqlWriter, selection: Selection) -> str:
        groups = self._name_groups(writer, selection)
        return f" GROUP BY {', '.join(groups)}" if groups else ""

    def _order_groups(self, writer: SqlWriter, selection: Selection, orders: list[Order]) -> str:
        """Groups that are alike in the order, or that have none, have that of what they are grouped by."""
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
        """What rows are grouped by: an expression, or its place among the columns where it has values of its own."""
        scope = {"": quote(selection.table.name)}
        return [
            str(position) if item.tree[0] == "json" else writer.write(item.tree, scope)
            for position, item in enumerate(selection.items, 1)
            if item.tree[0] != "aggregate"
        ]

    # Writing.

    def insert(
        self,
        table: TableInfo,
        given: Sequence[Mapping[str, Any]],
        upsert: Upsert | None = None,
        answer: Sequence[str] | None = None,
    ) -> list[Row]:
        """Inserts rows and returns them as they are kept. Keys that are no columns are left out.

        answer: here and in what follows, the columns to return; None for all.
        """
        complete = [self._complete(table, row) for row in given]
        inserted: list[Row] = []
        size = max(1, _MOST_VALUES // len(table.columns))
        for start in range(0, len(complete), size):
            inserted += self._insert(table, complete[start : start + size], upsert, answer)
        return inserted

    def _complete(self, table: TableInfo, given: Mapping[str, Any]) -> dict[str, Any]:
        """A whole row, in canonical values."""
        named = {name for name in given if name in table.columns}
        if not named and given:
            raise BadRequest(
                f"None of the keys is a column of `{table.name}`.", details={"columns": list(table.columns)}
            )
        row: dict[str, Any] = {}
        for column in table.columns.values():
            if column.name in named:
                value = column.type.clean(given[column.name], column.name)
            elif column.name == table.fill_user and self.actor.role == "user":
                value = self.actor.user_id
            elif column.type.serial:
                value = None
            else:
                value = find_default(column, self.actor, self._now)
            if value is None and column.type.serial:
                value = self._next_number(table, column)
            row[column.name] = _require_value(table, column, value)
        return row

    def _next_number(self, table: TableInfo, column: Column) -> int:
        """The next number of a serial column: one more than the largest that the table had when the first was taken."""
        sequences = self._store.name_table(self._app_id, "_sequences")
        name = f"{table.name}.{column.name}"
        taken = self._statements.rows(
            f"UPDATE {sequences} SET last = last + 1 WHERE name = ? RETURNING last",  # noqa: S608
            name,
        )
        if taken:
            return int(taken[0][0])
        source = self._store.name_table(self._app_id, table.name)
        [(largest,)] = self._statements.rows(f"SELECT max({quote(column.name)}) FROM {source}")  # noqa: S608
        number = int(largest or 0) + 1
        self._statements.rows(f"INSERT INTO {sequences} (name, last) VALUES (?, ?)", name, number)  # noqa: S608
        return number

    def _insert(
        self, table: TableInfo, rows: list[dict[str, Any]], upsert: Upsert | None, answer: Sequence[str] | None
    ) -> list[Row]:
        writer = self._writer()
        scope = {"": quote(table.name)}
        columns = list(table.columns.values())
        lines = [f"({', '.join(self._place(writer, column, row[column.name]) for column in columns)})" for row in rows]
        text = (
            f"INSERT INTO {writer.name_table(table.name)} AS {quote(table.name)} "  # noqa: S608
            f"({', '.join(quote(column.name) for column in columns)}) VALUES {', '.join(lines)}"
        )
        command: tuple[Expression, ...] = (allowed_after(table, "INSERT", self.actor),)
        if upsert is not None:
            text += self._write_upsert(writer, table, upsert, scope)
            if upsert.merge:
                command = (*command, allowed_after(table, "UPDATE", self.actor))
        inserted = self._write_inserted(writer, table, text, both(*command), rows, upsert, answer)
        if upsert is not None and upsert.merge and len(inserted) < len(rows):
            raise PolicyViolation(
                f"A row of `{table.name}` that this would change is not one that the caller may change."
            )
        return inserted

    def _write_upsert(self, writer: SqlWriter, table: TableInfo, upsert: Upsert, scope: Mapping[str, str]) -> str:
        target = ", ".join(quote(table.column(name).name) for name in upsert.columns)
        others = [name for name in table.columns if name not in upsert.columns]
        if not upsert.merge or not others:
            return f" ON CONFLICT ({target}) DO NOTHING"
        sets = ", ".join(f"{quote(name)} = excluded.{quote(name)}" for name in others)
        allowed = both(allowed_rows(table, "UPDATE", self.actor), allowed_rows(table, "SELECT", self.actor))
        return f" ON CONFLICT ({target}) DO UPDATE SET {sets} WHERE {writer.write(allowed, scope)}"

    def update(
        self,
        table: TableInfo,
        changes: Mapping[str, Any],
        conditions: Iterable[Expression],
        answer: Sequence[str] | None = None,
    ) -> list[Row]:
        """Changes the rows that fulfil the conditions and that the actor may change, and returns them."""
        columns = [column for name, column in table.columns.items() if name in changes]
        if not columns:
            raise BadRequest(
                f"None of the keys is a column of `{table.name}`.", details={"columns": list(table.columns)}
            )
        writer = self._writer()
        sets: list[str] = []
        for column in columns:
            value = _require_value(table, column, column.type.clean(changes[column.name], column.name))
            sets.append(f"{quote(column.name)} = {self._place(writer, column, value)}")
        reachable = self._reachable(table, "UPDATE", conditions)
        where = writer.write(reachable, {"": quote(table.name)})
        text = f"UPDATE {writer.name_table(table.name)} AS {quote(table.name)} SET {', '.join(sets)} WHERE {where}"  # noqa: S608
        check = allowed_after(table, "UPDATE", self.actor)
        changes_size = len(json.dumps({column.name: changes[column.name] for column in columns}))
        if self._log is None or not self._fits_log(table, reachable, changes_size):
            return self._write_returning(writer, table, text, check, answer)
        names = {column.name for column in columns}
        older = self._images.read(table, reachable)
        led = self._images.follow_update(table, older, names)
        changed = self._write_returning(writer, table, text, check, None, is_bounded=True)
        self._images.write_followers(self._log, led)
        for old_row, row in self._images.pair(table, older, changed, names):
            self._log.add(table, "UPDATE", old_row, row)
        return _pick_columns(changed, answer)

    def delete(
        self, table: TableInfo, conditions: Iterable[Expression], answer: Sequence[str] | None = None
    ) -> list[Row]:
        """Deletes the rows that fulfil the conditions and that the actor may delete, and returns them."""
        writer = self._writer()
        reachable = self._reachable(table, "DELETE", conditions)
        where = writer.write(reachable, {"": quote(table.name)})
        text = f"DELETE FROM {writer.name_table(table.name)} AS {quote(table.name)} WHERE {where}"  # noqa: S608
        if self._log is None or not self._fits_log(table, reachable, 0):
            return self._write_returning(writer, table, text, ["true"], answer)
        led = self._images.follow_delete(table, reachable)
        deleted = self._write_returning(writer, table, text, ["true"], None, is_bounded=True)
        self._images.write_followers(self._log, led)
        for row in deleted if led.deleted is None else led.deleted:
            self._log.add(table, "DELETE", row, None)
        return _pick_columns(deleted, answer)

    def _write_inserted(
        self,
        writer: SqlWriter,
        table: TableInfo,
        text: str,
        check: Expression,
        rows: list[dict[str, Any]],
        upsert: Upsert | None,
        answer: Sequence[str] | None,
    ) -> list[Row]:
        """Runs an insert, and writes down what it changes. rows: canonical values."""
        conflicting = self._images.find_conflicts(table, rows, upsert.columns) if self._log and upsert else []
        if self._log is None or not all(self._fits_log(table, condition, 0) for condition in conflicting):
            return self._write_returning(writer, table, text, check, answer)
        older = {
            self._images.encode_values(row, upsert.columns): row
            for condition in conflicting
            for row in self._images.read(table, condition)
            if upsert is not None
        }
        inserted = self._write_returning(writer, table, text, check, None, is_bounded=True)
        for row in inserted:
            old_row = older.get(self._images.encode_values(row, upsert.columns)) if upsert else None
            self._log.add(table, "INSERT" if old_row is None else "UPDATE", old_row, row)
        return _pick_columns(inserted, answer)

    def _fits_log(self, table: TableInfo, condition: Expression, further: int) -> bool:
        """Whether rows are small enough to be written down before and after; otherwise that much is written down.

        further: bytes that a write adds to each of them at most.
        """
        assert self._log is not None
        if all(column.type.is_small for column in table.columns.values()) and further < _SMALL_CHANGE:
            return True
        size, count = self._images.measure(table, condition)
        if 2 * size + count * further <= MOST_BYTES:
            return True
        self._log.add(table, "DELETE", None, None)
        return False

    def _reachable(self, table: TableInfo, command: Any, conditions: Iterable[Expression]) -> Expression:
        allowed = allowed_rows(table, command, self.actor)
        return both(*conditions, allowed, allowed_rows(table, "SELECT", self.actor))

    def _place(self, writer: SqlWriter, column: Column, value: Any) -> str:
        return writer.value(column.type.encode(value, self._store.dialect), column.type.bind(self._store.dialect))

    def _write_returning(
        self,
        writer: SqlWriter,
        table: TableInfo,
        text: str,
        check: Expression,
        answer: Sequence[str] | None,
        *,
        is_bounded: bool = False,
    ) -> list[Row]:
        """Runs a statement and returns its rows, all of which must fulfil the check. is_bounded: they are small."""
        dialect = self._store.dialect
        # SQLite knows the columns of what it returns by their own names only.
        prefix = "" if dialect == "sqlite" else f"{quote(table.name)}."
        columns = list(table.columns.values()) if answer is None else [table.columns[name] for name in answer]
        shown = [column.type.show(f"{prefix}{quote(column.name)}", dialect) for column in columns]
        shown = shown or ["1"]
        scope = {"": quote(table.name)}
        is_checked = check not in (["true"], FALSE)
        if is_checked:
            shown.append(writer.write(check, scope))
        kinds = [column.type for column in columns]
        text += f" RETURNING {', '.join(shown)}"
        found = self._statements.rows(text, *writer.values) if is_bounded else self._fetch(text, writer.values, kinds)
        if found and (check == FALSE or (is_checked and not all(values[-1] for values in found))):
            raise PolicyViolation(f"The policies of `{table.name}` do not allow this row.")
        decoders = [(column.name, column.type.decoder(dialect)) for column in columns]
        return decode_rows(decoders, found)

    def see_as(self, actor: Actor) -> "Rows":
        """The same rows as somebody else reads them, in the same transaction and within the same bytes."""
        rows = Rows(self._statements, self._store, self._app_id, self._catalogue, actor, self._now)
        rows._budget = self._budget
        return rows

    def note_undone(self, changes: Iterable[Change]) -> None:
        """Notes in the log that these were taken back by this transaction."""
        if self._log is not None:
            self._log.note_undone(changes)

    @property
    def statements(self) -> Statements:
        """Those of the transaction, for what is read beside the rows."""
        return self._statements

    def has_followers(self, table: TableInfo, condition: Expression) -> bool:
        """Whether deleting rows would delete or change others that refer to them."""
        return bool(self._images.follow_delete(table, condition).entries)

    @property
    def _images(self) -> Images:
        return Images(self._statements, self._store, self._app_id, self._catalogue, self.actor, self._now)

    def _writer(self) -> SqlWriter:
        return SqlWriter(self._store, self._app_id, self._catalogue, self.actor, self._now)


def _pick_columns(rows: list[Row], names: Sequence[str] | None) -> list[Row]:
    return rows if names is None else [{name: row[name] for name in names} for row in rows]


def _measure_rows(rows: Iterable[Row], selection: Selection, known: dict[int, int]) -> int:
    """About how many bytes rows have in an answer, each with the rows that are embedded in it.

    Many rows may embed the same one, which is read once and answered many times. known: the sizes of rows that have
    been measured, by their `id`.
    """
    embedded = {embed.name for embed in selection.embeds}
    names = {item.name for item in selection.items} - embedded
    total = 0
    for row in rows:
        size = known.get(id(row))
        if size is None:
            size = sum([len(name) + _measure_value(row[name]) for name in names])
            for embed in selection.embeds:
                related = row[embed.name]
                if related:
                    size += _measure_rows(related if embed.many else [related], embed.selection, known)
            known[id(row)] = size
        total += size
    return total


def _measure_value(value: Any) -> int:
    if isinstance(value, str):
        return len(value)
    return len(json.dumps(value)) if isinstance(value, (dict, list)) else 8


def _show(writer: SqlWriter, item: Item, scope: Mapping[str, str]) -> str:
    expression = writer.write(item.tree, scope)
    # What is in JSON comes as JSON: SQLite's `->` does so, and Postgres's has to be told.
    if item.tree[0] == "json" and not item.tree[3]:
        return expression if writer.dialect == "sqlite" else f"({expression})::text"
    return item.type.show(expression, writer.dialect)


def _require_value(table: TableInfo, column: Column, value: Any) -> Any:
    if value is None and column.needs_value:
        raise NotNullViolation(
            f"`{column.name}` of `{table.name}` must have a value.",
            details={"column": column.name, "table": table.name},
        )
    return value


def key_condition(table: TableInfo, text: str) -> Expression:
    """The condition that a row has this key. BadRequest for a table whose key is not one column."""
    if len(table.key) != 1:
        raise BadRequest(
            f"`{table.name}` has no key of one column, so a row of it has no address.",
            remediation="Filter by its columns instead.",
        )
    column = table.column(table.key[0])
    return ["=", ["column", "", column.name], ["value", column.type.name, column.type.parse(text, column.name)]]
