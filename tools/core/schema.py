"""JSON Schema as models and tools outside read it best: lean, without references, without needless nulls."""

from collections.abc import Iterator, Mapping
from typing import Any

Schema = dict[str, Any]

_BOUNDS = {"string": ("maxLength", "enum", "const"), "array": ("maxItems",)}
# Values of these formats are short by nature; an address or base64 (`uri`, `binary`) can have any length.
_SHORT_FORMATS = frozenset({"date", "date-time", "duration", "ipv4", "ipv6", "time", "uuid"})


def portable(schema: Schema) -> Schema:
    """Returns the schema with `$ref` resolved, without titles, and without `null` for optional arguments."""
    definitions = schema.get("$defs", {})
    return _object(_inline(schema, definitions))


def find_unbounded(schema: Schema, path: str = "") -> Iterator[str]:
    """Returns the paths of strings and lists without a maximum size."""
    bounds = _BOUNDS.get(schema.get("type", ""))
    if bounds and not any(word in schema for word in bounds) and schema.get("format") not in _SHORT_FORMATS:
        yield path or "the result"
    for name, inner in schema.get("properties", {}).items():
        yield from find_unbounded(inner, f"{path}.{name}".lstrip("."))
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from find_unbounded(schema[word], f"{path}[]")
    for word in ("anyOf", "oneOf", "allOf"):
        for inner in schema.get(word, ()):
            yield from find_unbounded(inner, path)


def find_example(schema: Any, pattern: str) -> str | None:
    """Returns the first example of the strings of a pattern, at any depth; None if there is none."""
    if isinstance(schema, dict):
        if schema.get("pattern") == pattern and schema.get("examples"):
            return str(schema["examples"][0])
        schema = list(schema.values())
    if isinstance(schema, list):
        return next((example for part in schema if (example := find_example(part, pattern))), None)
    return None


def _inline(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_inline(item, definitions) for item in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        target = definitions[node["$ref"].removeprefix("#/$defs/")]
        other_keywords = {k: v for k, v in node.items() if k != "$ref"}
        return _inline(target | other_keywords, definitions)
    cleaned_schema: Schema = {}
    for word, value in node.items():
        if word == "$defs" or (word == "title" and isinstance(value, str)):
            continue
        if word == "properties":
            cleaned_schema[word] = {name: _optional(_inline(inner, definitions)) for name, inner in value.items()}
        elif word in ("default", "examples", "enum", "const"):
            cleaned_schema[word] = value
        else:
            cleaned_schema[word] = _inline(value, definitions)
    return cleaned_schema


def _optional(schema: Schema) -> Schema:
    """Returns the schema of a property without its default. A property that is null by default need not take null: it
    is left out.
    """
    if "default" not in schema or schema["default"] is not None:
        return schema
    other_keywords = {k: v for k, v in schema.items() if k != "default"}
    choices = [choice for choice in other_keywords.get("anyOf", ()) if choice != {"type": "null"}]
    if len(choices) == 1:
        return {**choices[0], **{k: v for k, v in other_keywords.items() if k != "anyOf"}}
    return {**other_keywords, "anyOf": choices} if choices else other_keywords


def _object(schema: Schema) -> Schema:
    if schema.get("type") == "object":
        schema.setdefault("properties", {})
    schema.pop("description", None)
    return schema


def lean_input(schema: Schema) -> Schema:
    """Arguments as a list of tools shows them: what a model needs to fill them in, and no more."""
    return {**schema, "properties": {name: _lean_argument(inner) for name, inner in schema["properties"].items()}}


def lean_output(schema: Mapping[str, Any] | None) -> dict[str, Any]:
    """Returns the shape of a result's schema for lists of tools, without constraints on values. Which fields are always
    there is said of the result itself, and not of the objects in it.
    """
    shape: dict[str, Any] = _lean_shape(dict(schema or {}))
    return {**shape, "required": schema["required"]} if schema and "required" in schema else shape


def _lean_shape(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_lean_shape(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    shape = {word: value for word, value in schema.items() if word not in _NOT_SHAPE}
    lean = {word: value if word in ("enum", "const") else _lean_shape(value) for word, value in shape.items()}
    if "properties" in schema:
        lean["properties"] = {name: _lean_shape(inner) for name, inner in schema["properties"].items()}
    choices = lean.get("anyOf", [])
    if len(choices) == 2 and {"type": "null"} in choices:
        variant = next(choice for choice in choices if choice != {"type": "null"})
        if isinstance(variant.get("type"), str) and not {"enum", "const"} & variant.keys():
            other_keywords = {word: value for word, value in lean.items() if word != "anyOf"}
            return {**other_keywords, **variant, "type": [variant["type"], "null"]}
    return lean


_BOUNDING = ("minLength", "maxLength", "minItems", "maxItems", "minimum", "maximum", "pattern")
_LENGTHS = frozenset(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"))
_NOT_LISTED = _LENGTHS | {"examples"}
_NOT_SHAPE = frozenset(("description", "examples", "default", "format", "required", "additionalProperties", *_BOUNDING))


def _lean_argument(schema: Schema) -> Schema:
    # Nobody makes up an id, so that a caller need not know its form.
    is_id = "{" in schema.get("pattern", "")
    dropped_words = _NOT_LISTED | {"pattern"} if is_id else _NOT_LISTED
    return {word: _lean_inside(value, word) for word, value in schema.items() if word not in dropped_words}


def _lean_inside(schema: Any, word: str) -> Any:
    """Returns the schema of what is inside an argument, without limits of length, which callers hardly reach."""
    if isinstance(schema, list):
        return [_lean_inside(item, "") for item in schema]
    if not isinstance(schema, dict) or word in ("default", "enum", "const"):
        return schema
    if word == "properties":
        return {name: _lean_inside(inner, "") for name, inner in schema.items()}
    return {keyword: _lean_inside(inner, keyword) for keyword, inner in schema.items() if keyword not in _LENGTHS}
