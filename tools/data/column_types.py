"""The types of columns: how a value is read from JSON and from a query, kept by each database, and shown again.

A value is checked here, in one place, and both databases get it in its canonical form: what one refuses, the other
refuses too, and what one answers, the other answers.
"""

import json
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any, Literal
from uuid import UUID

from baobab.tools.core.errors import BadRequest, InvalidType

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
_INTEGERS = {"smallint": 15, "integer": 31, "bigint": 63}
_SERIALS = {"smallserial": "smallint", "serial": "integer", "bigserial": "bigint"}
_FLOATS = ("real", "double precision")
_TEXTS = ("text", "varchar", "char")
_JSON = ("json", "jsonb")
_OTHERS = ("uuid", "boolean", "numeric", "timestamptz", "timestamp", "date", "time", "timetz", "interval", "bytea")
NAMES = (*_TEXTS, *_INTEGERS, *_SERIALS, *_FLOATS, *_OTHERS, *_JSON, "vector")
_LONGEST = 10_485_760
_MOST_DIMENSIONS = 16_000
_MOST_DIGITS = 1000
_MOST_ITEMS = 10_000
_CONTEXT = Context(prec=2 * _MOST_DIGITS, rounding=ROUND_HALF_UP)
_BOOLEANS = {"true": True, "t": True, "1": True, "false": False, "f": False, "0": False}
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,1000}(\.[0-9]{0,1000})?|\.[0-9]{1,1000})([eE][+-]?[0-9]{1,3})?")
_DURATION = re.compile(
    r"P(?:(\d{1,9})Y)?(?:(\d{1,9})M)?(?:(\d{1,9})W)?(?:(\d{1,9})D)?"
    r"(?:T(?:(\d{1,9})H)?(?:(\d{1,9})M)?(?:(\d{1,9}(?:\.\d{1,6})?)S)?)?"
)
_PARTS = re.compile(
    r"([+-]?\d{1,9}(?:\.\d{1,6})?)\s*([a-z]+)|([+-]?)(\d{1,9}):(\d{2})(?::(\d{2}(?:\.\d{1,6})?))?", re.I
)
_UNITS = {
    "year": (12, 0, 0),
    "mon": (1, 0, 0),
    "month": (1, 0, 0),
    "week": (0, 7, 0),
    "day": (0, 1, 0),
    "hour": (0, 0, 3600),
    "minute": (0, 0, 60),
    "min": (0, 0, 60),
    "second": (0, 0, 1),
    "sec": (0, 0, 1),
}


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
        """Whether a body may give its values as texts."""
        return not self.array and self.name not in (*_FLOATS, *_JSON, "boolean", "vector")

    @property
    def is_number(self) -> bool:
        return (self.name in _INTEGERS or self.name in _FLOATS or self.name == "numeric") and not self.array

    @property
    def is_exact(self) -> bool:
        """Whether its values are numbers that both databases keep exactly."""
        return self.is_number and self.name not in _FLOATS

    @property
    def is_integer(self) -> bool:
        return self.name in _INTEGERS and not self.array

    @property
    def bounds(self) -> tuple[str, str] | None:
        """The least and the greatest number that it has room for; None for one without bounds."""
        if self.name in _INTEGERS:
            return str(-(2 ** _INTEGERS[self.name])), str(2 ** _INTEGERS[self.name] - 1)
        if self.name == "numeric" and self.size is not None:
            scale = self.scale or 0
            most = f"{'9' * (self.size - scale) or '0'}.{'9' * scale}".rstrip(".")
            return f"-{most}", most
        return None

    @property
    def is_ordered(self) -> bool:
        """Whether its values have an order that both databases know."""
        return not self.array and self.name not in (*_JSON, "vector", "interval", "timetz", "bytea")

    @property
    def is_small(self) -> bool:
        """Whether no value of it has more than about a hundred bytes."""
        if self.array or self.name in (*_JSON, "bytea", "vector"):
            return False
        return self.name not in (*_TEXTS, "numeric") or (self.size is not None and self.size <= 100)

    @property
    def item(self) -> "ColumnType":
        return ColumnType(self.name, self.size, self.scale)

    def family(self) -> str:
        """What values can be compared with: values of the same family."""
        if self.array or self.name in _JSON:
            return str(self)
        if self.is_number:
            return "number"
        return "text" if self.is_text else self.name

    def accepts(self, older: "ColumnType") -> bool:
        """Whether every value of an older type is one of this type as it is stored."""
        if self == older:
            return True
        if self.array or older.array:
            return False
        if self.name in _INTEGERS and older.name in _INTEGERS and self.serial == older.serial:
            return _INTEGERS[self.name] >= _INTEGERS[older.name]
        if self.is_text and older.is_text:
            return self.size is None or (older.size is not None and older.size <= self.size)
        return {self.name, older.name} <= set(_FLOATS)

    # How it is kept.

    def declare(self, dialect: Dialect) -> str:
        """The type of the column in the database."""
        return _declare_sqlite(self) if dialect == "sqlite" else _declare_postgres(self)

    def encode(self, value: Any, dialect: Dialect) -> Any:
        """A canonical value as the database's driver takes it."""
        if value is None:
            return None
        if self.array:
            return json.dumps(value, ensure_ascii=False) if dialect == "sqlite" else value
        if self.name == "vector":
            packed = struct.pack(f"<{len(value)}f", *value)
            return packed if dialect == "sqlite" else f"[{','.join(map(repr, value))}]"
        if self.name == "boolean" and dialect == "sqlite":
            return int(value)
        return value

    def bind(self, dialect: Dialect) -> str:
        """The placeholder of a value of this type."""
        return "?" if dialect == "sqlite" else f"?::{self.cast_name}"

    @property
    def cast_name(self) -> str:
        """The type's name in a cast of Postgres, without sizes, which would cut values off."""
        base = "text" if self.name in (*_TEXTS, "interval", "timetz") else self.name
        base = "double precision" if self.name in _FLOATS else "jsonb" if self.name == "json" else base
        return f"{base}[]" if self.array else base

    # How it is shown.

    def show(self, column: str, dialect: Dialect) -> str:
        """The expression by which a column is read, so that `decode` understands it."""
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
        """What makes JSON of a value that was read; None where it is JSON as it is."""
        if self.is_json:
            return json.loads
        if self.name == "bigint":
            return str
        if self.name == "boolean" and dialect == "sqlite":
            return bool
        if self.name == "vector":
            return _unpack_vector if dialect == "sqlite" else json.loads
        return None

    # How it is read.

    def clean(self, value: Any, column: str) -> Any:
        """The canonical value of what a body says. InvalidType or BadRequest names the column."""
        if value is None:
            return None
        if self.array:
            if not isinstance(value, list):
                raise _wrong_type(column, self, value)
            if len(value) > _MOST_ITEMS:
                raise BadRequest(f"`{column}`: an array has at most {_MOST_ITEMS} items.")
            return [self.item.clean(item, column) for item in value]
        try:
            return _clean(self, value, column)
        except (ValueError, OverflowError, RecursionError) as exc:
            raise BadRequest(
                f"`{column}`: the value is not a valid {self}: {exc}.", details={"column": column, "type": str(self)}
            ) from exc

    def parse(self, text: str, column: str) -> Any:
        """The canonical value of what a query says."""
        if self.array:
            return [self.item.parse(item, column) if item is not None else None for item in parse_array(text, column)]
        if self.name == "boolean":
            if text.lower() in _BOOLEANS:
                return _BOOLEANS[text.lower()]
            raise BadRequest(f"`{column}`: `{text[:40]}` is not true or false.")
        if self.name in (*_FLOATS, "vector", *_JSON):
            try:
                value = json.loads(text, parse_constant=_refuse_constant)
            except (ValueError, RecursionError) as exc:
                raise BadRequest(f"`{column}`: `{text[:40]}` is not a valid {self}.") from exc
            return value if self.name in _JSON else self.clean(value, column)
        return self.clean(text, column)


def parse_type(text: str) -> ColumnType:
    """The type that a schema names. Raises UnknownType, which says what there is."""
    found = _TYPE.fullmatch(text.strip().lower()) if len(text) <= 60 else None
    name = _ALIASES.get(found[1], found[1]) if found else ""
    if found is None or name not in NAMES:
        raise UnknownType(f"there is no type `{text[:60]}`; the types are {', '.join(NAMES)}, and arrays of them")
    size, scale, array = (int(found[2]) if found[2] else None), (int(found[3]) if found[3] else None), bool(found[4])
    limits = {"varchar": _LONGEST, "char": _LONGEST, "numeric": _MOST_DIGITS, "vector": _MOST_DIMENSIONS}
    if size is not None and not 1 <= size <= limits.get(name, 0):
        raise UnknownType(f"`{text}` has a size that there is not")
    if scale is not None and (name != "numeric" or size is None or scale > size):
        raise UnknownType(f"`{text}` has a scale that there is not")
    if name == "vector" and (size is None or array):
        raise UnknownType("a vector has a number of dimensions, such as `vector(384)`")
    if name == "numeric" and size is not None and scale is None:
        scale = 0
    if name == "char" and size is None:
        size = 1
    if name in _SERIALS:
        if array:
            raise UnknownType("there is no array of serial")
        return ColumnType(_SERIALS[name], serial=True)
    return ColumnType(name, size, scale, array)


def parse_array(text: str, column: str) -> list[str | None]:
    """The items of an array as Postgres writes it: `{a,"b c",NULL}`."""
    if len(text) < 2 or text[0] != "{" or text[-1] != "}":
        raise BadRequest(f"`{column}`: an array is written `{{a,b}}`.")
    items: list[str | None] = []
    index, inner = 0, text[1:-1]
    while index < len(inner):
        if inner[index] == '"':
            item, index = _read_quoted(inner, index + 1)
            items.append(item)
        else:
            end = inner.find(",", index)
            end = len(inner) if end < 0 else end
            plain = inner[index:end].strip()
            items.append(None if plain.upper() == "NULL" else plain)
            index = end
        index += 1
    return items


def _read_quoted(text: str, index: int) -> tuple[str, int]:
    parts: list[str] = []
    while index < len(text) and text[index] != '"':
        if text[index] == "\\" and index + 1 < len(text):
            index += 1
        parts.append(text[index])
        index += 1
    return "".join(parts), index + 1


def _declare_sqlite(kind: ColumnType) -> str:
    if kind.array:
        return "TEXT"
    if kind.name in _INTEGERS or kind.name == "boolean":
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


def _clean(kind: ColumnType, value: Any, column: str) -> Any:  # noqa: PLR0911 - one for each kind
    name = kind.name
    if name in _TEXTS:
        return _clean_text(kind, _text_of(kind, value, column))
    if name in _INTEGERS:
        return _clean_integer(kind, value, column)
    if name in _FLOATS:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _wrong_type(column, kind, value)
        number = float(value)
        if not math.isfinite(number):
            raise ValueError("it is not a finite number")
        return number
    if name == "boolean":
        if not isinstance(value, bool):
            raise _wrong_type(column, kind, value)
        return value
    if name == "numeric":
        return _clean_numeric(kind, value, column)
    if name in _JSON:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if "\\u0000" in text:
            raise ValueError("it holds a NUL character")
        text.encode()
        return text
    if name == "vector":
        return _clean_vector(kind, value, column)
    return _FROM_TEXT[name](_text_of(kind, value, column))


def _text_of(kind: ColumnType, value: Any, column: str) -> str:
    if not isinstance(value, str):
        raise _wrong_type(column, kind, value)
    return value


def _clean_text(kind: ColumnType, text: str) -> str:
    if "\x00" in text:
        raise ValueError("it holds a NUL character")
    # Lone surrogates are no characters: neither database takes them.
    text.encode()
    if kind.size is not None and len(text) > kind.size:
        raise ValueError(f"it has more than {kind.size} characters")
    return text


def _clean_integer(kind: ColumnType, value: Any, column: str) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise ValueError("it is not a whole number")
        number = int(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise _wrong_type(column, kind, value)
    elif isinstance(value, float):
        if not value.is_integer():
            raise ValueError("it is not a whole number")
        number = int(value)
    else:
        number = value
    largest = 2 ** _INTEGERS[kind.name]
    if not -largest <= number < largest:
        raise ValueError("it is out of range")
    return number


def _clean_numeric(kind: ColumnType, value: Any, column: str) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise _wrong_type(column, kind, value)
    text = value if isinstance(value, str) else repr(value)
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    number = Decimal(text)
    if kind.size is not None and kind.scale is not None:
        try:
            number = number.quantize(Decimal(1).scaleb(-kind.scale), context=_CONTEXT)
        except InvalidOperation as exc:
            raise ValueError("it has too many digits") from exc
        if number.adjusted() >= kind.size - kind.scale and number:
            raise ValueError("it has too many digits before the point")
    return format(-number if number.is_zero() and number.is_signed() else number, "f")


def _clean_vector(kind: ColumnType, value: Any, column: str) -> list[float]:
    if not isinstance(value, list) or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in value):
        raise _wrong_type(column, kind, value)
    if len(value) != kind.size:
        raise ValueError(f"it has {len(value)} dimensions and not {kind.size}")
    numbers = [struct.unpack("<f", struct.pack("<f", item))[0] for item in value]
    if not all(math.isfinite(number) for number in numbers):
        raise ValueError("it is not finite")
    return numbers


def _unpack_vector(packed: bytes) -> list[float]:
    return [_shorten(number) for number in struct.unpack(f"<{len(packed) // 4}f", packed)]


def _shorten(number: float) -> float:
    """The number with the fewest digits that is the same in 32 bits, as Postgres writes it."""
    packed = struct.pack("<f", number)
    written = (float(f"{number:.{digits}g}") for digits in (6, 7, 8))
    return next((short for short in written if struct.pack("<f", short) == packed), float(f"{number:.9g}"))


def _uuid(text: str) -> str:
    if len(text) not in (32, 36):
        raise ValueError("it is not a UUID")
    return str(UUID(text))


def _instant(text: str) -> str:
    moment = datetime.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    return _without_zeros(moment.replace(tzinfo=None).isoformat()) + "+00:00"


def _local(text: str) -> str:
    return _without_zeros(datetime.fromisoformat(text).replace(tzinfo=None).isoformat())


def _without_zeros(text: str) -> str:
    return text.rstrip("0") if "." in text else text


def _time_of_day(text: str) -> str:
    return _without_zeros(time.fromisoformat(text).replace(tzinfo=None).isoformat())


def _time_with_zone(text: str) -> str:
    moment = time.fromisoformat(text)
    moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment
    plain = _without_zeros(moment.replace(tzinfo=None).isoformat())
    zone = moment.isoformat()[len(moment.replace(tzinfo=None).isoformat()) :]
    return plain + zone.removesuffix(":00")


def _bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("bytes are written in hexadecimal after `\\x`")
    return bytes.fromhex(text[2:])


def _interval(text: str) -> str:
    """A duration as Postgres writes it, such as `1 year 2 mons 3 days 04:05:06`."""
    months, days, seconds = _read_interval(text.strip())
    years, months = int(math.copysign(abs(months) // 12, months)), int(math.copysign(abs(months) % 12, months))
    parts = [
        f"{count} {unit}{'' if count == 1 else 's'}"
        for count, unit in ((years, "year"), (months, "mon"), (days, "day"))
        if count
    ]
    if seconds or not parts:
        size = abs(seconds)
        whole = int(size)
        fraction = format((size - whole).normalize(), "f")[1:] if size != whole else ""
        sign = "-" if seconds < 0 else ""
        parts.append(f"{sign}{whole // 3600:02d}:{whole // 60 % 60:02d}:{whole % 60:02d}{fraction}")
    return " ".join(parts)


def _read_interval(text: str) -> tuple[int, int, Decimal]:
    found = _DURATION.fullmatch(text)
    if found and any(found.groups()):
        years, months, weeks, days, hours, minutes = (int(part or 0) for part in found.groups()[:6])
        return years * 12 + months, weeks * 7 + days, hours * 3600 + minutes * 60 + Decimal(found[7] or 0)
    months, days, seconds, index = 0, 0, Decimal(0), 0
    for part in _PARTS.finditer(text):
        if text[index : part.start()].strip(" ,"):
            raise ValueError("it is not a duration such as `1 day 02:30:00` or `P1DT2H30M`")
        index = part.end()
        if part[2]:
            unit = _UNITS.get(part[2].lower()) or _UNITS.get(part[2].lower().removesuffix("s"))
            amount = Decimal(part[1])
            if unit is None or (not unit[2] and amount != int(amount)):
                raise ValueError(f"`{part[0]}` is not a part of a duration")
            months, days, seconds = (
                months + unit[0] * int(amount),
                days + unit[1] * int(amount),
                seconds + unit[2] * amount,
            )
        else:
            clock = int(part[4]) * 3600 + int(part[5]) * 60 + Decimal(part[6] or 0)
            seconds += -clock if part[3] == "-" else clock
    if not index or text[index:].strip():
        raise ValueError("it is not a duration such as `1 day 02:30:00` or `P1DT2H30M`")
    return months, days, seconds


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "uuid": _uuid,
    "timestamptz": _instant,
    "timestamp": _local,
    "date": lambda text: date.fromisoformat(text).isoformat(),
    "time": _time_of_day,
    "timetz": _time_with_zone,
    "interval": _interval,
    "bytea": _bytes,
}


def _refuse_constant(name: str) -> Any:
    raise ValueError(name)


def _wrong_type(column: str, kind: ColumnType, value: Any) -> InvalidType:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a boolean", int: "a number", float: "a number"}
    return InvalidType(
        f"`{column}` is {kind}, and {names.get(type(value), 'null')} is not.",
        details={"column": column, "type": str(kind)},
    )
