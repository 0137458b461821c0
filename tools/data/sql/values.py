"""The values in a statement: its literals, and those that `params` gives for `$1` or `?`."""

import math
import re
from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, Literal

from baobab.tools.core import BadRequest
from baobab.tools.data.errors import SqlInvalid
from baobab.tools.data.sql.names import refuse, take_args
from baobab.tools.data.sql.pieces import BOOLEAN, JSON, NUMERIC, TEXT, Piece
from baobab.tools.data.values.column_types import ColumnType
from baobab.tools.data.values.column_values import INTEGER_BITS

_NUMBER = re.compile(r"[0-9]{1,300}(\.[0-9]{0,300})?|\.[0-9]{1,300}|[0-9.]{1,300}[eE][+-]?[0-9]{1,3}")
_LARGEST = 2**63
_FLOATS = ("real", "double precision")


class Given:
    """A value that the statement names, or gets from `params`."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


class Values:
    """Reads the values of one statement, and writes them for one database."""

    def __init__(self, dialect: Literal["sqlite", "postgresql"], params: Sequence[Any]) -> None:
        self._dialect: Literal["sqlite", "postgresql"] = dialect
        self._params = params
        self._used: set[int] = set()
        self._next = 0

    def find(self, node: Any) -> Given | None:  # noqa: PLR0911 - one for each kind of node
        """Returns the value that a node is; None if it is none."""
        match type(node).__name__:
            case "Literal":
                return Given(node.this if node.args.get("is_string") else _read_number(node.this))
            case "RawString":
                return Given(node.this)
            case "Boolean":
                return Given(bool(node.this))
            case "Null":
                return Given(None)
            case "Neg":
                inner = self.find(node.this) if type(node.this).__name__ == "Literal" else None
                return Given(-inner.value) if inner and isinstance(inner.value, int | Decimal) else None
            case "Parameter":
                return Given(self._take(node))
            case "Placeholder":
                if take_args(node, "jdbc").get("jdbc") is not True:
                    raise refuse(node)
                return self._find_next(node)
        return None

    def _find_next(self, node: Any) -> Given:
        # A part of a statement may be written more than once.
        if "number" not in node.meta:
            self._next += 1
            node.meta["number"] = self._next
        return Given(self._at(node.meta["number"]))

    def _take(self, node: Any) -> Any:
        number = node.this
        if type(number).__name__ != "Literal" or not re.fullmatch(r"[1-9][0-9]{0,4}", str(number.this)):
            raise refuse(node)
        return self._at(int(number.this))

    def _at(self, number: int) -> Any:
        if number > len(self._params):
            raise SqlInvalid(f"The statement names value {number}, and `params` has {len(self._params)}.")
        self._used.add(number)
        return self._params[number - 1]

    def require_all_used(self) -> None:
        """Raises SqlInvalid if `params` has values that the statement does not name."""
        unused_numbers = sorted({*range(1, len(self._params) + 1)} - self._used)
        if unused_numbers:
            raise SqlInvalid(
                f"`params` has {len(self._params)} values, and the statement does not name ${unused_numbers[0]}."
            )

    def write(self, given: Given, expected: ColumnType | None) -> Piece:  # noqa: PLR0911 - one for each type
        """Writes a value as a placeholder.

        expected: the type that its place has; None if it has none.
        """
        value = given.value
        if value is None:
            return Piece("NULL", kind=expected)
        if expected is not None:
            return self._write_typed(value, expected)
        if isinstance(value, bool):
            return Piece("TRUE" if value else "FALSE", kind=BOOLEAN)
        is_sqlite = self._dialect == "sqlite"
        if isinstance(value, str):
            return Piece("?" if is_sqlite else "?::text", (_check_text(value),), TEXT)
        if isinstance(value, int):
            if not -_LARGEST <= value < _LARGEST:
                raise SqlInvalid("A whole number has at most 64 bits: give a larger one as a text, `$1::numeric`.")
            return Piece("?" if is_sqlite else f"?::{'integer' if -(2**31) <= value < 2**31 else 'bigint'}", (value,))
        if not isinstance(value, dict | list) and not math.isfinite(float(value)):
            raise SqlInvalid("A number of the statement is too large.")
        if isinstance(value, Decimal):
            return Piece("?", (float(value),)) if is_sqlite else Piece("?::numeric", (str(value),))
        if isinstance(value, float):
            return Piece("?" if is_sqlite else "?::double precision", (value,))
        return self._write_typed(value, JSON)

    def _write_typed(self, value: Any, kind: ColumnType) -> Piece:
        if kind.is_number and isinstance(value, int | float | Decimal) and not isinstance(value, bool):
            if kind.name != "numeric":
                # A number that the column could not hold may still be compared with it.
                return self.write(Given(value), None)
            value = format(value, "f") if isinstance(value, Decimal) else value
        plain = replace(kind, size=kind.size if kind.name == "vector" else None, scale=None, serial=False)
        canonical = clean_value(value, plain, "a value of the statement")
        return Piece(plain.bind(self._dialect), (plain.encode(canonical, self._dialect),), kind)


def clean_value(value: Any, kind: ColumnType, name: str) -> Any:
    """Returns the canonical form of a value for a type. A text may stand for a value of every type, as in SQL.

    name: what errors call it.
    """
    if isinstance(value, Decimal):
        is_whole = kind.name in INTEGER_BITS and value == value.to_integral_value()
        value = int(value) if is_whole else float(value) if kind.name in _FLOATS else format(value, "f")
    if isinstance(value, str) and not kind.has_text_in_json:
        return kind.clean(kind.parse(value, name), name) if kind.name in ("json", "jsonb") else kind.parse(value, name)
    return kind.clean(value, name)


def _check_text(text: str) -> str:
    if "\x00" in text:
        raise BadRequest("A text of the statement holds a NUL character.")
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise BadRequest("A text of the statement holds half a character (a lone surrogate).") from exc
    return text


def _read_number(text: str) -> int | Decimal:
    if not _NUMBER.fullmatch(text):
        raise SqlInvalid(f"`{text[:40]}` is not a number.")
    return int(text) if text.isdigit() and len(text) < 300 else Decimal(text)


def is_numeric(kind: ColumnType | None) -> bool:
    return kind is not None and kind.name == NUMERIC.name and not kind.array
