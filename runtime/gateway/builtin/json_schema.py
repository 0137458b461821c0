"""Writing JSON that satisfies a schema, as a model in strict mode does, and knowing JSON that does.

Schemas come from callers: depth and work are bounded, whatever a schema says. A schema that asks for what this writer
does not know is refused instead of answered with something that may not satisfy it.
"""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, Final

from baobab.runtime.gateway.builtin.pattern import Pattern, PatternRefused

_MOST_DEPTH = 48
_MOST_STEPS = 50_000
_MOST_TEXT = 10_000

# Keywords that forbid something and are not understood here. Others say nothing about which values are right.
_UNKNOWN = frozenset(
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
_HINTS_OF_TYPE = (
    ("object", ("properties", "required", "additionalProperties")),
    ("array", ("items", "prefixItems", "minItems", "maxItems")),
    ("string", ("pattern", "format", "minLength", "maxLength")),
    ("number", ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")),
)
_FORMATS = {
    "date": "2000-01-01",
    "date-time": "2000-01-01T00:00:00Z",
    "duration": "PT1S",
    "email": "echo@example.com",
    "hostname": "example.com",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "time": "00:00:00Z",
    "uri": "https://example.com/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


class SchemaRefused(ValueError):
    """No value could be written: the schema is not one, contradicts itself, or uses what is not known here."""


class _TooDeep(SchemaRefused):
    """More levels than are allowed this time; another branch, or another time, may need fewer."""


class _Nothing:
    """There is no value to take."""


NOTHING: Final = _Nothing()


def instance(schema: Any, offered: Any = NOTHING, *, name: str = "text") -> Any:
    """A JSON value that satisfies the schema, made of what `offered` has that fits.

    What fits nowhere is left out, what is missing is made up: the first of an enum, the least number and the shortest
    array allowed, and for a free string the name of its property. Of a property that is not required only what was
    offered is written. Raises SchemaRefused.
    """
    writer = _Writer(schema)
    # As few levels as will do: a tree that may go on for ever ends at once.
    for depth in range(1, _MOST_DEPTH + 1):
        try:
            value = writer.write(schema, offered, name, depth)
        except _TooDeep:
            continue
        if not writer.fits(schema, value, _MOST_DEPTH * 2):
            raise SchemaRefused("the schema contradicts itself, or is too intricate for the built-in model")
        return value
    raise SchemaRefused("the schema has no end, or is nested too deeply for the built-in model")


def fits(schema: Any, value: Any) -> bool:
    """Whether a JSON value satisfies the schema. Raises SchemaRefused."""
    return _Writer(schema).fits(schema, value, _MOST_DEPTH * 2)


class _Writer:
    def __init__(self, root: Any) -> None:
        self._root = root
        self._steps = 0
        self._patterns: dict[str, Pattern] = {}

    def write(self, schema: Any, offered: Any, name: str, depth: int) -> Any:
        if depth <= 0:
            raise _TooDeep("the schema is nested too deeply for the built-in model")
        node = self._node(schema)
        if node is None:
            raise SchemaRefused("the schema allows nothing here")
        if offered is not NOTHING and self.fits(schema, offered, _MOST_DEPTH):
            return offered
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return self._first(node["enum"], "enum")
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                return self._write_one_of(node, keyword, offered, name, depth)
        return self._write_type(node, offered, name, depth)

    def _write_one_of(self, node: Mapping[str, Any], keyword: str, offered: Any, name: str, depth: int) -> Any:
        beside = {key: value for key, value in node.items() if key != keyword}
        deep: _TooDeep | None = None
        self._first(node[keyword], keyword)
        for branch in node[keyword]:
            try:
                return self.write({"allOf": [beside, branch]}, offered, name, depth - 1)
            except _TooDeep as reason:
                deep = reason
        raise deep or SchemaRefused("the schema allows nothing here")

    def _write_type(self, node: Mapping[str, Any], offered: Any, name: str, depth: int) -> Any:
        kinds = node.get("type", _implied_type(node))
        if isinstance(kinds, list):
            choices = {**node, "anyOf": [{"type": kind} for kind in kinds]}
            del choices["type"]
            return self._write_one_of(choices, "anyOf", offered, name, depth)
        match kinds:
            case "object":
                return self._write_object(node, offered, depth)
            case "array":
                return self._write_array(node, offered, name, depth)
            case "string":
                return self._write_string(node, name)
            case "integer" | "number":
                return _write_number(node, whole=kinds == "integer")
            case "boolean":
                return False
            case "null":
                return None
            case None:
                return name
        raise SchemaRefused(f"the schema's type {kinds!r} is not one of JSON's")

    def _write_object(self, node: Mapping[str, Any], offered: Any, depth: int) -> dict[str, Any]:
        properties, required = _properties(node), _required(node)
        given = offered if isinstance(offered, dict) else {}
        written: dict[str, Any] = {}
        for key, schema in properties.items():
            if key in required:
                written[key] = self.write(schema, given.get(key, NOTHING), key, depth - 1)
            elif key in given and self.fits(schema, given[key], _MOST_DEPTH):
                written[key] = given[key]
        for key in required:
            if key not in written:
                written[key] = self.write(node.get("additionalProperties", True), NOTHING, key, depth - 1)
        return written

    def _write_array(self, node: Mapping[str, Any], offered: Any, name: str, depth: int) -> list[Any]:
        prefix, rest = _list(node, "prefixItems"), node.get("items", True)
        given = offered if isinstance(offered, list) else []
        least, most = _count(node, "minItems", 0), _count(node, "maxItems", math.inf)
        length = int(min(max(least, len(given)), most))
        written: list[Any] = []
        for position in range(length):
            schema = prefix[position] if position < len(prefix) else rest
            value = given[position] if position < len(given) else NOTHING
            written.append(self.write(schema, value, name, depth - 1))
        if node.get("uniqueItems") is True and len({_canonical(value) for value in written}) < len(written):
            written = self._distinct(written, rest, name)
        return written

    def _distinct(self, written: list[Any], schema: Any, name: str) -> list[Any]:
        """The same values once each, and others of the simplest kinds in place of those that came again."""
        distinct = {_canonical(value): value for value in written}
        node = self._node(schema) or {}
        start = _write_number(node, whole=True) if node.get("type") in {"integer", "number"} else 0
        options = [*_list(node, "enum"), *(start + step for step in range(len(written))), True, False]
        options += [f"{name}{number}" for number in range(len(written))]
        for option in options:
            if len(distinct) < len(written) and self.fits(schema, option, _MOST_DEPTH):
                distinct.setdefault(_canonical(option), option)
        return list(distinct.values())

    def _write_string(self, node: Mapping[str, Any], name: str) -> str:
        least, most = _count(node, "minLength", 0), _count(node, "maxLength", math.inf)
        if least > _MOST_TEXT:
            raise SchemaRefused(f"the built-in model writes strings of up to {_MOST_TEXT} characters")
        if "pattern" in node:
            return self._pattern(node["pattern"]).example()
        text = _FORMATS.get(str(node.get("format")), name or "text")
        while len(text) < least:
            text += text
        return text if len(text) <= most and len(text) >= least and "format" in node else text[: int(min(max(least, len(name or "text")), most))]

    def fits(self, schema: Any, value: Any, depth: int) -> bool:
        node = self._node(schema)
        if node is None or depth <= 0:
            return False
        return all(self._keyword_fits(node, keyword, value, depth) for keyword in node)

    def _keyword_fits(self, node: Mapping[str, Any], keyword: str, value: Any, depth: int) -> bool:
        wanted = node[keyword]
        match keyword:
            case "type":
                return any(_is(kind, value) for kind in (wanted if isinstance(wanted, list) else [wanted]))
            case "const":
                return _canonical(wanted) == _canonical(value)
            case "enum":
                return _canonical(value) in {_canonical(option) for option in _list(node, "enum")}
            case "anyOf":
                return any(self.fits(branch, value, depth - 1) for branch in _list(node, "anyOf"))
            case "oneOf":
                return sum(self.fits(branch, value, depth - 1) for branch in _list(node, "oneOf")) == 1
            case "allOf":
                return all(self.fits(branch, value, depth - 1) for branch in _list(node, "allOf"))
        if isinstance(value, dict):
            return self._object_fits(node, keyword, value, depth)
        if isinstance(value, list):
            return self._array_fits(node, keyword, value, depth)
        if isinstance(value, str):
            return self._string_fits(node, keyword, value)
        return isinstance(value, bool) or value is None or _number_fits(keyword, wanted, value)

    def _object_fits(self, node: Mapping[str, Any], keyword: str, value: dict[str, Any], depth: int) -> bool:
        properties = _properties(node)
        match keyword:
            case "required":
                return all(key in value for key in _required(node))
            case "properties":
                return all(self.fits(properties[key], value[key], depth - 1) for key in value if key in properties)
            case "additionalProperties":
                return all(self.fits(node[keyword], value[key], depth - 1) for key in value if key not in properties)
        return True

    def _array_fits(self, node: Mapping[str, Any], keyword: str, value: list[Any], depth: int) -> bool:
        prefix = _list(node, "prefixItems")
        match keyword:
            case "minItems":
                return len(value) >= _count(node, keyword, 0)
            case "maxItems":
                return len(value) <= _count(node, keyword, 0)
            case "uniqueItems":
                return node[keyword] is not True or len({_canonical(item) for item in value}) == len(value)
            case "prefixItems":
                return all(self.fits(one, item, depth - 1) for one, item in zip(prefix, value, strict=False))
            case "items":
                return all(self.fits(node[keyword], item, depth - 1) for item in value[len(prefix) :])
        return True

    def _string_fits(self, node: Mapping[str, Any], keyword: str, value: str) -> bool:
        match keyword:
            case "minLength":
                return len(value) >= _count(node, keyword, 0)
            case "maxLength":
                return len(value) <= _count(node, keyword, 0)
            case "pattern":
                return self._pattern(node[keyword]).found_in(value)
        return True

    def _node(self, schema: Any) -> Mapping[str, Any] | None:
        """The schema with what it refers to and all of its `allOf` in one; None where it is `false`."""
        merged: dict[str, Any] = {}
        for part in self._parts(schema, _MOST_DEPTH):
            if part is False:
                return None
            if part is True:
                continue
            for keyword, value in part.items():
                if keyword in _UNKNOWN:
                    raise SchemaRefused(f"the built-in model does not understand `{keyword}` in a schema")
                if keyword not in merged:
                    merged[keyword] = value
                elif keyword == "properties":
                    both = {**_properties(merged), **_properties(part)}
                    for key in _properties(merged).keys() & _properties(part).keys():
                        both[key] = {"allOf": [_properties(merged)[key], _properties(part)[key]]}
                    merged[keyword] = both
                elif keyword == "required":
                    merged[keyword] = [*_required(merged), *_required(part)]
                elif keyword in {"minimum", "exclusiveMinimum", "minLength", "minItems"}:
                    merged[keyword] = max(merged[keyword], value)
                elif keyword in {"maximum", "exclusiveMaximum", "maxLength", "maxItems"}:
                    merged[keyword] = min(merged[keyword], value)
        return merged

    def _parts(self, schema: Any, depth: int) -> Iterator[Any]:
        self._steps += 1
        if self._steps > _MOST_STEPS or depth <= 0:
            raise SchemaRefused("the schema is too intricate for the built-in model")
        if not isinstance(schema, Mapping | bool):
            raise SchemaRefused("a schema must be an object, `true` or `false`")
        if isinstance(schema, bool):
            yield schema
            return
        yield {key: value for key, value in schema.items() if key not in {"$ref", "allOf"}}
        if "$ref" in schema:
            yield from self._parts(self._referred(schema["$ref"]), depth - 1)
        for part in _list(schema, "allOf"):
            yield from self._parts(part, depth - 1)

    def _referred(self, reference: Any) -> Any:
        if not isinstance(reference, str) or (reference != "#" and not reference.startswith("#/")):
            raise SchemaRefused("a schema's `$ref` must lead to a place in the same schema")
        found: Any = self._root
        for segment in reference.split("/")[1:]:
            key = segment.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or key not in found:
                raise SchemaRefused(f"a schema's `$ref` leads nowhere: {reference}")
            found = found[key]
        return found

    def _pattern(self, source: Any) -> Pattern:
        if not isinstance(source, str):
            raise SchemaRefused("a schema's `pattern` must be a string")
        if source not in self._patterns:
            try:
                self._patterns[source] = Pattern(source)
            except PatternRefused as refused:
                raise SchemaRefused(str(refused)) from refused
        return self._patterns[source]

    @staticmethod
    def _first(options: Any, keyword: str) -> Any:
        if not isinstance(options, list) or not options:
            raise SchemaRefused(f"a schema's `{keyword}` must be an array of one or more")
        return options[0]
