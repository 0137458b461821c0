"""Statements that write, in the form of SQLite's driver. SQLAlchemy compiles each of them once.

Executing a short statement through SQLAlchemy takes several times as long as SQLite needs to run it.
"""

from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakKeyDictionary

from sqlalchemy import Dialect, Insert, Update

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
