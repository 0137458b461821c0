"""What all pages of one app begin with: they extend `app.html`, which shows the app and the tabs of its pages."""

from typing import Any

from baobab.http.console.visit import Visit


async def read_app(visit: Visit) -> dict[str, Any]:
    """The settings of the app that the path names. Raises what refuses a stranger."""
    found: dict[str, Any] = await visit.call("config_get", app_id=visit.parts["app"])
    return found
