"""The apps of a client, listed with the registry's own tools, so that this module needs no rules."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.mcp_server.mcp_client import McpClient
from baobab.tools.core.call import Tool
from baobab.tools.core.errors import AppNotFound, Forbidden, KeyLimited
from baobab.tools.core.registry import Registry

MOST = 1000
_PAGE = 500


async def list_own_apps(registry: Registry, client: McpClient) -> Sequence[Mapping[str, Any]]:
    """Returns at most 1000 apps of the client, newest first, with id, name, region and more; none if it may not list
    apps.
    """
    try:
        if client.app_id is not None:
            app = await get_own_app(registry, client, client.app_id)
            return [] if app is None else [app]
        return await _list_apps(registry, client)
    except Forbidden:
        return []


async def resolve_app_name(
    registry: Registry, client: McpClient, tool: Tool, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Returns the arguments of a call with the id of the app where they have its name. Ids begin with `app_`, and names
    are unique in an organisation.
    """
    name = arguments.get("app_id")
    if tool.app_parameter != "app_id" or not isinstance(name, str) or name.startswith("app_"):
        return arguments
    ids = [app["id"] for app in await list_own_apps(registry, client) if app["name"] == name]
    return {**arguments, "app_id": ids[0]} if len(ids) == 1 else arguments


async def get_own_app(registry: Registry, client: McpClient, app_id: str) -> Mapping[str, Any] | None:
    """Returns the settings of an app; None if it does not exist or is not the client's, two cases that must look the
    same.

    Raises KeyLimited if the app is the client's, but its key may not read settings.
    """
    if client.app_id not in (None, app_id):
        return None
    try:
        settings: Mapping[str, Any] = await registry.call(
            "config_get", {"app_id": app_id}, client.caller, client.context
        )
    except KeyLimited:
        raise
    except (AppNotFound, Forbidden):
        return None
    return settings


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
