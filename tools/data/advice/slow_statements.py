"""Notes the slow statements on an app's tables, so that its developer learns which index is missing.

Only the shape of a statement is stored: its table, and the columns that it filters and orders by. No values are
stored.
"""

import contextlib
import json
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from baobab.storage.data.store import DataStore
from baobab.storage.keyed_semaphore import KeyedSemaphore
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.storage.sql.statements import Statements
from baobab.tools.core import BaobabError, Services
from baobab.tools.data.advice.missing_indexes import has_index
from baobab.tools.data.expressions.trees import list_names
from baobab.tools.data.schema.catalogue import Catalogue, Expression, TableInfo, is_frozen
from baobab.tools.data.schemas import SlowStatement

COLUMNS = "shape text PRIMARY KEY, calls bigint NOT NULL, milliseconds bigint NOT NULL, at text NOT NULL"
_MOST = 50
"""The most shapes that are stored for an app. Those that have not been slow for the longest time are removed first."""
_MOST_APPS = 1000
"""The most apps whose notes wait in memory."""
_VERBS = {"select": "Listing rows", "count": "Counting rows", "update": "Updating rows", "delete": "Deleting rows"}

Operation = Literal["select", "count", "update", "delete"]


@dataclass(frozen=True, slots=True)
class Slow:
    """One slow statement. Its duration is in seconds."""

    operation: Operation
    table: str
    filters: tuple[str, ...]
    order: tuple[str, ...]
    seconds: float
    searched_columns: tuple[str, ...] = ()
    """Those of the filters that search words."""

    @property
    def shape(self) -> str:
        return json.dumps([self.operation, self.table, self.filters, self.order, self.searched_columns])


def note_slow(
    operation: Operation, table: TableInfo, conditions: Iterable[Expression], order: tuple[str, ...], seconds: float
) -> Slow:
    trees = list(conditions)
    names = {name for tree in trees for alias, name in list_names(tree) if alias == "" and name}
    searched_columns = tuple(sorted({name for tree in trees for name in _list_searched(tree)}))
    return Slow(operation, table.name, tuple(sorted(names)), order, seconds, searched_columns)


def _list_searched(tree: object) -> Iterator[str]:
    match tree:
        case ["search", left, _]:
            yield from (name for _, name in list_names(left) if name)
        case list():
            for part in tree:
                yield from _list_searched(part)


class SlowNotes:
    """Collects the slow statements of reads, and stores them after the answers are sent. A killed process loses those
    of the last second.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._pending: dict[str, deque[Slow]] = {}
        self._turns = KeyedSemaphore(1)
        services.flushes.append(self.flush)

    def add(self, app_id: str, statements: Iterable[Slow]) -> None:
        if app_id in self._pending or len(self._pending) < _MOST_APPS:
            self._pending.setdefault(app_id, deque(maxlen=_MOST)).extend(statements)

    async def flush(self) -> None:
        for app_id in list(self._pending):
            # A note that cannot be stored is dropped: the statement will be slow again.
            with contextlib.suppress(BaobabError, DatabaseUnavailable):
                await self.flush_app(app_id)

    async def flush_app(self, app_id: str) -> None:
        # A caller that arrives while notes are being written waits for them.
        async with self._turns.acquire_slot(app_id):
            notes = self._pending.pop(app_id, None)
            if notes is not None:
                await self._write(app_id, notes)

    async def _write(self, app_id: str, notes: Iterable[Slow]) -> None:
        app = await self._services.directory.app(app_id)
        store, now = self._services.stores_of(app.region).data, self._services.clock.now().isoformat()

        def keep(statements: Statements) -> None:
            if not is_frozen(statements, store, app_id):
                SlowStatements(statements, store, app_id).keep(notes, now)

        if await store.exists(app_id):
            await store.write(app_id, keep)


class SlowStatements:
    """The slow statements of one app, in one transaction."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str) -> None:
        self._statements = statements
        self._dialect = store.dialect
        self._table = store.name_table(app_id, "_slow_statements")

    def keep(self, notes: Iterable[Slow], now: str) -> None:
        for slow in notes:
            milliseconds = int(slow.seconds * 1000)
            self._statements.rows(
                f"INSERT INTO {self._table} AS kept (shape, calls, milliseconds, at) VALUES (?, 1, ?, ?) "
                "ON CONFLICT (shape) DO UPDATE SET calls = kept.calls + 1, at = excluded.at, milliseconds = "
                "CASE WHEN excluded.milliseconds > kept.milliseconds THEN excluded.milliseconds "
                "ELSE kept.milliseconds END",
                slow.shape,
                milliseconds,
                now,
            )
        self._statements.rows(
            f"DELETE FROM {self._table} WHERE shape NOT IN "
            f"(SELECT shape FROM {self._table} ORDER BY at DESC, shape LIMIT {_MOST})"
        )

    def list(self, catalogue: Catalogue) -> list[SlowStatement]:
        """Returns the slow statements of existing tables, the slowest first."""
        rows = self._statements.rows(
            f"SELECT shape, calls, milliseconds, at FROM {self._table} ORDER BY milliseconds DESC, shape"
        )
        statements: list[SlowStatement] = []
        for shape, calls, milliseconds, at in rows:
            operation, table, filters, order, searched_columns = json.loads(shape)
            if table in catalogue.tables or table in catalogue.views:
                statements.append(
                    {
                        "table": table,
                        "operation": operation,
                        "filters": filters,
                        "order": order,
                        "calls": int(calls),
                        "slowest_ms": int(milliseconds),
                        "last_at": at,
                        "message": _describe(
                            catalogue, operation, table, filters, order, int(milliseconds), searched_columns
                        )
                        + _propose_search(self._dialect, catalogue.tables.get(table), searched_columns),
                    }
                )
        return statements


def _describe(
    catalogue: Catalogue,
    operation: str,
    name: str,
    filters: list[str],
    order: list[str],
    milliseconds: int,
    searched_columns: list[str],
) -> str:
    text = f"`{name}`: {_VERBS[operation]}"
    if filters:
        text += f" by {', '.join(f'`{column}`' for column in filters)}"
    if order:
        text += f" in the order of {', '.join(f'`{column}`' for column in order)}"
    text += f" took up to {milliseconds} ms."
    table = catalogue.tables.get(name)
    known_columns = () if table is None else table.columns
    # No index by the value of a text serves a search of its words.
    filtered_columns = [each for each in filters or order if each in known_columns and each not in searched_columns]
    if table is not None and filtered_columns and not any(has_index(table, column) for column in filtered_columns):
        text += f" No index begins with {' or '.join(f'`{column}`' for column in filtered_columns)}."
    return text


def _propose_search(dialect: str, table: TableInfo | None, columns: list[str]) -> str:
    """Writes what would make a search of words faster; an empty text if there is such an index already."""
    indexed_columns = () if table is None else [i.columns[0] for i in table.indexes.values() if i.method == "fts"]
    for column in columns:
        if table is None or column not in table.columns or column in indexed_columns:
            continue
        if dialect == "sqlite":
            return f" On SQLite a search of `{column}` reads every text that the other filters leave."
        return f' An index {{"columns": ["{column}"], "method": "fts"}} would serve the search of `{column}`.'
    return ""
