"""Reads a value of a JSON body into the canonical form of its column's type, which both databases store and answer."""

import json
import math
import re
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any
from uuid import UUID

from baobab.tools.data.values import temporal_values
from baobab.tools.data.values.vector_values import round_to_floats

INTEGER_BITS = {"smallint": 15, "integer": 31, "bigint": 63}
MOST_DIGITS = 1000
_CONTEXT = Context(prec=2 * MOST_DIGITS, rounding=ROUND_HALF_UP)
_INTEGER = re.compile(r"[+-]?[0-9]{1,40}")
_NUMBER = re.compile(r"[+-]?([0-9]{1,1000}(\.[0-9]{0,1000})?|\.[0-9]{1,1000})([eE][+-]?[0-9]{1,3})?")


class WrongJsonType(ValueError):
    """The value has another type of JSON than its column takes, such as a number for a text."""


def read_value(type_name: str, size: int | None, scale: int | None, value: Any) -> Any:
    """Returns the canonical form of a value.

    Raises WrongJsonType for a value of another type of JSON, and ValueError, OverflowError or RecursionError for one
    that the type cannot hold.
    """
    if type_name in INTEGER_BITS:
        return _read_integer(type_name, value)
    if type_name == "numeric":
        return _read_numeric(size, scale, value)
    if type_name == "vector":
        return _read_vector(size, value)
    if type_name in _FROM_TEXT:
        return _FROM_TEXT[type_name](_require_text(value))
    if type_name in _FROM_JSON:
        return _FROM_JSON[type_name](value)
    return _read_text(size, _require_text(value))


def _require_text(value: Any) -> str:
    if not isinstance(value, str):
        raise WrongJsonType
    return value


def _read_text(size: int | None, text: str) -> str:
    if "\x00" in text:
        raise ValueError("it holds a NUL character")
    # Lone surrogates are no characters: neither database takes them.
    text.encode()
    if size is not None and len(text) > size:
        raise ValueError(f"it has more than {size} characters")
    return text


def _read_boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise WrongJsonType
    return value


def _read_float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongJsonType
    number = float(value)
    if not math.isfinite(number):
        raise ValueError("it is not a finite number")
    return number


def _read_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    if "\\u0000" in text:
        raise ValueError("it holds a NUL character")
    text.encode()
    return text


def _read_integer(type_name: str, value: Any) -> int:
    if isinstance(value, str):
        if not _INTEGER.fullmatch(value):
            raise ValueError("it is not a whole number")
        number = int(value)
    elif isinstance(value, bool) or not isinstance(value, int | float):
        raise WrongJsonType
    elif isinstance(value, float):
        if not value.is_integer():
            raise ValueError("it is not a whole number")
        number = int(value)
    else:
        number = value
    largest = 2 ** INTEGER_BITS[type_name]
    if not -largest <= number < largest:
        raise ValueError("it is out of range")
    return number


def _read_numeric(size: int | None, scale: int | None, value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise WrongJsonType
    text = value if isinstance(value, str) else repr(value)
    if not _NUMBER.fullmatch(text):
        raise ValueError("it is not a number")
    number = Decimal(text)
    if size is not None and scale is not None:
        try:
            number = number.quantize(Decimal(1).scaleb(-scale), context=_CONTEXT)
        except InvalidOperation as exc:
            raise ValueError("it has too many digits") from exc
        if number.adjusted() >= size - scale and number:
            raise ValueError("it has too many digits before the point")
    return format(-number if number.is_zero() and number.is_signed() else number, "f")


def _read_vector(dimensions: int | None, value: Any) -> list[float]:
    if not isinstance(value, list) or not all(isinstance(v, int | float) and not isinstance(v, bool) for v in value):
        raise WrongJsonType
    if len(value) != dimensions:
        raise ValueError(f"it has {len(value)} dimensions and not {dimensions}")
    return round_to_floats(value)


def _read_uuid(text: str) -> str:
    if len(text) not in (32, 36):
        raise ValueError("it is not a UUID")
    return str(UUID(text))


def _read_bytes(text: str) -> bytes:
    if not text.startswith("\\x"):
        raise ValueError("bytes are written in hexadecimal after `\\x`")
    return bytes.fromhex(text[2:])


_FROM_TEXT: dict[str, Callable[[str], Any]] = {
    "uuid": _read_uuid,
    "timestamptz": temporal_values.read_instant,
    "timestamp": temporal_values.read_timestamp,
    "date": temporal_values.read_date,
    "time": temporal_values.read_time,
    "timetz": temporal_values.read_time_with_zone,
    "interval": temporal_values.read_interval,
    "bytea": _read_bytes,
}
_FROM_JSON: dict[str, Callable[[Any], Any]] = {
    "boolean": _read_boolean,
    "real": _read_float,
    "double precision": _read_float,
    "json": _read_json,
    "jsonb": _read_json,
}
