"""One selected value of each row of an answer."""

from dataclasses import dataclass
from typing import Any

from baobab.tools.data.values.column_types import ColumnType


@dataclass(frozen=True, slots=True)
class Item:
    """One selected value: a column, a place in its JSON, or an aggregate of a group of rows."""

    name: str
    tree: list[Any]
    type: ColumnType
