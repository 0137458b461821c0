"""JSON in the texts that a model reads: taken with bounds, since the texts come from anyone."""

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
    """The JSON value that begins there, and where it ends. Raises ValueError."""
    try:
        value, end = _DECODER.raw_decode(text, at)
    except RecursionError as deep:
        raise ValueError("nested too deeply") from deep
    if is_deeper(value, _MOST_DEPTH):
        raise ValueError("nested too deeply")
    return value, end


def find_objects(texts: Iterable[str], budget: Budget) -> list[dict[str, Any]]:
    """The JSON objects that stand in texts, in order. No more after so many, or so many braces that begin none; of a
    text its first 100,000 characters are read. Raises OverBudget.
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
    """Compact JSON, with characters as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def is_deeper(value: Any, most: int) -> bool:
    """Whether a value is nested in more levels than that."""
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
