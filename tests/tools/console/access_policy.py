"""Who may call the tools of the console, and with which arguments (tests/tools/access.py)."""

from typing import Any

from baobab.tools.console.sessions import create_link
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from tests.tools.access import ACCOUNTS, PUBLIC, TOKENS, Caller, World

POLICY = {
    "console_sign_in": PUBLIC,
    "console_sessions_list": TOKENS,
    # Each caller has one of its own; a key ends no other than the one that it asks with.
    "console_session_revoke": TOKENS,
    "console_sign_out": ACCOUNTS,
}


async def for_console_sign_in(world: World, caller: Caller) -> dict[str, Any]:
    return {"key": world.baobab.key}


async def for_console_session_revoke(world: World, caller: Caller) -> dict[str, Any]:
    services, registry = world.baobab.application.services, world.baobab.application.registry
    header = caller.headers.get("authorization")
    who = await services.credentials.caller(header.encode() if header else None)
    if not isinstance(who, Account) or who.key_id is not None:
        return {"session_id": "00000000-0000-0000-0000-000000000000"}
    await _sign_in_by_link(world, who.account_id)
    listed = await registry.call("console_sessions_list", {}, who, RequestContext("test", "list"))
    return {"session_id": listed["sessions"][0]["id"]}


async def for_console_sign_out(world: World, caller: Caller) -> dict[str, Any]:
    return {"session_id": "00000000-0000-0000-0000-000000000000"}


async def _sign_in_by_link(world: World, account_id: str) -> None:
    application = world.baobab.application
    secret = await create_link(application.services, account_id)
    asked = RequestContext("test", "sign-in")
    await application.registry.call("console_sign_in", {"link": secret}, ANONYMOUS, asked)
