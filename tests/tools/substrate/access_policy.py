"""The callers that may call the tools of the substrate, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.jobs import run_job
from tests.tools.access import Caller, World

# Each account and each key has the substrate of its own organisation.
OPEN = "401 403 ok  403 403 403 403 403 ok  ok  ok  403 ok  403"
# No key of an app says to whom its users are told.
_LINKING = "401 403 403 403 403 403 403 403 403 ok  ok  ok  403 403"

POLICY = {
    "substrate_settings": OPEN,
    "substrate_set_yolo": OPEN,
    "substrate_set_consolidation": OPEN,
    "substrate_apps": OPEN,
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
    "substrate_memory_duplicates": OPEN,
    "substrate_action_changes": OPEN,
    "substrate_restore_preview": OPEN,
    "apps_link_substrate": _LINKING,
    "apps_unlink_substrate": _LINKING,
    "apps_set_substrate_autopropagate": _LINKING,
    "substrate_receipts": OPEN,
    "substrate_export": OPEN,
    "substrate_import": OPEN,
    "substrate_source_artifacts": OPEN,
    "substrate_source_artifact": OPEN,
    "substrate_snapshots": OPEN,
    "substrate_rules": OPEN,
    "substrate_rule_create": OPEN,
    "substrate_rule": OPEN,
    "substrate_rule_replace": OPEN,
    "substrate_rule_delete": OPEN,
    "substrate_rule_enable": OPEN,
    "substrate_rule_disable": OPEN,
    "substrate_rule_preview": OPEN,
    "substrate_rule_firings": OPEN,
    "substrate_outbox_targets": OPEN,
    "substrate_outbox_target_put": OPEN,
    "substrate_outbox_target_delete": OPEN,
    "substrate_outbox": OPEN,
    "substrate_outbox_cancel": OPEN,
    "substrate_outbox_retry": OPEN,
    "substrate_ws_ticket": OPEN,
    # Over HTTP everybody is told to open a WebSocket; tests/http/test_substrate_stream.py shows who gets in there.
    "substrate_stream": " ".join(["ok"] * 14),
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
    proposal = await propose(world, caller, "record_decision", title="Ship", kind="operational")
    return {"action_id": proposal.get("action_id", f"act_{_NOBODYS}")}


async def for_substrate_approve(world: World, caller: Caller) -> dict[str, Any]:
    proposal = await propose(world, caller, "record_decision", title="Ship", kind="operational")
    old = proposal.get("result", {}).get("decision_id", "")
    waits = await propose(
        world, caller, "supersede_decision", old_decision_id=old, new_title="Wait", kind="operational"
    )
    return {"action_id": waits.get("action_id", f"act_{_NOBODYS}")}


for_substrate_reject = for_substrate_approve


async def find_result(world: World, caller: Caller, capability: str, field: str, **payload: Any) -> str:
    """A field of what an action did, or an id of nobody's."""
    result = (await propose(world, caller, capability, **payload)).get("result") or {}
    value: str = result.get(field, f"{field[:3]}_{_NOBODYS}")
    return value


async def for_substrate_entity(world: World, caller: Caller) -> dict[str, Any]:
    arguments = {"type": "person", "display_name": "Ada", "primary_email": "ada@example.com"}
    return {"entity_id": await find_result(world, caller, "upsert_entity", "entity_id", **arguments)}


async def for_substrate_update_entity(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_substrate_entity(world, caller), "display_name": "Ada Lovelace"}


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
    body = (await caller.client.post(path, headers=caller.headers)).json()
    return {"principle_id": body["result"]["principle_id"]}


async def for_substrate_policy_conflict(world: World, caller: Caller) -> dict[str, Any]:
    await for_substrate_principle(world, caller)
    waits = await propose(world, caller, "place_call", to="Ada", purpose="Ask")
    conflicts = waits["verdict"]["conflicts"] if waits else [{"conflict_id": f"con_{_NOBODYS}"}]
    return {"conflict_id": conflicts[0]["conflict_id"]}


async def for_substrate_resolve_policy_conflict(world: World, caller: Caller) -> dict[str, Any]:
    return {**await for_substrate_policy_conflict(world, caller), "resolution": "allow"}


RULE = {
    "name": "Many decisions",
    "trigger_cron": "0 8 * * *",
    "condition_mode": "row_query",
    "condition": {"table": "decisions"},
    "action_capability": "record_learning",
    "action_payload_template": {"title": "{{row.title}}", "description": "Look at it again."},
}


async def for_substrate_rule_create(world: World, caller: Caller) -> dict[str, Any]:
    return RULE


async def for_substrate_rule_preview(world: World, caller: Caller) -> dict[str, Any]:
    return RULE


async def for_substrate_rule(world: World, caller: Caller) -> dict[str, Any]:
    answer = await caller.client.post("/v1/me/substrate/attention-rules", json=RULE, headers=caller.headers)
    return {"rule_id": answer.json()["id"] if answer.status_code == 201 else f"rule_{_NOBODYS}"}


async def for_substrate_rule_replace(world: World, caller: Caller) -> dict[str, Any]:
    return {**RULE, **await for_substrate_rule(world, caller)}


async def for_substrate_action_changes(world: World, caller: Caller) -> dict[str, Any]:
    return await for_substrate_action(world, caller)


async def for_substrate_restore_preview(world: World, caller: Caller) -> dict[str, Any]:
    await propose(world, caller, "record_decision", title="Ship", kind="operational")
    application = world.baobab.application
    await run_job(application, "substrate_take_snapshots")
    return {"day": application.services.clock.now().date().isoformat()}


for_substrate_rule_delete = for_substrate_rule_enable = for_substrate_rule_disable = for_substrate_rule
for_substrate_rule_firings = for_substrate_rule


TARGET = {"webhook_url": "https://told.invalid/", "signing_secret": "a secret of eight"}


async def for_substrate_outbox_target_put(world: World, caller: Caller) -> dict[str, Any]:
    return {"capability": "record_decision", **TARGET}


async def for_substrate_outbox_target_delete(world: World, caller: Caller) -> dict[str, Any]:
    path = "/v1/me/substrate/outbox-targets/record_decision"
    await caller.client.put(path, json=TARGET, headers=caller.headers)
    return {"capability": "record_decision"}


async def for_substrate_outbox_cancel(world: World, caller: Caller) -> dict[str, Any]:
    await for_substrate_outbox_target_delete(world, caller)
    await propose(world, caller, "record_decision", title="Ship", kind="operational")
    response = await caller.client.get("/v1/me/substrate/outbox?state=pending", headers=caller.headers)
    rows = response.json()["outbox"] if response.status_code == 200 else []
    return {"outbox_id": rows[0]["id"] if rows else f"ob_{_NOBODYS}"}


async def for_substrate_outbox_retry(world: World, caller: Caller) -> dict[str, Any]:
    arguments = await for_substrate_outbox_cancel(world, caller)
    path = f"/v1/me/substrate/outbox/{arguments['outbox_id']}/cancel"
    await caller.client.post(path, headers=caller.headers)
    return arguments
