"""One tier: a SQLite file of entries and their usage per space."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import apsw

from baobab.storage.kv.engine import Usage

# `bytes` and `keys` of usage count every stored entry, also expired ones. Readers of live totals subtract those, which
# is why the index begins with the space. `arrival` counts the groups that moved keys from the ephemeral tier to the
# durable one: if it is higher in a reader's view of the ephemeral file, the reader may have missed a moved key.
# `frozen` is used only in the durable file, which every writer locks first.
SCHEMA = """
CREATE TABLE IF NOT EXISTS entry (
    space TEXT NOT NULL,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    expires INTEGER,
    window INTEGER,
    PRIMARY KEY (space, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS entry_expiry ON entry (space, expires) WHERE expires IS NOT NULL;
CREATE TABLE IF NOT EXISTS usage (
    space TEXT PRIMARY KEY,
    keys INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS frozen (space TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS arrival (count INTEGER NOT NULL);
INSERT INTO arrival SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM arrival);
"""


class Row(NamedTuple):
    """`expires` is epoch milliseconds; `window` is the ttl in seconds that was set last. Both are None for never."""

    value: bytes
    expires: int | None
    window: int | None


class Change(NamedTuple):
    space: str
    key: str
    before: Row | None
    after: Row | None


class TierFile:
    """The writing side of a tier. Not thread-safe: the writer's thread owns it."""

    def __init__(self, path: Path, synchronous: str, busy_timeout: float) -> None:
        self.connection = apsw.Connection(str(path))
        self.connection.set_busy_timeout(int(busy_timeout * 1000))
        self._cursor = self.connection.cursor()
        self._cursor.execute(f"PRAGMA synchronous={synchronous}")

    def close(self) -> None:
        self.connection.close()

    def begin(self) -> None:
        self._cursor.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        self._cursor.execute("COMMIT")

    def rollback(self) -> None:
        # After some errors, such as a full disk, SQLite has already rolled back. If it cannot roll back now, the next
        # BEGIN fails and leads here again.
        if self.connection.in_transaction:
            with contextlib.suppress(apsw.Error):
                self._cursor.execute("ROLLBACK")

    def row(self, space: str, key: str) -> Row | None:
        rows = self._ask("SELECT value, expires, window FROM entry WHERE space = ? AND key = ?", (space, key))
        return Row._make(rows[0]) if rows else None

    def usage(self, space: str) -> Usage:
        rows = self._ask("SELECT keys, bytes FROM usage WHERE space = ?", (space,))
        return Usage(*rows[0]) if rows else Usage(0, 0)

    def save(self, changes: Iterable[Change]) -> None:
        """Writes rows and, from the same changes, the usage of their spaces."""
        deltas: dict[str, Usage] = {}
        value_updates: list[tuple[bytes, str, str]] = []
        upserts: list[tuple[str, str, bytes, int | None, int | None]] = []
        removed_places: list[tuple[str, str]] = []
        for space, key, before, after in changes:
            keys, size = deltas.get(space, (0, 0))
            if before is not None:
                keys, size = keys - 1, size - len(key) - len(before.value)
            if after is None:
                removed_places.append((space, key))
            else:
                keys, size = keys + 1, size + len(key) + len(after.value)
                if before is not None and before[1:] == after[1:]:
                    # Leaves the expiry index alone, which an upsert would rewrite.
                    value_updates.append((after.value, space, key))
                else:
                    upserts.append((space, key, *after))
            deltas[space] = Usage(keys, size)
        if value_updates:
            self._cursor.executemany("UPDATE entry SET value = ? WHERE space = ? AND key = ?", value_updates)
        if upserts:
            self._cursor.executemany(
                "INSERT INTO entry (space, key, value, expires, window) VALUES (?, ?, ?, ?, ?)"
                " ON CONFLICT DO UPDATE"
                " SET value = excluded.value, expires = excluded.expires, window = excluded.window",
                upserts,
            )
        if removed_places:
            self._cursor.executemany("DELETE FROM entry WHERE space = ? AND key = ?", removed_places)
        for space, delta in deltas.items():
            if delta != (0, 0):
                self._grow(space, delta)

    def remove_expired(self, space: str, now: int) -> None:
        keys, size = self._ask(
            "SELECT count(*), coalesce(sum(length(key) + length(value)), 0)"
            " FROM entry WHERE space = ? AND expires <= ?",
            (space, now),
        )[0]
        if keys:
            self._cursor.execute("DELETE FROM entry WHERE space = ? AND expires <= ?", (space, now))
            self._grow(space, Usage(-keys, -size))

    def remove_some_expired(self, now: int, limit: int) -> list[tuple[str, str]]:
        """Removes at most `limit` expired entries of any space; returns their spaces and keys."""
        rows = self._ask(
            "SELECT entry.space, entry.key, length(entry.key) + length(entry.value)"
            " FROM usage CROSS JOIN entry ON entry.space = usage.space WHERE entry.expires <= ? LIMIT ?",
            (now, limit),
        )
        removed_places = [(space, key) for space, key, _ in rows]
        self._cursor.executemany("DELETE FROM entry WHERE space = ? AND key = ?", removed_places)
        sizes: dict[str, list[int]] = {}
        for space, _, size in rows:
            sizes.setdefault(space, []).append(size)
        for space, removed_sizes in sizes.items():
            self._grow(space, Usage(-len(removed_sizes), -sum(removed_sizes)))
        return removed_places

    def remove_all(self, space: str) -> None:
        self._cursor.execute("DELETE FROM entry WHERE space = ?", (space,))
        self._cursor.execute("DELETE FROM usage WHERE space = ?", (space,))

    def is_frozen(self, space: str) -> bool:
        return bool(self._ask("SELECT 1 FROM frozen WHERE space = ?", (space,)))

    def freeze(self, space: str) -> None:
        self._cursor.execute("INSERT OR IGNORE INTO frozen VALUES (?)", (space,))

    def thaw(self, space: str) -> None:
        self._cursor.execute("DELETE FROM frozen WHERE space = ?", (space,))

    def count_arrival(self) -> int:
        count: int = self._ask("UPDATE arrival SET count = count + 1 RETURNING count", ())[0][0]
        return count

    def note_arrival(self, count: int) -> None:
        self._cursor.execute("UPDATE arrival SET count = max(count, ?)", (count,))

    def _ask(self, statement: str, bindings: tuple[str | int, ...]) -> list[tuple[Any, ...]]:
        return self._cursor.execute(statement, bindings).fetchall()

    def _grow(self, space: str, delta: Usage) -> None:
        self._cursor.execute(
            "INSERT INTO usage (space, keys, bytes) VALUES (?, ?, ?)"
            " ON CONFLICT DO UPDATE SET keys = keys + excluded.keys, bytes = bytes + excluded.bytes",
            (space, *delta),
        )
        if delta.keys < 0:
            self._cursor.execute("DELETE FROM usage WHERE space = ? AND keys = 0", (space,))
