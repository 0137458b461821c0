"""Proposing, approving and rejecting."""

from typing import Any

import pytest

from baobab.tools.core.errors import BaobabError
from tests.tools.substrate.conftest import Substrate


async def test_an_action_of_a_harmless_capability_is_done_at_once(substrate: Substrate) -> None:
    proposal = await substrate.propose("record_decision", title="Ship on Monday", kind="operational")
    assert proposal["verdict"] == {"result": "auto_approved", "reason": "capability default = auto", "conflicts": []}
    assert proposal["requires_approval"] is False
    assert proposal["result"]["decision_id"].startswith("dec_")
    action = await substrate.call("action", action_id=proposal["action_id"])
    assert (action["status"], action["proposed_by_kind"], action["reversible"]) == ("executed", "human", True)


async def test_an_action_that_waits_is_done_when_it_is_approved_and_only_once(substrate: Substrate) -> None:
    old = await substrate.do("record_decision", title="Ship on Monday", kind="operational")
    waits = await substrate.propose(
        "supersede_decision", old_decision_id=old["decision_id"], new_title="Ship on Friday", kind="operational"
    )
    assert (waits["requires_approval"], waits["result"]) == (True, None)
    result = await substrate.call("approve", action_id=waits["action_id"])
    assert (result["status"], result["approved_by_kind"]) == ("executed", "human")
    for word in ("approve", "reject"):
        with pytest.raises(BaobabError) as refusal:
            await substrate.call(word, action_id=waits["action_id"])
        assert (refusal.value.code, refusal.value.status) == ("wrong_status", 409)


async def test_a_rejected_action_is_never_done_and_keeps_the_reason(substrate: Substrate) -> None:
    old = await substrate.do("record_decision", title="Ship on Monday", kind="operational")
    waits = await substrate.propose(
        "supersede_decision", old_decision_id=old["decision_id"], new_title="No", kind="operational"
    )
    result = await substrate.call("reject", action_id=waits["action_id"], reason="too early")
    assert (result["status"], result["reject_reason"]) == ("rejected", "too early")
    assert [row["id"] for row in (await substrate.call("actions", status="rejected"))["actions"]] == [result["id"]]


async def test_a_proposal_that_is_repeated_after_its_rejection_says_why(substrate: Substrate) -> None:
    arguments: Any = {"capability": "place_call", "payload": {"to": "Ada", "purpose": "Ask"}, "idempotency_key": "once"}
    waits = await substrate.call("propose", **arguments)
    await substrate.call("reject", action_id=waits["action_id"], reason="too early")
    again = await substrate.call("propose", **arguments)
    assert again["verdict"] == {"result": "rejected", "reason": "too early", "conflicts": []}
    assert (again["requires_approval"], again["result"], again["replay"]) == (False, None, True)


async def test_a_key_of_idempotency_answers_what_became_of_the_first_proposal(substrate: Substrate) -> None:
    old = await substrate.do("record_decision", title="Ship on Monday", kind="operational")
    payload = {"old_decision_id": old["decision_id"], "new_title": "Friday", "kind": "operational"}
    arguments = {"capability": "supersede_decision", "payload": payload, "idempotency_key": "once"}
    first = await substrate.call("propose", **arguments)
    again = await substrate.call("propose", **arguments)
    assert again == {**first, "replay": True}
    result = await substrate.call("approve", action_id=first["action_id"])
    after = await substrate.call("propose", **arguments)
    assert (after["requires_approval"], after["result"]) == (False, result["result"])


@pytest.mark.parametrize(
    ("capability", "payload", "code"),
    [
        ("fly", {}, "unknown_capability"),
        ("record_decision", {"title": "x"}, "VALIDATION_MISSING_FIELD"),
        ("record_decision", {"title": "x", "kind": "mood"}, "VALIDATION_INVALID_INPUT"),
        ("record_decision", {"title": "x", "kind": "vision", "mood": 1}, "VALIDATION_INVALID_SCHEMA"),
        ("record_commitment", {"description": "x", "status": "proposed", "due_at": 5}, "VALIDATION_INVALID_INPUT"),
        ("record_commitment", {"description": "x", "status": "proposed", "due_at": "5"}, "VALIDATION_INVALID_INPUT"),
        ("update_commitment", {"commitment_id": "com_01KAVF3T9GQZ8RT3Q0M5W9YB7C"}, "RESOURCE_NOT_FOUND"),
    ],
)
async def test_what_cannot_be_done_is_refused_and_leaves_nothing(
    substrate: Substrate, capability: str, payload: dict[str, Any], code: str
) -> None:
    with pytest.raises(BaobabError) as refusal:
        await substrate.propose(capability, **payload)
    assert refusal.value.code == code
    assert (await substrate.call("actions"))["actions"] == []


async def test_a_payload_that_does_not_fit_is_refused_with_its_schema(substrate: Substrate) -> None:
    with pytest.raises(BaobabError) as refusal:
        await substrate.propose("record_commitment", description="Deliver", status="open")
    schemas = {each["name"]: each["payload_schema"] for each in (await substrate.call("capabilities"))["capabilities"]}
    assert refusal.value.details["payload_schema"] == schemas["record_commitment"]
    assert "confirmed" in refusal.value.details["payload_schema"]["properties"]["status"]["enum"]


async def test_pages_of_actions_leave_nothing_out_although_the_clock_stands_still(substrate: Substrate) -> None:
    action_ids = [
        (await substrate.propose("record_decision", title=str(n), kind="vision"))["action_id"] for n in range(5)
    ]
    found_ids, before = [], None
    while True:
        page = await substrate.call("actions", limit=2, before=before)
        found_ids += [row["id"] for row in page["actions"]]
        before = page["next_before"] and page["next_before"].isoformat()
        if before is None:
            break
    assert found_ids == action_ids[::-1]


async def test_a_page_of_large_actions_is_shorter_and_nothing_is_left_out(substrate: Substrate) -> None:
    text = "🌳" * 20_000
    action_ids = [
        (await substrate.propose("record_commitment", description=text, status="confirmed"))["action_id"]
        for _ in range(16)
    ]
    first = await substrate.call("actions", limit=500)
    assert 1 < len(first["actions"]) < 16
    rest = await substrate.call("actions", limit=500, before=first["next_before"].isoformat())
    assert [row["id"] for row in first["actions"] + rest["actions"]] == action_ids[::-1]
    assert rest["next_before"] is None
