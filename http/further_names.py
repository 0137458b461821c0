"""The further names of fields, by which other clients of the contract know them. Only REST has them."""

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json, to_json

from baobab.tools.core.errors import BadRequest

Schema = dict[str, Any]
Sources = str | Mapping[str, str]
"""The field that has the value, or an object's fields by their names in the object."""


def add_to_answer(content: bytes, schema: Schema, further_names: Mapping[str, Sources]) -> bytes:
    """Returns a JSON answer whose objects have each value also under its further names, where the schema has it."""
    answer = from_json(content)
    _add_to_value(answer, schema, further_names)
    return to_json(answer)


def add_to_schema(schema: Schema, further_names: Mapping[str, Sources]) -> Schema:
    """Returns the schema of such answers."""
    changed_schema = dict(schema)
    for word in ("anyOf", "oneOf", "allOf"):
        if word in schema:
            changed_schema[word] = [add_to_schema(each, further_names) for each in schema[word]]
    if isinstance(schema.get("items"), dict):
        changed_schema["items"] = add_to_schema(schema["items"], further_names)
    properties = schema.get("properties")
    if properties:
        changed_schema["properties"] = {name: add_to_schema(each, further_names) for name, each in properties.items()}
        for name, sources in further_names.items():
            if _has_sources(properties, sources):
                changed_schema["properties"][name] = _describe(properties, sources)
    return changed_schema


def read_body(body: dict[str, Any], known: frozenset[str], further_names: Mapping[str, Sources]) -> dict[str, Any]:
    """Returns a request's body with the fields' own names. Raises BadRequest for a field that has two values."""
    for name, source in further_names.items():
        if name not in body or name in known or not isinstance(source, str) or source not in known:
            continue
        value = body.pop(name)
        if body.setdefault(source, value) != value:
            raise BadRequest(f"`{name}` and `{source}` are the same field, and have different values.")
    return body


def _add_to_value(value: Any, schema: Schema, further_names: Mapping[str, Sources]) -> None:
    for word in ("anyOf", "oneOf", "allOf"):
        for each in schema.get(word, ()):
            _add_to_value(value, each, further_names)
    if isinstance(value, list):
        for item in value:
            _add_to_value(item, schema.get("items", {}), further_names)
    elif isinstance(value, dict):
        properties = schema.get("properties", {})
        for name, inner in properties.items():
            if name in value:
                _add_to_value(value[name], inner, further_names)
        for name, sources in further_names.items():
            if not _has_sources(properties, sources):
                continue
            if isinstance(sources, str):
                if sources in value:
                    value[name] = value[sources]
            else:
                value[name] = {inner: value.get(source) for inner, source in sources.items()}


def _has_sources(properties: Schema, sources: Sources) -> bool:
    names = (sources,) if isinstance(sources, str) else sources.values()
    return all(name in properties for name in names)


def _describe(properties: Schema, sources: Sources) -> Schema:
    if isinstance(sources, str):
        schema = {word: value for word, value in properties[sources].items() if word != "description"}
        return {**schema, "description": f"The same as `{sources}`."}
    inner = {name: _describe(properties, source) for name, source in sources.items()}
    return {"type": "object", "properties": inner, "required": list(inner)}
