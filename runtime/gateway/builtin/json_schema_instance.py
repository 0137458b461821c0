"""Writing JSON that satisfies a schema, as a model in strict mode does."""

import math
from collections.abc import Mapping
from typing import Any, Final

from baobab.runtime.gateway.builtin.json_schema import (
    MOST_DEPTH,
    UNKNOWN,
    Schema,
    SchemaRefused,
    array,
    canonical,
    number,
    properties,
    required,
)
from baobab.runtime.gateway.builtin.json_schema_fit import fits
from baobab.runtime.gateway.builtin.pattern import PatternRefused

_MOST_TEXT = 10_000
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


class _TooDeep(SchemaRefused):
    """More levels than are allowed this time; another branch, or another time, may do."""


class _Nothing:
    """There is no value to take."""


NOTHING: Final = _Nothing()


def instance(schema: Any, offered: Any = NOTHING, *, name: str = "text") -> Any:
    """A JSON value that satisfies the schema, made of what `offered` has that fits.

    What fits nowhere is left out, what is missing is made up: the first of an enum, the number nearest to nought and
    the shortest array allowed, and for a free string the name of its property. A property that is not required is
    written only where one was offered. Raises SchemaRefused.
    """
    writer = _Writer(schema)
    # As few levels as will do: what may go on for ever ends at once.
    for depth in range(1, MOST_DEPTH + 1):
        try:
            value = writer.write(schema, offered, name, depth)
        except _TooDeep:
            continue
        if not writer.fits(schema, value):
            raise SchemaRefused("the schema contradicts itself, or is too intricate for the built-in model")
        return value
    raise SchemaRefused("the schema has no end, or is nested too deeply for the built-in model")


class _Writer:
    def __init__(self, root: Any) -> None:
        self._whole = Schema(root)

    def fits(self, schema: Any, value: Any) -> bool:
        return fits(self._whole, schema, value)

    def write(self, schema: Any, offered: Any, name: str, depth: int) -> Any:
        if depth <= 0:
            raise _TooDeep("the schema is nested too deeply for the built-in model")
        if offered is not NOTHING and self.fits(schema, offered):
            return offered
        node = self._node(schema)
        if "const" in node:
            return node["const"]
        if "enum" in node:
            return next((option for option in array(node, "enum") if self.fits(schema, option)), None)
        for keyword in ("anyOf", "oneOf"):
            if keyword in node:
                return self._write_one_of(node, keyword, offered, name, depth)
        return self._write_type(node, offered, name, depth)

    def _node(self, schema: Any) -> Mapping[str, Any]:
        """The parts of a schema in one.

        Where two say different things that are not merged here, the first is followed; whether the value satisfies the
        others too is seen when it is written.
        """
        merged: dict[str, Any] = {}
        for part in self._whole.parts(schema):
            if part is False:
                raise SchemaRefused("the schema allows nothing here")
            for keyword, value in part.items() if part is not True else ():
                if keyword in UNKNOWN:
                    raise SchemaRefused(f"the built-in model does not understand `{keyword}` in a schema")
                merged[keyword] = _both(keyword, merged, part) if keyword in merged else value
        return merged

    def _write_one_of(self, node: Mapping[str, Any], keyword: str, offered: Any, name: str, depth: int) -> Any:
        beside = {key: value for key, value in node.items() if key != keyword}
        reasons: list[SchemaRefused] = []
        for branch in array(node, keyword):
            chosen = {"allOf": [beside, branch]}
            try:
                value = self.write(chosen, offered, name, depth - 1)
            except SchemaRefused as reason:
                reasons.append(reason)
                continue
            if self.fits(chosen, value):
                return value
        # Too deep for this time is not the end: with more levels a branch may do.
        deep = (reason for reason in reasons if isinstance(reason, _TooDeep))
        raise next(deep, None) or SchemaRefused(f"nothing satisfies a schema's `{keyword}`")

    def _write_type(self, node: Mapping[str, Any], offered: Any, name: str, depth: int) -> Any:
        kind = node.get("type", next((kind for kind, words in _IMPLIED if any(word in node for word in words)), None))
        if isinstance(kind, list):
            rest = {keyword: value for keyword, value in node.items() if keyword != "type"}
            choices = {**rest, "anyOf": [{"type": one} for one in kind]}
            return self._write_one_of(choices, "anyOf", offered, name, depth)
        if kind == "object":
            return self._write_object(node, offered, depth)
        if kind == "array":
            return self._write_array(node, offered, name, depth)
        if kind == "string":
            return self._write_string(node, name)
        if str(kind) in {"integer", "number"}:
            return _write_number(node, whole=kind == "integer")
        return {"boolean": False, "null": None}.get(str(kind), name)

    def _write_object(self, node: Mapping[str, Any], offered: Any, depth: int) -> dict[str, Any]:
        needed = required(node)
        given = offered if isinstance(offered, dict) else {}
        written: dict[str, Any] = {}
        for key, schema in properties(node).items():
            if key in needed:
                written[key] = self.write(schema, given.get(key, NOTHING), key, depth - 1)
            elif key in given and self.fits(schema, given[key]):
                written[key] = given[key]
        for key in needed:
            if key not in written:
                written[key] = self.write(node.get("additionalProperties", True), NOTHING, key, depth - 1)
        return written

    def _write_array(self, node: Mapping[str, Any], offered: Any, name: str, depth: int) -> list[Any]:
        prefix, rest = array(node, "prefixItems"), node.get("items", True)
        given = offered if isinstance(offered, list) else []
        length = min(max(number(node, "minItems"), len(given)), number(node, "maxItems", math.inf))
        written: list[Any] = []
        for position in range(math.ceil(length)):
            schema = prefix[position] if position < len(prefix) else rest
            value = given[position] if position < len(given) else NOTHING
            written.append(self.write(schema, value, name, depth - 1))
        return self._distinct(written, rest, name) if node.get("uniqueItems") is True else written

    def _distinct(self, written: list[Any], schema: Any, name: str) -> list[Any]:
        """The same values once each, and simple others in place of those that came again."""
        distinct = {canonical(value): value for value in written}
        if len(distinct) < len(written):
            node = self._node(schema)
            start = _write_number(node, whole=True)
            options = [*array(node, "enum"), *(start + step for step in range(len(written) + 1)), True, False]
            for option in [*options, *(f"{name}{place}" for place in range(len(written)))]:
                if len(distinct) < len(written) and self.fits(schema, option):
                    distinct.setdefault(canonical(option), option)
        return list(distinct.values())

    def _write_string(self, node: Mapping[str, Any], name: str) -> str:
        least, most = number(node, "minLength"), number(node, "maxLength", math.inf)
        if least > _MOST_TEXT:
            raise SchemaRefused(f"the built-in model writes strings of up to {_MOST_TEXT} characters")
        if "pattern" in node:
            try:
                return self._whole.pattern(node["pattern"]).example(math.ceil(least))
            except PatternRefused as refused:
                raise SchemaRefused(str(refused)) from refused
        text = _FORMATS.get(str(node.get("format")), name or "text")
        if len(text) < least:
            text = (text * math.ceil(least / len(text)))[: math.ceil(least)]
        return text[: int(min(len(text), most))]


def _both(keyword: str, one: Mapping[str, Any], other: Mapping[str, Any]) -> Any:
    if keyword == "properties":
        ours, theirs = properties(one), properties(other)
        shared = {key: {"allOf": [ours[key], theirs[key]]} for key in ours.keys() & theirs.keys()}
        return {**ours, **theirs, **shared}
    if keyword == "required":
        return [*required(one), *required(other)]
    if keyword in {"minimum", "exclusiveMinimum", "minLength", "minItems"}:
        return max(number(one, keyword), number(other, keyword))
    if keyword in {"maximum", "exclusiveMaximum", "maxLength", "maxItems"}:
        return min(number(one, keyword), number(other, keyword))
    return one[keyword]


def _write_number(node: Mapping[str, Any], *, whole: bool) -> int | float:
    """The number nearest to nought that the bounds allow, on the grid of `multipleOf`."""
    low, above = number(node, "minimum", -math.inf), number(node, "exclusiveMinimum", -math.inf)
    high, below = number(node, "maximum", math.inf), number(node, "exclusiveMaximum", math.inf)
    step = number(node, "multipleOf") or (1 if whole else 0)
    if low <= 0 <= high and above < 0 < below:
        return 0
    # Mirrored where all that is allowed is below nought, so that one direction is enough.
    sign = 1 if max(low, above) >= 0 else -1
    if sign < 0:
        low, above, high, below = -high, -below, -low, -above
    least, open_ = max(low, above), above >= low
    if step > 0:
        times = math.ceil(least / step)
        return sign * step * (times + 1 if open_ and times * step <= least else times)
    if not open_:
        return sign * least
    most = min(high, below)
    return sign * (least + 1 if least + 1 < most else (least + most) / 2)
