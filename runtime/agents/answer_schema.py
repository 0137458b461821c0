"""The JSON Schema of a model's answer: whether it is one, and whether an answer is of it."""

from collections.abc import Sequence
from typing import Any

from baobab.runtime.bounded_schema import BoundedSchema, SchemaUnusable
from baobab.runtime.work_budget import Budget, OverBudget

_MOST_STEPS = 100_000
_MOST_BYTES = 8 * 2**20
_LONGEST = 200


def find_schema_error(schema: Any) -> tuple[Sequence[str | int], str] | None:
    """Where and why it is no JSON Schema (draft 2020-12)."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        return list(exc.path), exc.message[:_LONGEST]
    return None


def find_mismatch(schema: Any, answer: Any) -> str | None:
    """Where and how an answer is not of a schema. None where it is, and where that cannot be told within bounds.

    Regular expressions are not held against it, for some take longer than anybody waits.
    """
    bounded = BoundedSchema(schema, Budget(_MOST_STEPS, _MOST_BYTES))
    try:
        error = bounded.find_fault(schema, answer)
    except (OverBudget, SchemaUnusable):
        return None
    return None if error is None else f"{error.json_path}: {error.message}"[:_LONGEST]
