"""How JSON-Logic sees values: what counts as true, what is equal, and what is a number."""

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from baobab.runtime.json_logic.context import RuleFailed

_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,5})?", re.ASCII)


def is_true(value: Any) -> bool:
    # An empty object counts as true, in JSON-Logic as in JavaScript.
    return isinstance(value, Mapping) or bool(value)


def is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def is_same(left: Any, right: Any) -> bool:
    """Returns whether values are equal without conversion; all numbers are one type."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(is_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(is_same(value, right[key]) for key, value in left.items())
    if is_number(left) and is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def is_equal(left: Any, right: Any) -> bool:
    """Returns whether values are equal under `==`, which compares text and booleans to numbers as numbers."""
    if left is None or right is None or type(left) is type(right) or (is_number(left) and is_number(right)):
        return is_same(left, right)
    if not isinstance(left, str | int | float) or not isinstance(right, str | int | float):
        return False
    left_number, right_number = as_number(left), as_number(right)
    return left_number is not None and left_number == right_number


def as_number(value: Any) -> int | float | None:
    """Converts a value as JavaScript's Number() does; returns None where that is NaN."""
    if value is None:
        return 0
    if isinstance(value, bool):
        return int(value)
    if isinstance(value, int | float):
        return value
    if not isinstance(value, str):
        return None
    text = value.strip()
    if not text:
        return 0
    return float(text) if _NUMBER.fullmatch(text) else None


def to_double(value: Any) -> float:
    number = None if value is None else as_number(value)
    if number is None:
        raise RuleFailed(f"arithmetic needs numbers, and got {_describe_kind(value)}")
    try:
        double = float(number)
    except OverflowError as exc:
        raise RuleFailed("a number is too large") from exc
    if not math.isfinite(double):
        raise RuleFailed("a number is too large")
    return double


def _describe_kind(value: Any) -> str:
    if value is None:
        return "null"
    return "text that is not a number" if isinstance(value, str) else "a list or an object"


def to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
