"""A JSON schema as it is read here: bounded in depth and work, since schemas come from callers.

`json_schema_fit.py` knows a value that satisfies one, `json_schema_instance.py` writes one. What forbids something by
means that are not known here is satisfied by nothing, and nothing is written for it.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from baobab.runtime.gateway.builtin.pattern import Pattern

MOST_DEPTH = 48
MOST_NUMBER = 10**15
_LEAST_NUMBER = 1e-9
_MOST_STEPS = 20_000

# Keywords that forbid something and are not understood here. Others say nothing about which values are right.
UNKNOWN = frozenset(
    [
        "$dynamicRef",
        "contains",
        "dependencies",
        "dependentRequired",
        "dependentSchemas",
        "else",
        "if",
        "maxProperties",
        "minProperties",
        "not",
        "patternProperties",
        "propertyNames",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    ]
)


class SchemaRefused(ValueError):
    """The schema is not one, contradicts itself, is too intricate, or uses what is not known here."""


class Schema:
    """A whole schema, which its parts refer to, and how much work may still be done with it."""

    def __init__(self, root: Any) -> None:
        self.root = root
        self._steps = 0
        self._patterns: dict[str, Pattern] = {}

    def parts(self, schema: Any, depth: int = MOST_DEPTH) -> Iterator[Any]:
        """The schema itself, what it refers to and all of its `allOf`, without the keywords that say so.

        Each is an object, `True` or `False`.
        """
        self._steps += 1
        if self._steps > _MOST_STEPS or depth <= 0:
            raise SchemaRefused("the schema is too intricate for the built-in model")
        if isinstance(schema, bool):
            yield schema
            return
        if not isinstance(schema, Mapping):
            raise SchemaRefused("a schema must be an object, `true` or `false`")
        yield {keyword: value for keyword, value in schema.items() if keyword not in {"$ref", "allOf"}}
        if "$ref" in schema:
            yield from self.parts(self._referred(schema["$ref"]), depth - 1)
        for part in array(schema, "allOf"):
            yield from self.parts(part, depth - 1)

    def pattern(self, source: Any) -> Pattern:
        """Raises PatternRefused."""
        if not isinstance(source, str):
            raise SchemaRefused("a schema's `pattern` must be a string")
        if source not in self._patterns:
            self._patterns[source] = Pattern(source)
        return self._patterns[source]

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise SchemaRefused("a schema's `$ref` must lead to a place in the same schema")
        found: Any = self.root
        for segment in reference.split("/")[1:]:
            key = segment.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise SchemaRefused(f"a schema's `$ref` leads nowhere: {reference[:100]}")
            found = found[key]
        return found


def array(node: Mapping[str, Any], keyword: str) -> list[Any]:
    value = node.get(keyword, [])
    if not isinstance(value, list) or (keyword in node and not value):
        raise SchemaRefused(f"a schema's `{keyword}` must be an array of one or more")
    return value


def properties(node: Mapping[str, Any]) -> Mapping[str, Any]:
    value = node.get("properties", {})
    if not isinstance(value, Mapping):
        raise SchemaRefused("a schema's `properties` must be an object")
    return value


def required(node: Mapping[str, Any]) -> list[str]:
    value = node.get("required", [])
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise SchemaRefused("a schema's `required` must be an array of names")
    return value


def number(node: Mapping[str, Any], keyword: str, otherwise: float = 0) -> int | float:
    if keyword not in node:
        return otherwise
    value = node[keyword]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise SchemaRefused(f"a schema's `{keyword}` must be a number")
    if value != 0 and not _LEAST_NUMBER <= abs(value) <= MOST_NUMBER:
        raise SchemaRefused(f"a schema's `{keyword}` must be a number of reasonable size")
    return value


def canonical(value: Any) -> str:
    """Equal for what JSON calls the same value: `True` is not 1, and the order of keys is nothing."""
    return json.dumps(value, sort_keys=True)
