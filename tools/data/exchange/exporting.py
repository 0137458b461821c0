"""Exports the rows of a table page by page. No transaction stays open while the reader is slow."""

import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from baobab.tools.core import BadRequest, Call
from baobab.tools.data.actor import Actor
from baobab.tools.data.errors import AnswerTooLarge
from baobab.tools.data.exchange.csv_rows import format_csv
from baobab.tools.data.queries.selection import Selection
from baobab.tools.data.rows.row_reader import MOST_BYTES
from baobab.tools.data.rows.row_requests import open_table, read_query
from baobab.tools.data.rows.rows import Rows
from baobab.tools.data.rows.transactions import read_rows
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo
from baobab.tools.data.schemas import Row
from baobab.tools.data.values.selection_items import Item

_PAGE = 1000
_PAGE_BYTES = 4 * 2**20


@dataclass(frozen=True, slots=True)
class ExportRequest:
    table: str
    select: str | None
    where: Mapping[str, Any] | None
    format: Literal["csv", "jsonl"]
    escape_formulas: bool


@dataclass(frozen=True, slots=True)
class _Page:
    rows: list[Row]
    names: list[str]
    last: list[Any] | None
    """The key of the last row. None if no row follows it."""


class Export:
    """Exports rows in the order of their keys. Each page is read in a transaction of its own, by the policies of that
    moment.
    """

    def __init__(self, call: Call, actor: Actor, request: ExportRequest) -> None:
        self._call = call
        self._actor = actor
        self._request = request

    async def start(self) -> AsyncGenerator[bytes, None]:
        """Reads the first page, so that a request that cannot be exported is refused. Returns the file in pieces."""
        first, size = await self._read_fitting(None, _PAGE, alone=False)
        return self._send(first, size)

    async def _send(self, page: _Page, size: int) -> AsyncGenerator[bytes, None]:
        is_first = True
        while True:
            yield self._format(page, is_first=is_first)
            if page.last is None:
                return
            page, size = await self._read_fitting(page.last, size, alone=True)
            is_first = False

    def _format(self, page: _Page, *, is_first: bool) -> bytes:
        if self._request.format == "csv":
            lines = format_csv(page.names, page.rows, header=is_first, escape_formulas=self._request.escape_formulas)
            return "".join(lines).encode()
        return "".join([f"{json.dumps(row, ensure_ascii=False)}\n" for row in page.rows]).encode()

    async def _read_fitting(self, after: list[Any] | None, size: int, *, alone: bool) -> tuple[_Page, int]:
        """Reads a page of as many rows as fit, and returns it with that number."""
        while True:
            try:
                return await self._read(after, size, alone=alone), size
            except AnswerTooLarge:
                if size == 1:
                    raise
                size = max(1, size // 8)

    async def _read(self, after: list[Any] | None, size: int, *, alone: bool) -> _Page:
        request = self._request

        def read(rows: Rows, catalogue: Catalogue) -> _Page:
            table = open_table(catalogue, rows, request.table, "SELECT")
            selection = read_query(catalogue, table, request.select, request.where)
            _require_plain(selection)
            names = [item.name for item in selection.items]
            if not table.key:
                # A table without a key has no place to continue from, so it is read at once.
                return _Page(rows.select(selection), names, None)
            # No name in a `select` contains a tab.
            keys = {f"\t{name}": name for name in table.key}
            selection.items = [*selection.items, *(_key_item(table, name, column) for name, column in keys.items())]
            selection.limit = size
            selected_rows = rows.select(selection, key=None if after is None else _follow(table, after))
            last = [selected_rows[-1][name] for name in keys] if len(selected_rows) == size else None
            return _Page([{name: row[name] for name in names} for row in selected_rows], names, last)

        # A table without a key is read at once.
        return await read_rows(
            self._call, self._actor, read, most_bytes=_PAGE_BYTES if size > 1 else MOST_BYTES, alone=alone
        )


def _require_plain(selection: Selection) -> None:
    if selection.embeds or selection.groups is not None:
        raise BadRequest("An export has the columns of one table.", remediation="List related rows and aggregates.")
    if len({item.name for item in selection.items}) < len(selection.items):
        raise BadRequest("`select` gives two columns the same name.")


def _key_item(table: TableInfo, name: str, column: str) -> Item:
    return Item(name, ["column", "", column], table.columns[column].type)


def _follow(table: TableInfo, last: list[Any]) -> Expression:
    """Returns the condition that a row comes after another one in the order of the keys."""
    columns = [table.columns[name] for name in table.key]
    values = [
        ["value", column.type.name, column.type.clean(value, column.name)]
        for column, value in zip(columns, last, strict=True)
    ]
    places: list[Expression] = [["column", "", column.name] for column in columns]
    after: Expression = [">", places[-1], values[-1]]
    for place, value in reversed(list(zip(places[:-1], values[:-1], strict=True))):
        # The first part lets the database start at the right place in its index.
        after = ["and", [">=", place, value], ["or", [">", place, value], after]]
    return after
