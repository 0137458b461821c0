"""The callers that may call the tools of functions, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ADMINS, AI, PUBLIC, RUNNERS, Caller, World
from tests.tools.functions.conftest import HELLO

# Credentials that are the app's own pass, and so does whoever shows none at all where the function says so.
_OPEN = "ok  403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
_TOOLS = "401 403 403 ok  403 ok  403 403 ok  ok  ok  ok  403 403"
POLICY = {
    "functions_deploy": ADMINS,
    "functions_list": RUNNERS,
    "functions_get": RUNNERS,
    "functions_delete": ADMINS,
    "functions_invoke": RUNNERS,
    "functions_env_update": ADMINS,
    "functions_settings_update": ADMINS,
    "functions_app_env": RUNNERS,
    "functions_app_env_update": ADMINS,
    "functions_versions": RUNNERS,
    "functions_versions_diff": RUNNERS,
    "functions_rollback": ADMINS,
    "functions_logs": RUNNERS,
    "functions_logs_stream": RUNNERS,
    "functions_webhooks": RUNNERS,
    "functions_tools": AI,
    "functions_call": _TOOLS,
    "functions_read": _TOOLS,
    "functions_fire": ADMINS,
    "functions_event": _OPEN,
    "fn_get": _OPEN,
    "fn_post": _OPEN,
    "fn_put": _OPEN,
    "fn_patch": _OPEN,
    "fn_delete": _OPEN,
    "fn_rpc": _OPEN,
    # A sender, by its signature; this one needs none.
    "fn_webhook": PUBLIC,
}
_NAME = "shared"
_SETTINGS: dict[str, Any] = {
    "agent_tool": True,
    "agent_tool_exposed_to": "end_user",
    "triggers": [
        {"type": "http", "config": {"auth": "none"}},
        {"type": "websocket"},
        {"type": "cron", "config": {"schedule": "0 2 * * *"}},
        {"type": "webhook", "config": {"secret_required": False}},
    ],
}


async def deploy(world: World, name: str = _NAME) -> dict[str, Any]:
    body = {"name": name, "code": HELLO, **_SETTINGS}
    await world.request("POST", f"/v1/{world.app}/functions", world.owner.headers, **body)
    return {"app_id": world.app, "name": name}


async def find_shared(world: World) -> dict[str, Any]:
    """A function that no call changes; it is deployed once."""
    answer = await world.request("GET", f"/v1/{world.app}/functions", world.owner.headers)
    if not any(each["name"] == _NAME for each in answer["functions"]):
        await deploy(world)
    return {"app_id": world.app, "name": _NAME}


async def for_functions_deploy(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "name": "deployed", "code": HELLO}


async def for_functions_delete(world: World, caller: Caller) -> dict[str, Any]:
    return await deploy(world, world.new_name("function"))


async def for_functions_get(world: World, caller: Caller) -> dict[str, Any]:
    return await find_shared(world)


async def for_functions_env_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await find_shared(world), "envVars": {"A": "1"}}


async def for_functions_app_env_update(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "envVars": {"A": "1"}}


async def for_functions_settings_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await find_shared(world), "allow_service_key_impersonation": True}


async def for_functions_rollback(world: World, caller: Caller) -> dict[str, Any]:
    return {**await find_shared(world), "number": 1}


async def for_functions_fire(world: World, caller: Caller) -> dict[str, Any]:
    return {**await find_shared(world), "trigger": "cron", "payload": {}, "request_id": "a-request"}


async def for_functions_event(world: World, caller: Caller) -> dict[str, Any]:
    await find_shared(world)
    return {"app_id": world.app, "event": _NAME}


async def for_fn_post(world: World, caller: Caller) -> dict[str, Any]:
    return {**await find_shared(world), "content": "{}"}


async def for_functions_invoke(world: World, caller: Caller) -> dict[str, Any]:
    return {**await find_shared(world), "body": {}}


for_functions_versions = for_functions_logs = for_functions_logs_stream = for_functions_get
for_functions_webhooks = for_functions_call = for_functions_read = for_functions_get
for_functions_versions_diff = for_functions_rollback
for_fn_get = for_fn_put = for_fn_patch = for_fn_delete = for_fn_rpc = for_fn_webhook = for_fn_post
