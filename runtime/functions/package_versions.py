"""Versions and ranges of packages, as npm compares them."""

import re
from collections.abc import Iterable
from typing import Any

_VERSION = re.compile(r"v?(\d+)\.(\d+)\.(\d+)(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_PART = re.compile(
    r"(>=|<=|>|<|=|~>?|\^)?v?(\d+|[xX*])(?:\.(\d+|[xX*]))?(?:\.(\d+|[xX*]))?(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?"
)
_GAP = re.compile(r"(>=|<=|>|<|=|~>?|\^)\s+")
_HYPHEN = re.compile(r"(\S+)\s+-\s+(\S+)")

Numbers = tuple[int, int, int]
Key = tuple[Numbers, tuple[Any, ...]]
Comparator = tuple[str, Key]
_RELEASE: tuple[Any, ...] = (1,)


class BadRange(ValueError):
    """A text is no range of versions."""


def find_best(versions: Iterable[str], text: str) -> str | None:
    """Returns the highest version that a range takes; None if there is none. Raises BadRange."""
    choices = [_parse_choice(choice) for choice in text.split("||")]
    keys = {version: key for version in versions if (key := _read_version(version)) is not None}
    fit_versions = [version for version, key in keys.items() if any(_fits(key, choice) for choice in choices)]
    return max(fit_versions, key=lambda version: keys[version], default=None)


def _read_version(text: str) -> Key | None:
    match = _VERSION.fullmatch(text)
    return None if match is None else ((int(match[1]), int(match[2]), int(match[3])), _read_suffix(match[4]))


def _read_suffix(text: str | None) -> tuple[Any, ...]:
    """Returns what comes before a release in the order of versions: numbers before words."""
    if text is None:
        return _RELEASE
    return (0, *((0, int(part), "") if part.isdigit() else (1, 0, part) for part in text.split(".")))


def _fits(key: Key, comparators: list[Comparator]) -> bool:
    numbers, suffix = key
    # What comes before a release is taken only where the range names one of the same release.
    if suffix != _RELEASE and not any(
        other == numbers and other_suffix != _RELEASE for _, (other, other_suffix) in comparators
    ):
        return False
    return all(_compare(operator, key, other) for operator, other in comparators)


def _compare(operator: str, key: Key, other: Key) -> bool:
    match operator:
        case ">=":
            return key >= other
        case "<=":
            return key <= other
        case ">":
            return key > other
        case "<":
            return key < other
    return key == other


def _parse_choice(text: str) -> list[Comparator]:
    text = _HYPHEN.sub(r">=\1 <=\2", _GAP.sub(r"\1", text.strip()))
    if text in ("", "latest"):
        text = "*"
    return [comparator for part in text.split() for comparator in _parse_part(part)]


def _parse_part(text: str) -> list[Comparator]:
    match = _PART.fullmatch(text)
    if match is None:
        raise BadRange(text)
    operator = match[1] or "="
    parts = [int(part) for part in match.group(2, 3, 4) if part is not None and part not in "xX*"]
    numbers: Any = tuple(parts + [0] * (3 - len(parts)))
    low = (numbers, _read_suffix(match[5]))
    if operator == "^":
        # The first number that is not 0 stays.
        place = next((at for at, number in enumerate(parts) if number), max(len(parts) - 1, 0))
        return [(">=", low), *_below(parts, place)]
    if operator.startswith("~"):
        return [(">=", low), *_below(parts, min(1, len(parts) - 1))]
    if len(parts) == 3 or operator in (">=", "<"):
        return [(operator, low)]
    next_ones = _below(parts, len(parts) - 1)
    if operator == "=":
        return [(">=", low), *next_ones]
    return next_ones if operator == "<=" else [(">=", key) for _, key in next_ones]


def _below(parts: list[int], at: int) -> list[Comparator]:
    """Returns that a version is below the next one of the number at a place; nothing if there is no such number."""
    if at < 0 or not parts:
        return []
    numbers: Any = tuple([*parts[:at], parts[at] + 1] + [0] * (2 - at))
    return [("<", (numbers, _RELEASE))]
