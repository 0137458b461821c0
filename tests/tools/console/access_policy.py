"""The callers that may call the tools of the console, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from baobab.tools.console.sessions import create_link
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.context import RequestContext
from tests.tools.access import ACCOUNTS, PUBLIC, TOKENS, Caller, World

POLICY = {
    "console_sign_in": PUBLIC,
    "console_sessions_list": ACCOUNTS,
    # Each caller has one of its own.
    "console_session_revoke": ACCOUNTS,
    "console_sign_out": ACCOUNTS,
    "console_passkey_begin": TOKENS,
    "console_passkey_add": TOKENS,
    "console_passkeys_list": TOKENS,
    # Each caller names one that nobody has.
    "console_passkey_remove": TOKENS.replace("ok ", "404"),
}


async def for_console_sign_in(world: World, caller: Caller) -> dict[str, Any]:
    return {"key": world.baobab.key}


async def begin_session(world: World, caller: Caller) -> dict[str, Any]:
    """Returns the id of a new session of the caller's; of none for those who have none."""
    services, registry = world.baobab.application.services, world.baobab.application.registry
    header = caller.headers.get("authorization")
    who = await services.credentials.caller(header.encode() if header else None)
    if not isinstance(who, Account):
        return {"session_id": "00000000-0000-0000-0000-000000000000"}
    credential = {"link": await create_link(services, who.account_id)}
    if who.key_id is not None and header is not None:
        credential = {"key": header.removeprefix("Bearer ")}
    await registry.call("console_sign_in", credential, ANONYMOUS, RequestContext("test", "sign-in"))
    result = await registry.call("console_sessions_list", {}, who, RequestContext("test", "list"))
    return {"session_id": result["sessions"][0]["id"]}


for_console_session_revoke = for_console_passkey_begin = begin_session


async def for_console_sign_out(world: World, caller: Caller) -> dict[str, Any]:
    return {"session_id": "00000000-0000-0000-0000-000000000000"}


async def for_console_passkey_add(world: World, caller: Caller) -> dict[str, Any]:
    return {**await begin_session(world, caller), "state": "v1.none.none", "credential": {}}


async def for_console_passkey_remove(world: World, caller: Caller) -> dict[str, Any]:
    return {**await begin_session(world, caller), "passkey_id": "00000000-0000-0000-0000-000000000000"}
