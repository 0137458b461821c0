"""Conditions of edges: a part of JSON-Logic (jsonlogic.com), checked when it is parsed, evaluated without running code.

There are no loops, and the values that operations visit are counted, so rules end soon. They mean the same as in
JavaScript, with these exceptions: what would be NaN or Infinity there fails here; lists and objects are equal when
their contents are equal, and have no order; `cat` writes them as JSON.
"""

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

MAX_DEPTH = 32
MAX_VALUES = 1000
MAX_CHARACTERS = 100_000
MAX_ITEMS = 10_000
MAX_VISITED = 250_000
"""Values of the data that operations may visit; `_CHARACTERS` characters of a text count as one."""
_CHARACTERS = 64

# Numbers of JSON-Logic are doubles, which are not exact integers beyond this.
_EXACT = 2**53
_NUMBER = re.compile(r"[+-]?(?:\d{1,400}(?:\.\d{0,400})?|\.\d{1,400})(?:[eE][+-]?\d{1,5})?", re.ASCII)

_ABSENT = object()

# The name of a value in a rule, in parts: ("state", "rows", "0").
Name = tuple[str, ...]


class ConditionError(Exception):
    """A condition is invalid or failed. The text says why, without the values."""


class ConditionInvalid(ConditionError):
    """The rule is invalid. `path` leads to the part that is wrong."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


class ConditionFailed(ConditionError):
    """The rule cannot be evaluated with these values, such as a sum of texts."""


class EvaluationContext:
    """The values that rules see. Rules that are evaluated together share one bound on how many they visit."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.values = values
        self._left = MAX_VISITED

    def spend(self, values: Sequence[Any]) -> None:
        """Count the values that an operation is about to visit. Raises ConditionFailed beyond the bound."""
        waiting = [values]
        while waiting:
            items = waiting.pop()
            self._left -= len(items)
            for item in items:
                if isinstance(item, str):
                    self._left -= len(item) // _CHARACTERS
                elif isinstance(item, list):
                    waiting.append(item)
                elif isinstance(item, Mapping):
                    waiting.append(list(item.values()))
            if self._left < 0:
                raise ConditionFailed(f"the rules would visit more than {MAX_VISITED} values")


class Condition:
    """A rule, parsed once. `names`: what its `var` and `missing` look up, in order; () is all of the data."""

    def __init__(self, rule: Any) -> None:
        """`rule` is an object with one operation. Raises ConditionInvalid."""
        if not isinstance(rule, dict):
            raise ConditionInvalid((), "must be an object with one operation")
        parser = _Parser()
        self._run = parser.parse_rule(rule, ())
        self.names = tuple(parser.names)

    def evaluate(self, data: Mapping[str, Any] | EvaluationContext) -> Any:
        """Evaluate the rule for `{"state": ..., "input": ...}`. Raises ConditionFailed."""
        try:
            return self._run(data if isinstance(data, EvaluationContext) else EvaluationContext(data))
        except RecursionError as exc:
            raise ConditionFailed("a value is nested too deeply") from exc

    def is_met(self, data: Mapping[str, Any] | EvaluationContext) -> bool:
        """Whether the rule's value counts as true: not null, false, 0, "" or []. Raises ConditionFailed."""
        return _is_true(self.evaluate(data))


_Run = Callable[[EvaluationContext], Any]


@dataclass(frozen=True, slots=True)
class _Operation:
    """An operation. `run` evaluates the arguments itself, because some operations stop early."""

    least: int
    most: int
    run: Callable[[Sequence[_Run], EvaluationContext], Any]


class _Parser:
    def __init__(self) -> None:
        self.names: list[Name] = []
        self._left = MAX_VALUES

    def parse_rule(self, rule: Any, path: tuple[str | int, ...], depth: int = 1) -> _Run:
        self._left -= 1
        if self._left < 0:
            raise ConditionInvalid((), f"must have at most {MAX_VALUES} values")
        if depth > MAX_DEPTH:
            raise ConditionInvalid((), f"must be nested at most {MAX_DEPTH} deep")
        if isinstance(rule, list):
            items = [self.parse_rule(item, (*path, index), depth + 1) for index, item in enumerate(rule)]
            return lambda data: [item(data) for item in items]
        if isinstance(rule, dict):
            return self._parse_operation(rule, path, depth)
        return lambda _: rule

    def _parse_operation(self, rule: dict[str, Any], path: tuple[str | int, ...], depth: int) -> _Run:
        if len(rule) != 1:
            raise ConditionInvalid(path, "an operation is an object with one key")
        ((operator, given),) = rule.items()
        path = (*path, operator)
        # JSON-Logic lets a single argument stand without its list.
        arguments = given if isinstance(given, list) else [given]
        if operator == "var":
            return self._parse_var(arguments, path, depth)
        if operator == "missing":
            return self._parse_missing(arguments, path)
        operation = _OPERATIONS.get(operator)
        if operation is None:
            known = ", ".join(["var", "missing", *_OPERATIONS])
            raise ConditionInvalid(path, f"there is no such operation; there are {known}")
        if not operation.least <= len(arguments) <= operation.most:
            raise ConditionInvalid(path, _arity_message(operation, len(arguments)))
        if isinstance(given, list):
            runs = [self.parse_rule(item, (*path, index), depth + 1) for index, item in enumerate(given)]
        else:
            runs = [self.parse_rule(given, path, depth + 1)]
        return lambda data: operation.run(runs, data)

    def _parse_var(self, arguments: list[Any], path: tuple[str | int, ...], depth: int) -> _Run:
        if not 1 <= len(arguments) <= 2:
            raise ConditionInvalid(path, "takes a name and, optionally, a default")
        name = self._parse_name(arguments[0], path)
        if len(arguments) == 1:
            return lambda data: _look_up(name, data)
        default = self.parse_rule(arguments[1], (*path, 1), depth + 1)

        def run(data: EvaluationContext) -> Any:
            value = _look_up(name, data, _ABSENT)
            return default(data) if value is _ABSENT else value

        return run

    def _parse_missing(self, arguments: list[Any], path: tuple[str | int, ...]) -> _Run:
        if len(arguments) == 1 and isinstance(arguments[0], list):
            arguments = arguments[0]
        wanted = [(text, self._parse_name(text, path)) for text in arguments]
        return lambda data: [text for text, name in wanted if _look_up(name, data) in (None, "")]

    def _parse_name(self, text: Any, path: tuple[str | int, ...]) -> Name:
        """Parse a name, which must be literal text: a computed name could not be checked in advance."""
        self._left -= 1
        if self._left < 0:
            raise ConditionInvalid((), f"must have at most {MAX_VALUES} values")
        if not isinstance(text, str):
            raise ConditionInvalid(path, 'takes names as text, such as "state.x"')
        name = tuple(text.split(".")) if text else ()
        if name and name[0] not in {"state", "input"}:
            raise ConditionInvalid(path, 'a name begins with "state" or "input"')
        self.names.append(name)
        return name


def _arity_message(operation: _Operation, given: int) -> str:
    if operation.least == operation.most:
        return f"takes {operation.least} argument{'s' if operation.least > 1 else ''}, not {given}"
    if given < operation.least:
        return f"takes at least {operation.least} argument{'s' if operation.least > 1 else ''}"
    return f"takes at most {operation.most} arguments"


def _look_up(name: Name, data: EvaluationContext, absent: object = None) -> Any:
    value: Any = data.values
    for part in name:
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif (
            isinstance(value, list) and part.isascii() and part.isdigit() and len(part) < 10 and int(part) < len(value)
        ):
            value = value[int(part)]
        else:
            return absent
    return value


def _is_true(value: Any) -> bool:
    # An empty object counts as true, in JSON-Logic as in JavaScript.
    return isinstance(value, Mapping) or bool(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_same(left: Any, right: Any) -> bool:
    """Whether values are equal without conversion; all numbers are one type."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(_is_same(a, b) for a, b in zip(left, right, strict=True))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_is_same(value, right[key]) for key, value in left.items())
    if _is_number(left) and _is_number(right):
        return bool(left == right)
    return type(left) is type(right) and bool(left == right)


def _is_equal(left: Any, right: Any) -> bool:
    """Whether values are equal after the conversions of `==`: text and booleans are compared to numbers as numbers."""
    if left is None or right is None or type(left) is type(right) or (_is_number(left) and _is_number(right)):
        return _is_same(left, right)
    if not isinstance(left, str | int | float) or not isinstance(right, str | int | float):
        return False
    left_number, right_number = _as_number(left), _as_number(right)
    return left_number is not None and left_number == right_number


def _as_number(value: Any) -> int | float | None:
    """JavaScript's Number(), or None where that is NaN."""
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


def _compare_pairs(compare: Callable[[Any, Any], bool]) -> Callable[[list[Any]], bool]:
    """Compare two texts by their characters, anything else as numbers. False where one is no number."""

    def is_ordered(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        left_number, right_number = _as_number(left), _as_number(right)
        return left_number is not None and right_number is not None and compare(left_number, right_number)

    return lambda values: all(is_ordered(a, b) for a, b in pairwise(values))


def _to_double(value: Any) -> float:
    number = None if value is None else _as_number(value)
    if number is None:
        raise ConditionFailed(f"arithmetic needs numbers, and got {_describe_kind(value)}")
    try:
        double = float(number)
    except OverflowError as exc:
        raise ConditionFailed("a number is too large") from exc
    if not math.isfinite(double):
        raise ConditionFailed("a number is too large")
    return double


def _describe_kind(value: Any) -> str:
    if value is None:
        return "null"
    return "text that is not a number" if isinstance(value, str) else "a list or an object"


def _build_arithmetic(calculate: Callable[[list[float]], float]) -> Callable[[list[Any]], int | float]:
    def run(values: list[Any]) -> int | float:
        numbers = [_to_double(value) for value in values]
        try:
            result = calculate(numbers)
        except ZeroDivisionError as exc:
            raise ConditionFailed("division by zero") from exc
        except OverflowError as exc:
            raise ConditionFailed("a number is too large") from exc
        if not math.isfinite(result):
            raise ConditionFailed("a number is too large")
        return int(result) if result.is_integer() and abs(result) <= _EXACT else result

    return run


def _subtract(values: list[float]) -> float:
    return -values[0] if len(values) == 1 else values[0] - values[1]


def _take_remainder(values: list[float]) -> float:
    if values[1] == 0:
        raise ZeroDivisionError
    return math.fmod(values[0], values[1])


def _contains(values: list[Any]) -> bool:
    needle, hay = values
    if isinstance(hay, list):
        return any(_is_same(needle, item) for item in hay)
    return isinstance(hay, str) and isinstance(needle, str | int | float) and _to_text(needle) in hay


def _to_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _join_texts(values: list[Any]) -> str:
    text = "".join(_to_text(value) for value in values)
    if len(text) > MAX_CHARACTERS:
        raise ConditionFailed(f"cat makes more than {MAX_CHARACTERS} characters")
    return text


def _merge_lists(values: list[Any]) -> list[Any]:
    merged: list[Any] = []
    for value in values:
        merged += value if isinstance(value, list) else [value]
        if len(merged) > MAX_ITEMS:
            raise ConditionFailed(f"merge makes more than {MAX_ITEMS} items")
    return merged


def _return_null(_: EvaluationContext) -> Any:
    return None


def _choose_branch(arguments: Sequence[_Run], data: EvaluationContext) -> Any:
    *pairs, last = arguments if len(arguments) % 2 else (*arguments, _return_null)
    for condition, then in zip(pairs[::2], pairs[1::2], strict=True):
        if _is_true(condition(data)):
            return then(data)
    return last(data)


def _stop_at(stops: bool) -> Callable[[Sequence[_Run], EvaluationContext], Any]:
    """Evaluate to the first value whose truth is `stops`, or else to the last value."""

    def run(arguments: Sequence[_Run], data: EvaluationContext) -> Any:
        value = None
        for argument in arguments:
            value = argument(data)
            if _is_true(value) is stops:
                break
        return value

    return run


def _evaluate_all(calculate: Callable[[list[Any]], Any]) -> Callable[[Sequence[_Run], EvaluationContext], Any]:
    def run(arguments: Sequence[_Run], data: EvaluationContext) -> Any:
        values = [argument(data) for argument in arguments]
        data.spend(values)
        return calculate(values)

    return run


_OPERATIONS = {
    "==": _Operation(2, 2, _evaluate_all(lambda values: _is_equal(*values))),
    "!=": _Operation(2, 2, _evaluate_all(lambda values: not _is_equal(*values))),
    "===": _Operation(2, 2, _evaluate_all(lambda values: _is_same(*values))),
    "!==": _Operation(2, 2, _evaluate_all(lambda values: not _is_same(*values))),
    ">": _Operation(2, 2, _evaluate_all(_compare_pairs(lambda a, b: a > b))),
    ">=": _Operation(2, 2, _evaluate_all(_compare_pairs(lambda a, b: a >= b))),
    "<": _Operation(2, 3, _evaluate_all(_compare_pairs(lambda a, b: a < b))),
    "<=": _Operation(2, 3, _evaluate_all(_compare_pairs(lambda a, b: a <= b))),
    "!": _Operation(1, 1, _evaluate_all(lambda values: not _is_true(values[0]))),
    "!!": _Operation(1, 1, _evaluate_all(lambda values: _is_true(values[0]))),
    "and": _Operation(1, MAX_VALUES, _stop_at(stops=False)),
    "or": _Operation(1, MAX_VALUES, _stop_at(stops=True)),
    "if": _Operation(2, MAX_VALUES, _choose_branch),
    "in": _Operation(2, 2, _evaluate_all(_contains)),
    "+": _Operation(1, MAX_VALUES, _evaluate_all(_build_arithmetic(math.fsum))),
    "-": _Operation(1, 2, _evaluate_all(_build_arithmetic(_subtract))),
    "*": _Operation(1, MAX_VALUES, _evaluate_all(_build_arithmetic(math.prod))),
    "/": _Operation(2, 2, _evaluate_all(_build_arithmetic(lambda values: values[0] / values[1]))),
    "%": _Operation(2, 2, _evaluate_all(_build_arithmetic(_take_remainder))),
    "min": _Operation(1, MAX_VALUES, _evaluate_all(_build_arithmetic(min))),
    "max": _Operation(1, MAX_VALUES, _evaluate_all(_build_arithmetic(max))),
    "cat": _Operation(1, MAX_VALUES, _evaluate_all(_join_texts)),
    "merge": _Operation(0, MAX_VALUES, _evaluate_all(_merge_lists)),
}
