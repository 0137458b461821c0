"""Statements as text, for transactions that are made hundreds of times a second (`Database.transact`).

SQLAlchemy needs several times as long to build and compile a short statement as SQLite needs to run it.
"""

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime
from functools import lru_cache
from typing import Any, Protocol

from baobab.storage.sql.confinement import Confinement, confine_on_sqlite
from baobab.storage.sql.deadline import Deadline


class Statements(Protocol):
    """Runs the statements of one transaction, in Postgres's SQL with two exceptions: `?` is a value, and `IN ?` a list
    of texts.

    `FOR NO KEY UPDATE OF locked` locks the rows of the table with the alias `locked`, where the database locks rows.
    Days and instants are given as `date` and `datetime`, and come back as the database stores them.
    """

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Runs a statement and returns its rows, or those of its RETURNING clause."""

    def rows_within(self, budget: "ByteBudget", batch: int, text: str, *values: Any) -> list[tuple[Any, ...]]:
        """Returns the rows of a statement, as `rows` does, and charges their size to the budget. Raises RowsTooLarge as
        soon as it is used up, with at most `batch` rows more in memory.
        """
        ...

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        """Runs the same statement for each row of values."""
        ...

    def insert_many(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        """Inserts rows, on a server with one statement. No two of them may have the same key.

        text: an INSERT of one row. Its error is raised by this, by the next statement, or by the commit.
        """
        ...

    def become(self, identity: tuple[str, Sequence[Any]] | None) -> None:
        """Runs the following statements with another identity: a statement, with its values, that sets it. None for the
        database's own user.
        """
        ...

    def confine(self, confinement: Confinement) -> AbstractContextManager[None]:
        """Confines the statements that run while the context is open. They only read."""
        ...


class RowsTooLarge(Exception):
    """The rows of a statement exceed their budget of bytes."""


class ByteBudget:
    """The number of bytes, of texts and binary values, that may still be read."""

    def __init__(self, bytes_left: int) -> None:
        self.remaining_bytes = bytes_left

    def take(self, row: tuple[Any, ...]) -> None:
        """Subtracts the size of a row. Raises RowsTooLarge if less is left."""
        self.remaining_bytes -= sum([len(value) for value in row if type(value) is str or type(value) is bytes])
        if self.remaining_bytes < 0:
            raise RowsTooLarge


class SqliteStatements:
    def __init__(self, connection: sqlite3.Connection, deadline: Deadline) -> None:
        self._connection = connection
        self._deadline = deadline

    def rows(self, text: str, *values: Any) -> list[tuple[Any, ...]]:
        try:
            rows = sqlite3.Cursor(self._connection).execute(*_bind_values(text, values)).fetchall()
        except sqlite3.OperationalError as error:
            self._name_stop(error)
            raise
        self._require_end()
        return rows

    def rows_within(self, budget: ByteBudget, batch: int, text: str, *values: Any) -> list[tuple[Any, ...]]:
        del batch
        rows: list[tuple[Any, ...]] = []
        try:
            for row in sqlite3.Cursor(self._connection).execute(*_bind_values(text, values)):
                budget.take(row)
                rows.append(row)
        except sqlite3.OperationalError as error:
            self._name_stop(error)
            raise
        self._require_end()
        return rows

    def execute_many(self, text: str, rows: Iterable[Sequence[Any]]) -> None:
        try:
            sqlite3.Cursor(self._connection).executemany(text, map(_encode_values, rows))
        except sqlite3.OperationalError as error:
            self._name_stop(error)
            raise

    def _require_end(self) -> None:
        """Raises an error if a call was stopped that could not fail itself."""
        if self._deadline.has_stopped_a_call:
            error = sqlite3.OperationalError("a comparison took too long")
            self._name_stop(error)
            raise error

    def _name_stop(self, error: sqlite3.OperationalError) -> None:
        """Gives the error of a statement whose function was stopped the code of a statement that SQLite has stopped."""
        if self._deadline.has_stopped_a_call:
            self._deadline.has_stopped_a_call = False
            error.sqlite_errorcode, error.sqlite_errorname = sqlite3.SQLITE_INTERRUPT, "SQLITE_INTERRUPT"

    def insert_many(self, text: str, rows: Sequence[Sequence[Any]]) -> None:
        self.execute_many(text, rows)

    def become(self, identity: tuple[str, Sequence[Any]] | None) -> None:
        if identity is not None:
            raise NotImplementedError("SQLite has no users")

    def confine(self, confinement: Confinement) -> AbstractContextManager[None]:
        return confine_on_sqlite(self._connection, self._deadline, confinement)


def _bind_values(text: str, values: Sequence[Any]) -> tuple[str, list[Any]]:
    """Returns a statement and its values in SQLite's form."""
    lists = tuple([_count_placeholders(len(value)) for value in values if type(value) is list])
    return _expand_lists(text, lists), _encode_values(values)


@lru_cache(maxsize=4096)
def _expand_lists(text: str, lists: tuple[int, ...]) -> str:
    """Adds a placeholder for each value of the lists, and removes the row lock: a writer has the whole file."""
    for placeholders in lists:
        text = text.replace("IN ?", f"IN ({', '.join('?' * placeholders)})", 1)
    return text.replace(" FOR NO KEY UPDATE OF locked", "")


def _count_placeholders(length: int) -> int:
    """Returns the number of placeholders, a power of two, so that there are few different statements to compile."""
    return 1 << (length - 1).bit_length() if length else 0


def _encode_values(values: Iterable[Any]) -> list[Any]:
    """Returns the values as SQLite stores them."""
    encoded_values: list[Any] = []
    for value in values:
        kind = type(value)
        if kind in _AS_THEY_ARE:
            encoded_values.append(value)
        elif kind is list:
            # Repeats the last value in the remaining placeholders.
            encoded_values += value + value[-1:] * (_count_placeholders(len(value)) - len(value))
        else:
            encode = _KEPT.get(kind)
            encoded_values.append(encode(value) if encode else value)
    return encoded_values


def _encode_instant(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(" ", "microseconds")


# Most values are of these types, which need no conversion.
_AS_THEY_ARE = frozenset((str, int, type(None)))
_KEPT: dict[type, Callable[[Any], str]] = {datetime: _encode_instant, date: date.isoformat}
"""How column types store values that SQLite has no type for (storage/sql/tables.py). Instants sort like their texts."""
