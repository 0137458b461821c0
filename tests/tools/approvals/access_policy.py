"""The callers that may call the tools of approvals, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import ACCOUNTS, DECIDED, OWN_AND_ADMINS, Caller, World

OWN_CHANNEL = ACCOUNTS.replace("ok ", "404").replace("ok", "404")
POLICY = {
    # What a key of the owner asked for.
    "approvals_list": "401 ok  ok  ok  ok  ok  ok  403 ok  ok  ok  ok  ok  ok",
    "approvals_get": "401 404 404 404 404 404 404 403 404 ok  ok  ok  404 404",
    "approvals_approve": DECIDED,
    "approvals_reject": DECIDED,
    "approvals_hold": OWN_AND_ADMINS,
    # Each names a decision that nobody made.
    "approvals_take_back": OWN_CHANNEL,
    "approvals_inbox_state": ACCOUNTS,
    "approvals_waiting": ACCOUNTS,
    "approvals_snooze": OWN_AND_ADMINS,
    "notices_get": ACCOUNTS,
    "notices_update": ACCOUNTS,
    "notices_push_key": ACCOUNTS,
    "notices_messages_list": ACCOUNTS,
    "notices_members": ACCOUNTS,
    "notices_channel_add": ACCOUNTS,
    # Each caller names a channel that nobody has.
    "notices_channel_confirm": OWN_CHANNEL,
    "notices_channel_remove": OWN_CHANNEL,
    "notices_channel_test": OWN_CHANNEL,
}
NOBODYS = "00000000-0000-0000-0000-000000000000"


async def for_approvals_get(world: World, caller: Caller) -> dict[str, Any]:
    asking = {"name": "agent", "organization_id": world.org, "approval": "write"}
    response = await world.request("POST", "/api-keys", world.owner.headers, **asking)
    agent = {"authorization": f"Bearer {response['key']}"}
    refusal = await world.baobab.client.post("/init", json={"name": world.new_name("app")}, headers=agent)
    return {"approval_id": refusal.json()["error"]["details"]["approval_id"]}


async def for_approvals_approve(world: World, caller: Caller) -> dict[str, Any]:
    return await for_approvals_get(world, caller)


async def for_approvals_reject(world: World, caller: Caller) -> dict[str, Any]:
    return await for_approvals_get(world, caller)


async def for_approvals_hold(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_approvals_get(world, caller), "decision": "approve"}


async def for_approvals_take_back(world: World, caller: Caller) -> dict[str, Any]:
    return {"held_ids": [NOBODYS]}


async def for_approvals_snooze(world: World, caller: Caller) -> dict[str, Any]:
    approval = await for_approvals_get(world, caller)
    return {"approval_ids": [approval["approval_id"]], "minutes": 60}


async def for_notices_update(world: World, caller: Caller) -> dict[str, Any]:
    return {"digest_minutes": 5}


async def for_notices_channel_add(world: World, caller: Caller) -> dict[str, Any]:
    return {"kind": "slack", "url": "https://hooks.example.com/x"}


async def for_notices_channel_confirm(world: World, caller: Caller) -> dict[str, Any]:
    return {"channel_id": NOBODYS, "code": "AAAAAAAA"}


async def for_notices_channel_remove(world: World, caller: Caller) -> dict[str, Any]:
    return {"channel_id": NOBODYS}


async def for_notices_channel_test(world: World, caller: Caller) -> dict[str, Any]:
    return {"channel_id": NOBODYS}
