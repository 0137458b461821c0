"""The callers that may call the tools of integrations, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ADMINS, PUBLIC, RUNNERS, Caller, World
from tests.tools.integrations.conftest import Browser, read_query

_OF_APP = "401 403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
POLICY = {
    "integrations_available": RUNNERS,
    "integrations_config": RUNNERS,
    "integrations_configure": ADMINS,
    "integrations_credentials": ADMINS,
    "integrations_disable": ADMINS,
    "integrations_connect": _OF_APP,
    # Whoever has the link, which names one user of the app.
    "integrations_link": PUBLIC,
    "integrations_link_open": PUBLIC,
    # Browsers that come back from a service; without the cookie of the link they connect nothing.
    "integrations_callback": PUBLIC,
    "integrations_connections": _OF_APP,
    "integrations_disconnect": _OF_APP,
    "integrations_tools": _OF_APP,
    "integrations_execute": _OF_APP,
    "integrations_read": _OF_APP,
    "integrations_calls": _OF_APP,
    # A provider, by its signature; without one that is set up, there is no such address.
    "integration_hooks_composio": "404 404 404 404 404 404 404 404 404 404 404 404 404 404",
}


async def _configure(world: World, toolkit: str = "gmail") -> dict[str, Any]:
    await world.request("POST", f"/v1/{world.app}/integrations/configure", world.owner.headers, toolkit=toolkit)
    return {"app_id": world.app}


async def _begin(world: World) -> str:
    await _configure(world)
    path = f"/v1/{world.app}/integrations/connect"
    answer = await world.request("POST", path, world.owner.headers, toolkit="gmail", userId=world.owner.id)
    address: str = answer["authUrl"]
    return address


async def _connect(world: World) -> str:
    """The id of an account of the user whose token the callers show."""
    answer = await Browser(world.baobab.client).connect(await _begin(world))
    assert answer["status"] == "connected"
    path = f"/v1/{world.app}/integrations/connections"
    (connection,) = (await world.baobab.client.get(path, headers=world.owner.headers)).json()["connections"]
    connection_id: str = connection["id"]
    return connection_id


def _name_user(world: World, caller: Caller) -> dict[str, Any]:
    # A user acts for nobody else; whoever runs the app says for whom.
    return {"app_id": world.app, "userId": world.owner.id}


async def for_integrations_credentials(world: World, caller: Caller) -> dict[str, Any]:
    credentials = {"client_id": "app-1", "client_secret": "secret"}
    return {**await _configure(world), "toolkit": "gmail", "oauth_credentials": credentials}


async def for_integrations_disable(world: World, caller: Caller) -> dict[str, Any]:
    return {**await _configure(world, "discord"), "toolkit": "discord"}


async def for_integrations_connect(world: World, caller: Caller) -> dict[str, Any]:
    await _configure(world)
    return {**_name_user(world, caller), "toolkit": "gmail"}


async def for_integrations_link(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "ticket": read_query(await _begin(world))["ticket"]}


async def for_integrations_link_open(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "ticket": read_query(await _begin(world))["ticket"]}


async def for_integrations_disconnect(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "id": await _connect(world)}


async def for_integrations_execute(world: World, caller: Caller) -> dict[str, Any]:
    await _connect(world)
    return {**_name_user(world, caller), "toolName": "GMAIL_LIST_LABELS"}


async def for_integrations_read(world: World, caller: Caller) -> dict[str, Any]:
    return await for_integrations_execute(world, caller)


async def for_integration_hooks_composio(world: World, caller: Caller) -> dict[str, Any]:
    return {"content": "{}"}
