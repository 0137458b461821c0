"""The parts that all pages of an app share: they extend `app.html`, which shows the app and the tabs of its pages."""

import json
from collections.abc import Mapping
from typing import Any

from baobab.http.console.visit import Visit
from baobab.tools.core.errors import BadRequest
from baobab.tools.core.types import parse_json


async def read_app(visit: Visit) -> dict[str, Any]:
    """Returns the settings of the app that the path names. Raises Forbidden or NotFound for those who may not see
    it.
    """
    app: dict[str, Any] = await visit.call("config_get", app_id=visit.parts["app"])
    return app


def name_app(app: Mapping[str, Any]) -> str:
    """Returns the name of an app that people read."""
    return str(app.get("display_name") or app["name"])


def refuse_field(field: str, problem: str) -> BadRequest:
    """Builds the error of one field of a form. problem: what to type, as a sentence, which stands beside the field."""
    return BadRequest(problem, details={"fields": [{"field": field, "problem": problem}]})


def find_fault(text: str) -> str:
    """Returns where a text stops being JSON, as a part of a sentence; nothing if that is not known."""
    try:
        json.loads(text)
    except json.JSONDecodeError as exc:
        return f": look at line {exc.lineno}, character {exc.colno}"
    except ValueError:
        pass
    return ""


def parse_value(text: str, name: str) -> Any:
    """Parses the JSON that somebody typed into a field. Raises BadRequest."""
    try:
        return parse_json(text)
    except ValueError as exc:
        problem = f'The {name} is not JSON{find_fault(text)}. A text needs quotes: "yes".'
        raise refuse_field(name, problem) from exc


def parse_object(text: str, name: str) -> dict[str, Any] | None:
    """Parses the JSON object that somebody typed into a field; returns None if it is empty. Raises BadRequest."""
    if not text.strip():
        return None
    try:
        value = parse_json(text)
    except ValueError as exc:
        raise refuse_field(name, f"The {name} is not JSON{find_fault(text)}.") from exc
    if not isinstance(value, dict):
        raise refuse_field(name, f"The {name} must be a JSON object: names and values in braces.")
    return value
