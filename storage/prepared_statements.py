"""Statements in the form of the database's driver. SQLAlchemy compiles each of them once.

Executing a short statement through SQLAlchemy takes several times as long as the driver needs for it.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Insert, Row, Update
from sqlalchemy.engine.result import SimpleResultMetaData

_Encoders = list[tuple[str, Callable[[Any], Any] | None]]

_MOST_SHAPES = 16
"""The most sets of column names that are kept for one statement."""


class PreparedWrite:
    """One statement for rows that all have the same columns."""

    __slots__ = ("_defaults", "_encoders", "_names", "text")

    def __init__(self, text: str, values: list[tuple[str, Any, Callable[[Any], Any] | None]]) -> None:
        """values: the name of each placeholder, its value if the row does not have one, and its encoder."""
        self.text = text
        self._names = [name for name, _, _ in values]
        self._defaults = [default for _, default, _ in values]
        self._encoders = [(place, encode) for place, (_, _, encode) in enumerate(values) if encode is not None]

    def bind(self, row: Mapping[str, Any]) -> list[Any]:
        bound_values = [*map(row.get, self._names, self._defaults)]
        for place, encode in self._encoders:
            bound_values[place] = encode(bound_values[place])
        return bound_values


class PreparedQuery:
    """One query, whose results are rows of SQLAlchemy."""

    __slots__ = ("_build_row", "_dialect", "_encoders", "_fixed_values", "_names", "_types", "text")

    def __init__(
        self, dialect: Dialect, text: str, fixed_values: Mapping[str, Any], encoders: _Encoders, columns: Sequence[Any]
    ) -> None:
        """fixed_values: the values in the statement itself. encoders: the name of each placeholder with its encoder.
        columns: what SQLAlchemy has compiled for each column.
        """
        self.text = text
        self._dialect = dialect
        self._fixed_values = fixed_values
        self._encoders = encoders
        self._names = [column.keyname for column in columns]
        self._types = [column.type for column in columns]
        self._build_row: Callable[[Sequence[Any]], Row[Any]] | None = None

    def bind(self, values: Mapping[str, Any]) -> list[Any]:
        parameters = {**self._fixed_values, **values} if self._fixed_values else values
        return [parameters[name] if encode is None else encode(parameters[name]) for name, encode in self._encoders]

    def build_rows(self, rows: Sequence[Sequence[Any]], description: Sequence[Any] | None) -> Sequence[Row[Any]]:
        """Returns the rows of a result.

        description: what DB-API says of its columns; None if the driver does not know their types.
        """
        if self._build_row is None:
            self._build_row = self._prepare_rows(description)
        return [*map(self._build_row, rows)]

    def _prepare_rows(self, description: Sequence[Any] | None) -> Callable[[Sequence[Any]], Row[Any]]:
        decoders: list[Any] = [
            column_type._cached_result_processor(  # noqa: SLF001 - no other way
                self._dialect, None if description is None else description[place][1]
            )
            for place, column_type in enumerate(self._types)
        ]
        parent = SimpleResultMetaData(self._names)
        # Without any decoder, a row keeps the driver's tuple as it is.
        return partial(Row, parent, decoders if any(decoders) else None, parent._key_to_index)  # noqa: SLF001 - no other way


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
            prepared_query = self._queries[statement] = _compile_query(self._dialect, statement)
            return prepared_query


def _compile_write(dialect: Dialect, statement: Any, names: frozenset[str]) -> PreparedWrite | None:
    compilation = statement.compile(dialect=dialect, column_keys=sorted(names))
    is_left_to_it = compilation.insert_prefetch or compilation.update_prefetch or compilation.post_compile_params
    if (
        is_left_to_it
        or compilation.literal_execute_params
        or compilation.effective_returning
        or not compilation.positional
    ):
        return None
    defaults = compilation.construct_params(_check=False)
    values = []
    for name in compilation.positiontup:
        is_required = compilation.binds[name].required or compilation.binds[name].callable is not None
        if name not in names and is_required:
            return None
        values.append((name, defaults.get(name), compilation._bind_processors.get(name)))  # noqa: SLF001 - no other way
    return PreparedWrite(compilation.string, values)


def _compile_query(dialect: Dialect, statement: Any) -> PreparedQuery | None:
    compilation = statement.compile(dialect=dialect)
    if compilation.post_compile_params or compilation.literal_execute_params or not compilation.positional:
        return None
    binds, encode = compilation.binds, compilation._bind_processors  # noqa: SLF001 - no other way
    if any(bind.callable is not None for bind in binds.values()):
        return None
    return PreparedQuery(
        dialect,
        compilation.string,
        {name: bind.value for name, bind in binds.items() if not bind.required},
        [(name, encode.get(name)) for name in compilation.positiontup],
        compilation._result_columns,  # noqa: SLF001 - no other way
    )
