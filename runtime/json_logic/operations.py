"""The operations of JSON-Logic, except those that look up values by name (see `names.py`)."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from baobab.runtime.json_logic.context import EvaluationContext, RuleFailed
from baobab.runtime.json_logic.values import as_number, is_equal, is_same, is_true, to_double, to_text

MAX_ARGUMENTS = 1000
MAX_CHARACTERS = 100_000
MAX_ITEMS = 10_000
# Numbers of JSON-Logic are doubles, which are not exact integers beyond this.
_EXACT = 2**53

Run = Callable[[EvaluationContext], Any]


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation. `run` evaluates the arguments itself, because some operations stop early."""

    least: int
    most: int
    run: Callable[[Sequence[Run], EvaluationContext], Any]
    has_items: bool = False
    """Whether the second argument is evaluated for each item of the first, and sees the item instead of the data."""


def _compare_pairs(compare: Callable[[Any, Any], bool]) -> Callable[[list[Any]], bool]:
    """Compares two texts by their characters, anything else as numbers. False where one is no number."""

    def is_ordered(left: Any, right: Any) -> bool:
        if isinstance(left, str) and isinstance(right, str):
            return compare(left, right)
        left_number, right_number = as_number(left), as_number(right)
        return left_number is not None and right_number is not None and compare(left_number, right_number)

    return lambda values: all(is_ordered(a, b) for a, b in pairwise(values))


def _build_arithmetic(calculate: Callable[[list[float]], float]) -> Callable[[list[Any]], int | float]:
    def run(values: list[Any]) -> int | float:
        numbers = [to_double(value) for value in values]
        try:
            result = calculate(numbers)
        except ZeroDivisionError as exc:
            raise RuleFailed("division by zero") from exc
        except OverflowError as exc:
            raise RuleFailed("a number is too large") from exc
        if not math.isfinite(result):
            raise RuleFailed("a number is too large")
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
        return any(is_same(needle, item) for item in hay)
    return isinstance(hay, str) and isinstance(needle, str | int | float) and to_text(needle) in hay


def _join_texts(values: list[Any]) -> str:
    text = "".join(to_text(value) for value in values)
    if len(text) > MAX_CHARACTERS:
        raise RuleFailed(f"cat makes more than {MAX_CHARACTERS} characters")
    return text


def _merge_lists(values: list[Any]) -> list[Any]:
    merged_items: list[Any] = []
    for value in values:
        merged_items += value if isinstance(value, list) else [value]
        if len(merged_items) > MAX_ITEMS:
            raise RuleFailed(f"merge makes more than {MAX_ITEMS} items")
    return merged_items


def _return_null(_: EvaluationContext) -> Any:
    return None


def _choose_branch(arguments: Sequence[Run], data: EvaluationContext) -> Any:
    *pairs, last = arguments if len(arguments) % 2 else (*arguments, _return_null)
    for condition, then in zip(pairs[::2], pairs[1::2], strict=True):
        if is_true(condition(data)):
            return then(data)
    return last(data)


def _stop_at(stops: bool) -> Callable[[Sequence[Run], EvaluationContext], Any]:
    """Evaluates to the first value whose truth is `stops`, or else to the last value."""

    def run(arguments: Sequence[Run], data: EvaluationContext) -> Any:
        value = None
        for argument in arguments:
            value = argument(data)
            if is_true(value) is stops:
                break
        return value

    return run


def _evaluate_all(
    calculate: Callable[[list[Any]], Any], size: Callable[[Any], int] | None = None
) -> Callable[[Sequence[Run], EvaluationContext], Any]:
    """Makes an operation that evaluates all its arguments, then calculates the result from them.

    size: the bytes of a result, for operations that make texts or lists.
    """

    def run(arguments: Sequence[Run], data: EvaluationContext) -> Any:
        values = [argument(data) for argument in arguments]
        data.visit(values)
        result = calculate(values)
        if size is not None:
            data.spend(made_bytes=size(result))
        return result

    return run


def _cut_text(values: list[Any]) -> str:
    text, (start, *length) = to_text(values[0]), (_to_index(value) for value in values[1:])
    rest = text[start:] if start >= 0 else text[max(len(text) + start, 0) :]
    # A negative length leaves out that many characters of the end.
    return rest[: length[0]] if length else rest


def _to_index(value: Any) -> int:
    return int(to_double(value))


# --- operations with a rule for each item of a list -----------------------------------------------------------------


def _each(arguments: Sequence[Run], data: EvaluationContext) -> Iterator[tuple[Any, Any]]:
    """Yields each item with the rule's value for it. A value that is not a list has no items."""
    items = arguments[0](data)
    for item in items if isinstance(items, list) else ():
        yield item, arguments[1](data.within(item))


def _map_items(arguments: Sequence[Run], data: EvaluationContext) -> list[Any]:
    return _collect((value for _, value in _each(arguments, data)), data)


def _filter_items(arguments: Sequence[Run], data: EvaluationContext) -> list[Any]:
    return _collect((item for item, value in _each(arguments, data) if is_true(value)), data)


def _collect(values: Iterator[Any], data: EvaluationContext) -> list[Any]:
    collected_values = []
    for value in values:
        data.spend(made_bytes=_POINTER)
        collected_values.append(value)
    return collected_values


def _reduce_items(arguments: Sequence[Run], data: EvaluationContext) -> Any:
    items = arguments[0](data)
    result = arguments[2](data) if len(arguments) > 2 else None
    for item in items if isinstance(items, list) else ():
        result = arguments[1](data.within({"current": item, "accumulator": result}))
    return result


def _all_items(arguments: Sequence[Run], data: EvaluationContext) -> bool:
    has_items = False
    for _, value in _each(arguments, data):
        has_items = True
        if not is_true(value):
            return False
    # In JSON-Logic, nothing is true of all items of an empty list.
    return has_items


def _some_item(arguments: Sequence[Run], data: EvaluationContext) -> bool:
    return any(is_true(value) for _, value in _each(arguments, data))


def _no_item(arguments: Sequence[Run], data: EvaluationContext) -> bool:
    return not _some_item(arguments, data)


_POINTER = 8


def _text_size(text: str) -> int:
    return 4 * len(text)


def _list_size(items: list[Any]) -> int:
    return _POINTER * len(items)


OPERATIONS = {
    "==": Operation(2, 2, _evaluate_all(lambda values: is_equal(*values))),
    "!=": Operation(2, 2, _evaluate_all(lambda values: not is_equal(*values))),
    "===": Operation(2, 2, _evaluate_all(lambda values: is_same(*values))),
    "!==": Operation(2, 2, _evaluate_all(lambda values: not is_same(*values))),
    ">": Operation(2, 2, _evaluate_all(_compare_pairs(lambda a, b: a > b))),
    ">=": Operation(2, 2, _evaluate_all(_compare_pairs(lambda a, b: a >= b))),
    "<": Operation(2, 3, _evaluate_all(_compare_pairs(lambda a, b: a < b))),
    "<=": Operation(2, 3, _evaluate_all(_compare_pairs(lambda a, b: a <= b))),
    "!": Operation(1, 1, _evaluate_all(lambda values: not is_true(values[0]))),
    "!!": Operation(1, 1, _evaluate_all(lambda values: is_true(values[0]))),
    "and": Operation(1, MAX_ARGUMENTS, _stop_at(stops=False)),
    "or": Operation(1, MAX_ARGUMENTS, _stop_at(stops=True)),
    "if": Operation(0, MAX_ARGUMENTS, _choose_branch),
    "?:": Operation(0, MAX_ARGUMENTS, _choose_branch),
    "in": Operation(2, 2, _evaluate_all(_contains)),
    "+": Operation(1, MAX_ARGUMENTS, _evaluate_all(_build_arithmetic(math.fsum))),
    "-": Operation(1, 2, _evaluate_all(_build_arithmetic(_subtract))),
    "*": Operation(1, MAX_ARGUMENTS, _evaluate_all(_build_arithmetic(math.prod))),
    "/": Operation(2, 2, _evaluate_all(_build_arithmetic(lambda values: values[0] / values[1]))),
    "%": Operation(2, 2, _evaluate_all(_build_arithmetic(_take_remainder))),
    "min": Operation(1, MAX_ARGUMENTS, _evaluate_all(_build_arithmetic(min))),
    "max": Operation(1, MAX_ARGUMENTS, _evaluate_all(_build_arithmetic(max))),
    "cat": Operation(1, MAX_ARGUMENTS, _evaluate_all(_join_texts, _text_size)),
    "merge": Operation(0, MAX_ARGUMENTS, _evaluate_all(_merge_lists, _list_size)),
    "substr": Operation(2, 3, _evaluate_all(_cut_text, _text_size)),
    "map": Operation(2, 2, _map_items, has_items=True),
    "filter": Operation(2, 2, _filter_items, has_items=True),
    "reduce": Operation(2, 3, _reduce_items, has_items=True),
    "all": Operation(2, 2, _all_items, has_items=True),
    "some": Operation(2, 2, _some_item, has_items=True),
    "none": Operation(2, 2, _no_item, has_items=True),
}
