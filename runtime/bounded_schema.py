"""Validates values against JSON Schemas of strangers with `jsonschema`, within a budget of work.

Regular expressions (`pattern`, `patternProperties`) are not checked, because some take practically for ever; nor are
`unevaluatedItems` and `unevaluatedProperties`. A `$ref` must lead to a place in the same schema; nothing is fetched.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from functools import cache
from typing import Any

from baobab.runtime.work_budget import Budget

LEFT_OUT = frozenset(("pattern", "patternProperties", "unevaluatedItems", "unevaluatedProperties"))
_WEIGHED = frozenset(("const", "enum", "multipleOf", "uniqueItems"))
"""Keywords whose work grows with all nested values of the value and the keyword, not just with their first level."""
_LONGEST_ID = 500

_Rule = Callable[[Any, Any, Any, Mapping[str, Any]], Any]


class SchemaUnusable(ValueError):
    """The schema is invalid, or uses what is not supported here. The text says which, and repeats no value of it."""


class BoundedSchema:
    """A schema whose checks are charged to one budget. All methods raise OverBudget and SchemaUnusable."""

    def __init__(self, root: Any, budget: Budget) -> None:
        self.root = root
        self.budget = budget
        self._weights: dict[int, tuple[Any, int]] = {}

    def is_valid(self, part: Any, value: Any) -> bool:
        """Returns whether a value satisfies a part of the schema."""
        return self.find_fault(part, value) is None

    def find_fault(self, part: Any, value: Any) -> Any:
        """Returns the first `jsonschema.ValidationError` of a value; None where the value satisfies the part."""
        from jsonschema.exceptions import UnknownType
        from referencing.exceptions import Unresolvable

        token = _in_use.set(self)
        try:
            return next(iter(_build_validator().descend(value, part)), None)
        except RecursionError as exc:
            raise SchemaUnusable("the schema is nested too deeply, or has no end") from exc
        except (ArithmeticError, AttributeError, LookupError, TypeError, UnknownType, Unresolvable) as exc:
            raise SchemaUnusable("a keyword of the schema has a value that it may not have") from exc
        finally:
            _in_use.reset(token)

    def resolve_reference(self, reference: Any) -> Any:
        """Returns the part of the schema that a `$ref` names."""
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise SchemaUnusable("a `$ref` must lead to a place in the same schema")
        self.budget.spend(1 + len(reference) // 16)
        place: Any = self.root
        for segment in reference.split("/")[1:]:
            key = segment.replace("~1", "/").replace("~0", "~")
            if isinstance(place, list) and key.isascii() and key.isdigit() and len(key) < 7 and int(key) < len(place):
                place = place[int(key)]
            elif isinstance(place, Mapping) and key in place:
                place = place[key]
            else:
                raise SchemaUnusable("a `$ref` leads nowhere")
        return place

    def weigh(self, value: Any) -> int:
        """Returns the approximate size of a value in machine words, at least 1. Each value is counted, and charged,
        once.
        """
        cached_entry = self._weights.get(id(value))
        if cached_entry is not None:
            return cached_entry[1]
        total, waiting = 0, [value]
        while waiting:
            item = waiting.pop()
            if isinstance(item, str):
                total += len(item) // 32
            elif isinstance(item, int):
                total += item.bit_length() // 32
            elif isinstance(item, list):
                waiting += item
            elif isinstance(item, dict):
                waiting += item.values()
                total += len(item)
            total += 1
        if isinstance(value, str | list | dict):
            self.budget.spend(total // 8)
            # The value is kept with its weight, so that no other can take its id.
            self._weights[id(value)] = (value, total)
        return total

    def list_keywords(self, schema: Any) -> Iterable[tuple[str, Any]]:
        """Returns the keywords of a subschema. `jsonschema` calls this once for each value that it checks against
        it.
        """
        if not isinstance(schema, Mapping):
            raise SchemaUnusable("a schema must be an object, `true` or `false`")
        self.budget.spend(2 + len(schema) // 4)
        # `jsonschema` would continue with the rules of that dialect, which are not bounded.
        if "$schema" in schema and schema is not self.root:
            raise SchemaUnusable("`$schema` may stand at the top of a schema only")
        if isinstance(identifier := schema.get("$id"), str) and len(identifier) > _LONGEST_ID:
            raise SchemaUnusable("the `$id` of the schema is too long")
        return schema.items()

    def charge_keyword(self, name: str, part: Any, value: Any) -> None:
        """Charges the check of one keyword on one value."""
        if name in _WEIGHED:
            steps = self.weigh(part)
            if name == "uniqueItems" and isinstance(value, list):
                steps = self.weigh(value) * max(len(value) // 8, 1)
            elif name == "multipleOf":
                steps += self.weigh(value)
            self.budget.spend(1 + steps // 8)
        else:
            self.budget.spend(1 + sum(len(each) for each in (part, value) if isinstance(each, list | dict)) // 8)

    def charge_fault(self, part: Any, value: Any) -> None:
        """Charges an error of `jsonschema`, whose text contains the whole value and keyword."""
        weight = self.weigh(value) + self.weigh(part)
        self.budget.spend(1 + weight // 8, weight * 16)


_in_use: ContextVar[BoundedSchema] = ContextVar("bounded-schema")
"""The schema whose budget is charged. All schemas share one validator, which takes a millisecond to build."""


def _bound_rule(name: str, rule: _Rule) -> _Rule:
    def apply(validator: Any, part: Any, value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        schema_in_use = _in_use.get()
        schema_in_use.charge_keyword(name, part, value)
        # Regular expressions, which are not checked, would say which other properties there may be.
        if name == "additionalProperties" and "patternProperties" in schema:
            return
        for error in rule(validator, part, value, schema) or ():
            schema_in_use.charge_fault(part, value)
            yield error

    return apply


def _follow_reference(validator: Any, reference: Any, value: Any, _schema: Mapping[str, Any]) -> Iterator[Any]:
    yield from validator.descend(value, _in_use.get().resolve_reference(reference))


def _refuse_reference(_validator: Any, _reference: Any, _value: Any, _schema: Mapping[str, Any]) -> Iterator[Any]:
    raise SchemaUnusable("`$dynamicRef` is not supported")


@cache
def _build_validator() -> Any:
    from jsonschema import Draft202012Validator
    from jsonschema.validators import create

    checked_rules = {name: rule for name, rule in Draft202012Validator.VALIDATORS.items() if name not in LEFT_OUT}
    rules = {**checked_rules, "$ref": _follow_reference, "$dynamicRef": _refuse_reference}
    kind = create(
        Draft202012Validator.META_SCHEMA,
        {name: _bound_rule(name, rule) for name, rule in rules.items()},
        type_checker=Draft202012Validator.TYPE_CHECKER,
        applicable_validators=lambda schema: _in_use.get().list_keywords(schema),
    )
    return kind(schema=True)
