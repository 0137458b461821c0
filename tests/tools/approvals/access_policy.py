"""Who may call the tools of approvals, and with which arguments (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import DECIDED, Caller, World

POLICY = {
    # What a key of the owner asked for.
    "approvals_list": "401 ok  ok  ok  ok  ok  ok  403 ok  ok  ok  ok  ok  ok",
    "approvals_get": "401 404 404 404 404 404 404 403 404 ok  ok  ok  404 404",
    "approvals_approve": DECIDED,
    "approvals_reject": DECIDED,
}


async def for_approvals_get(world: World, caller: Caller) -> dict[str, Any]:
    asking = {"name": "agent", "organization_id": world.org, "approval": "write"}
    made = await world.request("POST", "/api-keys", world.owner.headers, **asking)
    agent = {"authorization": f"Bearer {made['key']}"}
    refused = await world.baobab.client.post("/init", json={"name": world.new_name("app")}, headers=agent)
    return {"approval_id": refused.json()["error"]["details"]["approval_id"]}


async def for_approvals_approve(world: World, caller: Caller) -> dict[str, Any]:
    return await for_approvals_get(world, caller)


async def for_approvals_reject(world: World, caller: Caller) -> dict[str, Any]:
    return await for_approvals_get(world, caller)
