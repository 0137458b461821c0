"""The callers that may call the tools of accounts, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from baobab.tools.accounts.mailed_links import Kind, find_account, make_link
from baobab.tools.core.auth.tables import accounts
from tests.people import create_person
from tests.tools.access import ACCOUNTS, PASSWORD, PUBLIC, TOKENS, Caller, World

POLICY = {
    "platform_signup": PUBLIC,
    "platform_login": PUBLIC,
    "platform_refresh": PUBLIC,
    "platform_logout": TOKENS,
    "platform_me": ACCOUNTS,
    "platform_update": ACCOUNTS,
    "platform_delete": TOKENS,
    "platform_forgot_password": PUBLIC,
    "platform_reset_password": PUBLIC,
    "platform_change_email": TOKENS,
    "platform_confirm_email": PUBLIC,
}


async def _make_token(world: World, kind: Kind, **fields: str) -> str:
    person, services = await create_person(world.baobab, world.new_name("mailed")), world.baobab.application.services
    async with services.database.reading() as connection:
        account = await find_account(connection.execute, accounts.c.id == person.id)
    return make_link(services, kind, account, **fields)[0].partition("?token=")[2]


async def for_platform_forgot_password(world: World, caller: Caller) -> dict[str, Any]:
    return {"email": f"{world.new_name('forgot')}@example.com"}


async def for_platform_reset_password(world: World, caller: Caller) -> dict[str, Any]:
    return {"token": await _make_token(world, "new_password"), "password": PASSWORD}


async def for_platform_confirm_email(world: World, caller: Caller) -> dict[str, Any]:
    new_email = f"{world.new_name('moved')}@example.com"
    return {"token": await _make_token(world, "new_email", new_email=new_email)}


async def for_platform_delete(world: World, caller: Caller) -> dict[str, Any]:
    # An account whose own organisation has an app is not deleted, so that it can go on asking.
    if caller.name in ("member", "admin", "owner", "stranger"):
        await world.request("POST", "/init", caller.headers, name=world.new_name("kept"))
    return {}


async def for_platform_signup(world: World, caller: Caller) -> dict[str, Any]:
    return {"email": f"{world.new_name('new')}@example.com", "password": PASSWORD, "name": "New"}


async def for_platform_login(world: World, caller: Caller) -> dict[str, Any]:
    return {"email": "known@example.com", "password": PASSWORD}


async def for_platform_refresh(world: World, caller: Caller) -> dict[str, Any]:
    signed_in = await caller.client.post("/platform/login", json=await for_platform_login(world, caller))
    return {"refresh_token": signed_in.json()["refresh_token"]}
