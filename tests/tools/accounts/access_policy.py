"""The callers that may call the tools of accounts, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ACCOUNTS, PASSWORD, PUBLIC, TOKENS, Caller, World

POLICY = {
    "platform_signup": PUBLIC,
    "platform_login": PUBLIC,
    "platform_refresh": PUBLIC,
    "platform_logout": TOKENS,
    "platform_me": ACCOUNTS,
    "platform_update": ACCOUNTS,
}


async def for_platform_signup(world: World, caller: Caller) -> dict[str, Any]:
    return {"email": f"{world.new_name('new')}@example.com", "password": PASSWORD, "name": "New"}


async def for_platform_login(world: World, caller: Caller) -> dict[str, Any]:
    return {"email": "known@example.com", "password": PASSWORD}


async def for_platform_refresh(world: World, caller: Caller) -> dict[str, Any]:
    signed_in = await caller.client.post("/platform/login", json=await for_platform_login(world, caller))
    return {"refresh_token": signed_in.json()["refresh_token"]}
