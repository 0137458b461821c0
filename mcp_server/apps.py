"""Apps as a visitor sees them: asked for with the registry's own tools, so that no rule lives here."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.mcp_server.mcp_client import McpClient
from baobab.tools.core.errors import AppNotFound, Forbidden, KeyLimited
from baobab.tools.core.registry import Registry

MOST = 1000
_PAGE = 500


async def list_own_apps(registry: Registry, client: McpClient) -> Sequence[Mapping[str, Any]]:
    """At most 1000 apps of the visitor, the newest first: id, name, region and more. No app where it may not look."""
    try:
        if client.app_id is not None:
            app = await get_own_app(registry, client, client.app_id)
            return [] if app is None else [app]
        return await _list_apps(registry, client)
    except Forbidden:
        return []


async def get_own_app(registry: Registry, client: McpClient, app_id: str) -> Mapping[str, Any] | None:
    """The settings of an app; None for one that is not there or not the visitor's, which must look the same.

    KeyLimited where the app is the visitor's, but its key does not open settings.
    """
    if client.app_id not in (None, app_id):
        return None
    try:
        found: Mapping[str, Any] = await registry.call("config_get", {"app_id": app_id}, client.caller, client.context)
    except KeyLimited:
        raise
    except (AppNotFound, Forbidden):
        return None
    return found


async def _list_apps(registry: Registry, client: McpClient) -> list[Mapping[str, Any]]:
    apps: list[Mapping[str, Any]] = []
    arguments: dict[str, Any] = {"limit": _PAGE}
    while len(apps) < MOST:
        page = await registry.call("apps_list", arguments, client.caller, client.context)
        apps += page["apps"]
        if page["next_cursor"] is None:
            break
        arguments["cursor"] = page["next_cursor"]
    return apps
