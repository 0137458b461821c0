"""A form made from the schema of a question's answer: a field for each property, and the answer from what was typed."""

from collections.abc import Mapping
from math import isfinite
from typing import Any

from baobab.tools.core.errors import BadRequest

_MOST_FIELDS, _MOST_CHOICES = 30, 100


def build_fields(schema: Any, data: Mapping[str, Any] | None) -> list[dict[str, Any]] | None:
    """Returns the fields of a form, with the values that the question came with. Returns None if the schema has other
    types than texts, numbers, booleans, choices and lists of texts: then the answer is typed as JSON.

    Each has: id, name, label, help, kind (`text`, `lines`, `number`, `boolean`, `choice`, `choices`), required, value.
    """
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not 0 < len(properties) <= _MOST_FIELDS:
        return None
    required_names = [name for name in schema.get("required", []) if name in properties]
    fields: list[dict[str, Any]] = []
    # Databases do not keep the order of an object, but that of a list.
    for number, name in enumerate([*dict.fromkeys(required_names), *sorted(set(properties) - set(required_names))]):
        about = properties[name]
        kind = _find_kind(about)
        if kind is None:
            return None
        value = (data or {}).get(name, about.get("default"))
        field = {
            "id": f"answer-{number}",
            "name": name,
            "kind": kind,
            "required": name in required_names,
            "value": value,
        }
        field |= {"label": str(about.get("title") or name), "help": str(about.get("description") or "")}
        field |= {"integer": about.get("type") == "integer", "about": about}
        field["choices"] = about["enum"] if kind == "choice" else about["items"]["enum"] if kind == "choices" else []
        fields.append(field)
    # If the form cannot show everything, the person gets all of it as JSON.
    return None if set(data or ()) - set(properties) else fields


def _find_kind(about: Any) -> str | None:
    if not isinstance(about, dict) or not isinstance(about.get("type", ""), str):
        return None
    if _are_texts(about.get("enum")):
        return "choice"
    items = about.get("items")
    if about.get("type") == "array" and isinstance(items, dict):
        return "choices" if _are_texts(items.get("enum")) else "lines" if items.get("type") == "string" else None
    return {"string": "text", "number": "number", "integer": "number", "boolean": "boolean"}.get(about.get("type", ""))


def _are_texts(choices: Any) -> bool:
    is_short = isinstance(choices, list) and 0 < len(choices) <= _MOST_CHOICES
    return is_short and all(isinstance(choice, str) for choice in choices)


def read_answer(fields: list[dict[str, Any]], form: Mapping[str, str]) -> dict[str, Any]:
    """Returns the answer that was typed. Fields left empty are left out. Raises BadRequest."""
    answer: dict[str, Any] = {}
    for field in fields:
        name, typed_text = field["name"], form.get(field["id"], "").replace("\r\n", "\n")
        match field["kind"]:
            case "boolean":
                answer[name] = typed_text == "yes"
            case "choices":
                choices = [text for n, text in enumerate(field["choices"]) if f"{field['id']}.{n}" in form]
                answer[name] = choices
            case "lines":
                answer[name] = [line.strip() for line in typed_text.split("\n") if line.strip()]
            case "number" if typed_text.strip():
                answer[name] = _read_number(field, typed_text.strip())
            case "text" | "choice" if typed_text or field["required"]:
                answer[name] = typed_text
    return answer


def _read_number(field: Mapping[str, Any], text: str) -> float:
    try:
        number = int(text) if field["integer"] or text.lstrip("-").isdecimal() else float(text)
        if not isfinite(number):
            raise ValueError
    except (ValueError, OverflowError) as exc:
        kind = "whole number" if field["integer"] else "number"
        raise BadRequest(f"{field['label'][:100]}: this is not a {kind}.") from exc
    return number
