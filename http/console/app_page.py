"""The parts that all pages of an app share: they extend `app.html`, which shows the app and the tabs of its pages."""

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


def parse_object(text: str, name: str) -> dict[str, Any] | None:
    """Parses the JSON object that somebody typed into a field; returns None if it is empty. Raises BadRequest."""
    if not text.strip():
        return None
    try:
        value = parse_json(text)
    except ValueError as exc:
        raise BadRequest(f"The {name} is not JSON.") from exc
    if not isinstance(value, dict):
        raise BadRequest(f"The {name} must be a JSON object.")
    return value
