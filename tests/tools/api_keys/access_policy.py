"""The callers that may call the tools of api_keys, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ACCOUNTS, OWN_AND_ADMINS, Caller, World

POLICY = {
    "api_keys_create": ACCOUNTS,
    "api_keys_list": ACCOUNTS,
    # A key that the owner made: to a plain member, as to a stranger, there is no such key.
    "api_keys_update": OWN_AND_ADMINS,
    "api_keys_ask": OWN_AND_ADMINS,
    "api_keys_revoke": OWN_AND_ADMINS,
}


async def for_api_keys_create(world: World, caller: Caller) -> dict[str, Any]:
    return {"name": "matrix"}


async def for_api_keys_revoke(world: World, caller: Caller) -> dict[str, Any]:
    response = await world.request("POST", "/api-keys", world.owner.headers, name="k", organization_id=world.org)
    return {"key_id": response["key_id"]}


async def for_api_keys_update(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_api_keys_revoke(world, caller), "name": "renamed"}


async def for_api_keys_ask(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_api_keys_revoke(world, caller), "tool_name": "kv_delete", "ask": "never"}
