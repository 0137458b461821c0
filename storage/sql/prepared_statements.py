"""Statements in the form of the database's driver. SQLAlchemy compiles each of them once.

Executing a short statement through SQLAlchemy takes several times as long as the driver needs for it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import CompoundSelect, CursorResult, Dialect, Insert, Row, Select, Update
from sqlalchemy.engine.result import SimpleResultMetaData
from sqlalchemy.exc import MultipleResultsFound, NoResultFound

_MOST_SHAPES = 16
"""The most sets of names of values that are kept for one statement."""


class PreparedResult:
    """The result of a prepared statement. It is read like SQLAlchemy's, which takes longer to build than its rows."""

    __slots__ = ("_rows", "rowcount")

    def __init__(self, rows: list[Any], rowcount: int = -1) -> None:
        """rowcount: how many rows the statement has changed."""
        self._rows = rows
        self.rowcount = rowcount

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def all(self) -> list[Any]:
        return self._rows

    def first(self) -> Any:
        return self._rows[0] if self._rows else None

    def one(self) -> Any:
        if not self._rows:
            raise NoResultFound("No row was found when one was required")
        return self.one_or_none()

    def one_or_none(self) -> Any:
        if len(self._rows) > 1:
            raise MultipleResultsFound("Multiple rows were found when one or none was required")
        return self.first()

    def scalar(self) -> Any:
        return self.scalars().first()

    def scalar_one(self) -> Any:
        return self.scalars().one()

    def scalar_one_or_none(self) -> Any:
        return self.scalars().one_or_none()

    def scalars(self) -> "PreparedResult":
        return PreparedResult([row[0] for row in self._rows])

    def mappings(self) -> "PreparedResult":
        return PreparedResult([row._mapping for row in self._rows])  # noqa: SLF001 - part of its interface


Result = CursorResult[*tuple[Any, ...]] | PreparedResult
"""The result of a statement. Its rows are in memory."""


class PreparedStatement:
    """One statement, for values of the same names."""

    __slots__ = ("_build_row", "_columns", "_defaults", "_dialect", "_encoders", "_names", "text")

    def __init__(
        self,
        dialect: Dialect,
        text: str,
        values: Sequence[tuple[str, Any, Callable[[Any], Any] | None]],
        columns: Sequence[Any],
    ) -> None:
        """values: the name of each placeholder, its value if none is given, and its encoder. columns: what SQLAlchemy
        has compiled for each column of the result.
        """
        self.text = text
        self._dialect = dialect
        self._names = [name for name, _, _ in values]
        self._defaults = [default for _, default, _ in values]
        self._encoders = [(place, encode) for place, (_, _, encode) in enumerate(values) if encode is not None]
        self._columns = columns
        self._build_row: Callable[[Sequence[Any]], Row[*tuple[Any, ...]]] | None = None

    def bind(self, values: Mapping[str, Any] | None) -> list[Any]:
        bound_values = [*map(values.get, self._names, self._defaults)] if values else self._defaults.copy()
        for place, encode in self._encoders:
            bound_values[place] = encode(bound_values[place])
        return bound_values

    def build_result(
        self, rows: Sequence[Sequence[Any]], description: Sequence[Any] | None, rowcount: int
    ) -> PreparedResult:
        """description: what DB-API says of the columns; None if the driver does not know their types."""
        if not self._columns:
            return PreparedResult([], rowcount)
        if self._build_row is None:
            self._build_row = self._prepare_rows(description)
        return PreparedResult([*map(self._build_row, rows)], rowcount)

    def _prepare_rows(self, description: Sequence[Any] | None) -> Callable[[Sequence[Any]], Row[*tuple[Any, ...]]]:
        decoders: list[Any] = [
            column.type._cached_result_processor(  # noqa: SLF001 - no other way
                self._dialect, None if description is None else description[place][1]
            )
            for place, column in enumerate(self._columns)
        ]
        names, objects = zip(*((column.keyname, column.objects) for column in self._columns), strict=True)
        parent = SimpleResultMetaData(names, extra=objects)
        # Without any decoder, a row keeps the driver's tuple as it is.
        return partial(Row, parent, decoders if any(decoders) else None, parent._key_to_index)  # noqa: SLF001 - no other way


class PreparedStatements:
    """The statements that one dialect has prepared, as long as they exist.

    A statement is prepared when it comes for the second time, because preparing one that is built for each call costs
    more than SQLAlchemy's execution.
    """

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect
        self._statements: WeakKeyDictionary[Any, dict[frozenset[str], PreparedStatement | None]] = WeakKeyDictionary()

    def has_seen(self, statement: Any) -> bool:
        """Returns whether a statement of a kind that is prepared has come before."""
        return statement in self._statements

    def prepare(self, statement: Any, values: Any) -> PreparedStatement | None:
        """Returns the prepared form of a statement, for values of these names; None if only SQLAlchemy can run it: it
        comes for the first time, is not a query, insert or update, has a list of values, or SQLAlchemy computes a value
        of it.
        """
        shapes = self._statements.get(statement)
        if shapes is None:
            if isinstance(statement, Select | CompoundSelect | Insert | Update):
                self._statements[statement] = {}
            return None
        if values is None:
            names: frozenset[str] = frozenset()
        elif type(values) is dict:
            names = frozenset(values)
        else:
            return None
        try:
            return shapes[names]
        except KeyError:
            if len(shapes) >= _MOST_SHAPES:
                return None
            ready = shapes[names] = _compile(self._dialect, statement, names)
            return ready


def _compile(dialect: Dialect, statement: Any, names: frozenset[str]) -> PreparedStatement | None:
    compilation = statement.compile(dialect=dialect, column_keys=sorted(names))
    if (
        compilation.insert_prefetch
        or compilation.update_prefetch
        or compilation.post_compile_params
        or compilation.literal_execute_params
        or not compilation.positional
    ):
        return None
    columns = _list_columns(compilation, returns_rows=statement.is_select or bool(statement._returning))  # noqa: SLF001 - no other way
    if columns is None:
        return None
    defaults = compilation.construct_params(_check=False)
    values = []
    for name in compilation.positiontup:
        bind = compilation.binds[name]
        if bind.callable is not None or (bind.required and name not in names):
            return None
        values.append((name, defaults.get(name), compilation._bind_processors.get(name)))  # noqa: SLF001 - no other way
    return PreparedStatement(dialect, compilation.string, values, columns)


def _list_columns(compilation: Any, *, returns_rows: bool) -> Sequence[Any] | None:
    """Returns what SQLAlchemy has compiled for each column; None if it must find them in the result by their names."""
    if not returns_rows:
        return None if compilation.effective_returning else ()
    columns: Sequence[Any] = compilation._result_columns  # noqa: SLF001 - no other way
    is_known = compilation._ordered_columns and len({column.keyname for column in columns}) == len(columns)  # noqa: SLF001
    return columns if is_known else None
