"""Builds the answer of a write: columns of the rows that it wrote, or also their related rows."""

import json
from collections.abc import Iterable, Sequence

from baobab.tools.data.errors import InvalidFilter
from baobab.tools.data.expressions.expressions import FALSE, allowed_rows, both
from baobab.tools.data.fields import MOST_ROWS
from baobab.tools.data.queries.preferences import Preferences
from baobab.tools.data.queries.selection import Selection, read_selection
from baobab.tools.data.rows.row_reader import RowReader
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.schemas import Row
from baobab.tools.data.values.selection_items import Item

_KEY = ")"
"""The prefix of the names of hidden columns. No name that a client gives contains it."""


class WrittenRows:
    """names: the columns that the writing statement returns; None for all."""

    def __init__(self, catalogue: Catalogue, table: TableInfo, select: str | None, preferences: Preferences) -> None:
        self._table = table
        self._selection: Selection | None = None
        self.names: Sequence[str] | None = () if preferences.minimal else None
        if preferences.minimal or select is None:
            return
        selection = read_selection(catalogue, table, select)
        if selection.groups is not None:
            raise InvalidFilter(
                "A write returns the rows that it wrote, but no aggregates of them.",
                remediation="Select columns, and ask for the aggregates afterwards.",
            )
        if not selection.embeds and all(item == _show_column(table, item.name) for item in selection.items):
            self.names = list(dict.fromkeys(item.name for item in selection.items))
            return
        if not table.key:
            raise InvalidFilter(
                f"`{table.name}` has no primary key, so a write to it returns plain columns only.",
                remediation="Select columns by their names, and read the rest afterwards.",
            )
        selection.items += [Item(f"{_KEY}{item.name}", item.tree, item.type) for item in _list_key(table)]
        self._selection, self.names = selection, table.key

    def read(self, rows: RowReader, written_rows: list[Row]) -> list[Row]:
        """Returns the answer after an insert or update.

        written_rows: what the statement returned.
        """
        if self._selection is None or not written_rows:
            return written_rows
        return self._pick(rows.select(self._selection, key=_find_rows(self._table, written_rows)), written_rows)

    def read_before(self, rows: RowReader, conditions: Iterable[Expression]) -> list[Row]:
        """Returns what `pick_deleted` needs of the rows that are about to be deleted."""
        if self._selection is None:
            return []
        self._selection.limit = MOST_ROWS + 1
        return rows.select(self._selection, key=both(*conditions, allowed_rows(self._table, "DELETE", rows.actor)))

    def pick_deleted(self, rows_before: list[Row], deleted_rows: list[Row]) -> list[Row]:
        """Returns the answer after a deletion.

        deleted_rows: what the statement returned.
        """
        return deleted_rows if self._selection is None else self._pick(rows_before, deleted_rows)

    def _pick(self, readable_rows: list[Row], written_rows: list[Row]) -> list[Row]:
        """Returns the written rows that the caller may read, in the order in which they were written."""
        by_key = {json.dumps([row.pop(f"{_KEY}{name}") for name in self._table.key]): row for row in readable_rows}
        keys = [json.dumps([row[name] for name in self._table.key]) for row in written_rows]
        return [by_key[key] for key in keys if key in by_key]


def _show_column(table: TableInfo, name: str) -> Item | None:
    column = table.columns.get(name)
    return None if column is None else Item(name, ["column", "", name], column.type)


def _list_key(table: TableInfo) -> list[Item]:
    return [Item(name, ["column", "", name], table.columns[name].type) for name in table.key]


def _find_rows(table: TableInfo, rows: Sequence[Row]) -> Expression:
    """Returns the condition that a row is one of these."""
    values = [[_write_value(item, row) for item in _list_key(table)] for row in rows]
    if len(table.key) == 1:
        [item] = _list_key(table)
        return ["in", item.tree, [value for [value] in values]]
    return _join([both(*(["=", i.tree, v] for i, v in zip(_list_key(table), row, strict=True))) for row in values])


def _write_value(item: Item, row: Row) -> Expression:
    return ["value", item.type.name, item.type.clean(row[item.name], item.name)]


def _join(conditions: list[Expression]) -> Expression:
    """Joins conditions with OR in halves, because SQLite allows a depth of 1000 only."""
    if len(conditions) < 2:
        return conditions[0] if conditions else FALSE
    half = len(conditions) // 2
    return ["or", _join(conditions[:half]), _join(conditions[half:])]
