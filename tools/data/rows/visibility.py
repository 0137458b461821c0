"""Finds out which readers may see which rows, also deleted ones: the policies are evaluated on images of rows."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import BaobabError
from baobab.tools.data.actor import Actor
from baobab.tools.data.expressions.expressions import FALSE, TRUE, Scope, SqlWriter, allowed_rows, quote
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.schemas import Row

_READERS_AT_ONCE = 1000
_MOST_VALUES = 20_000
_TEXT_ORDER = ' COLLATE "C"'


class _ManyReaders(SqlWriter):
    """Writes a policy for all readers of the table `_readers` at once.

    removed: rows by table that its subqueries find as if they were still there.
    """

    removed: Mapping[str, Sequence[Row]] = {}

    def _name_source(self, source: Mapping[str, Any]) -> str:
        name, table = super()._name_source(source), self.find_table(source["table"])
        images = [_place_image(self, table, row) for row in self.removed.get(table.name, ())]
        values = ", ".join(f"({image})" for image in images if image is not None)
        columns = ", ".join(quote(column) for column in table.columns)
        return f"(SELECT {columns} FROM {name} UNION ALL VALUES {values})" if values else name

    def _write_reader(self, tree: Expression, scope: Scope) -> str:
        del scope
        if tree[0] == "claim":
            claims = "_readers.claims" if self.dialect == "sqlite" else "_readers.claims::jsonb"
            return f"({claims} ->> '{tree[1]}')"
        return {"user": "_readers.user_id", "role": "_readers.user_role"}.get(tree[0]) or (
            "_readers.user_id" if self.dialect == "sqlite" else "_readers.user_id::uuid"
        )

    writers: Mapping[str, Any] = {
        **SqlWriter.writers,
        "user": _write_reader,
        "user_uuid": _write_reader,
        "role": _write_reader,
        "claim": _write_reader,
    }


class Visibility:
    """Evaluates the current policies of one app, in one transaction."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str, catalogue: Catalogue, now: str) -> None:
        self._statements = statements
        self._store = store
        self._app_id = app_id
        self._catalogue = catalogue
        self._now = now

    def find(
        self,
        table: TableInfo,
        rows: Sequence[Row],
        readers: Sequence[Actor],
        removed: Mapping[str, Sequence[Row]] | None = None,
    ) -> set[tuple[int, int]]:
        """Returns the pairs of a row and a reader who may see it, by their positions.

        removed: rows of other tables that were deleted along with these, by table. The policies are asked as if they
        were still there.
        """
        visible: set[tuple[int, int]] = set()
        for role in ("service", "anon", "user"):
            positions = [position for position, reader in enumerate(readers) if reader.role == role]
            if not positions:
                continue
            condition = allowed_rows(table, "SELECT", readers[positions[0]])
            if condition == TRUE:
                visible |= {(row, reader) for row in range(len(rows)) for reader in positions}
            elif condition != FALSE:
                size = max(1, _MOST_VALUES // len(table.columns))
                for first in range(0, len(rows), size):
                    for start in range(0, len(positions), _READERS_AT_ONCE):
                        part = positions[start : start + _READERS_AT_ONCE]
                        page = rows[first : first + size]
                        persons = [(each, readers[each]) for each in part]
                        visible |= self._ask(table, condition, page, first, persons, removed or {})
        return visible

    def fulfils(self, table: TableInfo, condition: Expression, rows: Sequence[Row], reader: Actor) -> bool:
        """Returns whether all rows, present or not, meet a condition, as one caller."""
        return len(self._ask(table, condition, rows, 0, [(0, reader)], {})) == len(rows)

    def _ask(
        self,
        table: TableInfo,
        condition: Expression,
        rows: Sequence[Row],
        first: int,
        readers: Sequence[tuple[int, Actor]],
        removed: Mapping[str, Sequence[Row]],
    ) -> set[tuple[int, int]]:
        writer = _ManyReaders(self._store, self._app_id, self._catalogue, readers[0][1], self._now)
        writer.removed = removed
        columns = ", ".join(quote(name) for name in table.columns)
        # The table itself defines the types of the columns, and the order of their values.
        images = [f"SELECT 0 AS _n, {columns} FROM {writer.name_table(table.name)} WHERE 1 = 0"]
        for number, row in enumerate(rows, first):
            image = _place_image(writer, table, row)
            if image is not None:
                images.append(f"SELECT {number}, {image}")
        persons = []
        for position, reader in readers:
            cast = "?" if writer.dialect == "sqlite" else "?::text"
            claims = json.dumps(dict(reader.claims or ()))
            values = (reader.user_id, reader.user_role, claims)
            persons.append(f"({position}, {', '.join(writer.value(value, cast) for value in values)})")
        where = writer.write(condition, {"": "_changed"})
        text = (
            f"WITH _changed AS ({' UNION ALL '.join(images)}), "
            f"_readers(_n, user_id, user_role, claims) AS (VALUES {', '.join(persons)}) "
            f"SELECT _changed._n, _readers._n FROM _changed, _readers WHERE {where}"
        )
        return {(int(row), int(reader)) for row, reader in self._statements.rows(text, *writer.values)}


def _place_image(writer: SqlWriter, table: TableInfo, row: Row) -> str | None:
    """Writes the values of a row into a query. Returns None if the row does not fit the present table."""
    values: list[tuple[Any, str]] = []
    for column in table.columns.values():
        kind = column.type
        try:
            value = kind.encode(kind.clean(row.get(column.name), column.name), writer.dialect)
        except BaobabError:
            return None
        collation = _TEXT_ORDER if kind.declare(writer.dialect).endswith(_TEXT_ORDER) else ""
        values.append((value, kind.bind(writer.dialect) + collation))
    return ", ".join(writer.value(value, placeholder) for value, placeholder in values)
