"""A digest of a set of items that does not depend on their order."""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

_MODULUS = 1 << 256
_EXACT = 10**15
"""Integers below it are written as they are."""


@dataclass(slots=True)
class Digest:
    """The number of items, their bytes where that applies, and the sum of the SHA-256 of each.

    A sum and not XOR, with which two equal items would cancel out.
    """

    count: int = 0
    bytes: int = 0
    total: int = 0

    def add(self, item: list[object], size: int = 0) -> None:
        """Adds an item. item: anything made of JSON values, instants, dates and bytes."""
        self.count += 1
        self.bytes += size
        self.total = (self.total + int.from_bytes(hash_item(item))) % _MODULUS


def hash_item(item: list[object]) -> bytes:
    """Returns the SHA-256 of an item, which is equal for numbers that databases write in different ways."""
    text = json.dumps(_write_numbers(item), default=_plain, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).digest()


def _write_numbers(value: Any) -> Any:
    """Writes each number in one way. Postgres writes the JSON number 1e20 with 21 digits, and -0.0 without its sign."""
    match value:
        case bool():
            return value
        case float():
            return int(value) if value.is_integer() and abs(value) < _EXACT else {"number": repr(value)}
        case int() if not -_EXACT < value < _EXACT:
            return _write_large(value)
        case list() | tuple():
            return [_write_numbers(each) for each in value]
        case dict():
            return {name: _write_numbers(each) for name, each in value.items()}
    return value


def _write_large(number: int) -> Any:
    """Writes an integer like the float that it stands for, if it is one or has the digits of one."""
    try:
        as_float = float(number)
    except OverflowError:
        return number
    is_float = int(as_float) == number or Decimal(repr(as_float)) == number
    return {"number": repr(as_float)} if is_float else number


def _plain(value: object) -> object:
    match value:
        case datetime():
            return {"instant": value.astimezone(UTC).isoformat()}
        case date():
            return {"date": value.isoformat()}
        case bytes():
            return {"bytes": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} has no canonical form yet")
