"""Writes the rows of one app, in one transaction, as one actor, and notes each change in the log."""

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from sqlalchemy.exc import IntegrityError, ProgrammingError

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import BadRequest
from baobab.tools.data.actor import Actor
from baobab.tools.data.advice.slow_statements import Operation, note_slow
from baobab.tools.data.errors import NotNullViolation, PolicyViolation
from baobab.tools.data.expressions.barrier import place_behind
from baobab.tools.data.expressions.expressions import FALSE, TRUE, SqlWriter, allowed_after, allowed_rows, both, quote
from baobab.tools.data.history.change_log import Change, ChangeLog
from baobab.tools.data.history.images import Images, decode_rows
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.rows.broken_references import ReferenceFinder
from baobab.tools.data.rows.row_reader import MOST_BYTES, RowReader
from baobab.tools.data.rows.serial_columns import SerialColumns
from baobab.tools.data.rows.state_before import StateBefore
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, TableInfo
from baobab.tools.data.schema.defaults import find_default, find_update
from baobab.tools.data.schemas import Row

_FORBIDDEN = "42501"
_SMALL_CHANGE = 10_000
_MOST_VALUES = 30_000
"""The most values of one insert statement. SQLite allows 32 766."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """The choice of what an insert does if a present row has the same values in these columns."""

    columns: tuple[str, ...]
    merge: bool


class Rows(RowReader):
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
        sequences: Sequences | None = None,
    ) -> None:
        """log: where each change is logged; None for copies. sequences: of the serial columns; whoever gives them
        writes them.
        """
        super().__init__(statements, store, app_id, catalogue, actor, now, most_bytes)
        self._log = log
        self._sequences = sequences or Sequences(statements, store, app_id)

    def insert(
        self,
        table: TableInfo,
        values: Sequence[Mapping[str, Any]],
        upsert: Upsert | None = None,
        answer: Sequence[str] | None = None,
    ) -> list[Row]:
        """Inserts rows and returns them as they are stored. Keys that are no columns are ignored.

        An upsert changes, of a present row, only the columns that its row names. answer, here and below: the columns to
        return; None for all.
        """
        complete = [self._complete(table, row) for row in values]
        self._number(table, complete)
        inserted_rows: list[Row] = []
        size = max(1, _MOST_VALUES // len(table.columns))
        named_columns = [frozenset(row) if upsert is not None and upsert.merge else frozenset() for row in values]
        for part, names in _part_rows(table, complete, named_columns, upsert, size):
            inserted_rows += self._insert(table, part, names, upsert, answer)
        return inserted_rows

    def _complete(self, table: TableInfo, values: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a whole row in canonical values. A serial column that the row leaves out is null."""
        names = {column.name for column in table.writable_columns}
        named_columns = names.intersection(values)
        if not named_columns and values:
            raise _no_column(table)
        row: dict[str, Any] = {}
        for column in table.writable_columns:
            if column.name in named_columns:
                value = column.type.clean(values[column.name], column.name)
            elif column.name == table.fill_user and self.actor.role == "user":
                value = self.actor.user_id
            elif column.type.serial:
                value = None
            else:
                value = find_default(column, self.actor, self._now)
            row[column.name] = value if column.type.serial else _require_value(table, column, value)
        return row

    def _number(self, table: TableInfo, rows: Sequence[dict[str, Any]]) -> None:
        """Fills the serial columns that rows leave out with the next numbers."""
        for column in table.writable_columns:
            if column.type.serial:
                given_numbers = {row[column.name] for row in rows if row[column.name] is not None}
                self._serials.pass_numbers(table, column, given_numbers)
                missing_rows = [row for row in rows if row[column.name] is None]
                numbers = self._serials.take(table, column, len(missing_rows), given_numbers)
                for row, number in zip(missing_rows, numbers, strict=True):
                    row[column.name] = number

    @property
    def _serials(self) -> SerialColumns:
        return SerialColumns(self._statements, self._store, self._app_id, self._sequences)

    def _insert(
        self,
        table: TableInfo,
        rows: list[dict[str, Any]],
        named_columns: frozenset[str],
        upsert: Upsert | None,
        answer: Sequence[str] | None,
    ) -> list[Row]:
        """Inserts rows and returns them.

        named_columns: the columns that an upsert changes of a present row.
        """
        writer = self._writer()
        columns = table.writable_columns
        lines = [f"({', '.join(self._place(writer, column, row[column.name]) for column in columns)})" for row in rows]
        text = (
            f"INSERT INTO {writer.name_table(table.name)} AS {quote(table.name)} "
            f"({', '.join(quote(column.name) for column in columns)}) VALUES {', '.join(lines)}"
        )
        command: tuple[Expression, ...] = (allowed_after(table, "INSERT", self.actor),)
        if upsert is not None:
            text += self._write_upsert(writer, table, named_columns, upsert, rows)
            if upsert.merge:
                command = (*command, allowed_after(table, "UPDATE", self.actor))
        with self._naming_references(table, rows):
            inserted_rows = self._write_inserted(writer, table, text, both(*command), rows, upsert, answer)
        if upsert is not None and upsert.merge and len(inserted_rows) < len(rows):
            raise _not_changeable(table)
        return inserted_rows

    def _write_upsert(
        self,
        writer: SqlWriter,
        table: TableInfo,
        named_columns: frozenset[str],
        upsert: Upsert,
        rows: Sequence[Mapping[str, Any]],
    ) -> str:
        """Writes what becomes of present rows. Raises PolicyViolation for one that the actor may not change, if only
        the state before the write tells.
        """
        target = ", ".join(quote(table.column(name).name) for name in upsert.columns)
        if not upsert.merge:
            return f" ON CONFLICT ({target}) DO NOTHING"
        changes = [column.name for column in table.writable_columns if column.name in named_columns - {*upsert.columns}]
        automatic_columns = [column for column in table.writable_columns if changes and column.on_update]
        sets = [
            f"{quote(column.name)} = {self._place(writer, column, find_update(column, self.actor, self._now))}"
            for column in automatic_columns
        ]
        automatic_names = {column.name for column in automatic_columns}
        # A row without other columns must still be returned, which only an update does.
        sets += [
            f"{quote(name)} = excluded.{quote(name)}"
            for name in changes or upsert.columns[:1]
            if name not in automatic_names
        ]
        condition = both(allowed_rows(table, "UPDATE", self.actor), allowed_rows(table, "SELECT", self.actor))
        if self._state_before.differs(table, condition):
            for present in self._images.find_conflicts(table, rows, upsert.columns):
                if not self._state_before.holds_for_all(table, condition, present):
                    raise _not_changeable(table)
            condition = TRUE
        where = writer.write(condition, {"": quote(table.name)})
        return f" ON CONFLICT ({target}) DO UPDATE SET {', '.join(sets)} WHERE {where}"

    def update(
        self,
        table: TableInfo,
        changes: Mapping[str, Any],
        conditions: Iterable[Expression],
        answer: Sequence[str] | None = None,
        *,
        restores: bool = False,
    ) -> list[Row]:
        """Changes the rows that fulfil the conditions and that the actor may change, and returns them.

        restores: whether the rows become what they were, also in the columns that an update sets by itself.
        """
        columns = [column for column in table.writable_columns if column.name in changes]
        if not columns:
            raise _no_column(table)
        writer, began = self._writer(), time.monotonic()
        conditions = list(conditions)
        sets: list[str] = []
        canonical: dict[str, Any] = {}
        automatic_columns = [] if restores else [column for column in table.writable_columns if column.on_update]
        for column in dict.fromkeys([*columns, *automatic_columns]):
            is_automatic = column in automatic_columns
            value = find_update(column, self.actor, self._now) if is_automatic else _clean(column, changes)
            value = _require_value(table, column, value)
            canonical[column.name] = value
            if column.type.serial and value is not None:
                self._serials.pass_numbers(table, column, {value})
            sets.append(f"{quote(column.name)} = {self._place(writer, column, value)}")
        reachable = self._reachable(table, "UPDATE", conditions)
        where = writer.write(reachable, {"": quote(table.name)})
        text = f"UPDATE {writer.name_table(table.name)} AS {quote(table.name)} SET {', '.join(sets)} WHERE {where}"
        check = allowed_after(table, "UPDATE", self.actor)
        changes_size = len(json.dumps({column.name: changes[column.name] for column in columns}))
        if self._log is None or not self._fits_log(table, reachable, changes_size):
            with self._naming_references(table, [canonical], reachable):
                changed_rows = self._write_returning(writer, table, text, check, answer)
            self._note_slow_write("update", table, conditions, began)
            return changed_rows
        names = set(canonical)
        older = self._images.read(table, reachable)
        followers = self._images.follow_update(table, older, names)
        with self._naming_references(table, [canonical], reachable):
            changed_rows = self._write_returning(writer, table, text, check, None, is_bounded=True)
        self._note_slow_write("update", table, conditions, began)
        self._images.write_followers(self._log, followers)
        for old_row, row in self._images.pair(table, older, changed_rows, names):
            self._log.add(table, "UPDATE", old_row, row)
        return _pick_columns(changed_rows, answer)

    def delete(
        self, table: TableInfo, conditions: Iterable[Expression], answer: Sequence[str] | None = None
    ) -> list[Row]:
        """Deletes the rows that fulfil the conditions and that the actor may delete, and returns them."""
        writer, began = self._writer(), time.monotonic()
        conditions = list(conditions)
        reachable = self._reachable(table, "DELETE", conditions)
        where = writer.write(reachable, {"": quote(table.name)})
        text = f"DELETE FROM {writer.name_table(table.name)} AS {quote(table.name)} WHERE {where}"
        if self._log is None or not self._fits_log(table, reachable, 0):
            with self._naming_references(table, [], reachable, deletes=True):
                deleted_rows = self._write_returning(writer, table, text, ["true"], answer)
            self._note_slow_write("delete", table, conditions, began)
            return deleted_rows
        followers = self._images.follow_delete(table, reachable)
        with self._naming_references(table, [], reachable, deletes=True):
            deleted_rows = self._write_returning(writer, table, text, ["true"], None, is_bounded=True)
        self._note_slow_write("delete", table, conditions, began)
        self._images.write_followers(self._log, followers)
        if followers.deleted_rows is not None and self._store.dialect == "sqlite":
            # SQLite returns no row that a reference to a row before it has deleted along.
            deleted_rows = followers.deleted_rows
        for row in deleted_rows:
            self._log.add(table, "DELETE", row, None)
        return _pick_columns(deleted_rows, answer)

    @contextmanager
    def _naming_references(
        self,
        table: TableInfo,
        values: Sequence[Mapping[str, Any]],
        condition: Expression | None = None,
        *,
        deletes: bool = False,
    ) -> Iterator[None]:
        """Finds the broken reference if SQLite refuses a statement.

        values: the rows that it writes, with canonical values. condition: the rows that it changes or deletes.
        """
        try:
            yield
        except (IntegrityError, sqlite3.IntegrityError) as exc:
            if self._store.dialect != "sqlite" or "FOREIGN KEY" not in str(exc):
                raise
            finder = ReferenceFinder(self._statements, self._catalogue)
            broken_reference = finder.find_missing(self._writer(), table, values)
            if broken_reference is None and condition is not None:
                broken_reference = finder.find_held(self._writer(), table, condition, deletes=deletes)
            if broken_reference is None:
                raise
            raise broken_reference from exc

    def _note_slow_write(
        self, operation: Operation, table: TableInfo, conditions: Sequence[Expression], began: float
    ) -> None:
        seconds = time.monotonic() - began
        if seconds >= self.slow_seconds:
            self.slow.append(note_slow(operation, table, conditions, (), seconds))

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
        """Runs an insert and logs what it changes.

        rows: with canonical values.
        """
        conflicting = self._images.find_conflicts(table, rows, upsert.columns) if self._log and upsert else []
        if self._log is None or not all(self._fits_log(table, condition, 0) for condition in conflicting):
            return self._write_returning(writer, table, text, check, answer, upserts=upsert is not None)
        older = {
            self._images.encode_values(row, upsert.columns): row
            for condition in conflicting
            for row in self._images.read(table, condition)
            if upsert is not None
        }
        inserted_rows = self._write_returning(
            writer, table, text, check, None, is_bounded=True, upserts=upsert is not None
        )
        for row in inserted_rows:
            old_row = older.get(self._images.encode_values(row, upsert.columns)) if upsert else None
            self._log.add(table, "INSERT" if old_row is None else "UPDATE", old_row, row)
        return _pick_columns(inserted_rows, answer)

    def _fits_log(self, table: TableInfo, condition: Expression, further: int) -> bool:
        """Returns whether rows are small enough to be logged before and after the write; otherwise only that they
        changed is logged.

        further: how many bytes the write adds to each row at most.
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
        policy = both(allowed_rows(table, command, self.actor), allowed_rows(table, "SELECT", self.actor))
        return place_behind(table, policy, conditions)

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
        upserts: bool = False,
    ) -> list[Row]:
        """Runs a statement and returns its rows, all of which must meet the check.

        is_bounded: whether the rows are known to be small.
        """
        if self._state_before.differs(table, check):
            bytes_left = self._budget.remaining_bytes
            with self._state_before.trying():
                tried_rows = self._write_returning(writer, table, text, TRUE, None, is_bounded=is_bounded)
            self._budget.remaining_bytes = bytes_left
            if not self._state_before.fulfils(table, check, tried_rows):
                raise PolicyViolation(f"The policies of `{table.name}` do not allow this row.")
            check = TRUE
        dialect = self._store.dialect
        # In `RETURNING`, SQLite knows the columns by their bare names only.
        prefix = "" if dialect == "sqlite" else f"{quote(table.name)}."
        columns = list(table.columns.values()) if answer is None else [table.columns[name] for name in answer]
        expressions = [column.type.show(f"{prefix}{quote(column.name)}", dialect) for column in columns]
        expressions = expressions or ["1"]
        scope = {"": quote(table.name)}
        is_checked = check not in (["true"], FALSE)
        if is_checked:
            expressions.append(writer.write(check, scope))
        kinds = [column.type for column in columns]
        text += f" RETURNING {', '.join(expressions)}"
        try:
            with self._run_as_actor(writes=True, upserts=upserts):
                if is_bounded:
                    answers = self._statements.rows(text, *writer.values)
                else:
                    answers = self._fetch(text, writer.values, kinds)
        except ProgrammingError as exc:
            # The row was refused by Postgres's own row-level security.
            if getattr(exc.orig, "sqlstate", None) != _FORBIDDEN:
                raise
            raise PolicyViolation(f"The policies of `{table.name}` do not allow this row.") from exc
        if answers and (check == FALSE or (is_checked and not all(values[-1] for values in answers))):
            raise PolicyViolation(f"The policies of `{table.name}` do not allow this row.")
        decoders = [(column.name, column.type.decoder(dialect)) for column in columns]
        return decode_rows(decoders, answers)

    def note_undone(self, changes: Iterable[Change]) -> None:
        """Marks changes in the log as undone by this transaction."""
        if self._log is not None:
            self._log.note_undone(changes)

    def has_followers(self, table: TableInfo, condition: Expression) -> bool:
        """Returns whether deleting rows of the table can delete or change rows that refer to them."""
        followers = self._images.follow_delete(table, condition)
        return bool(followers.entries or followers.overflowing)

    @property
    def _state_before(self) -> StateBefore:
        return StateBefore(self._statements, self._store, self._app_id, self._catalogue, self.actor, self._now)

    @property
    def _images(self) -> Images:
        return Images(self._statements, self._store, self._app_id, self._catalogue, self.actor, self._now)


def _part_rows(
    table: TableInfo,
    rows: Sequence[dict[str, Any]],
    named_columns: Sequence[frozenset[str]],
    upsert: Upsert | None,
    size: int,
) -> Iterator[tuple[list[dict[str, Any]], frozenset[str]]]:
    """Splits rows into those of each statement, with the columns that they name.

    A row that updates an earlier row of the same insert goes into a later statement, because Postgres updates no row
    twice in one.
    """
    part: list[dict[str, Any]] = []
    keys: set[tuple[Any, ...]] = set()
    names: frozenset[str] = frozenset()
    for row, names_of_row in zip(rows, named_columns, strict=True):
        key = _conflict_key(table, row, upsert) if upsert is not None and upsert.merge else None
        if part and (len(part) == size or key in keys or names_of_row != names):
            yield part, names
            part, keys = [], set()
        part.append(row)
        names = names_of_row
        if key is not None:
            keys.add(key)
    if part:
        yield part, names


def _conflict_key(table: TableInfo, row: Mapping[str, Any], upsert: Upsert) -> tuple[Any, ...] | None:
    """Returns the values by which a row finds the row that it updates; None for a row that updates none."""
    values = [row[name] for name in upsert.columns]
    if any(value is None for value in values):
        return None
    exact = [table.columns[name].type.name == "numeric" for name in upsert.columns]
    return tuple(Decimal(value) if is_exact else value for value, is_exact in zip(values, exact, strict=True))


def _pick_columns(rows: list[Row], names: Sequence[str] | None) -> list[Row]:
    return rows if names is None else [{name: row[name] for name in names} for row in rows]


def _not_changeable(table: TableInfo) -> PolicyViolation:
    return PolicyViolation(f"A row of `{table.name}` that this would change is not one that the caller may change.")


def _clean(column: Column, values: Mapping[str, Any]) -> Any:
    return column.type.clean(values[column.name], column.name)


def _no_column(table: TableInfo) -> BadRequest:
    return BadRequest(
        f"None of the keys is a column of `{table.name}` that takes values.",
        details={"columns": [column.name for column in table.writable_columns]},
    )


def _require_value(table: TableInfo, column: Column, value: Any) -> Any:
    if value is None and column.needs_value:
        raise NotNullViolation(
            f"`{column.name}` of `{table.name}` must have a value.",
            details={"column": column.name, "table": table.name},
        )
    return value
