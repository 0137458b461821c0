"""Who decides, once, and what follows for the call that asked."""

import asyncio
from typing import Any

import pytest

from tests.people import create_person
from tests.tools.approvals.conftest import ApprovalsClient

DAY = 24 * 3600


async def test_the_call_made_again_is_given_the_result_once(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter(step=5))
    assert (await approvals_client.approve_and_wait(approval_id))["status"] == "executed"
    again = await approvals_client.raise_counter(step=5)
    assert (again.status_code, again.json()) == (200, {"value": 5})
    assert await approvals_client.get_counter() == 5
    anew = await approvals_client.parse_approval_id(await approvals_client.raise_counter(step=5))
    assert anew != approval_id


async def test_a_result_is_told_with_the_tools_own_status(approvals_client: ApprovalsClient) -> None:
    async def put() -> object:
        return await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/a", body={"value": {"b": 1, "a": 2}})

    await approvals_client.approve_and_wait(await approvals_client.parse_approval_id(await put()))  # type: ignore[arg-type]
    again = await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/a", body={"value": {"b": 1, "a": 2}})
    assert (again.status_code, again.content) == (204, b"")
    answer = await approvals_client.ask("GET", f"/v1/{approvals_client.app}/kv/a", approvals_client.baobab.owner)
    assert answer.text == '{"value":{"b":1,"a":2}}', "the value is what was proposed, in its order"


async def test_a_refused_call_is_told_why_once_and_never_made(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    decision = await approvals_client.decide(approval_id, "reject", reason="Not on a Friday.")
    assert decision.json()["approval"]["status"] == "rejected"
    answer = await approvals_client.raise_counter()
    assert (answer.status_code, answer.json()["code"]) == (403, "APPROVAL_REJECTED")
    assert answer.json()["message"] == "Not on a Friday."
    assert await approvals_client.get_counter() == 0
    assert await approvals_client.parse_approval_id(await approvals_client.raise_counter()) != approval_id


@pytest.mark.parametrize("text", ["appr_" + "a" * 43, "appr_a", "nonsense"])
async def test_a_text_that_is_no_approvals_id_is_not_found(approvals_client: ApprovalsClient, text: str) -> None:
    read = await approvals_client.ask("GET", f"/v1/approvals/{text}", approvals_client.baobab.owner)
    for answer in (read, await approvals_client.decide(text), await approvals_client.decide(text, "reject")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "APPROVAL_NOT_FOUND")


async def test_the_proposing_credential_never_decides(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    for word in ("approve", "reject"):
        answer = await approvals_client.decide(approval_id, word, by=approvals_client.agent)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "APPROVAL_SELF_DECISION")
    assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "pending"


@pytest.mark.parametrize(
    "limits", [{"approval": "destructive"}, {"toolsets": ["approvals", "kv"]}, {"read_only": True}], ids=str
)
async def test_no_key_with_limits_decides_and_none_proposes_a_decision(
    approvals_client: ApprovalsClient, limits: dict[str, Any]
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    other, _ = await approvals_client.create_key(**limits)
    assert (await approvals_client.decide(approval_id, by=other)).status_code in (403, 404)
    assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "pending"


async def test_a_key_without_limits_decides(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    assert (await approvals_client.decide(approval_id, by=approvals_client.baobab.owner)).status_code == 200


async def test_strangers_and_plain_members_know_nothing_of_it(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    stranger = await create_person(approvals_client.baobab, "eve")
    member = await create_person(approvals_client.baobab, "mia", role="member")
    app_key, _ = await approvals_client.create_key(key_scope="app", target_app_id=approvals_client.app)
    for who in (stranger.headers, member.headers, app_key):
        assert (await approvals_client.ask("GET", f"/v1/approvals/{approval_id}", who)).status_code == 404
        assert (await approvals_client.decide(approval_id, by=who)).status_code in (403, 404)
    assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "pending"


async def test_a_member_decides_for_a_key_of_their_own_only(approvals_client: ApprovalsClient) -> None:
    member = await create_person(approvals_client.baobab, "mia", role="member")
    theirs, _ = await approvals_client.create_key(
        member.headers, approval="write", organization_id=approvals_client.organisation
    )
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter(theirs))
    assert (await approvals_client.decide(approval_id, by=member.headers)).status_code == 200
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"


async def test_one_decision_counts_however_many_are_made_at_once(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    words = ["approve", "reject"] * 5
    answers = await asyncio.gather(*(approvals_client.decide(approval_id, word) for word in words))
    [counted_word] = [word for word, answer in zip(words, answers, strict=True) if answer.status_code == 200]
    refusals = [answer for answer in answers if answer.status_code != 200]
    assert {(a.status_code, a.json()["error"]["code"]) for a in refusals} == {(409, "APPROVAL_ALREADY_DECIDED")}
    outcome = await approvals_client.wait_for_outcome(approval_id)
    assert outcome["status"] == ("executed" if counted_word == "approve" else "rejected")
    assert await approvals_client.get_counter() == (1 if counted_word == "approve" else 0)


async def test_what_nobody_decides_expires_and_is_asked_anew(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    approvals_client.clock.advance(DAY)
    late = await approvals_client.decide(approval_id, by=approvals_client.baobab.owner)
    assert late.json()["error"]["details"] == {"status": "expired"}
    assert (await approvals_client.ask("GET", "/v1/approvals?status=pending")).json()["approvals"] == []
    [approval] = (await approvals_client.ask("GET", "/v1/approvals?status=expired")).json()["approvals"]
    assert approval["id"] == approval_id
    anew = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    assert anew != approval_id
    await approvals_client.run_maintenance()
    assert await approvals_client.get_counter() == 0


async def test_an_outcome_that_nobody_fetched_in_a_day_answers_no_later_call(approvals_client: ApprovalsClient) -> None:
    """A month later the same call is meant to be made, not to be told what was done then."""
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await approvals_client.approve_and_wait(approval_id)
    approvals_client.clock.advance(DAY)
    await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    assert await approvals_client.get_counter() == 1


async def test_who_decided_and_why_is_in_the_audit_log(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await approvals_client.decide(approval_id, "reject", reason="No.")
    logs = await approvals_client.ask(
        "GET", f"/v1/{approvals_client.app}/audit-logs?event_type=approval.reject", approvals_client.baobab.owner
    )
    [log] = logs.json()["logs"]
    assert (log["resource_id"], log["actor_id"]) == (approval_id, approvals_client.person.id)
