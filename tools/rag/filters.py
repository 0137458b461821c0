"""Filters of documents by their metadata.

    {"lang": "en", "year": {"$gte": 2020, "$lt": 2025}, "$or": [{"team": "ops"}, {"tags": {"$in": ["urgent"]}}]}

A name with a plain value wants that value: equal, or contained in a list or an object. All conditions of an object must
hold. Both databases get the same answer, because the filter is computed here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from baobab.tools.rag.errors import FilterInvalid, FilterTypeInvalid

Matches = Callable[[Mapping[str, Any]], bool]
_MOST_CONDITIONS, _DEEPEST = 100, 8
_ABSENT: Any = object()
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda value, wanted: value > wanted,
    "$gte": lambda value, wanted: value >= wanted,
    "$lt": lambda value, wanted: value < wanted,
    "$lte": lambda value, wanted: value <= wanted,
}


def compile_filter(given: Mapping[str, Any]) -> Matches:
    """Returns what tells whether metadata match. Raises FilterInvalid, FilterTypeInvalid."""
    return _Compiler().compile(given, 1)


class _Compiler:
    def __init__(self) -> None:
        self._conditions = 0

    def compile(self, given: Any, depth: int) -> Matches:
        if not isinstance(given, dict):
            raise FilterTypeInvalid("A filter is an object.")
        if depth > _DEEPEST:
            raise FilterInvalid(f"The filter is nested more than {_DEEPEST} levels deep.")
        parts = [self._compile_entry(name, wanted, depth) for name, wanted in given.items()]
        return lambda metadata: all(part(metadata) for part in parts)

    def _compile_entry(self, name: str, wanted: Any, depth: int) -> Matches:
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS:
            raise FilterInvalid(f"The filter has more than {_MOST_CONDITIONS} conditions.")
        if name == "$not":
            denied = self.compile(wanted, depth + 1)
            return lambda metadata: not denied(metadata)
        if name in ("$and", "$or"):
            if not isinstance(wanted, list) or not wanted:
                raise FilterTypeInvalid(f"`{name}` takes a list of filters.")
            branches = [self.compile(branch, depth + 1) for branch in wanted]
            combine = all if name == "$and" else any
            return lambda metadata: combine(branch(metadata) for branch in branches)
        if name.startswith("$"):
            raise _unknown(name)
        if isinstance(wanted, dict) and any(key.startswith("$") for key in wanted):
            checks = [self._compile_operator(operator, operand) for operator, operand in wanted.items()]
            return lambda metadata: all(check(metadata.get(name, _ABSENT)) for check in checks)
        return lambda metadata: _holds(metadata.get(name, _ABSENT), wanted)

    def _compile_operator(self, operator: str, operand: Any) -> Callable[[Any], bool]:
        self._conditions += 1
        if operator in ("$eq", "$ne"):
            is_wanted = operator == "$eq"
            return lambda value: _holds(value, operand) == is_wanted
        if operator in ("$in", "$nin"):
            if not isinstance(operand, list):
                raise FilterTypeInvalid(f"`{operator}` takes a list.")
            is_in = operator == "$in"
            return lambda value: any(_holds(value, one) for one in operand) == is_in
        if operator == "$exists":
            if not isinstance(operand, bool):
                raise FilterTypeInvalid("`$exists` takes true or false.")
            return lambda value: (value is not _ABSENT) == operand
        if operator in _COMPARISONS:
            if isinstance(operand, bool) or not isinstance(operand, (int, float, str)):
                raise FilterTypeInvalid(f"`{operator}` takes a number or a text.")
            compare = _COMPARISONS[operator]
            return lambda value: _is_comparable(value, operand) and compare(value, operand)
        raise _unknown(operator)


def _unknown(operator: str) -> FilterInvalid:
    return FilterInvalid(f"`{operator[:64]}` is no operator.", details={"invalidFilters": [operator[:64]]})


def _holds(value: Any, wanted: Any) -> bool:
    """Whether a value is the wanted one, or contains it as JSON contains JSON."""
    if value is _ABSENT:
        return False
    if isinstance(value, list):
        return all(
            any(_holds(item, one) for item in value) for one in (wanted if isinstance(wanted, list) else [wanted])
        )
    if isinstance(value, dict):
        return isinstance(wanted, dict) and all(_holds(value.get(name, _ABSENT), one) for name, one in wanted.items())
    # In Python, true equals 1.
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)


def _is_comparable(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):
        return isinstance(value, str)
    return isinstance(value, (int, float)) and not isinstance(value, bool)
