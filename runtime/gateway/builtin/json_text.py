"""Finds JSON in the texts that a model reads, with limits, because the texts come from anyone."""

import json
from collections.abc import Iterable
from typing import Any

from baobab.runtime.work_budget import Budget

_MOST_DEPTH = 32
_MOST_FAILURES = 16
_MOST_OBJECTS = 64
_MOST_READ = 100_000


def _refuse_constant(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def read_at(text: str, at: int) -> tuple[Any, int]:
    """Returns the JSON value that begins at a position, and the position of its end. Raises ValueError."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep
    if is_deeper(value, _MOST_DEPTH):
        raise ValueError("nested too deeply")
    return value, end


def find_objects(texts: Iterable[str], budget: Budget) -> list[dict[str, Any]]:
    """Returns the JSON objects in the texts, in order. Raises OverBudget.

    The search stops after 64 objects or 16 failures, and reads the first 100,000 characters of a text.
    """
    values: list[dict[str, Any]] = []
    failures = 0
    for whole in texts:
        text = whole[:_MOST_READ]
        at = text.find("{")
        while at >= 0 and failures < _MOST_FAILURES and len(values) < _MOST_OBJECTS:
            try:
                value, end = read_at(text, at)
            except ValueError:
                failures, end = failures + 1, at + 1
                budget.spend(1 + (len(text) - at) // 256)
            else:
                budget.spend(1 + (end - at) // 64)
                values.append(value)
            at = text.find("{", end)
    return values


def encode_json(value: Any) -> str:
    """Encodes a value as compact JSON, without escaping characters."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_deeper(value: Any, most: int) -> bool:
    """Returns whether a value is nested in more than `most` levels."""
    level = [value]
    for _ in range(most + 1):
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
        ]
        if not level:
            return False
    return True
