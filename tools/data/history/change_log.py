"""The log of changes of an app's rows: what each row was before and after a write, stored in the same transaction.

Undo reads the log backwards, and subscribers read it as it grows. Its numbers have no gaps and are never used twice.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from baobab.storage.data.store import DataStore
from baobab.storage.sql.statements import Statements
from baobab.tools.core import Call
from baobab.tools.core.guard.texts import find_writer
from baobab.tools.data.actor import Actor
from baobab.tools.data.history.sequences import Sequences
from baobab.tools.data.schema.catalogue import TableInfo
from baobab.tools.data.schemas import Row

Operation = Literal["INSERT", "UPDATE", "DELETE", "SCHEMA"]
COLUMNS = (
    "id bigint PRIMARY KEY, action bigint NOT NULL, name text NOT NULL, op text NOT NULL, old_key text, new_key text, "
    "old_row text, new_row text, at text NOT NULL, role text NOT NULL, user_id text, actor_id text, run_id text, "
    "tool text NOT NULL, undone_by bigint, size bigint NOT NULL"
)
INDEX = "(run_id) WHERE run_id IS NOT NULL"
SEQUENCES = (_NUMBER, _BYTES) = ("_changes", "_changes_bytes")
"""What `_sequences` calls the last number of the log, and the bytes that it holds."""
SCHEMA = "_schema"
"""What the log calls the table of a change that is one of the schema (tools/data/migration/schema_log.py)."""
MOST_CHANGES = 10_000
"""The most changes that are undone together."""
_OVERHEAD = 200
"""Bytes that a change takes beside its rows."""
_PAGE = 500
_MOST_WAITING = 4 * 2**20
"""How many bytes of changes may wait in memory before they are written."""
_NAMES = (
    "id", "action", "name", "op", "old_key", "new_key", "old_row", "new_row", "at", "role", "user_id", "actor_id",
    "run_id", "tool", "undone_by",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Author:
    """The author of a change: the actor, the tool, and the run of an agent."""

    actor: Actor
    actor_id: str | None
    run_id: str | None
    tool: str
    is_outside: bool = False
    """Whether what it writes comes from outside (tools/core/guard/texts.py)."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change of one row, or of the schema.

    The number of its action is that of the action's first change. old_key, new_key: the values of the key's columns as
    JSON; None if the row did not exist then, or its table has no key. old_row: None for an insert, or if a change of
    very many rows could not store it.
    """

    id: int
    action: int
    table: str
    op: Operation
    old_key: str | None
    new_key: str | None
    old_row: Row | None
    new_row: Row | None
    at: str
    role: str
    user_id: str | None
    actor_id: str | None
    run_id: str | None
    tool: str
    undone_by: int | None
    """The number of the action that undid this change."""

    @property
    def keys(self) -> set[tuple[str, str]]:
        """The rows that the change is about, by table and key."""
        return {(self.table, key) for key in (self.old_key, self.new_key) if key is not None}


@dataclass(slots=True)
class _Entry:
    table: TableInfo
    op: Operation
    old_row: str | None
    new_row: str | None
    old_key: str | None
    new_key: str | None
    kept_bytes: int = 0
    """The bytes of dropped tables and columns that are kept with a change of the schema."""

    @property
    def size(self) -> int:
        return _OVERHEAD + self.kept_bytes + len((self.old_row or "").encode()) + len((self.new_row or "").encode())


def find_author(call: Call, actor: Actor) -> Author:
    step, approved_attempt = call.context.step, call.approved_attempt
    run_id = step.run_id if step is not None else approved_attempt.run_id if approved_attempt is not None else None
    return Author(actor, call.caller.actor_id, run_id, call.tool.name, find_writer(call) == "outside")


def encode_key(table: TableInfo, row: Row | None) -> str | None:
    if row is None or not table.key:
        return None
    return json.dumps([row[name] for name in table.key], ensure_ascii=False, separators=(",", ":"))


class ChangeLog:
    """Collects the changes of one transaction, and writes them when the transaction has made all of them."""

    def __init__(
        self,
        statements: Statements,
        store: DataStore,
        app_id: str,
        sequences: Sequences,
        author: Author,
        now: str,
        most_bytes: int,
    ) -> None:
        self._statements = statements
        self._drop_kept = partial(drop_kept, statements, store, app_id)
        self._table = store.name_table(app_id, "_changes")
        self._outside_rows = store.name_table(app_id, "_outside_rows")
        self._sequences = sequences
        self._author = author
        self._now = now
        self._most_bytes = most_bytes
        self._entries: list[_Entry] = []
        self._waiting = 0
        self._count = 0
        self._bytes = 0
        self._tells_rows_apart = True
        self.tables: set[str] = set()
        self.action: int | None = None
        """The number of the action, once it is written; None where no row was changed."""

    @property
    def is_undoable(self) -> bool:
        """Whether the changes of rows could be undone once they are written: the log holds them all, and knows their
        rows.
        """
        return self._tells_rows_apart and self._count <= MOST_CHANGES and self._bytes <= self._most_bytes

    def add(self, table: TableInfo, op: Operation, old_row: Row | None, new_row: Row | None) -> None:
        """Adds a change. A change that leaves a row as it was is not added."""
        if op == "UPDATE" and old_row == new_row:
            return
        self.tables.add(table.name)
        old_key, new_key = encode_key(table, old_row), encode_key(table, new_row)
        entry = _Entry(table, op, _encode_row(old_row), _encode_row(new_row), old_key, new_key)
        self._entries.append(entry)
        self._count, self._bytes = self._count + 1, self._bytes + entry.size
        # Without a row there is no key, either.
        self._tells_rows_apart = self._tells_rows_apart and (old_key is not None or new_key is not None)
        self._waiting += entry.size
        if self._waiting > _MOST_WAITING:
            self.write()

    def add_schema(self, inverse: str | None, what: str, kept_bytes: int) -> None:
        """Adds a change of the schema. inverse: how it is taken back, as JSON; None if it is not."""
        self._entries.append(_Entry(TableInfo(SCHEMA, {}), "SCHEMA", inverse, what, None, None, kept_bytes))
        self.write()

    def forget_kept(self, change: Change) -> None:
        """Drops what is kept with a change of the schema that has been taken back."""
        self._drop_kept([change.old_row])
        [(size,)] = self._statements.rows(f"SELECT size FROM {self._table} WHERE id = ?", change.id)
        self._statements.rows(f"UPDATE {self._table} SET size = ? WHERE id = ?", _OVERHEAD, change.id)
        self._sequences.add(_BYTES, _OVERHEAD - int(size))

    def write(self) -> None:
        """Writes the changes, and removes the oldest changes if the log has grown beyond its limit."""
        entries, self._entries, self._waiting = self._entries, [], 0
        if not entries:
            return
        self._keep_outside_rows(entries)
        first = self._sequences.add(_NUMBER, len(entries)) - len(entries) + 1
        self.action = self.action or first
        rows = [self._encode(entry, number, self.action) for number, entry in enumerate(entries, first)]
        names = f"{', '.join(_NAMES)}, size"
        places = ", ".join("?" * (len(_NAMES) + 1))
        self._statements.insert_many(f"INSERT INTO {self._table} ({names}) VALUES ({places})", rows)
        self._trim(self._sequences.add(_BYTES, sum(entry.size for entry in entries)) - self._most_bytes)

    def _keep_outside_rows(self, entries: list[_Entry]) -> None:
        """Keeps which rows of marked tables come from outside, also where such a row gets another key."""
        for entry in entries:
            if not entry.table.own_text or entry.op == "DELETE":
                continue
            key, condition = entry.new_key or "", ""
            values: tuple[str, ...] = ()
            if not self._author.is_outside:
                if entry.old_key in (None, entry.new_key):
                    continue
                condition = f" WHERE EXISTS (SELECT 1 FROM {self._outside_rows} WHERE id = ?)"
                values = (_name_row(entry.table, entry.old_key or ""),)
            self._statements.rows(
                f"INSERT INTO {self._outside_rows} (id, name, key) SELECT ?, ?, ?{condition or ' WHERE true'} "
                "ON CONFLICT (id) DO NOTHING",
                _name_row(entry.table, key),
                entry.table.name,
                key,
                *values,
            )

    def note_undone(self, changes: Iterable[Change]) -> None:
        """Marks changes as undone by this transaction. What those changes had undone themselves counts again."""
        self.write()
        undone_changes = list(changes)
        by = self.action or 0
        for first in sorted({change.action for change in undone_changes}):
            last = max(change.id for change in undone_changes if change.action == first)
            self._statements.rows(
                f"UPDATE {self._table} SET undone_by = NULL WHERE undone_by = ?",
                first,
            )
            self._statements.rows(
                f"UPDATE {self._table} SET undone_by = ? WHERE id >= ? AND id <= ?",
                by,
                first,
                last,
            )

    def _encode(self, entry: _Entry, number: int, action: int) -> tuple[Any, ...]:
        author = self._author
        return (
            number, action, entry.table.name, entry.op, entry.old_key, entry.new_key, entry.old_row, entry.new_row,
            self._now, author.actor.role, author.actor.user_id, author.actor_id, author.run_id, author.tool, None,
            entry.size,
        )  # fmt: skip

    def _trim(self, surplus: int) -> None:
        while surplus > 0:
            page = f"SELECT id, size FROM {self._table} ORDER BY id LIMIT {_PAGE}"
            last, freed_bytes = 0, 0
            for number, size in self._statements.rows(page):
                if freed_bytes >= surplus:
                    break
                last, freed_bytes = number, freed_bytes + size
            if not freed_bytes:
                return
            self._drop_kept(_list_inverses(self._statements, self._table, last))
            self._statements.rows(f"DELETE FROM {self._table} WHERE id <= ?", last)
            self._sequences.add(_BYTES, -freed_bytes)
            surplus -= freed_bytes


def drop_kept(
    statements: Statements, store: DataStore, app_id: str, inverses: Iterable[Mapping[str, Any] | None]
) -> None:
    """Drops the tables in which dropped values are kept."""
    for inverse in inverses:
        for part in (inverse or {}).get("parts", ()):
            statements.rows(f"DROP TABLE IF EXISTS {store.name_table(app_id, part['name'])}")


def _list_inverses(statements: Statements, table: str, last: int) -> list[Mapping[str, Any] | None]:
    rows = statements.rows(f"SELECT old_row FROM {table} WHERE id <= ? AND name = ?", last, SCHEMA)
    return [None if text is None else json.loads(text) for (text,) in rows]


def _name_row(table: TableInfo, key: str) -> str:
    return f"{table.name} {key}"


def _encode_row(row: Row | None) -> str | None:
    return None if row is None else json.dumps(row, ensure_ascii=False, separators=(",", ":"))


class LogReader:
    """Reads the log of one app, in one transaction."""

    def __init__(self, statements: Statements, store: DataStore, app_id: str) -> None:
        self._statements = statements
        self._table = store.name_table(app_id, "_changes")
        self._sequences = store.name_table(app_id, "_sequences")

    def find_last(self) -> int:
        """Returns the number of the last change; 0 if there is none."""
        text = f"SELECT last FROM {self._sequences} WHERE name = ?"
        rows = self._statements.rows(text, _NUMBER)
        return int(rows[0][0]) if rows else 0

    def read_after(self, number: int, limit: int = _PAGE) -> list[Change]:
        return self._read(f"WHERE id > ? ORDER BY id LIMIT {limit}", number)

    def read_action(self, action: int, most: int) -> list[Change]:
        """Returns the changes of one action, whose numbers are consecutive: at most one more than `most`."""
        changes: list[Change] = []
        after = action - 1
        while page := self.read_after(after):
            changes_of_action = [change for change in page if change.action == action]
            changes += changes_of_action
            if len(changes_of_action) < len(page) or len(changes) > most:
                break
            after = page[-1].id
        return changes

    def read_run(self, run_id: str, most: int) -> list[Change]:
        return self._read(f"WHERE run_id = ? ORDER BY id LIMIT {most + 1}", run_id)

    def read_latest(self, limit: int, *, table: str | None, run_id: str | None, before: int | None) -> list[Change]:
        """Returns the latest changes first. They can be narrowed to one table, one run, or numbers below `before`."""
        where, values = _narrow(table, run_id, before)
        return self._read(f"{where}ORDER BY id DESC LIMIT {limit}", *values)

    def count(self, most: int, *, table: str | None, run_id: str | None) -> int:
        """Counts the changes of a table, of a run or of all, but no more than `most`."""
        where, values = _narrow(table, run_id, None)
        query = f"SELECT count(*) FROM (SELECT 1 FROM {self._table} {where}LIMIT {most}) AS changes"
        return int(self._statements.rows(query, *values)[0][0])

    def iterate_after(self, number: int) -> Iterator[Change]:
        """Yields changes without their rows, which can be large."""
        while page := self._read(f"WHERE id > ? ORDER BY id LIMIT {_PAGE}", number, rows=False):
            yield from page
            number = page[-1].id

    def _read(self, where: str, *values: Any, rows: bool = True) -> list[Change]:
        columns = [name if rows or name not in ("old_row", "new_row") else "NULL" for name in _NAMES]
        rows_of_log = self._statements.rows(f"SELECT {', '.join(columns)} FROM {self._table} {where}", *values)
        return [
            Change(*row[:6], *(None if text is None else json.loads(text) for text in row[6:8]), *row[8:])
            for row in rows_of_log
        ]


def _narrow(table: str | None, run_id: str | None, before: int | None) -> tuple[str, list[Any]]:
    """Returns the condition of a query of the log, and its values; nothing for all changes."""
    filters = {"name = ?": table, "run_id = ?": run_id, "id < ?": before}
    conditions = {condition: value for condition, value in filters.items() if value is not None}
    return (f"WHERE {' AND '.join(conditions)} " if conditions else "", list(conditions.values()))


def sweep_log(statements: Statements, store: DataStore, app_id: str, sequences: Sequences, before: str) -> int:
    """Removes some thousand changes that are older than a moment, and returns how many it removed."""
    table = store.name_table(app_id, "_changes")
    oldest = statements.rows(f"SELECT id, at, size FROM {table} ORDER BY id LIMIT {10 * _PAGE}")
    expired_rows = list(_take_expired(oldest, before))
    if expired_rows:
        drop_kept(statements, store, app_id, _list_inverses(statements, table, expired_rows[-1][0]))
        statements.rows(f"DELETE FROM {table} WHERE id <= ?", expired_rows[-1][0])
        sequences.add(_BYTES, -sum(size for _, _, size in expired_rows))
    return len(expired_rows)


def _take_expired(rows: Iterable[tuple[Any, ...]], before: str) -> Iterator[tuple[Any, ...]]:
    for row in rows:
        if row[1] >= before:
            return
        yield row


def is_expired(statements: Statements, store: DataStore, app_id: str, before: str) -> bool:
    """Returns whether the oldest change is older than a moment."""
    oldest = statements.rows(f"SELECT at FROM {store.name_table(app_id, '_changes')} ORDER BY id LIMIT 1")
    return bool(oldest and oldest[0][0] < before)
