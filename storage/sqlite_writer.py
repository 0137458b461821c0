"""A separate SQLite connection for fast transactions, which shares the write lock with other writers."""

import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy.exc import IntegrityError

from baobab.storage.database import DatabaseBusy, DatabaseUnavailable
from baobab.storage.sqlite import on_connect

T = TypeVar("T")


class SqliteWriter:
    """Used by one thread at a time: `acquire_lock`, then `run`, then `release_lock`."""

    def __init__(self, path: Path, **pragmas: object) -> None:
        self._lock_file = os.open(path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT, 0o600)
        self._synchronous = "FULL"
        try:
            self._connection = sqlite3.connect(path, check_same_thread=False)
            on_connect(self._connection, None)
            for name, value in pragmas.items():
                self._connection.execute(f"PRAGMA {name}={value}")
        except sqlite3.Error as exc:
            os.close(self._lock_file)
            raise _translate_error(exc) from exc

    def acquire_lock(self, *, wait: bool) -> bool:
        """Acquires the write lock and returns whether it is held now; without `wait` only if it is free."""
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release_lock(self) -> None:
        fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def run(self, work: "Callable[[SqliteWriter], T]", *, durable: bool) -> T:
        """Commits and returns the result of `work`, or rolls back and raises what it raised.

        durable: whether the transaction must be on disk before this returns. Raises DatabaseBusy, DatabaseUnavailable.
        """
        execute = self._connection.execute
        synchronous = "FULL" if durable else "NORMAL"
        try:
            if synchronous != self._synchronous:
                execute(f"PRAGMA synchronous={synchronous}")
                self._synchronous = synchronous
            execute("BEGIN IMMEDIATE")
            try:
                result = work(self)
                execute("COMMIT")
            except BaseException:
                # SQLite rolls back by itself after some errors, such as a full disk.
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError as exc:
            # Callers handle SQLAlchemy's IntegrityError.
            raise IntegrityError(None, None, exc) from exc
        except sqlite3.Error as exc:
            raise _translate_error(exc) from exc
        return result

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        return self._connection.execute(*bind_values(text, values)).fetchall()

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        self._connection.executemany(text, map(encode_values, rows))

    def close(self) -> None:
        self._connection.close()
        os.close(self._lock_file)


def _translate_error(error: sqlite3.Error) -> DatabaseUnavailable:
    # Errors of the Python module have no code; the lower byte of a code is the primary error.
    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    return (DatabaseBusy if busy else DatabaseUnavailable)(type(error).__name__, str(error))


def bind_values(text: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Returns a statement (see storage/transactions.py) and its values in SQLite's form."""
    lists = tuple([_count_placeholders(len(value)) for value in values if type(value) is list])
    return _expand_lists(text, lists), encode_values(values)


@cache
def _expand_lists(text: str, lists: tuple[int, ...]) -> str:
    """Adds a placeholder for each value of the lists, and removes the row lock: a writer has the whole file."""
    for placeholders in lists:
        text = text.replace("IN ?", f"IN ({', '.join('?' * placeholders)})", 1)
    return text.replace(" FOR NO KEY UPDATE OF locked", "")


def _count_placeholders(length: int) -> int:
    """Returns the number of placeholders, a power of two, so that there are few different statements to compile."""
    return 1 << (length - 1).bit_length() if length else 0


def encode_values(values: Iterable[Any]) -> list[Any]:
    """Returns the values as SQLite stores them."""
    encoded: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            encoded.append(value)
        elif kind is list:
            # Repeats the last value in the remaining placeholders.
            encoded += value + value[-1:] * (_count_placeholders(len(value)) - len(value))
        else:
            encode = _KEPT.get(kind)
            encoded.append(encode(value) if encode else value)
    return encoded


def _encode_instant(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


# Most values are of these types, which need no conversion.
_AS_THEY_ARE = frozenset((str, int, type(None)))
_KEPT: dict[type, Callable[[Any], str]] = {datetime: _encode_instant, date: date.isoformat}
"""How column types store what SQLite has no type for (storage/tables.py). Instants sort like their texts."""
