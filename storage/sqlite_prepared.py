"""Statements in the form of SQLite's driver. SQLAlchemy compiles each of them once.

Executing a short statement through SQLAlchemy takes several times as long as SQLite needs to run it.
"""

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Insert, Row, Update
from sqlalchemy.engine.result import result_tuple
from sqlalchemy.exc import DBAPIError

_MOST_SHAPES = 16
"""The most sets of column names that are kept for one statement."""


class PreparedWrite:
    """One statement for rows that all have the same columns."""

    __slots__ = ("_values", "text")

    def __init__(self, text: str, values: list[tuple[str, Any, Callable[[Any], Any] | None]]) -> None:
        """values: the name of each placeholder, its value if the row does not have one, and its encoder."""
        self.text = text
        self._values = values

    def bind(self, row: Mapping[str, Any]) -> list[Any]:
        return [
            row.get(name, default) if encode is None else encode(row.get(name, default))
            for name, default, encode in self._values
        ]


_prepared: WeakKeyDictionary[Any, dict[frozenset[str], PreparedWrite | None]] = WeakKeyDictionary()


def prepare_write(dialect: Dialect, statement: Any, row: Any) -> PreparedWrite | None:
    """Returns the prepared form of a statement, for rows with the names of this one; None if only SQLAlchemy can run
    it: it is not an insert or update, it returns something, or SQLAlchemy computes a value of it.

    statement: should be built once. Preparing a statement that is built for each call gains nothing.
    """
    if not isinstance(statement, (Insert, Update)) or type(row) is not dict:
        return None
    shapes = _prepared.get(statement)
    if shapes is None:
        shapes = _prepared[statement] = {}
    names = frozenset(row)
    if names not in shapes:
        if len(shapes) >= _MOST_SHAPES:
            return None
        shapes[names] = _compile(dialect, statement, names)
    return shapes[names]


def _compile(dialect: Dialect, statement: Any, names: frozenset[str]) -> PreparedWrite | None:
    compiled = statement.compile(dialect=dialect, column_keys=sorted(names))
    is_left_to_it = compiled.insert_prefetch or compiled.update_prefetch or compiled.post_compile_params
    if is_left_to_it or compiled.literal_execute_params or compiled.effective_returning or not compiled.positional:
        return None
    defaults = compiled.construct_params(_check=False)
    values = []
    for name in compiled.positiontup:
        required = compiled.binds[name].required or compiled.binds[name].callable is not None
        if name not in names and required:
            return None
        values.append((name, defaults.get(name), compiled._bind_processors.get(name)))  # noqa: SLF001 - no other way
    return PreparedWrite(compiled.string, values)


class PreparedQuery:
    """One query, whose results are rows of SQLAlchemy."""

    __slots__ = ("_build_row", "_decoders", "_encoders", "_fixed", "_text")

    def __init__(
        self,
        text: str,
        fixed: Mapping[str, Any],
        encoders: list[tuple[str, Callable[[Any], Any] | None]],
        decoders: list[tuple[str, Callable[[Any], Any] | None]],
    ) -> None:
        """fixed: the values in the statement itself. encoders: the name of each placeholder with its encoder.
        decoders: the name of each column with its decoder.
        """
        self._text = text
        self._fixed = fixed
        self._encoders = encoders
        self._build_row = result_tuple([name for name, _ in decoders])
        self._decoders = [(place, decode) for place, (_, decode) in enumerate(decoders) if decode is not None]

    def run(self, connection: sqlite3.Connection, values: Mapping[str, Any]) -> Sequence[Row[Any]]:
        parameters = {**self._fixed, **values}
        bound = [parameters[name] if encode is None else encode(parameters[name]) for name, encode in self._encoders]
        try:
            rows = sqlite3.Cursor(connection).execute(self._text, bound).fetchall()
        except sqlite3.Error as exc:
            raise DBAPIError.instance(self._text, None, exc, sqlite3.Error, hide_parameters=True) from exc
        return [self._decode(list(row)) for row in rows]

    def _decode(self, row: list[Any]) -> Row[Any]:
        for place, decode in self._decoders:
            row[place] = decode(row[place])
        built: Row[Any] = self._build_row(row)
        return built


_queries: WeakKeyDictionary[Any, PreparedQuery | None] = WeakKeyDictionary()


def prepare_query(dialect: Dialect, statement: Any) -> PreparedQuery | None:
    """Returns the prepared form of a query; None if only SQLAlchemy can run it, because it has a list of values.

    statement: should be built once. Preparing a statement that is built for each call gains nothing.
    """
    try:
        return _queries[statement]
    except KeyError:
        prepared = _queries[statement] = _compile_query(dialect, statement)
        return prepared


def _compile_query(dialect: Dialect, statement: Any) -> PreparedQuery | None:
    compiled = statement.compile(dialect=dialect)
    if compiled.post_compile_params or compiled.literal_execute_params or not compiled.positional:
        return None
    binds, encode = compiled.binds, compiled._bind_processors  # noqa: SLF001 - no other way
    columns = compiled._result_columns  # noqa: SLF001 - no other way
    if any(bind.callable is not None for bind in binds.values()):
        return None
    return PreparedQuery(
        compiled.string,
        {name: bind.value for name, bind in binds.items() if not bind.required},
        [(name, encode.get(name)) for name in compiled.positiontup],
        [
            (column.keyname, column.type._cached_result_processor(dialect, None))  # noqa: SLF001 - no other way
            for column in columns
        ],
    )
