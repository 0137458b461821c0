"""Names of values, such as "state.rows.0", and the operations that look values up by them."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.runtime.json_logic.context import EvaluationContext, RuleFailed
from baobab.runtime.json_logic.operations import MAX_ARGUMENTS, Operation, Run
from baobab.runtime.json_logic.values import is_number, to_double, to_text

Name = tuple[str, ...]
"""A name in parts: ("state", "rows", "0"). () is all of the data."""

_ABSENT = object()


def split_name(text: str) -> Name:
    return tuple(text.split(".")) if text else ()


def look_up(name: Name, value: Any, absent: object = None) -> Any:
    """Returns the value of a name within a value."""
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


def look_up_or(name: Name, data: EvaluationContext, default: Run) -> Any:
    value = look_up(name, data.values, _ABSENT)
    return default(data) if value is _ABSENT else value


def find_missing(names: Sequence[tuple[Any, Name]], data: EvaluationContext) -> list[Any]:
    """Returns the names whose values are null, empty or not there."""
    return [text for text, name in names if look_up(name, data.values) in (None, "")]


def find_missing_some(needed_count: Any, names: Sequence[tuple[Any, Name]], data: EvaluationContext) -> list[Any]:
    """Returns the names that are missing, or none where as many as are needed are there."""
    missing = find_missing(names, data)
    return [] if len(names) - len(missing) >= to_double(needed_count) else missing


def _compute_name(value: Any, data: EvaluationContext) -> Name:
    if value is None:
        return ()
    if not isinstance(value, str) and not is_number(value):
        raise RuleFailed("a name is text or a number")
    data.visit([value])
    return split_name(to_text(value))


def _run_var(arguments: Sequence[Run], data: EvaluationContext) -> Any:
    name = _compute_name(arguments[0](data), data) if arguments else ()
    return look_up(name, data.values) if len(arguments) < 2 else look_up_or(name, data, arguments[1])


def _run_missing(arguments: Sequence[Run], data: EvaluationContext) -> list[Any]:
    texts = [argument(data) for argument in arguments]
    if texts and isinstance(texts[0], list):
        texts = texts[0]
    return find_missing([(text, _compute_name(text, data)) for text in texts], data)


def _run_missing_some(arguments: Sequence[Run], data: EvaluationContext) -> list[Any]:
    needed_count, texts = arguments[0](data), arguments[1](data)
    if not isinstance(texts, list):
        raise RuleFailed("missing_some takes a number and a list of names")
    return find_missing_some(needed_count, [(text, _compute_name(text, data)) for text in texts], data)


OPERATIONS = {
    "var": Operation(0, 2, _run_var),
    "missing": Operation(0, MAX_ARGUMENTS, _run_missing),
    "missing_some": Operation(2, 2, _run_missing_some),
}
