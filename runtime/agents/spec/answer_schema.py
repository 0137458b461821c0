"""Checks the JSON Schema of a model's answer, and answers against it."""

from collections.abc import Sequence
from typing import Any

from baobab.runtime.bounded_schema import BoundedSchema, SchemaUnusable
from baobab.runtime.work_budget import Budget, OverBudget

_MOST_STEPS = 100_000
_MOST_BYTES = 8 * 2**20
_LONGEST = 200


def find_schema_error(schema: Any) -> tuple[Sequence[str | int], str] | None:
    """Returns the path and the message of the first fault in a JSON Schema (draft 2020-12); None for a valid one."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        return list(exc.path), exc.message[:_LONGEST]
    return None


def find_mismatch(schema: Any, answer: Any) -> str | None:
    """Returns why an answer does not match a schema. None where it does, and where checking would take too much work.

    Regular expressions are not checked, because some take practically for ever.
    """
    bounded_schema = BoundedSchema(schema, Budget(_MOST_STEPS, _MOST_BYTES))
    try:
        error = bounded_schema.find_fault(schema, answer)
    except (OverBudget, SchemaUnusable):
        return None
    return None if error is None else f"{error.json_path}: {error.message}"[:_LONGEST]
