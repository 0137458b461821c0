"""The bounds of a graph, checked before its fields are read: JSON of limited size that both databases can store."""

import math
from collections.abc import Iterator
from typing import Any

from baobab.runtime.agents.spec.issue import Issue, Path

MAX_DEPTH = 32
MAX_VALUES = 20_000
MAX_CHARACTERS = 1_000_000
MAX_SCHEMA_VALUES = 4000
"""The most values in all JSON Schemas of a graph together. Checking a schema takes a quarter of a millisecond per
value.
"""
MAX_KEY = 256
MAX_HELD_DEPTH = 100
"""The deepest nesting of a value in a run's state. Checkpoints nest it further, and are read to a depth of 200."""
# Most JSON parsers do not read integers of more than 64 bits.
_LARGEST = 2**63


def find_violations(value: Any) -> Iterator[Issue]:
    """Yields the first bound that a value exceeds, and nothing for a value within all of them. Does not recurse."""
    values = characters = 0
    waiting: list[tuple[Path, Any]] = [((), value)]
    while waiting:
        path, item = waiting.pop()
        values += 1
        if len(path) > MAX_DEPTH:
            yield Issue(path, f"must be nested at most {MAX_DEPTH} deep")
            return
        # Counts what is still waiting too, so that a long list fails before it is walked.
        if values + len(waiting) + (len(item) if isinstance(item, list | dict) else 0) > MAX_VALUES:
            yield Issue((), f"must have at most {MAX_VALUES} values")
            return
        characters += _count_characters(item)
        if characters > MAX_CHARACTERS:
            yield Issue((), f"must have at most {MAX_CHARACTERS} characters of text")
            return
        if fault := _find_fault(item):
            yield Issue(path, fault)
            return
        if isinstance(item, dict):
            waiting.extend(((*path, key), item[key]) for key in reversed(item))
        elif isinstance(item, list):
            waiting.extend(((*path, index), item[index]) for index in reversed(range(len(item))))


def count_values(value: Any) -> int:
    """Counts a JSON value and all values in it. Does not recurse."""
    count, waiting = 0, [value]
    while waiting:
        item = waiting.pop()
        count += 1
        if isinstance(item, dict | list):
            waiting.extend(item.values() if isinstance(item, dict) else item)
    return count


def is_too_deep(value: Any) -> bool:
    """Returns whether a value is nested too deeply for the state of a run. Does not recurse."""
    level = [value]
    for _ in range(MAX_HELD_DEPTH + 1):
        level = [item for each in level if isinstance(each, dict | list) for item in _nested_containers(each)]
        if not level:
            return False
    return True


def _nested_containers(item: dict[str, Any] | list[Any]) -> list[Any]:
    inside = item.values() if isinstance(item, dict) else item
    return [each for each in inside if isinstance(each, dict | list)]


def _count_characters(item: Any) -> int:
    if isinstance(item, dict):
        return sum(len(key) for key in item if isinstance(key, str))
    return len(item) if isinstance(item, str) else 0


def _find_fault(item: Any) -> str | None:
    match item:
        case None | bool() | list():
            return None
        case dict():
            # Reported at the object: a faulty key could not stand in a path.
            return next(filter(None, map(_find_key_fault, item)), None)
        case str():
            return _find_text_fault(item)
        case int():
            return None if -_LARGEST <= item < _LARGEST else "must be a number of at most 64 bits"
        case float():
            return None if math.isfinite(item) else "must be a finite number"
        case _:
            return "must be JSON"


def _find_key_fault(key: Any) -> str | None:
    if not isinstance(key, str):
        return "must have text as its keys"
    # Keys are bounded, since the paths of issues repeat them.
    return _find_text_fault(key) if len(key) <= MAX_KEY else f"must have keys of at most {MAX_KEY} characters"


def _find_text_fault(text: str) -> str | None:
    if "\x00" in text:
        return "must not hold the character NUL"
    try:
        text.encode()
    except UnicodeEncodeError:
        return "must be Unicode text: it holds half of a pair of surrogates"
    return None
