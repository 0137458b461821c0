"""Functions and a collation that Postgres has and SQLite lacks. Statements on apps' tables use them by name."""

import json
import sqlite3
import uuid
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

from baobab.storage.data.english import search_text
from baobab.storage.vectors.numpy_import import import_numpy

_EXACT = Context(prec=4000)
_WIDE = Context(prec=40_000)
"""A context with enough digits for arithmetic with the longest numbers of columns."""


def add_to(connection: sqlite3.Connection) -> None:
    connection.create_collation("decimal", _compare_decimals)
    for name, arguments, function in (
        ("absolute", 1, _measure_size),
        ("fold", 1, _fold),
        ("exact", 3, _calculate),
        ("exact_number", 1, _read_exact),
        ("exact_round", 2, _round_exact),
        ("exact_between", 3, _is_between),
        ("json_as_text", 1, _write_as_text),
        ("json_member", 2, _find_member),
        ("json_contains", 2, lambda left, right: _of_json(_contains, left, right)),
        ("json_contained", 2, lambda left, right: _of_json(_contains, right, left)),
        ("json_overlaps", 2, lambda left, right: _of_json(_overlaps, left, right)),
        ("english_search", 2, search_text),
    ):
        connection.create_function(name, arguments, function, deterministic=True)
    for metric in ("cosine", "l2", "inner"):
        connection.create_function(f"vector_{metric}", 2, partial(_measure_distance, metric), deterministic=True)
    connection.create_aggregate("decimal_sum", 1, _DecimalSum)
    connection.create_function("gen_random_uuid", 0, lambda: str(uuid.uuid4()))


def _measure_size(number: int | float | str | None) -> int | float | None:
    """Returns the absolute value, which SQLite's `abs` cannot do for the least integer. A text is a number with a
    point.
    """
    if number is None:
        return None
    size = abs(number if isinstance(number, int) else float(number))
    return size if size < 2**63 else float(size)


def _calculate(operator: str, left: int | float | str | None, right: int | float | str | None) -> str | None:
    """Returns the exact result of `+`, `-` or `*`, as a text with as many decimals as Postgres's `numeric` has."""
    if left is None or right is None:
        return None
    a, b = Decimal(str(left)), Decimal(str(right))
    result = {"+": _WIDE.add, "-": _WIDE.subtract, "*": _WIDE.multiply}[operator](a, b)
    return format(result.copy_abs() if result.is_zero() else result, "f")


def _read_exact(value: int | float | str | None) -> int | float | None:
    """Returns the float nearest to an exact number, for comparisons."""
    if value is None:
        return None
    number = Decimal(str(value))
    is_integer = number == number.to_integral_value() and abs(number) < 2**63
    return int(number) if is_integer else float(number)


def _round_exact(value: int | float | str | None, scale: int) -> str | None:
    if value is None:
        return None
    result = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    return format(result.copy_abs() if result.is_zero() else result, "f")


def _is_between(value: str | None, low: str, high: str) -> bool | None:
    return None if value is None else Decimal(low) <= Decimal(value) <= Decimal(high)


def _compare_decimals(left: str, right: str) -> int:
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)


class _DecimalSum:
    """Computes the exact sum of numbers, of which those with a point are texts; None for no numbers."""

    def __init__(self) -> None:
        self._sum: Decimal | None = None

    def step(self, value: Any, /) -> None:
        if value is not None:
            self._sum = Decimal(value) if self._sum is None else _EXACT.add(self._sum, Decimal(value))

    def finalize(self) -> Any:
        return None if self._sum is None else format(self._sum, "f")


def _measure_distance(metric: str, left: bytes | None, right: bytes | None) -> float | None:
    """Returns the distance between two vectors, as pgvector computes it; None if there is none."""
    if left is None or right is None:
        return None
    np = import_numpy()
    a, b = (np.frombuffer(packed_vector, dtype="<f4").astype("f8") for packed_vector in (left, right))
    if metric == "l2":
        return float(np.linalg.norm(a - b))
    product = float(a @ b)
    if metric == "inner":
        return -product
    size = float(np.linalg.norm(a) * np.linalg.norm(b))
    return 1 - product / size if size else None


def _fold(text: str | None) -> str | None:
    return None if text is None else text.lower()


def _of_json(compare: Any, left: str | None, right: str | None) -> bool | None:
    if left is None or right is None:
        return None
    result: bool = compare(json.loads(left), json.loads(right))
    return result


def _write_as_text(document: str | None) -> str | None:
    """Returns JSON as Postgres's `->>` does: a text without its quotes, null as null, anything else as `jsonb` shows
    it.
    """
    if document is None or document == "null":
        return None
    if document[0] not in '"[{' and not {".", "e", "E"} & set(document):
        return document
    value = json.loads(document, parse_float=Decimal)
    try:
        return value if isinstance(value, str) else _show_json(value)
    except RecursionError:
        return document


def _show_json(value: Any) -> str:
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return f"{{{', '.join([f'{_show_json(name)}: {_show_json(value[name])}' for name in names])}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_show_json, value))}]"
    if isinstance(value, Decimal):
        return format(value.copy_abs() if value.is_zero() else value, "f")
    return json.dumps(value, ensure_ascii=False)


def _find_member(document: str | None, name: str) -> str | None:
    value = None if document is None else json.loads(document)
    return json.dumps(value[name], ensure_ascii=False) if isinstance(value, dict) and name in value else None


def _contains(whole: Any, part: Any) -> bool:
    """Returns whether JSON contains other JSON, as Postgres's `@>` does: an array also contains a value that is not an
    array.
    """
    if isinstance(whole, dict) and isinstance(part, dict):
        return all(name in whole and _contains_below(whole[name], value) for name, value in part.items())
    if isinstance(whole, list) and isinstance(part, list):
        return all(any(_contains_below(item, element) for item in whole) for element in part)
    if isinstance(whole, list) and not isinstance(part, dict):
        return any(_same(item, part) for item in whole)
    return _same(whole, part)


def _contains_below(whole: Any, part: Any) -> bool:
    if isinstance(whole, dict | list) and type(whole) is type(part):
        return _contains(whole, part)
    return _same(whole, part)


def _same(left: Any, right: Any) -> bool:
    # In Python, True equals 1, so booleans are told apart first.
    return isinstance(left, bool) == isinstance(right, bool) and bool(left == right)


def _overlaps(left: list[Any], right: list[Any]) -> bool:
    return any(_same(a, b) for a in left if a is not None for b in right)
