"""A connection of one's own to the file of rows, with a place among those who take turns at writing."""

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
    """Used by one thread at a time. `take` the turn, `run` what is to be done, `give` the turn back."""

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
        """Whether the turn is ours now; without `wait` only where it is free."""
        try:
            fcntl.flock(self._lock_file, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def release_lock(self) -> None:
        fcntl.flock(self._lock_file, fcntl.LOCK_UN)

    def run(self, work: "Callable[[SqliteWriter], T]", *, durable: bool) -> T:
        """The work's result, committed; what it raised, with nothing left; Busy, DatabaseUnavailable.

        durable: whether the disk must have it before this returns.
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
                # The database may have done it by itself: when the disk is full, for one.
                if self._connection.in_transaction:
                    execute("ROLLBACK")
                raise
        except sqlite3.IntegrityError as exc:
            # As SQLAlchemy has it, for that is what callers know.
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
    # What the module itself refuses has no code; the lower byte of a code is its kind.
    busy = getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY
    return (DatabaseBusy if busy else DatabaseUnavailable)(type(error).__name__, str(error))


def bind_values(text: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """A statement (storage/transactions.py) and its values, as SQLite takes them."""
    lists = tuple([_count_placeholders(len(value)) for value in values if type(value) is list])
    return _expand_lists(text, lists), encode_values(values)


@cache
def _expand_lists(text: str, lists: tuple[int, ...]) -> str:
    """The text with a place for each value of its lists, and without a lock: whoever writes has the whole file."""
    for placeholders in lists:
        text = text.replace("IN ?", f"IN ({', '.join('?' * placeholders)})", 1)
    return text.replace(" FOR NO KEY UPDATE OF locked", "")


def _count_placeholders(length: int) -> int:
    """Places for so many values: few texts, so that each is read by the database once."""
    return 1 << (length - 1).bit_length() if length else 0


def encode_values(values: Iterable[Any]) -> list[Any]:
    """Values as SQLite keeps them."""
    found: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            found.append(value)
        elif kind is list:
            # The last one again, into the places that are left.
            found += value + value[-1:] * (_count_placeholders(len(value)) - len(value))
        else:
            kept = _KEPT.get(kind)
            found.append(kept(value) if kept else value)
    return found


def _encode_instant(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


# Most values, told apart at once.
_AS_THEY_ARE = frozenset((str, int, type(None)))
_KEPT: dict[type, Callable[[Any], str]] = {datetime: _encode_instant, date: date.isoformat}
"""How the types of columns keep what SQLite has no type for (storage/tables.py). Instants sort as their texts do."""
