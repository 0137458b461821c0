"""Functions and a collation that Postgres has and SQLite lacks, or has in a form that nothing can stop. Statements on
apps' tables use them by name.
"""

import json
import sqlite3
import uuid
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import partial
from typing import Any

from baobab.storage.data.english import search_text
from baobab.storage.data.json_sets import JsonSets
from baobab.storage.data.patterns import is_like
from baobab.storage.sql.deadline import Check, Deadline
from baobab.storage.vectors.numpy_import import import_numpy

_EXACT = Context(prec=4000)
_WIDE = Context(prec=40_000)
"""A context with enough digits for arithmetic with the longest numbers of columns."""


def add_to(connection: sqlite3.Connection, deadline: Deadline) -> None:
    """Adds the functions to a connection. Each raises once the deadline has passed."""
    connection.create_collation("decimal", partial(_compare_decimals, connection, deadline))
    for name, (arguments, function) in FUNCTIONS.items():
        guarded_function = _GuardedFunction(deadline, function)
        connection.create_function(name, arguments, guarded_function, deterministic=name not in _DIFFERENT_EACH_TIME)
    connection.create_aggregate("decimal_sum", 1, type("_Sum", (_DecimalSum,), {"deadline": deadline}))


class _GuardedFunction:
    """A function that is not called any more once the deadline has passed."""

    __slots__ = ("_deadline", "_function")

    def __init__(self, deadline: Deadline, function: Callable[..., Any]) -> None:
        self._deadline = deadline
        self._function = function

    def __call__(self, *arguments: Any) -> Any:
        check = self._deadline.check
        check()
        return self._function(check, *arguments)


def _measure_size(_: Check, number: int | float | str | None) -> int | float | None:
    """Returns the absolute value, which SQLite's `abs` cannot do for the least integer. A text is a number with a
    point.
    """
    if number is None:
        return None
    size = abs(number if isinstance(number, int) else float(number))
    return size if size < 2**63 else float(size)


def _calculate(_: Check, operator: str, left: int | float | str | None, right: int | float | str | None) -> str | None:
    """Returns the exact result of `+`, `-` or `*`, as a text with as many decimals as Postgres's `numeric` has."""
    if left is None or right is None:
        return None
    a, b = Decimal(str(left)), Decimal(str(right))
    result = {"+": _WIDE.add, "-": _WIDE.subtract, "*": _WIDE.multiply}[operator](a, b)
    return format(result.copy_abs() if result.is_zero() else result, "f")


def _read_exact(_: Check, value: int | float | str | None) -> int | float | None:
    """Returns the float nearest to an exact number, for comparisons."""
    if value is None:
        return None
    number = Decimal(str(value))
    is_integer = number == number.to_integral_value() and abs(number) < 2**63
    return int(number) if is_integer else float(number)


def _round_exact(_: Check, value: int | float | str | None, scale: int) -> str | None:
    if value is None:
        return None
    result = Decimal(str(value)).quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, _WIDE)
    return format(result.copy_abs() if result.is_zero() else result, "f")


def _is_between(_: Check, value: str | None, low: str, high: str) -> bool | None:
    return None if value is None else Decimal(low) <= Decimal(value) <= Decimal(high)


def _compare_decimals(connection: sqlite3.Connection, deadline: Deadline, left: str, right: str) -> int:
    if deadline.stops_comparisons and deadline.has_passed:
        # A comparison cannot fail, and a sort is one step of SQLite's: it ends soon, and its result is thrown away.
        deadline.has_stopped_a_call = True
        connection.interrupt()
        return 0
    a, b = Decimal(left), Decimal(right)
    return (a > b) - (a < b)


class _DecimalSum:
    """Computes the exact sum of numbers, of which those with a point are texts; None for no numbers."""

    deadline: Deadline

    def __init__(self) -> None:
        self._sum: Decimal | None = None

    def step(self, value: Any, /) -> None:
        self.deadline.check()
        if value is not None:
            self._sum = Decimal(value) if self._sum is None else _EXACT.add(self._sum, Decimal(value))

    def finalize(self) -> Any:
        return None if self._sum is None else format(self._sum, "f")


def _measure_distance(metric: str, _: Check, left: bytes | None, right: bytes | None) -> float | None:
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


def _fold(_: Check, text: str | None) -> str | None:
    return None if text is None else text.lower()


def _contains(check: Check, whole: str | None, part: str | None) -> bool | None:
    return None if whole is None or part is None else JsonSets(check).contains(json.loads(whole), json.loads(part))


def _is_contained(check: Check, part: str | None, whole: str | None) -> bool | None:
    return _contains(check, whole, part)


def _overlaps(check: Check, left: str | None, right: str | None) -> bool | None:
    return None if left is None or right is None else JsonSets(check).overlaps(json.loads(left), json.loads(right))


def _write_as_text(check: Check, document: str | None) -> str | None:
    """Returns JSON as Postgres's `->>` does: a text without its quotes, null as null, anything else as `jsonb` shows
    it.
    """
    if document is None or document == "null":
        return None
    if document[0] not in '"[{' and not {".", "e", "E"} & set(document):
        return document
    value = json.loads(document, parse_float=Decimal)
    try:
        return value if isinstance(value, str) else _show_json(check, value)
    except RecursionError:
        return document


def _show_json(check: Check, value: Any) -> str:
    check()
    if isinstance(value, dict):
        names = sorted(value, key=lambda name: (len(name.encode()), name.encode()))
        return f"{{{', '.join([f'{_show_json(check, name)}: {_show_json(check, value[name])}' for name in names])}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(partial(_show_json, check), value))}]"
    if isinstance(value, Decimal):
        return format(value.copy_abs() if value.is_zero() else value, "f")
    return json.dumps(value, ensure_ascii=False)


def _find_member(_: Check, document: str | None, name: str) -> str | None:
    value = None if document is None else json.loads(document)
    return json.dumps(value[name], ensure_ascii=False) if isinstance(value, dict) and name in value else None


def _make_uuid(_: Check) -> str:
    return str(uuid.uuid4())


FUNCTIONS: dict[str, tuple[int, Callable[..., Any]]] = {
    "absolute": (1, _measure_size),
    "fold": (1, _fold),
    "exact": (3, _calculate),
    "exact_number": (1, _read_exact),
    "exact_round": (2, _round_exact),
    "exact_between": (3, _is_between),
    "json_as_text": (1, _write_as_text),
    "json_member": (2, _find_member),
    "json_contains": (2, _contains),
    "json_contained": (2, _is_contained),
    "json_overlaps": (2, _overlaps),
    "english_search": (2, search_text),
    # `a LIKE b ESCAPE c` calls it.
    "like": (3, is_like),
    **{f"vector_{metric}": (2, partial(_measure_distance, metric)) for metric in ("cosine", "l2", "inner")},
    "gen_random_uuid": (0, _make_uuid),
}
"""The functions by name, with the number of their arguments. Each also gets a function that checks the deadline."""
_DIFFERENT_EACH_TIME = ("gen_random_uuid",)
