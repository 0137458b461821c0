"""Compares JSON texts by value: key order and the spelling of numbers do not matter, types do."""

from __future__ import annotations

import json
from decimal import Decimal, InvalidOperation
from typing import Any

# Clients that cannot send null in a comparison send this string instead.
_NULLS = (None, "__NULL__")
# Two quotes around eight characters, each escaped as \uXXXX.
_LONGEST_NULL = 2 + 8 * 6


def matches(stored_value: bytes | None, expected: bytes) -> bool:
    """Returns whether a compare-and-swap may swap. stored_value: None for an absent key."""
    if _is_null(expected):
        return stored_value is None or _is_null(stored_value)
    return stored_value is not None and is_same_json(stored_value, expected)


def is_same_json(left: bytes, right: bytes) -> bool:
    if left == right:
        return True
    try:
        return _is_same(_parse(left), _parse(right))
    except RecursionError:
        # Too deeply nested for the parser: such values are equal only if their bytes are.
        return False


def _is_null(text: bytes) -> bool:
    return len(text) <= _LONGEST_NULL and text[:1] in (b"n", b'"') and _parse(text) in _NULLS


def _parse(text: bytes) -> Any:
    # Decimal compares 9007199254740993 and 9007199254740993.0 exactly, and has no limit on digits.
    return json.loads(text, parse_float=_parse_number, parse_int=_parse_number)


def _parse_number(text: str) -> Decimal | tuple[str]:
    try:
        return Decimal(text)
    except InvalidOperation:
        # A number with an exponent of nineteen digits or more can be compared only by its text.
        return (text,)


def _is_same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_is_same(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        return len(left) == len(right) and all(map(_is_same, left, right))
    return bool(left == right)
