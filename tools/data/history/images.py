"""Reads rows as they are before a write changes them, also rows that change through references."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.data.actor import Actor
from baobab.tools.data.expressions.expressions import SqlWriter, quote
from baobab.tools.data.history.change_log import ChangeLog, Operation, encode_key
from baobab.tools.data.history.usage import Counter
from baobab.tools.data.schema.catalogue import Catalogue, Column, Expression, Reference, TableInfo
from baobab.tools.data.schemas import Row

_MOST_FOLLOWERS = 10_000
"""How many rows that one write changes through references are stored in the log."""
_AT_ONCE = 200
_PASSIVE = ("NO ACTION", "RESTRICT")


@dataclass(slots=True)
class Followers:
    """The rows that a write changes through references, as they are before it."""

    entries: list[tuple[TableInfo, Operation, Row]] = field(default_factory=list)
    seen_keys: set[tuple[str, str | None]] = field(default_factory=set)
    overflowing: set[str] = field(default_factory=set)
    """The tables in which so many rows change that they are not stored."""
    deleted_rows: list[Row] | None = None
    """The rows that a deletion itself removes, if it may also delete others through references."""


class Images:
    """Reads rows in the transaction that is about to change them, whether or not policies allow to read them."""

    def __init__(
        self, statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue, actor: Actor, now: str
    ) -> None:
        self._statements = statements
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self._actor = actor
        self._now = now

    def read(self, table: TableInfo, condition: Expression, limit: int | None = None) -> list[Row]:
        writer = SqlWriter(self._store, self._app_id, self._catalogue, self._actor, self._now)
        name = quote(table.name)
        expressions = [
            column.type.show(f"{name}.{quote(column.name)}", writer.dialect) for column in table.columns.values()
        ]
        where = writer.write(condition, {"": name})
        text = f"SELECT {', '.join(expressions)} FROM {writer.name_table(table.name)} AS {name} WHERE {where}"
        if limit is not None:
            text += f" LIMIT {limit}"
        decoders = [(column.name, column.type.decoder(writer.dialect)) for column in table.columns.values()]
        return decode_rows(decoders, self._statements.rows(text, *writer.values))

    def measure(self, table: TableInfo, condition: Expression) -> tuple[int, int]:
        """Returns about how many bytes rows have, and how many rows there are."""
        writer = SqlWriter(self._store, self._app_id, self._catalogue, self._actor, self._now)
        name = quote(table.name)
        size = Counter(self._statements, self._store, self._app_id).size(table, f"{name}.")
        where = writer.write(condition, {"": name})
        source = f"{writer.name_table(table.name)} AS {name}"
        text = f"SELECT coalesce(sum({size}), 0), count(*) FROM {source} WHERE {where}"
        [(total, count)] = self._statements.rows(text, *writer.values)
        return int(total), int(count)

    def find_conflicts(
        self, table: TableInfo, rows: Sequence[Mapping[str, Any]], columns: Sequence[str]
    ) -> list[Expression]:
        """Returns the conditions for present rows that an insert collides with.

        rows: the inserted rows, with canonical values.
        """
        unique_columns = [column for column in table.columns.values() if column.name in columns]
        conditions = [
            ["and", *(_equal(column, row[column.name]) for column in unique_columns)]
            for row in rows
            if all(row[column.name] is not None for column in unique_columns)
        ]
        return [["or", *conditions[start : start + _AT_ONCE]] for start in range(0, len(conditions), _AT_ONCE)]

    def encode_values(self, row: Row, columns: Sequence[str]) -> str:
        return json.dumps([row[name] for name in sorted(columns)])

    def pair(
        self, table: TableInfo, older: Sequence[Row], newer: Sequence[Row], names: Iterable[str]
    ) -> Iterator[tuple[Row | None, Row | None]]:
        """Yields each row with the row that an update has made of it.

        names: the columns that it set, to the same value in all rows.
        """
        changed_keys = set(names) & set(table.key)
        newer_by_key = {encode_key(table, row): row for row in newer}
        if not table.key:
            # Rows of a table without a key cannot be told apart.
            yield from ((None, row) for row in newer)
            return
        for row in older:
            row_with_new_key = {**row, **{name: newer[0][name] for name in changed_keys}} if newer else row
            yield row, newer_by_key.get(encode_key(table, row_with_new_key))

    # The rows that change through references.

    def follow_delete(self, table: TableInfo, condition: Expression) -> Followers:
        followers = Followers()
        acting = [each for each in self._catalogue.references_to(table.name) if each[2].on_delete not in _PASSIVE]
        if acting:
            followers.deleted_rows = self.read(table, condition)
            followers.seen_keys = {(table.name, _identify(table, row)) for row in followers.deleted_rows}
            self._follow(followers, table, followers.deleted_rows)
            # A row that refers to itself, or to another that goes with it, does not change: it goes.
            followers.entries = [
                (child, op, row)
                for child, op, row in followers.entries
                if op == "DELETE" or (child.name, _identify(child, row)) not in followers.seen_keys
            ]
        return followers

    def _follow(self, followers: Followers, table: TableInfo, rows: Sequence[Row]) -> None:
        for child, column, reference in self._catalogue.references_to(table.name):
            if reference.on_delete in _PASSIVE:
                continue
            images = self._find_children(followers, child, column, table, reference, rows)
            if reference.on_delete == "CASCADE":
                unseen = [row for row in images if (child.name, _identify(child, row)) not in followers.seen_keys]
                followers.seen_keys |= {(child.name, _identify(child, row)) for row in unseen}
                if unseen:
                    # Rows that refer to these come first, because undo goes backwards.
                    self._follow(followers, child, unseen)
                followers.entries += [(child, "DELETE", row) for row in unseen]
            else:
                followers.entries += [(child, "UPDATE", row) for row in images]

    def follow_update(self, table: TableInfo, rows: Sequence[Row], names: Iterable[str]) -> Followers:
        """Finds the rows that the references to a table change along with an update of its rows.

        names: the columns that the update sets.
        """
        followers = Followers()
        changed_columns = set(names)
        for child, column, reference in self._catalogue.references_to(table.name):
            if reference.column in changed_columns and reference.on_update not in _PASSIVE:
                images = self._find_children(followers, child, column, table, reference, rows)
                followers.entries += [(child, "UPDATE", row) for row in images]
        return followers

    def _find_children(
        self,
        followers: Followers,
        child: TableInfo,
        column: Column,
        table: TableInfo,
        reference: Reference,
        rows: Sequence[Row],
    ) -> list[Row]:
        kind = table.column(reference.column).type
        values = [kind.clean(row[reference.column], reference.column) for row in rows]
        values = list({repr(value): value for value in values if value is not None}.values())
        images: list[Row] = []
        for start in range(0, len(values), _AT_ONCE):
            keys = [["value", column.type.name, value] for value in values[start : start + _AT_ONCE]]
            room = _MOST_FOLLOWERS - len(followers.entries) - len(images)
            images += self.read(child, ["in", ["column", "", column.name], keys], room + 1)
            if len(images) + len(followers.entries) > _MOST_FOLLOWERS:
                followers.overflowing.add(child.name)
                return []
        return images

    def write_followers(self, log: ChangeLog, followers: Followers) -> None:
        """Logs what the write has done to rows through references. Called after the write."""
        for table, op, row in followers.entries:
            if op == "DELETE":
                log.add(table, op, row, None)
            elif table.key:
                log.add(table, "UPDATE", row, self._read_again(table, row))
        for name in sorted(followers.overflowing):
            log.add(self._catalogue.table(name), "DELETE", None, None)

    def _read_again(self, table: TableInfo, row: Row) -> Row | None:
        conditions = [
            _equal(table.columns[name], table.columns[name].type.clean(row[name], name)) for name in table.key
        ]
        current_rows = self.read(table, ["and", *conditions])
        return current_rows[0] if current_rows else None


def decode_rows(
    decoders: Sequence[tuple[str, Callable[[Any], Any] | None]], answers: Sequence[Sequence[Any]]
) -> list[Row]:
    """Turns the rows of a statement into those of an answer.

    decoders: of its first columns, by name.
    """
    names = [name for name, _ in decoders]
    # Most columns need no conversion.
    conversions = [(name, decode) for name, decode in decoders if decode is not None]
    rows: list[Row] = []
    for values in answers:
        row = dict(zip(names, values, strict=False))
        for name, decode in conversions:
            if row[name] is not None:
                row[name] = decode(row[name])
        rows.append(row)
    return rows


def _equal(column: Column, value: Any) -> Expression:
    return ["=", ["column", "", column.name], ["value", column.type.name, value]]


def _identify(table: TableInfo, row: Row) -> str | None:
    return encode_key(table, row) or json.dumps(row)
