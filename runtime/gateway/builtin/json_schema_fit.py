"""Whether a JSON value satisfies a schema. `format` is a remark, as the standard has it, and no condition."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.gateway.builtin.json_schema import (
    MOST_DEPTH,
    MOST_NUMBER,
    UNKNOWN,
    Schema,
    SchemaRefused,
    array,
    canonical,
    number,
    properties,
    required,
)
from baobab.runtime.gateway.builtin.pattern import PatternRefused


def fits(whole: Schema, schema: Any, value: Any, depth: int = MOST_DEPTH + 1) -> bool:
    """schema: a part of the whole one. False also for what is nested too deeply. Raises SchemaRefused."""
    if depth <= 0:
        return False
    return all(
        part is not False and _part_fits(_Part(whole, part, depth), value)
        for part in whole.parts(schema)
        if part is not True
    )


@dataclass(frozen=True, slots=True)
class _Part:
    whole: Schema
    node: Mapping[str, Any]
    depth: int

    def inner(self, schema: Any, value: Any) -> bool:
        return fits(self.whole, schema, value, self.depth - 1)


def _part_fits(part: _Part, value: Any) -> bool:
    if part.node.keys() & UNKNOWN:
        return False
    checks = next(_CHECKS[kind] for kind in _CHECKS if _TYPES[kind](value))
    for keyword in part.node:
        check = _ALWAYS.get(keyword) or checks.get(keyword)
        if check is not None and not check(part, value):
            return False
    return True


def _type(part: _Part, value: Any) -> bool:
    given = part.node["type"]
    kinds = given if isinstance(given, list) else [given]
    for kind in kinds:
        if not isinstance(kind, str) or kind not in _TYPES:
            raise SchemaRefused("a schema's `type` must be one of JSON's")
    return any(_TYPES[kind](value) for kind in kinds)


def _properties(part: _Part, value: dict[str, Any]) -> bool:
    schemas = properties(part.node)
    return all(part.inner(schemas[key], value[key]) for key in value if key in schemas)


def _additional(part: _Part, value: dict[str, Any]) -> bool:
    schema, named = part.node["additionalProperties"], properties(part.node)
    return all(part.inner(schema, value[key]) for key in value if key not in named)


def _prefix(part: _Part, value: list[Any]) -> bool:
    return all(part.inner(schema, item) for schema, item in zip(array(part.node, "prefixItems"), value, strict=False))


def _items(part: _Part, value: list[Any]) -> bool:
    return all(part.inner(part.node["items"], item) for item in value[len(array(part.node, "prefixItems")) :])


def _unique(part: _Part, value: list[Any]) -> bool:
    return part.node["uniqueItems"] is not True or len({canonical(item) for item in value}) == len(value)


def _pattern(part: _Part, value: str) -> bool:
    try:
        return part.whole.pattern(part.node["pattern"]).found_in(value)
    except PatternRefused:
        return False


def _multiple(part: _Part, value: int | float) -> bool:
    step = number(part.node, "multipleOf")
    if step <= 0 or abs(value) > MOST_NUMBER:
        return False
    if isinstance(step, int) and isinstance(value, int):
        return value % step == 0
    return math.isclose(value / step, round(value / step), abs_tol=1e-9)


_TYPES: dict[str, Callable[[Any], bool]] = {
    "array": lambda value: isinstance(value, list),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: isinstance(value, int) and not isinstance(value, bool),
    "null": lambda value: value is None,
    "number": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "object": lambda value: isinstance(value, dict),
    "string": lambda value: isinstance(value, str),
}

_ALWAYS: dict[str, Callable[[_Part, Any], bool]] = {
    "anyOf": lambda part, value: any(part.inner(branch, value) for branch in array(part.node, "anyOf")),
    "const": lambda part, value: canonical(part.node["const"]) == canonical(value),
    "enum": lambda part, value: canonical(value) in map(canonical, array(part.node, "enum")),
    "oneOf": lambda part, value: sum(part.inner(branch, value) for branch in array(part.node, "oneOf")) == 1,
    "type": _type,
}

# What a keyword says of values of a type; of others it says nothing.
_CHECKS: dict[str, dict[str, Callable[[_Part, Any], bool]]] = {
    "array": {
        "items": _items,
        "maxItems": lambda part, value: len(value) <= number(part.node, "maxItems"),
        "minItems": lambda part, value: len(value) >= number(part.node, "minItems"),
        "prefixItems": _prefix,
        "uniqueItems": _unique,
    },
    "boolean": {},
    "null": {},
    "number": {
        "exclusiveMaximum": lambda part, value: value < number(part.node, "exclusiveMaximum"),
        "exclusiveMinimum": lambda part, value: value > number(part.node, "exclusiveMinimum"),
        "maximum": lambda part, value: value <= number(part.node, "maximum"),
        "minimum": lambda part, value: value >= number(part.node, "minimum"),
        "multipleOf": _multiple,
    },
    "object": {
        "additionalProperties": _additional,
        "properties": _properties,
        "required": lambda part, value: all(key in value for key in required(part.node)),
    },
    "string": {
        "maxLength": lambda part, value: len(value) <= number(part.node, "maxLength"),
        "minLength": lambda part, value: len(value) >= number(part.node, "minLength"),
        "pattern": _pattern,
    },
}
