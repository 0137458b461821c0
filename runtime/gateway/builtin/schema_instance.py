"""Writes JSON to a schema, as a model in strict mode does: a simple generator with a budget.

It reads the keywords that describe a value, and writes the smallest one. `jsonschema` then checks it against the whole
schema. `pattern` is not supported.
"""

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from baobab.runtime.bounded_schema import BoundedSchema, SchemaUnusable
from baobab.runtime.work_budget import Budget

_MOST_TEXT = 10_000
_MOST_NUMBER = 10**15
_MOST_DEPTH = 48
_IMPLIED = (
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


class _Nothing:
    """The type of `NOTHING`, which stands for a missing value."""


NOTHING: Final = _Nothing()


def write_instance(schema: Any, offered_value: Any, budget: Budget) -> Any:
    """Writes a JSON value that satisfies the schema, from the parts of `offered_value` that fit.

    Other parts are left out. Missing values are made up: the first of an enum, the number nearest to zero, the shortest
    allowed array, and for a free string the name of its property. A property that is not required is written only if it
    was offered. Raises SchemaUnusable and OverBudget.
    """
    bounded_schema = BoundedSchema(schema, budget)
    value = _Writer(bounded_schema).write_value(schema, offered_value, "text", 0, frozenset({"#"}))
    if not bounded_schema.is_valid(schema, value):
        raise SchemaUnusable("the schema contradicts itself, or asks for what the built-in model cannot make up")
    return value


class _Writer:
    """Writes values. open_: the references whose values are being made up; a repeated one would never end."""

    def __init__(self, whole: BoundedSchema) -> None:
        self._whole = whole
        self._budget = whole.budget

    def write_value(self, schema: Any, offered_value: Any, name: str, depth: int, open_: frozenset[str]) -> Any:
        if depth > _MOST_DEPTH:
            raise SchemaUnusable("the schema is nested too deeply, or has no end")
        if offered_value is not NOTHING and self._whole.is_valid(schema, offered_value):
            return offered_value
        node, open_ = self._merge_schemas(schema, open_)
        if "const" in node:
            return self._charge_value(node["const"])
        if "enum" in node:
            options = _read_list(node, "enum")
            return self._charge_value(
                next((option for option in options if self._whole.is_valid(schema, option)), None)
            )
        return self._write_open(node, offered_value, name, depth, open_)

    def _write_open(
        self, node: Mapping[str, Any], offered_value: Any, name: str, depth: int, open_: frozenset[str]
    ) -> Any:
        """Writes a value for a schema without `const` and `enum`."""
        kind = node.get("type", next((kind for kind, words in _IMPLIED if any(word in node for word in words)), None))
        branching = next((keyword for keyword in ("anyOf", "oneOf") if keyword in node), None)
        if branching or isinstance(kind, list):
            branches = _read_list(node, branching) if branching else [{"type": type_name} for type_name in node["type"]]
            beside = {key: value for key, value in node.items() if key != (branching or "type")}
            return self._write_branch(beside, branches, offered_value, name, depth, open_)
        if kind is None:
            return self._charge_value(name)
        makers: dict[str, Callable[[], Any]] = {
            "array": lambda: self._write_array(node, offered_value, name, depth, open_),
            "boolean": lambda: False,
            "integer": lambda: _write_number(node, whole=True),
            "null": lambda: None,
            "number": lambda: _write_number(node, whole=False),
            "object": lambda: self._write_object(node, offered_value, depth, open_),
            "string": lambda: self._write_string(node, name),
        }
        if not isinstance(kind, str) or kind not in makers:
            raise SchemaUnusable("a schema's `type` must be one of JSON's")
        return makers[kind]()

    def _merge_schemas(self, schema: Any, open_: frozenset[str]) -> tuple[dict[str, Any], frozenset[str]]:
        """Merges a schema with the schemas that it refers to and those of its `allOf`.

        If two have different values of a keyword that is not merged, the first counts; the finished value is checked
        against all of them.
        """
        merged_schema: dict[str, Any] = {}
        pending = [schema]
        for _ in range(_MOST_DEPTH * 8):
            if not pending:
                return merged_schema, open_
            part = pending.pop()
            if part is True:
                continue
            if part is False:
                raise SchemaUnusable("the schema allows nothing here")
            if not isinstance(part, Mapping):
                raise SchemaUnusable("a schema must be an object, `true` or `false`")
            self._budget.spend(2 + len(part))
            for keyword, value in part.items():
                if keyword not in {"$ref", "allOf"}:
                    merged_schema[keyword] = (
                        _join_keyword(keyword, merged_schema, part) if keyword in merged_schema else value
                    )
            if "allOf" in part:
                pending += reversed(_read_list(part, "allOf"))
            if "$ref" in part:
                reference = part["$ref"]
                if reference in open_:
                    raise SchemaUnusable("the schema has no end")
                open_ |= {reference}
                pending.append(self._whole.resolve_reference(reference))
        raise SchemaUnusable("the schema is too intricate for the built-in model")

    def _write_inner(self, schema: Any, offered_value: Any, name: str, depth: int, open_: frozenset[str]) -> Any:
        # An offered value is finite, so references may repeat in it.
        return self.write_value(
            schema, offered_value, name, depth + 1, open_ if offered_value is NOTHING else frozenset()
        )

    def _write_branch(
        self,
        beside: dict[str, Any],
        branches: list[Any],
        offered_value: Any,
        name: str,
        depth: int,
        open_: frozenset[str],
    ) -> Any:
        reason = SchemaUnusable("the schema allows nothing here")
        for branch in branches:
            chosen_schema = {"allOf": [beside, branch]}
            try:
                value = self.write_value(chosen_schema, offered_value, name, depth + 1, open_)
            except SchemaUnusable as unusable:
                reason = unusable
                continue
            if self._whole.is_valid(chosen_schema, value):
                return value
        raise reason

    def _write_object(
        self, node: Mapping[str, Any], offered_value: Any, depth: int, open_: frozenset[str]
    ) -> dict[str, Any]:
        properties, required_names = _read_mapping(node, "properties"), _read_names(node, "required")
        offered_properties = offered_value if isinstance(offered_value, dict) else {}
        self._budget.spend(len(properties) + len(required_names))
        members: dict[str, Any] = {}
        required_set = set(required_names)
        for key, schema in properties.items():
            if key in required_set:
                members[key] = self._write_inner(schema, offered_properties.get(key, NOTHING), key, depth, open_)
            elif key in offered_properties and self._whole.is_valid(schema, offered_properties[key]):
                members[key] = offered_properties[key]
        for key in required_names:
            if key not in members:
                members[key] = self.write_value(node.get("additionalProperties", True), NOTHING, key, depth + 1, open_)
        return members

    def _write_array(
        self, node: Mapping[str, Any], offered_value: Any, name: str, depth: int, open_: frozenset[str]
    ) -> list[Any]:
        prefix, items_schema = _read_list(node, "prefixItems"), node.get("items", True)
        offered_items = offered_value if isinstance(offered_value, list) else []
        length = math.ceil(
            min(max(_read_number(node, "minItems", 0), len(offered_items)), _read_number(node, "maxItems", math.inf))
        )
        items: list[Any] = []
        for position in range(length):
            self._budget.spend(1, 16)
            schema = prefix[position] if position < len(prefix) else items_schema
            value = offered_items[position] if position < len(offered_items) else NOTHING
            items.append(self._write_inner(schema, value, name, depth, open_))
        return self._make_distinct(items, items_schema, name) if node.get("uniqueItems") is True else items

    def _make_distinct(self, items: list[Any], schema: Any, name: str) -> list[Any]:
        """Replaces repeated values by other simple ones."""
        self._budget.spend(self._whole.weigh(items))
        distinct = {json.dumps(value, sort_keys=True): value for value in items}
        if len(distinct) < len(items):
            node, _ = self._merge_schemas(schema, frozenset())
            least = _write_number(node, whole=True)
            options = [*_read_list(node, "enum"), *(least + step for step in range(len(items) + 1)), True, False]
            for option in [*options, *(f"{name}{place}" for place in range(len(items)))]:
                if len(distinct) < len(items) and self._whole.is_valid(schema, option):
                    distinct.setdefault(json.dumps(option, sort_keys=True), option)
        return list(distinct.values())

    def _write_string(self, node: Mapping[str, Any], name: str) -> str:
        least, most = _read_number(node, "minLength", 0), _read_number(node, "maxLength", math.inf)
        if least > _MOST_TEXT:
            raise SchemaUnusable(f"the built-in model writes strings of up to {_MOST_TEXT} characters")
        text = _FORMATS.get(str(node.get("format")), name or "text")
        if len(text) < least:
            text = (text * math.ceil(least / len(text)))[: math.ceil(least)]
        charged_text: str = self._charge_value(text[: int(min(len(text), most))])
        return charged_text

    def _charge_value(self, value: Any) -> Any:
        """Charges the budget for the value and returns it."""
        weight = self._whole.weigh(value)
        self._budget.spend(1 + weight, weight * 64)
        return value


def _join_keyword(keyword: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Any:
    """Merges the values that two schemas have for one keyword."""
    match keyword:
        case "properties":
            one_properties, other_properties = _read_mapping(one, keyword), _read_mapping(other, keyword)
            shared_properties = {
                key: {"allOf": [one_properties[key], other_properties[key]]}
                for key in one_properties.keys() & other_properties.keys()
            }
            return {**one_properties, **other_properties, **shared_properties}
        case "required":
            return list(dict.fromkeys([*_read_names(one, keyword), *_read_names(other, keyword)]))
        case "minimum" | "exclusiveMinimum" | "minLength" | "minItems":
            return max(_read_number(one, keyword, 0), _read_number(other, keyword, 0))
        case "maximum" | "exclusiveMaximum" | "maxLength" | "maxItems":
            return min(_read_number(one, keyword, 0), _read_number(other, keyword, 0))
    return one[keyword]


def _read_list(node: Mapping[str, Any], keyword: str) -> list[Any]:
    value = node.get(keyword, [])
    if not isinstance(value, list) or (keyword in node and not value):
        raise SchemaUnusable(f"a schema's `{keyword}` must be an array of one or more")
    return value


def _read_mapping(node: Mapping[str, Any], keyword: str) -> Mapping[str, Any]:
    value = node.get(keyword, {})
    if not isinstance(value, Mapping):
        raise SchemaUnusable(f"a schema's `{keyword}` must be an object")
    return value


def _read_names(node: Mapping[str, Any], keyword: str) -> list[str]:
    value = node.get(keyword, [])
    if not isinstance(value, list) or not all(isinstance(key, str) for key in value):
        raise SchemaUnusable(f"a schema's `{keyword}` must be an array of names")
    return value


def _read_number(node: Mapping[str, Any], keyword: str, otherwise: float) -> int | float:
    if keyword not in node:
        return otherwise
    value = node[keyword]
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise SchemaUnusable(f"a schema's `{keyword}` must be a number")
    if value != 0 and not 1 / _MOST_NUMBER <= abs(value) <= _MOST_NUMBER:
        raise SchemaUnusable(f"a schema's `{keyword}` must be a number of reasonable size")
    return value


def _write_number(node: Mapping[str, Any], *, whole: bool) -> int | float:
    """Returns the number nearest to zero within the bounds that is a multiple of `multipleOf`."""
    low, above = _read_number(node, "minimum", -math.inf), _read_number(node, "exclusiveMinimum", -math.inf)
    high, below = _read_number(node, "maximum", math.inf), _read_number(node, "exclusiveMaximum", math.inf)
    step = _read_number(node, "multipleOf", 0) or (1 if whole else 0)
    if low <= 0 <= high and above < 0 < below:
        return 0
    # Mirrored if only negative numbers are allowed, so that one direction is enough.
    sign = 1 if max(low, above) >= 0 else -1
    if sign < 0:
        low, above, high, below = -high, -below, -low, -above
    least, is_open = max(low, above), above >= low
    if step > 0:
        times = math.ceil(least / step)
        return sign * step * (times + 1 if is_open and times * step <= least else times)
    if not is_open:
        return sign * least
    most = min(high, below)
    return sign * (least + 1 if least + 1 < most else (least + most) / 2)
