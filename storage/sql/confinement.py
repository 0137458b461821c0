"""The walls around a statement that was written from the text of a stranger.

The text itself never reaches a database (tools/data/sql/): these walls hold what a mistake in the code that writes the
statement anew would let through.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from baobab.storage.sql.deadline import Deadline

NAMED = "w:"
"""The prefix of the names of all other subqueries. No table has such a name."""
_READS = {sqlite3.SQLITE_SELECT, sqlite3.SQLITE_RECURSIVE}


@dataclass(frozen=True, slots=True)
class Confinement:
    """What one statement may use.

    prefix: of the names of the subqueries in which alone a table is read; nobody else can know it. tables: that are
    read there. counted: tables of which the caller sees all rows or none, so that they may be counted elsewhere too,
    where SQLite has joined a subquery with what is around it. functions: that it may call. seconds: how long it may
    run. longest: the most bytes of a value on the way to its result. identity: a statement of Postgres, with its
    values, that takes on a role.

    On SQLite an authorizer holds the names; on Postgres the role does.
    """

    prefix: str
    tables: frozenset[str]
    counted: frozenset[str]
    functions: frozenset[str]
    seconds: float
    longest: int
    identity: tuple[str, Sequence[Any]] | None = None

    def authorise(self, action: int, first: str | None, second: str | None, _: str | None, inside: str | None) -> int:
        """Decides for SQLite on one thing that a statement would do.

        inside: the named subquery in which it does it.
        """
        if action == sqlite3.SQLITE_READ:
            is_allowed = self._may_read(first or "", second, inside or "")
        else:
            is_allowed = action in _READS or (
                action == sqlite3.SQLITE_FUNCTION and (second or "").lower() in self.functions
            )
        return sqlite3.SQLITE_OK if is_allowed else sqlite3.SQLITE_DENY

    def _may_read(self, table: str, column: str | None, inside: str) -> bool:
        if table in self.tables and inside.startswith(self.prefix):
            return True
        # Of what is only counted, SQLite names no column, and a subquery like a table.
        return not column and (table in self.counted or table.startswith((self.prefix, NAMED)))


@contextmanager
def confine_on_sqlite(connection: sqlite3.Connection, deadline: Deadline, confinement: Confinement) -> Iterator[None]:
    """Confines the statements of a connection while the context is open."""
    longest = connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, confinement.longest)
    # SQLite compiles every statement anew after this, also one that it has kept.
    connection.set_authorizer(confinement.authorise)
    try:
        with deadline.narrow(confinement.seconds):
            yield
    finally:
        connection.set_authorizer(None)
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, longest)
