"""The types of columns: how each database stores a type, and how its values are read from requests and answered.

A value is checked in one place and gets one canonical form, so both databases accept the same values and answer them
in the same way.
"""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from baobab.tools.core import BadRequest
from baobab.tools.core.errors import InvalidType
from baobab.tools.core.types import parse_json
from baobab.tools.data.values.array_text import parse_array
from baobab.tools.data.values.column_values import INTEGER_BITS, MOST_DIGITS, WrongJsonType, read_value
from baobab.tools.data.values.vector_values import pack_vector, unpack_vector

Dialect = Literal["sqlite", "postgresql"]

_TYPE = re.compile(r"([a-z][a-z0-9 ]*?)\s*(?:\(\s*([0-9]{1,5})\s*(?:,\s*([0-9]{1,3})\s*)?\))?\s*((?:\[\])?)")
_ALIASES = {
    "bool": "boolean",
    "int2": "smallint",
    "int": "integer",
    "int4": "integer",
    "int8": "bigint",
    "serial4": "serial",
    "serial8": "bigserial",
    "float4": "real",
    "float8": "double precision",
    "double": "double precision",
    "float": "double precision",
    "decimal": "numeric",
    "character varying": "varchar",
    "character": "char",
    "string": "text",
    "timestamp with time zone": "timestamptz",
    "timestamp without time zone": "timestamp",
    "time without time zone": "time",
    "time with time zone": "timetz",
}
_SERIALS = {"smallserial": "smallint", "serial": "integer", "bigserial": "bigint"}
_FLOATS = ("real", "double precision")
_TEXTS = ("text", "varchar", "char")
_JSON = ("json", "jsonb")
_OTHERS = ("uuid", "boolean", "numeric", "timestamptz", "timestamp", "date", "time", "timetz", "interval", "bytea")
NAMES = (*_TEXTS, *INTEGER_BITS, *_SERIALS, *_FLOATS, *_OTHERS, *_JSON, "vector")
_LONGEST = 10_485_760
_MOST_DIMENSIONS = 16_000
_MOST_ITEMS = 10_000
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}

_COMPUTATION = re.compile(r"\s*(?:[+*/-]=\s*[0-9.]+|[\w.\"]+\s*[+*/-]\s*[\w.\"]+)\s*")
_SET_NUMBER = (
    "Read the row, and write the new number with op:data_update_many and, in `where`, the number that you have read, "
    'such as {"id": "eq.7", "stock": "eq.5"}: if another write was faster, no row is changed, and you read again. A '
    "counter that needs no row is changed in one call by op:kv_incr and op:kv_decr."
)


class UnknownType(ValueError):
    """There is no column type of this name."""


@dataclass(frozen=True, slots=True)
class ColumnType:
    """A type as a schema names it, such as `varchar(20)`, `numeric(10,2)` or `text[]`."""

    name: str
    size: int | None = None
    """The most characters of a varchar, the digits of a numeric, the dimensions of a vector."""
    scale: int | None = None
    array: bool = False
    serial: bool = False

    def __str__(self) -> str:
        name = {integer: serial for serial, integer in _SERIALS.items()}[self.name] if self.serial else self.name
        sizes = "" if self.size is None else f"({self.size})" if self.scale is None else f"({self.size},{self.scale})"
        return f"{name}{sizes}{'[]' if self.array else ''}"

    @property
    def is_text(self) -> bool:
        return self.name in _TEXTS and not self.array

    @property
    def is_json(self) -> bool:
        return self.name in _JSON or self.array

    @property
    def has_text_in_json(self) -> bool:
        """Whether a JSON body may give its values as texts."""
        return not self.array and self.name not in (*_FLOATS, *_JSON, "boolean", "vector")

    @property
    def is_number(self) -> bool:
        return (self.name in INTEGER_BITS or self.name in _FLOATS or self.name == "numeric") and not self.array

    @property
    def is_exact(self) -> bool:
        """Whether its values are numbers that both databases keep exactly."""
        return self.is_number and self.name not in _FLOATS

    @property
    def is_integer(self) -> bool:
        return self.name in INTEGER_BITS and not self.array

    @property
    def bounds(self) -> tuple[str, str] | None:
        """The smallest and the largest number that the type can store; None for a type without bounds."""
        if self.name in INTEGER_BITS:
            return str(-(2 ** INTEGER_BITS[self.name])), str(2 ** INTEGER_BITS[self.name] - 1)
        if self.name == "numeric" and self.size is not None:
            scale = self.scale or 0
            largest = f"{'9' * (self.size - scale) or '0'}.{'9' * scale}".rstrip(".")
            return f"-{largest}", largest
        return None

    @property
    def is_ordered(self) -> bool:
        """Whether both databases can sort its values, in the same order."""
        return not self.array and self.name not in (*_JSON, "vector", "interval", "timetz", "bytea")

    @property
    def is_small(self) -> bool:
        """Whether every value of the type takes at most about a hundred bytes."""
        if self.array or self.name in (*_JSON, "bytea", "vector"):
            return False
        return self.name not in (*_TEXTS, "numeric") or (self.size is not None and self.size <= 100)

    @property
    def item(self) -> "ColumnType":
        return ColumnType(self.name, self.size, self.scale)

    def family(self) -> str:
        """Returns the family of the type. Values can be compared if their types are of the same family."""
        if self.array or self.name in _JSON:
            return str(self)
        if self.is_number:
            return "number"
        return "text" if self.is_text else self.name

    def accepts(self, older: "ColumnType") -> bool:
        """Returns whether a column can change from the older type to this one without a change of its stored values."""
        if self == older:
            return True
        if self.array or older.array:
            return False
        if self.name in INTEGER_BITS and older.name in INTEGER_BITS and self.serial == older.serial:
            return INTEGER_BITS[self.name] >= INTEGER_BITS[older.name]
        if self.is_text and older.is_text:
            return self.size is None or (older.size is not None and older.size <= self.size)
        return {self.name, older.name} <= set(_FLOATS)

    # How a value is stored.

    def declare(self, dialect: Dialect) -> str:
        """Returns the type of the column in the SQL of the database."""
        return _declare_sqlite(self) if dialect == "sqlite" else _declare_postgres(self)

    def encode(self, value: Any, dialect: Dialect) -> Any:
        """Converts a canonical value into what the database's driver takes."""
        if value is None:
            return None
        if self.array:
            return json.dumps(value, ensure_ascii=False) if dialect == "sqlite" else value
        if self.name == "vector":
            return pack_vector(value) if dialect == "sqlite" else f"[{','.join(map(repr, value))}]"
        if self.name == "boolean" and dialect == "sqlite":
            return int(value)
        return value

    def bind(self, dialect: Dialect) -> str:
        """Returns the placeholder of a value of this type."""
        return "?" if dialect == "sqlite" else f"?::{self.cast_name}"

    @property
    def cast_name(self) -> str:
        """The type's name in a cast of Postgres, without sizes, which would cut values off."""
        base = "text" if self.name in (*_TEXTS, "interval", "timetz") else self.name
        base = "double precision" if self.name in _FLOATS else "jsonb" if self.name == "json" else base
        return f"{base}[]" if self.array else base

    # How a value is returned.

    def show(self, column: str, dialect: Dialect) -> str:
        """Returns the SQL expression that reads a column in the form that `decoder` expects."""
        if dialect == "sqlite":
            if self.array or self.name != "bytea":
                return column
            return f"iif({column} IS NULL, NULL, '\\x' || lower(hex({column})))"
        if self.is_json:
            return f"to_jsonb({column})::text"
        if self.name in ("bigint", "numeric", "uuid", "vector", "date", "time"):
            return f"{column}::text"
        if self.name in ("timestamptz", "timestamp"):
            return f"to_json({column})#>>'{{}}'"
        return f"'\\x' || encode({column}, 'hex')" if self.name == "bytea" else column

    def decoder(self, dialect: Dialect) -> Callable[[Any], Any] | None:
        """Returns the function that converts a value from the database to JSON; None if none is needed."""
        if self.is_json:
            return json.loads
        if self.name == "bigint":
            return str
        if self.name == "boolean" and dialect == "sqlite":
            return bool
        if self.name == "vector":
            return unpack_vector if dialect == "sqlite" else json.loads
        return None

    # How a value is read from a request.

    def clean(self, value: Any, column: str) -> Any:
        """Returns the canonical form of a value in a JSON body. Raises InvalidType or BadRequest, which name the
        column.
        """
        if value is None:
            return None
        if self.array:
            if not isinstance(value, list):
                raise _wrong_type(column, self, value)
            if len(value) > _MOST_ITEMS:
                raise BadRequest(f"`{column}`: an array has at most {_MOST_ITEMS} items.")
            return [self.item.clean(item, column) for item in value]
        try:
            return self._read(value, column)
        except BadRequest as error:
            if self.is_number and _is_computation(value):
                message = f"`{column}` is {self}: a value is set, not computed from the one that is there."
                raise InvalidType(message, remediation=_SET_NUMBER, details=error.details) from None
            raise

    def _read(self, value: Any, column: str) -> Any:
        try:
            return read_value(self.name, self.size, self.scale, value)
        except WrongJsonType:
            raise _wrong_type(column, self, value) from None
        except (ValueError, OverflowError, RecursionError) as exc:
            raise BadRequest(
                f"`{column}`: the value is not a valid {self}: {exc}.", details={"column": column, "type": str(self)}
            ) from exc

    def parse(self, text: str, column: str) -> Any:
        """Returns the canonical form of a value in a query, which is a text. Raises InvalidType or BadRequest."""
        if self.array:
            return [self.item.parse(item, column) if item is not None else None for item in parse_array(text, column)]
        if self.name == "boolean":
            if text.lower() in _BOOLEANS:
                return _BOOLEANS[text.lower()]
            raise BadRequest(f"`{column}`: `{text[:40]}` is not true or false.")
        if self.name in (*_FLOATS, "vector", *_JSON):
            try:
                value = parse_json(text)
            except ValueError as exc:
                raise BadRequest(f"`{column}`: `{text[:40]}` is not a valid {self}.") from exc
            return value if self.name in _JSON else self.clean(value, column)
        return self._read(text, column)


def parse_type(text: str) -> ColumnType:
    """Reads a type as a schema writes it. Raises UnknownType, which lists the types."""
    match = _TYPE.fullmatch(text.strip().lower()) if len(text) <= 60 else None
    name = _ALIASES.get(match[1], match[1]) if match else ""
    if match is None or name not in NAMES:
        raise UnknownType(f"there is no type `{text[:60]}`; the types are {', '.join(NAMES)}, and arrays of them")
    size, scale, array = (int(match[2]) if match[2] else None), (int(match[3]) if match[3] else None), bool(match[4])
    limits = {"varchar": _LONGEST, "char": _LONGEST, "numeric": MOST_DIGITS, "vector": _MOST_DIMENSIONS}
    if size is not None and not 1 <= size <= limits.get(name, 0):
        raise UnknownType(f"`{text}` has a size that is not possible")
    if scale is not None and (name != "numeric" or size is None or scale > size):
        raise UnknownType(f"`{text}` has a scale that is not possible")
    if name == "vector" and (size is None or array):
        raise UnknownType("a vector needs its number of dimensions, such as `vector(384)`")
    if name == "numeric" and size is not None and scale is None:
        scale = 0
    if name == "char" and size is None:
        size = 1
    if name in _SERIALS:
        if array:
            raise UnknownType("there is no array of serial")
        return ColumnType(_SERIALS[name], serial=True)
    return ColumnType(name, size, scale, array)


def _is_computation(value: Any) -> bool:
    """Returns whether a value that is no number looks like a change of the number that is there: `stock - 1`."""
    if isinstance(value, dict):
        return len(value) == 1 and isinstance(next(iter(value.values())), int | float)
    return isinstance(value, str) and len(value) <= 200 and _COMPUTATION.fullmatch(value) is not None


def _declare_sqlite(kind: ColumnType) -> str:
    if kind.array:
        return "TEXT"
    if kind.name in INTEGER_BITS or kind.name == "boolean":
        return "INTEGER"
    if kind.name in _FLOATS:
        return "REAL"
    if kind.name in ("bytea", "vector"):
        return "BLOB"
    return "TEXT COLLATE decimal" if kind.name == "numeric" else "TEXT"


def _declare_postgres(kind: ColumnType) -> str:
    if kind.array:
        return f"{kind.cast_name}"
    if kind.name in (*_TEXTS, "interval", "timetz"):
        # Texts have the order of their characters' codes, as they have in SQLite.
        return 'text COLLATE "C"'
    if kind.name == "vector":
        return f"vector({kind.size})"
    if kind.name == "numeric" and kind.size is not None:
        return f"numeric({kind.size},{kind.scale})"
    return kind.cast_name


def _wrong_type(column: str, kind: ColumnType, value: Any) -> InvalidType:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return InvalidType(
        f"`{column}` is {kind}, and {names.get(type(value), 'null')} is not.",
        details={"column": column, "type": str(kind)},
    )
