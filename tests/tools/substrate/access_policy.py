"""Who may call the tools of the substrate, and with which arguments (tests/tools/access.py)."""

from typing import Any

from tests.tools.access import Caller, World

# Each account and each key has the substrate of its own organisation.
OPEN = "401 403 ok  403 403 403 403 403 ok  ok  ok  403 ok  403"

POLICY = {
    "substrate_settings": OPEN,
    "substrate_set_yolo": OPEN,
    "substrate_provision": OPEN,
    "substrate_propose": OPEN,
    "substrate_actions": OPEN,
    "substrate_action": OPEN,
    "substrate_approve": OPEN,
    "substrate_reject": OPEN,
}

_NOBODYS = "act_01KAVF3T9GQZ8RT3Q0M5W9YB7C"


async def propose(world: World, caller: Caller, capability: str, **payload: Any) -> dict[str, Any]:
    """What a proposal answers, by the caller; nothing for those who may not propose."""
    answer = await caller.client.post(
        "/v1/me/substrate/actions/propose",
        json={"capability": capability, "payload": payload},
        headers=caller.headers,
    )
    result: dict[str, Any] = answer.json() if answer.status_code == 200 else {}
    return result


async def for_substrate_propose(world: World, caller: Caller) -> dict[str, Any]:
    artifact = (await propose(world, caller, "upsert_source_artifact", kind="note", title="Talk")).get("result")
    learning = {"title": "Ask first", "description": "They had asked before."}
    if artifact:
        learning["source_artifact_id"] = artifact["artifact_id"]
    await propose(world, caller, "record_commitment", description="Call back", status="confirmed")
    return {"capability": "record_learning", "payload": learning}


async def for_substrate_action(world: World, caller: Caller) -> dict[str, Any]:
    made = await propose(world, caller, "record_decision", title="Ship", kind="operational")
    return {"action_id": made.get("action_id", _NOBODYS)}


async def for_substrate_approve(world: World, caller: Caller) -> dict[str, Any]:
    made = await propose(world, caller, "record_decision", title="Ship", kind="operational")
    old = made.get("result", {}).get("decision_id", "")
    waits = await propose(
        world, caller, "supersede_decision", old_decision_id=old, new_title="Wait", kind="operational"
    )
    return {"action_id": waits.get("action_id", _NOBODYS)}


for_substrate_reject = for_substrate_approve
