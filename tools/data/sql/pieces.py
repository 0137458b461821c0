"""Parts of a statement: their SQL, the values of their placeholders, and the type of what they give."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from string import Formatter
from typing import Any

from baobab.tools.data.errors import SqlInvalid
from baobab.tools.data.values.column_types import ColumnType

TEXT = ColumnType("text")
BOOLEAN = ColumnType("boolean")
INTEGER = ColumnType("integer")
NUMERIC = ColumnType("numeric")
INSTANT = ColumnType("timestamptz")
JSON = ColumnType("jsonb")
_LONGEST = 200_000
"""The most characters of a statement that is written anew. A part may stand in it twice, and so may what is in it."""
_HEAVIEST = 20_000
"""The most parts of a statement once the database has replaced columns. `x + x` of a query of `x + x` of a query ...
doubles with each, and databases write it out before anything can stop them.
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """kind: the type of the value; None if it is not known. is_computed: whether it is an exact number that SQLite has
    computed, which is a text. weight: about how many parts it has once the database has replaced the columns of
    queries in it by what they stand for.
    """

    text: str
    values: tuple[Any, ...] = ()
    kind: ColumnType | None = None
    is_computed: bool = False
    weight: int = 1

    def of(self, kind: ColumnType | None, *, is_computed: bool = False) -> "Piece":
        return replace(self, kind=kind, is_computed=is_computed)


def compose(template: str, *parts: Piece, kind: ColumnType | None = None) -> Piece:
    """Puts pieces into a template, as `str.format` does, with the values in the order of their placeholders."""
    texts: list[str] = []
    values: list[Any] = []
    position, weight = 0, 1
    for literal, field, _, _ in Formatter().parse(template):
        texts.append(literal)
        if field is not None:
            part = parts[int(field) if field else position]
            position += 1
            weight += part.weight
            texts.append(part.text)
            values += part.values
    text = "".join(texts)
    if len(text) > _LONGEST:
        raise SqlInvalid("The statement becomes too long.")
    if weight > _HEAVIEST:
        raise SqlInvalid("The queries of the statement use each other's columns too many times.")
    return Piece(text, tuple(values), kind, weight=weight)


def join(separator: str, parts: Iterable[Piece]) -> Piece:
    parts = list(parts)
    return compose(separator.join(["{}"] * len(parts)), *parts)
