"""Who decides, once, and what follows for the call that asked."""

import asyncio
from typing import Any

import pytest

from tests.people import person
from tests.tools.approvals.conftest import Desk

DAY = 24 * 3600


async def test_the_call_made_again_is_given_the_result_once(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter(step=5))
    assert (await desk.approved(approval_id))["status"] == "executed"
    again = await desk.raise_counter(step=5)
    assert (again.status_code, again.json()) == (200, {"value": 5})
    assert await desk.counter() == 5
    anew = await desk.proposed(await desk.raise_counter(step=5))
    assert anew != approval_id


async def test_a_result_is_told_with_the_tools_own_status(desk: Desk) -> None:
    async def put() -> object:
        return await desk.ask("PUT", f"/v1/{desk.app}/kv/a", body={"value": {"b": 1, "a": 2}})

    await desk.approved(await desk.proposed(await put()))  # type: ignore[arg-type]
    again = await desk.ask("PUT", f"/v1/{desk.app}/kv/a", body={"value": {"b": 1, "a": 2}})
    assert (again.status_code, again.content) == (204, b"")
    kept = await desk.ask("GET", f"/v1/{desk.app}/kv/a", desk.baobab.owner)
    assert kept.text == '{"value":{"b":1,"a":2}}', "the value is what was proposed, in its order"


async def test_a_refused_call_is_told_why_once_and_never_made(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    rejected = await desk.decide(approval_id, "reject", reason="Not on a Friday.")
    assert rejected.json()["approval"]["status"] == "rejected"
    answer = await desk.raise_counter()
    assert (answer.status_code, answer.json()["code"]) == (403, "APPROVAL_REJECTED")
    assert answer.json()["message"] == "Not on a Friday."
    assert await desk.counter() == 0
    assert await desk.proposed(await desk.raise_counter()) != approval_id


async def test_the_proposing_credential_never_decides(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    for word in ("approve", "reject"):
        answer = await desk.decide(approval_id, word, by=desk.agent)
        assert (answer.status_code, answer.json()["error"]["code"]) == (403, "APPROVAL_SELF_DECISION")
    assert (await desk.get(approval_id))["approval"]["status"] == "pending"


@pytest.mark.parametrize(
    "limits", [{"approval": "destructive"}, {"toolsets": ["approvals", "kv"]}, {"read_only": True}], ids=str
)
async def test_no_key_with_limits_decides_and_none_proposes_a_decision(desk: Desk, limits: dict[str, Any]) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    other, _ = await desk.key(**limits)
    assert (await desk.decide(approval_id, by=other)).status_code in (403, 404)
    assert (await desk.get(approval_id))["approval"]["status"] == "pending"


async def test_a_key_without_limits_decides(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    assert (await desk.decide(approval_id, by=desk.baobab.owner)).status_code == 200


async def test_strangers_and_plain_members_know_nothing_of_it(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    stranger = await person(desk.baobab, "eve")
    member = await person(desk.baobab, "mia", role="member")
    app_key, _ = await desk.key(key_scope="app", target_app_id=desk.app)
    for who in (stranger.headers, member.headers, app_key):
        assert (await desk.ask("GET", f"/v1/approvals/{approval_id}", who)).status_code == 404
        assert (await desk.decide(approval_id, by=who)).status_code in (403, 404)
    assert (await desk.get(approval_id))["approval"]["status"] == "pending"


async def test_a_member_decides_for_a_key_of_their_own_only(desk: Desk) -> None:
    member = await person(desk.baobab, "mia", role="member")
    theirs, _ = await desk.key(member.headers, approval="write", organization_id=desk.organisation)
    approval_id = await desk.proposed(await desk.raise_counter(theirs))
    assert (await desk.decide(approval_id, by=member.headers)).status_code == 200
    assert (await desk.settled(approval_id))["status"] == "executed"


async def test_one_decision_counts_however_many_are_made_at_once(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    words = ["approve", "reject"] * 5
    answers = await asyncio.gather(*(desk.decide(approval_id, word) for word in words))
    [counted] = [word for word, answer in zip(words, answers, strict=True) if answer.status_code == 200]
    refused = [answer for answer in answers if answer.status_code != 200]
    assert {(a.status_code, a.json()["error"]["code"]) for a in refused} == {(409, "APPROVAL_ALREADY_DECIDED")}
    settled = await desk.settled(approval_id)
    assert settled["status"] == ("executed" if counted == "approve" else "rejected")
    assert await desk.counter() == (1 if counted == "approve" else 0)


async def test_what_nobody_decides_expires_and_is_asked_anew(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    desk.clock.advance(DAY)
    late = await desk.decide(approval_id, by=desk.baobab.owner)
    assert late.json()["error"]["details"] == {"status": "expired"}
    assert (await desk.ask("GET", "/v1/approvals?status=pending")).json()["approvals"] == []
    [expired] = (await desk.ask("GET", "/v1/approvals?status=expired")).json()["approvals"]
    assert expired["id"] == approval_id
    anew = await desk.proposed(await desk.raise_counter())
    assert anew != approval_id
    await desk.tend()
    assert await desk.counter() == 0


async def test_an_outcome_that_nobody_fetched_in_a_day_answers_no_later_call(desk: Desk) -> None:
    """A month later the same call is meant to be made, not to be told what was done then."""
    approval_id = await desk.proposed(await desk.raise_counter())
    await desk.approved(approval_id)
    desk.clock.advance(DAY)
    await desk.proposed(await desk.raise_counter())
    assert await desk.counter() == 1


async def test_who_decided_and_why_is_in_the_audit_log(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    await desk.decide(approval_id, "reject", reason="No.")
    logs = await desk.ask("GET", f"/v1/{desk.app}/audit-logs?event_type=approval.reject", desk.baobab.owner)
    [log] = logs.json()["logs"]
    assert (log["resource_id"], log["actor_id"]) == (approval_id, desk.person.id)
