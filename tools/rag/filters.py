"""Filters of documents by their metadata.

    {"lang": "en", "year": {"$gte": 2020, "$lt": 2025}, "$or": [{"team": "ops"}, {"tags": {"$in": ["urgent"]}}]}

A name with a plain value wants that value: equal, or contained in a list or an object. All conditions of an object must
hold. Both databases get the same answer, because the filter is computed here.
"""

from collections.abc import Callable, Mapping
from typing import Any

from baobab.tools.rag.errors import FilterInvalid, FilterTypeInvalid

Matches = Callable[[Mapping[str, Any]], bool]
Holds = Callable[[Any], bool]
_MOST_CONDITIONS, _DEEPEST = 100, 8
_ABSENT: Any = object()
_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": lambda value, operand: value > operand,
    "$gte": lambda value, operand: value >= operand,
    "$lt": lambda value, operand: value < operand,
    "$lte": lambda value, operand: value <= operand,
}


def compile_filter(metadata_filter: Mapping[str, Any]) -> Matches:
    """Returns a function that tells whether metadata match. Raises FilterInvalid, FilterTypeInvalid."""
    return _Compiler().compile(metadata_filter, 1)


class _Compiler:
    def __init__(self) -> None:
        self._conditions = 0

    def compile(self, metadata_filter: Any, depth: int) -> Matches:
        if not isinstance(metadata_filter, dict):
            raise FilterTypeInvalid("A filter must be an object.")
        if depth > _DEEPEST:
            raise FilterInvalid(f"The filter is nested more than {_DEEPEST} levels deep.")
        parts = [self._compile_entry(name, condition, depth) for name, condition in metadata_filter.items()]
        return lambda metadata: all(part(metadata) for part in parts)

    def _compile_entry(self, name: str, condition: Any, depth: int) -> Matches:
        self._count()
        if name == "$not":
            matches_inner = self.compile(condition, depth + 1)
            return lambda metadata: not matches_inner(metadata)
        if name in ("$and", "$or"):
            if not isinstance(condition, list) or not condition:
                raise FilterTypeInvalid(f"`{name}` takes a list of filters.")
            branches = [self.compile(branch, depth + 1) for branch in condition]
            combine = all if name == "$and" else any
            return lambda metadata: combine(branch(metadata) for branch in branches)
        if name.startswith("$"):
            raise _unknown(name)
        if isinstance(condition, dict) and any(key.startswith("$") for key in condition):
            checks = [self._compile_operator(operator, operand) for operator, operand in condition.items()]
            return lambda metadata: all(check(metadata.get(name, _ABSENT)) for check in checks)
        holds = self._compile_value(condition)
        return lambda metadata: holds(metadata.get(name, _ABSENT))

    def _compile_operator(self, operator: str, operand: Any) -> Holds:
        self._count()
        if operator in ("$eq", "$ne"):
            is_wanted, holds = operator == "$eq", self._compile_value(operand)
            return lambda value: holds(value) == is_wanted
        if operator in ("$in", "$nin"):
            if not isinstance(operand, list):
                raise FilterTypeInvalid(f"`{operator}` takes a list.")
            is_in, plain_values, nested_checks = operator == "$in", *self._compile_items(operand)
            return lambda value: (
                (not plain_values.isdisjoint(_list_plain(value)) or any(holds(value) for holds in nested_checks))
                == is_in
            )
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

    def _compile_value(self, operand: Any) -> Holds:
        """Returns a function that tells whether a value equals the operand, or contains it as JSON contains JSON.

        It looks at each item of the value once, and once more for each list and object that is wanted in it: these
        count as conditions. Comparing each with each would take seconds for two lists of some thousand numbers.
        """
        if isinstance(operand, dict):
            self._count()
            entries = {name: self._compile_value(entry) for name, entry in operand.items()}
            return lambda value: _contains_object(value, entries)
        if isinstance(operand, list):
            self._count()
            plain_values, nested_checks = self._compile_items(operand)
            return lambda value: (
                isinstance(value, list)
                and (not plain_values or plain_values.issubset(_list_plain(value)))
                and all(any(holds(item) for item in value) for holds in nested_checks)
            )
        key = _identify(operand)
        return lambda value: key in _list_plain(value) if isinstance(value, list) else key == _identify(value)

    def _compile_items(self, items: list[Any]) -> tuple[set[Any], list[Holds]]:
        """Returns the plain values of a list, and a function for each of its lists and objects that tells whether a
        value contains it.
        """
        plain = {_identify(item) for item in items if not isinstance(item, (list, dict))}
        return plain, [self._compile_value(item) for item in items if isinstance(item, (list, dict))]

    def _count(self) -> None:
        self._conditions += 1
        if self._conditions > _MOST_CONDITIONS:
            raise FilterInvalid(f"The filter has more than {_MOST_CONDITIONS} conditions.")


def _unknown(operator: str) -> FilterInvalid:
    return FilterInvalid(f"`{operator[:64]}` is not an operator.", details={"invalidFilters": [operator[:64]]})


def _contains_object(value: Any, entries: dict[str, Holds]) -> bool:
    if isinstance(value, list):
        return any(_contains_object(item, entries) for item in value)
    return isinstance(value, dict) and all(holds(value.get(name, _ABSENT)) for name, holds in entries.items())


def _list_plain(value: Any) -> list[Any]:
    """Returns the values in a value that are neither lists nor objects, also those of nested lists, as `_identify`
    writes them.
    """
    if not isinstance(value, list):
        return [] if value is _ABSENT or isinstance(value, dict) else [_identify(value)]
    plain_values, unread_lists = [], [value]
    while unread_lists:
        for item in unread_lists.pop():
            if isinstance(item, list):
                unread_lists.append(item)
            elif not isinstance(item, dict):
                plain_values.append(_identify(item))
    return plain_values


def _identify(value: Any) -> tuple[bool, Any]:
    # In Python, True equals 1, so booleans are told apart first.
    return isinstance(value, bool), value


def _is_comparable(value: Any, operand: Any) -> bool:
    if isinstance(operand, str):
        return isinstance(value, str)
    return isinstance(value, (int, float)) and not isinstance(value, bool)
