"""Runs the query of a statement, confined, and returns its rows."""

import json
import math
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy.exc import DBAPIError

from baobab.storage.data.store import DataStore
from baobab.storage.sql.confinement import NAMED, Confinement
from baobab.storage.sql.statements import ByteBudget, RowsTooLarge, Statements
from baobab.tools.core import BaobabError
from baobab.tools.data.errors import SqlInvalid, SqlNotAllowed, SqlTooLarge
from baobab.tools.data.fields import MOST_ROWS
from baobab.tools.data.sql.pieces import Piece, compose
from baobab.tools.data.sql.queries import PREFIX, SQLITE_FUNCTIONS, Output, QueryWriter

READ_SECONDS = 5.0
MOST_BYTES = 8 * 2**20
LONGEST_VALUE = 4 * 2**20
"""Bytes of a value on the way to a result, on SQLite. What a table holds is shorter."""
_BATCH = 8
"""Rows that may be in memory beside those that are counted."""
_SQLITE_REFUSALS = {
    sqlite3.SQLITE_ERROR,
    sqlite3.SQLITE_TOOBIG,
    sqlite3.SQLITE_MISMATCH,
    sqlite3.SQLITE_RANGE,
}
_OUTDATED = ("no such table", "no such column")
_POSTGRES_REFUSALS = ("21", "22", "42", "54", "0A", "53400")
_OUTDATED_STATES = ("42P01", "42703", "3F000")

Row = tuple[Any, ...]
Identify = Callable[[float], tuple[str, Sequence[Any]] | None]
"""Returns the statement that takes on the caller's role on Postgres, for so many seconds; None on SQLite."""


class _Bounds(ByteBudget):
    """The number of rows and bytes that a result may have."""

    def __init__(self) -> None:
        super().__init__(MOST_BYTES)
        self._rows = 0

    def take(self, row: Row) -> None:
        self._rows += 1
        if self._rows > MOST_ROWS:
            raise SqlTooLarge(
                f"The result has more than {MOST_ROWS} rows.", details={"limit": MOST_ROWS, "limit_bytes": MOST_BYTES}
            )
        super().take(row)


@dataclass(frozen=True, slots=True)
class Reader:
    """Runs queries in one transaction, as one caller."""

    statements: Statements
    store: DataStore
    identify: Identify
    seconds: float = READ_SECONDS

    def read(self, writer: QueryWriter, query: Piece, outputs: Sequence[Output]) -> list[list[Any]]:
        """Returns the rows of a query as the API shows them.

        query: as the writer has written it, without the subqueries of its tables.
        """
        is_sqlite = self.store.dialect == "sqlite"
        whole = writer.place_tables(query if is_sqlite else _show_on_postgres(query, outputs))
        rows = self._run(writer, whole)
        if is_sqlite:
            return [_decode(row, outputs) for row in rows]
        return [_decode_json(text, outputs) for (text,) in rows]

    def _run(self, writer: QueryWriter, query: Piece) -> list[Row]:
        confinement = Confinement(
            PREFIX,
            writer.tables,
            frozenset(writer.counted),
            SQLITE_FUNCTIONS,
            self.seconds,
            LONGEST_VALUE,
            self.identify(self.seconds),
        )
        try:
            with self.statements.confine(confinement):
                return self.statements.rows_within(_Bounds(), _BATCH, query.text, *query.values)
        except RowsTooLarge as exc:
            raise SqlTooLarge(
                f"The result has more than {MOST_BYTES} bytes.",
                details={"limit": MOST_ROWS, "limit_bytes": MOST_BYTES},
            ) from exc
        except (sqlite3.Error, DBAPIError) as exc:
            refusal = _translate(exc)
            if refusal is None:
                raise
            raise refusal from exc


def _show_on_postgres(query: Piece, outputs: Sequence[Output]) -> Piece:
    """Writes each row as one JSON object, in which the values of known types have the form of the API."""
    names = [f"_c{number}" for number in range(len(outputs))]
    shown_items = [
        f"{name if output.kind is None else output.kind.show(name, 'postgresql')} AS {name}"
        for name, output in zip(names, outputs, strict=True)
    ]
    template = (
        f"SELECT row_to_json(_s)::text FROM (SELECT {', '.join(shown_items).replace('{', '{{').replace('}', '}}')} "
    )
    template += f"FROM ({{}}) AS _r({', '.join(names)})) AS _s"
    return compose(template, query)


def _decode_json(text: str, outputs: Sequence[Output]) -> list[Any]:
    values = json.loads(text).values()
    decoders = [None if output.kind is None else output.kind.decoder("postgresql") for output in outputs]
    return [
        decode(value) if decode is not None and value is not None else value
        for decode, value in zip(decoders, values, strict=True)
    ]


def _decode(row: Row, outputs: Sequence[Output]) -> list[Any]:
    values: list[Any] = []
    for value, output in zip(row, outputs, strict=True):
        kind = output.kind
        if isinstance(value, bytes) and (kind is None or kind.name != "vector"):
            values.append(f"\\x{value.hex()}")
            continue
        if isinstance(value, float) and not math.isfinite(value):
            raise SqlInvalid("A number of the result is too large.")
        decode = None if kind is None else kind.decoder("sqlite")
        values.append(decode(value) if decode is not None and value is not None else value)
    return values


def _translate(error: sqlite3.Error | DBAPIError) -> BaobabError | None:
    """Returns the refusal that an error of a database means; None for one that is no fault of the statement."""
    cause: Any = error.orig if isinstance(error, DBAPIError) else error
    reason = str(cause).strip().partition("\n")[0].replace(PREFIX, "").replace(NAMED, "")[:300]
    state = getattr(cause, "sqlstate", None)
    code = getattr(cause, "sqlite_errorcode", 0) & 0xFF
    if state in _OUTDATED_STATES or reason.startswith(_OUTDATED):
        return None
    if state == "42501" or code == sqlite3.SQLITE_AUTH:
        return SqlNotAllowed("The statement reaches for something that is not the app's own.")
    if code == sqlite3.SQLITE_TOOBIG:
        return SqlTooLarge(f"A value on the way to the result has more than {LONGEST_VALUE} bytes.")
    if code in _SQLITE_REFUSALS or (state or "").startswith(_POSTGRES_REFUSALS):
        return SqlInvalid(f"The database does not run the statement: {reason}.")
    return None
