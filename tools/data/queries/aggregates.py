"""Reads the aggregates of a query, as PostgREST writes them: `count()`, `price.sum()`, `oldest:born.min()`."""

import re

from baobab.tools.core import BadRequest
from baobab.tools.data.errors import InvalidFilter
from baobab.tools.data.queries.filters import FilterReader
from baobab.tools.data.schema.catalogue import TableInfo
from baobab.tools.data.values.column_types import ColumnType
from baobab.tools.data.values.selection_items import Item

_AGGREGATE = re.compile(r"(?:([^:(),\"!]+?):(?!:))?(?:([^.():]+)\.)?(count|sum|avg|min|max)\(\)")
_PLAIN_COUNT = re.compile(r"(?:[^:(),\"!]+?:(?!:))?count")
"""Clients also write `count()` as `count`. It is read so if the table has no column of that name."""
_NUMBER, _DECIMAL, _FLOAT = ColumnType("integer"), ColumnType("numeric"), ColumnType("double precision")


def read_aggregate(table: TableInfo, text: str) -> Item | None:
    """Reads one part of `select`. Returns None if it is no aggregate. Raises InvalidFilter for a type that the
    aggregate does not take.
    """
    plain = _PLAIN_COUNT.fullmatch(text)
    if plain is not None and "count" not in table.columns:
        text = f"{text}()"
    match = _AGGREGATE.fullmatch(text)
    if match is None:
        return None
    alias, name, function = match.groups()
    if name is None:
        if function != "count":
            raise InvalidFilter(f"`{text[:60]}` needs a column: `price.{function}()`.")
        return Item(alias or "count", ["aggregate", "count", None, ""], _NUMBER)
    operand, kind = FilterReader(table).operand(name)
    return Item(alias or function, ["aggregate", function, operand, str(kind)], find_type(function, kind, name))


def find_type(function: str, kind: ColumnType, name: str) -> ColumnType:
    """Returns the type of an aggregate. A sum of integers is a number. A sum of bigints or numerics is exact, and
    returned as a text.
    """
    if function == "count":
        return _NUMBER
    if function in ("sum", "avg"):
        if not kind.is_number:
            raise InvalidFilter(f"`{name}` is {kind}, and `{function}` takes numbers.")
        if function == "avg" or kind.name in ("real", "double precision"):
            return _FLOAT
        return _NUMBER if kind.name in ("smallint", "integer") else _DECIMAL
    if not kind.is_ordered or kind.name in ("uuid", "boolean"):
        raise InvalidFilter(f"`{name}` is {kind}, which has no {function}.")
    return kind


def find_groups(items: list[Item]) -> list[Item] | None:
    """Returns the items by which the rows are grouped. None if the query has no aggregates."""
    groups = [item for item in items if item.tree[0] != "aggregate"]
    if len(groups) == len(items):
        return None
    for item in groups:
        if not item.type.is_ordered:
            raise BadRequest(f"Rows are not grouped by `{item.name}`, which is {item.type}.")
    return groups
