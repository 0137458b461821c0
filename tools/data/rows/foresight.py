"""Shows the person who approves a write what it would change: each row as it is now and as it would be."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from baobab.tools.core.guard.changes import NOTHING, Change, describe_change
from baobab.tools.data.expressions.expressions import allowed_rows, both
from baobab.tools.data.fields import MOST_ROWS
from baobab.tools.data.rows.row_reader import key_condition
from baobab.tools.data.rows.row_requests import read_query
from baobab.tools.data.rows.rows import Rows, Upsert
from baobab.tools.data.schema.catalogue import Catalogue, Command, Expression, TableInfo
from baobab.tools.data.schemas import Row

MOST_SHOWN = 100
"""How many rows of one write are shown. For the rest, only their number is given."""


_SHORT = 200
"""The most characters of a text by which people call a row."""
FILTERED_ANEW = "Filters are applied again when it runs, so that it also writes rows which match only then."

SHOWN_AS_NOW = "Each write is shown on the rows of now: the effect of earlier writes of the batch is left out."


class Foresight:
    """Computes what a write would change of the rows that the caller sees now. It writes nothing."""

    def __init__(self, rows: Rows, catalogue: Catalogue) -> None:
        self._rows = rows
        self._catalogue = catalogue

    def foresee_insert(
        self, table: TableInfo, bodies: Sequence[Mapping[str, Any]], upsert: Upsert | None
    ) -> list[Change]:
        changes: list[Change] = []
        for row in bodies[:MOST_SHOWN]:
            values = _pick_written(table, row)
            present = self._find_conflict(table, values, upsert)
            if present is None:
                changes.append(describe_change(f"{table.name}: new row", NOTHING, values))
            elif upsert is not None and upsert.merge:
                changes += _compare(table, [present], values)
        return changes + _say_more(table, len(bodies), "inserted")

    def foresee_update(self, table: TableInfo, where: Mapping[str, Any], values: Mapping[str, Any]) -> list[Change]:
        matching = self._find(table, "UPDATE", where)
        return _compare(table, matching[:MOST_SHOWN], values) + _say_more(table, len(matching), "changed")

    def foresee_delete(self, table: TableInfo, where: Mapping[str, Any]) -> list[Change]:
        matching = self._find(table, "DELETE", where)
        changes = [describe_change(_name_row(table, row), row, NOTHING) for row in matching[:MOST_SHOWN]]
        return changes + _say_more(table, len(matching), "deleted")

    def foresee_row(self, table: TableInfo, row_id: str, values: Mapping[str, Any] | None) -> list[Change]:
        """Lists the changes of an update or a deletion of one row, without making them.

        values: what an update sets; None for a deletion.
        """
        matching = self._find(table, "DELETE" if values is None else "UPDATE", {}, key_condition(table, row_id))
        if values is None:
            return [describe_change(_name_row(table, row), row, NOTHING) for row in matching]
        return _compare(table, matching, values)

    def find_label(self, table: TableInfo, row_id: str, changes: Mapping[str, Any]) -> str | None:
        """Returns the first short text of a row that would change, if possible of a column that stays as it is."""
        texts = [
            column.name
            for column in table.columns.values()
            if column.type.is_text and column.enum is None and column.references is None and not column.primary_key
        ]
        names = [name for name in texts if not name.endswith("_id")]
        for row in self._find(table, "UPDATE", {}, key_condition(table, row_id)):
            values = [row.get(name) for name in sorted(names, key=lambda name: name in changes)]
            return next((text for text in values if isinstance(text, str) and 0 < len(text.strip()) <= _SHORT), None)
        return None

    def _find(self, table: TableInfo, command: Command, where: Mapping[str, Any], *further: Expression) -> list[Row]:
        """Returns the rows that fulfil filters and that the actor may write, as many as one call can write."""
        selection = read_query(self._catalogue, table, None, where)
        selection.limit = MOST_ROWS
        return self._rows.select(selection, key=both(*further, allowed_rows(table, command, self._rows.actor)))

    def _find_conflict(self, table: TableInfo, values: Mapping[str, Any], upsert: Upsert | None) -> Row | None:
        """Returns the present row that has the same values in the columns by which an upsert decides."""
        if upsert is None or any(values.get(name) is None for name in upsert.columns):
            return None
        columns = [table.column(name) for name in upsert.columns]
        equal: list[Expression] = [
            [
                "=",
                ["column", "", column.name],
                ["value", column.type.name, column.type.clean(values[column.name], column.name)],
            ]
            for column in columns
        ]
        conflicting = self._find(table, "SELECT", {}, *equal)
        return conflicting[0] if conflicting else None


def _compare(table: TableInfo, rows: Iterable[Row], values: Mapping[str, Any]) -> list[Change]:
    """Returns, for each row, the columns whose values would change."""
    changes: list[Change] = []
    for row in rows:
        new_values = {name: value for name, value in _pick_written(table, values).items() if row.get(name) != value}
        if new_values:
            old_values = {name: row[name] for name in new_values}
            changes.append(describe_change(_name_row(table, row), old_values, new_values))
    return changes


def _pick_written(table: TableInfo, values: Mapping[str, Any]) -> Row:
    """Returns the given values that would be written: those of columns that are not generated."""
    return {column.name: values[column.name] for column in table.writable_columns if column.name in values}


def _name_row(table: TableInfo, row: Row) -> str:
    key = ", ".join(f"{name} {row[name]}" for name in table.key if name in row)
    return f"{table.name}: {key}" if key else table.name


def _say_more(table: TableInfo, count: int, verb: str) -> list[Change]:
    further = count - MOST_SHOWN
    if further <= 0:
        return []
    return [describe_change(f"{table.name}: {further} more rows", "as they are", f"{verb} in the same way")]
