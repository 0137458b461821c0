"""The JSON Schema of a model's answer: whether it is one, and whether an answer is of it."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

_MOST_LOOKED_AT = 100_000
"""Values of schema and answer together: references may lead to the same ones again and again."""
_LEFT_OUT = frozenset(("pattern", "patternProperties", "uniqueItems", "unevaluatedItems", "unevaluatedProperties"))
_LONGEST = 200

_Rule = Callable[[Any, Any, Any, Mapping[str, Any]], Any]


class _TooMuchError(Exception):
    """More would have to be looked at than is."""


def malformed(schema: Any) -> tuple[Sequence[str | int], str] | None:
    """Where and why it is no JSON Schema (draft 2020-12)."""
    from jsonschema import Draft202012Validator, SchemaError

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as exc:
        return list(exc.path), exc.message[:_LONGEST]
    return None


def departure(schema: Any, answer: Any) -> str | None:
    """Where and how an answer is not of a schema. None where it is, and where that cannot be told within bounds.

    Regular expressions are not held against it, for some take longer than anybody waits; nor is what compares
    everything with everything.
    """
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create
    from referencing.exceptions import Unresolvable

    left = [_MOST_LOOKED_AT]
    known = Draft202012Validator.VALIDATORS.items()
    rules = {name: _counted(name, rule, left) for name, rule in known if name not in _LEFT_OUT}
    validator = create(Draft202012Validator.META_SCHEMA, rules, type_checker=Draft202012Validator.TYPE_CHECKER)(schema)
    try:
        error = next(iter(validator.iter_errors(answer)), None)
    except (_TooMuchError, RecursionError, ArithmeticError, Unresolvable):
        return None
    return None if error is None else f"{error.json_path}: {error.message}"[:_LONGEST]


def _counted(name: str, rule: _Rule, left: list[int]) -> _Rule:
    def applied(validator: Any, part: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        left[0] -= 1 + sum(len(each) for each in (part, value) if isinstance(each, list | dict))
        if left[0] < 0:
            raise _TooMuchError
        # Which others there may be is for regular expressions to say.
        if name != "additionalProperties" or "patternProperties" not in schema:
            yield from rule(validator, part, value, schema) or ()

    return applied
