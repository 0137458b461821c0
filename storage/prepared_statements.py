"""Statements in the form of the database's driver. SQLAlchemy compiles each of them once.

Executing a short statement through SQLAlchemy takes several times as long as the driver needs for it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Insert, Row, Update
from sqlalchemy.engine.result import result_tuple

_Encoders = list[tuple[str, Callable[[Any], Any] | None]]

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


class PreparedQuery:
    """One query, whose results are rows of SQLAlchemy."""

    __slots__ = ("_build_row", "_decoders", "_dialect", "_encoders", "_fixed", "_types", "text")

    def __init__(
        self, dialect: Dialect, text: str, fixed: Mapping[str, Any], encoders: _Encoders, columns: Sequence[Any]
    ) -> None:
        """fixed: the values in the statement itself. encoders: the name of each placeholder with its encoder. columns:
        what SQLAlchemy has compiled for each column.
        """
        self.text = text
        self._dialect = dialect
        self._fixed = fixed
        self._encoders = encoders
        self._build_row = result_tuple([column.keyname for column in columns])
        self._types = [column.type for column in columns]
        self._decoders: list[tuple[int, Callable[[Any], Any]]] | None = None

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        parameters = {**self._fixed, **values} if self._fixed else values
        return [parameters[name] if encode is None else encode(parameters[name]) for name, encode in self._encoders]

    def build_rows(self, rows: Sequence[Sequence[Any]], description: Sequence[Any] | None) -> Sequence[Row[Any]]:
        """Returns the rows of a result.

        description: what DB-API says of its columns; None if the driver does not know their types.
        """
        if self._decoders is None:
            self._decoders = self._find_decoders(description)
        if not self._decoders:
            return [self._build_row(row) for row in rows]
        return [self._decode(list(row), self._decoders) for row in rows]

    def _find_decoders(self, description: Sequence[Any] | None) -> list[tuple[int, Callable[[Any], Any]]]:
        decoders = []
        for place, column_type in enumerate(self._types):
            sent_as = None if description is None else description[place][1]
            decode = column_type._cached_result_processor(self._dialect, sent_as)  # noqa: SLF001 - no other way
            if decode is not None:
                decoders.append((place, decode))
        return decoders

    def _decode(self, row: list[Any], decoders: list[tuple[int, Callable[[Any], Any]]]) -> Row[Any]:
        for place, decode in decoders:
            row[place] = decode(row[place])
        built: Row[Any] = self._build_row(row)
        return built


class PreparedStatements:
    """The statements that one dialect has prepared, as long as they exist. They should be built once: preparing a
    statement that is built for each call gains nothing.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._writes: WeakKeyDictionary[Any, dict[frozenset[str], PreparedWrite | None]] = WeakKeyDictionary()
        self._queries: WeakKeyDictionary[Any, PreparedQuery | None] = WeakKeyDictionary()

    def prepare_write(self, statement: Any, row: Any) -> PreparedWrite | None:
        """Returns the prepared form of a statement, for rows with the names of this one; None if only SQLAlchemy can
        run it: it is not an insert or update, it returns something, or SQLAlchemy computes a value of it.
        """
        if not isinstance(statement, (Insert, Update)) or type(row) is not dict:
            return None
        shapes = self._writes.get(statement)
        if shapes is None:
            shapes = self._writes[statement] = {}
        names = frozenset(row)
        if names not in shapes:
            if len(shapes) >= _MOST_SHAPES:
                return None
            shapes[names] = _compile_write(self._dialect, statement, names)
        return shapes[names]

    def prepare_query(self, statement: Any) -> PreparedQuery | None:
        """Returns the prepared form of a query; None if only SQLAlchemy can run it, because it has a list of values."""
        try:
            return self._queries[statement]
        except KeyError:
            prepared = self._queries[statement] = _compile_query(self._dialect, statement)
            return prepared


def _compile_write(dialect: Dialect, statement: Any, names: frozenset[str]) -> PreparedWrite | None:
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


def _compile_query(dialect: Dialect, statement: Any) -> PreparedQuery | None:
    compiled = statement.compile(dialect=dialect)
    if compiled.post_compile_params or compiled.literal_execute_params or not compiled.positional:
        return None
    binds, encode = compiled.binds, compiled._bind_processors  # noqa: SLF001 - no other way
    if any(bind.callable is not None for bind in binds.values()):
        return None
    return PreparedQuery(
        dialect,
        compiled.string,
        {name: bind.value for name, bind in binds.items() if not bind.required},
        [(name, encode.get(name)) for name in compiled.positiontup],
        compiled._result_columns,  # noqa: SLF001 - no other way
    )
