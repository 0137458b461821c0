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
    "substrate_capabilities": OPEN,
    "substrate_principles": OPEN,
    "substrate_principle": OPEN,
    "substrate_policy_conflicts": OPEN,
    "substrate_policy_conflict": OPEN,
    "substrate_resolve_policy_conflict": OPEN,
    "substrate_entities": OPEN,
    "substrate_entity": OPEN,
    "substrate_update_entity": OPEN,
    "substrate_search_memory": OPEN,
    "substrate_memory_list": OPEN,
    "substrate_source_artifacts": OPEN,
    "substrate_source_artifact": OPEN,
    "substrate_snapshots": OPEN,
}

_NOBODYS = "01KAVF3T9GQZ8RT3Q0M5W9YB7C"


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
    return {"action_id": made.get("action_id", f"act_{_NOBODYS}")}


async def for_substrate_approve(world: World, caller: Caller) -> dict[str, Any]:
    made = await propose(world, caller, "record_decision", title="Ship", kind="operational")
    old = made.get("result", {}).get("decision_id", "")
    waits = await propose(
        world, caller, "supersede_decision", old_decision_id=old, new_title="Wait", kind="operational"
    )
    return {"action_id": waits.get("action_id", f"act_{_NOBODYS}")}


for_substrate_reject = for_substrate_approve


async def find_result(world: World, caller: Caller, capability: str, field: str, **payload: Any) -> str:
    """A field of what an action did, or an id of nobody's."""
    result = (await propose(world, caller, capability, **payload)).get("result") or {}
    found: str = result.get(field, f"{field[:3]}_{_NOBODYS}")
    return found


async def for_substrate_entity(world: World, caller: Caller) -> dict[str, Any]:
    named = {"type": "person", "display_name": "Ada", "primary_email": "ada@example.com"}
    return {"entity_id": await find_result(world, caller, "upsert_entity", "entity_id", **named)}


for_substrate_update_entity = for_substrate_entity


async def for_substrate_source_artifact(world: World, caller: Caller) -> dict[str, Any]:
    return {
        "artifact_id": await find_result(world, caller, "upsert_source_artifact", "artifact_id", kind="a", title="b")
    }


async def for_substrate_principle(world: World, caller: Caller) -> dict[str, Any]:
    principle = {"title": "Ask", "applies_to": {"capability": "place_call"}, "constraint_spec": {"type": "forbid"}}
    waits = (await propose(world, caller, "record_principle", **principle)).get("action_id")
    if waits is None:
        return {"principle_id": f"dec_{_NOBODYS}"}
    path = f"/v1/me/substrate/actions/{waits}/approve"
    approved = (await caller.client.post(path, headers=caller.headers)).json()
    return {"principle_id": approved["result"]["principle_id"]}


async def for_substrate_policy_conflict(world: World, caller: Caller) -> dict[str, Any]:
    await for_substrate_principle(world, caller)
    waits = await propose(world, caller, "place_call", to="Ada", purpose="Ask")
    conflicts = waits["verdict"]["conflicts"] if waits else [{"conflict_id": f"con_{_NOBODYS}"}]
    return {"conflict_id": conflicts[0]["conflict_id"]}


async def for_substrate_resolve_policy_conflict(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_substrate_policy_conflict(world, caller), "resolution": "allow"}
