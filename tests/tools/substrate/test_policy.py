"""The policy: principles first, then the owner's word, then yolo mode, then the capability."""

from typing import Any

import pytest
from sqlalchemy import insert, select

from baobab.tools.core.auth.callers import Account, Limits, ScopedKey
from baobab.tools.core.errors import BaobabError
from baobab.tools.substrate import tables
from baobab.tools.substrate.capabilities.fields import MOST_PRINCIPLES
from baobab.tools.substrate.snapshots import take_snapshot
from tests.tools.substrate.conftest import Substrate

DRAFT = {"to": "a@example.com", "subject": "Hello", "body": "Dear Ada"}


async def record_principle(substrate: Substrate, type_: str, capability: str = "record_decision", **params: Any) -> str:
    spec = {"type": type_, "params": params}
    result = await substrate.do(
        "record_principle", title="Careful", applies_to={"capability": capability}, constraint_spec=spec
    )
    principle_id: str = result["principle_id"]
    return principle_id


async def decide_something(substrate: Substrate) -> Any:
    return await substrate.propose("record_decision", title="Ship", kind="vision")


async def test_yolo_mode_does_what_may_be_done_without_asking(substrate: Substrate) -> None:
    assert (await substrate.propose("send_email_draft", **DRAFT))["requires_approval"] is True
    assert (await substrate.call("set_yolo", yolo_mode=True))["yolo_mode"] is True
    assert (await substrate.propose("send_email_draft", **DRAFT))["verdict"]["result"] == "auto_approved_yolo"
    assert (await substrate.propose("place_call", to="+49", purpose="Ask"))["requires_approval"] is True
    entity = (await substrate.do("upsert_entity", type="person", display_name="Ada"))["entity_id"]
    assert (await substrate.propose("delete_entity", id=entity, reason="x"))["requires_approval"] is True


async def test_a_principle_holds_against_yolo_mode_and_the_owner(substrate: Substrate) -> None:
    principle = await record_principle(substrate, "require_approval")
    await substrate.call("set_yolo", yolo_mode=True)
    payload = {"title": "Ship", "kind": "vision"}
    result = await substrate.call(
        "propose", capability="record_decision", payload=payload, dangerously_skip_approval=True
    )
    assert result["verdict"]["result"] == "requires_approval"
    (conflict,) = result["verdict"]["conflicts"]
    assert (conflict["principle_id"], conflict["type"]) == (principle, "require_approval")
    assert (await substrate.call("approve", action_id=result["action_id"]))["status"] == "executed"
    (kept_conflict,) = (await substrate.call("policy_conflicts"))["conflicts"]
    assert (kept_conflict["status"], kept_conflict["resolution"]) == ("resolved", "approved")
    await substrate.do("retire_principle", principle_id=principle, reason="over")
    assert (await decide_something(substrate))["requires_approval"] is False


@pytest.mark.parametrize(("type_", "seconds"), [("max_per_day", 86_400), ("max_per_week", 7 * 86_400)])
async def test_so_many_actions_in_a_period_are_done_and_the_next_one_waits(
    substrate: Substrate, type_: str, seconds: int
) -> None:
    await record_principle(substrate, type_, n=2)
    waits = [(await decide_something(substrate))["requires_approval"] for _ in range(3)]
    assert waits == [False, False, True]
    substrate.harness.clock.advance(seconds + 1)
    assert (await decide_something(substrate))["requires_approval"] is False


async def test_a_principle_may_hold_for_one_role_of_those_addressed(substrate: Substrate) -> None:
    spec = {"type": "max_per_week", "params": {"n": 1}}
    applies_to = {"capability": "send_email_draft", "target_role": "investor"}
    await substrate.do("record_principle", title="Few mails", applies_to=applies_to, constraint_spec=spec)
    await substrate.call("set_yolo", yolo_mode=True)
    roles = ("investor", "friend", "investor", "friend", None)
    proposals = [
        await substrate.propose("send_email_draft", **DRAFT, **({"target_role": role} if role else {}))
        for role in roles
    ]
    assert [proposal["requires_approval"] for proposal in proposals] == [False, False, True, False, False]


async def test_what_a_principle_forbids_is_approved_only_once_its_conflict_is_decided(substrate: Substrate) -> None:
    await record_principle(substrate, "forbid")
    decision = await decide_something(substrate)
    with pytest.raises(BaobabError) as refusal:
        await substrate.call("approve", action_id=decision["action_id"])
    assert refusal.value.code == "policy_conflict_open"
    conflict = decision["verdict"]["conflicts"][0]["conflict_id"]
    await substrate.call("resolve_policy_conflict", conflict_id=conflict, resolution="allow")
    assert (await substrate.call("approve", action_id=decision["action_id"]))["status"] == "executed"
    upheld = (await decide_something(substrate))["verdict"]["conflicts"][0]["conflict_id"]
    await substrate.call("resolve_policy_conflict", conflict_id=upheld, resolution="uphold", reason="no")
    assert [row["reject_reason"] for row in (await substrate.call("actions", status="rejected"))["actions"]] == ["no"]


@pytest.mark.parametrize("was_milder", [False, True])
async def test_a_principle_that_forbids_holds_for_what_was_proposed_before_it(
    substrate: Substrate, was_milder: bool
) -> None:
    if was_milder:
        principle = await record_principle(substrate, "require_approval", "send_email_draft")
    waits = [await substrate.propose("send_email_draft", **DRAFT) for _ in range(2)]
    other = await substrate.propose("place_call", to="Ada", purpose="Ask")
    if was_milder:
        await substrate.do("amend_principle", principle_id=principle, constraint_spec={"type": "forbid"})
    else:
        await record_principle(substrate, "forbid", "send_email_draft")
    found_conflicts = (await substrate.call("policy_conflicts", status="open"))["conflicts"]
    conflicts = {row["action_id"]: row["id"] for row in found_conflicts if row["type"] == "forbid"}
    assert conflicts.keys() == {proposal["action_id"] for proposal in waits}
    for proposal in waits:
        with pytest.raises(BaobabError) as refusal:
            await substrate.call("approve", action_id=proposal["action_id"])
        assert refusal.value.code == "policy_conflict_open"
        assert refusal.value.details == {"conflict_ids": [conflicts[proposal["action_id"]]]}
    allowed_action_id = waits[0]["action_id"]
    await substrate.call("resolve_policy_conflict", conflict_id=conflicts[allowed_action_id], resolution="allow")
    for action_id in (allowed_action_id, other["action_id"]):
        assert (await substrate.call("approve", action_id=action_id))["status"] == "executed"


async def test_there_are_no_more_principles_in_force_than_the_policy_reads(substrate: Substrate) -> None:
    principle = {"title": "Ask", "applies_to": {"capability": "place_call"}, "constraint_spec": {"type": "forbid"}}
    result = await substrate.do("record_principle", **principle)
    decisions, database = tables.decisions, substrate.harness.services.database
    async with database.writing(lock=substrate.owner.organisation_id) as connection:
        row = dict((await connection.execute(select(decisions))).mappings().one())
        copies = [{**row, "id": f"dec_{number:026}"} for number in range(MOST_PRINCIPLES - 1)]
        await connection.execute(insert(decisions), copies)
    with pytest.raises(BaobabError) as refusal:
        await substrate.propose("record_principle", **principle)
    assert (refusal.value.status, "at most 1000 principles" in refusal.value.message) == (400, True)
    await substrate.do("retire_principle", principle_id=result["principle_id"], reason="One must go.")
    await substrate.do("record_principle", **principle)


async def test_only_owners_in_person_skip_the_approval(substrate: Substrate) -> None:
    arguments: Any = {"capability": "send_email_draft", "payload": DRAFT, "dangerously_skip_approval": True}
    assert (await substrate.call("propose", **arguments))["requires_approval"] is False
    owner = substrate.owner
    key = ScopedKey(owner.account_id, owner.organisation_id, "k", frozenset({"substrate"}))
    member = await substrate.harness.sign_up("member@example.com")
    for caller in (key, await join(substrate, member)):
        with pytest.raises(BaobabError) as refusal:
            await substrate.harness.call("substrate_propose", caller, **arguments)
        assert refusal.value.status == 403


async def join(substrate: Substrate, account: Account) -> Account:
    """A member of another's team, in that team."""
    organisation = await substrate.harness.create_organisation(substrate.owner)
    result = await substrate.harness.call(
        "organisations_invite", substrate.owner, organization_id=organisation, email="member@example.com", role="member"
    )
    await substrate.harness.call("organisations_accept_invitation", account, token=result["token"])
    return Account(account.account_id, organisation)


async def test_an_agent_decides_nothing_and_what_it_sends_outside_waits(substrate: Substrate) -> None:
    owner = substrate.owner
    limits = Limits(approval="destructive")
    agent = ScopedKey(owner.account_id, owner.organisation_id, "k", frozenset({"substrate"}), limits)
    await substrate.call("set_yolo", yolo_mode=True)
    waits = await substrate.harness.call("substrate_propose", agent, capability="send_email_draft", payload=DRAFT)
    assert waits["requires_approval"] is True
    for tool, arguments in (
        ("substrate_approve", {"action_id": waits["action_id"]}),
        ("substrate_reject", {"action_id": waits["action_id"]}),
        ("substrate_set_yolo", {"yolo_mode": False}),
    ):
        with pytest.raises(BaobabError) as refusal:
            await substrate.harness.call(tool, agent, **arguments)
        assert refusal.value.status == 403


async def test_an_agent_undoes_one_action_but_asks_for_more_and_for_what_was_approved(substrate: Substrate) -> None:
    owner = substrate.owner
    agent = ScopedKey(owner.account_id, owner.organisation_id, "k", frozenset({"substrate"}), Limits())

    async def undo(action_id: str, **further: bool) -> Any:
        payload = {"action_id": action_id, **further}
        return await substrate.harness.call("substrate_propose", agent, capability="revert_action", payload=payload)

    proposal = await substrate.propose("upsert_entity", type="person", display_name="Ada")
    entity = proposal["result"]["entity_id"]
    changed_proposal = await substrate.propose("update_entity", id=entity, display_name="Eve")
    assert (await undo(proposal["action_id"], cascade=True))["requires_approval"] is True
    assert (await undo(changed_proposal["action_id"], cascade=True))["requires_approval"] is False
    kept_id, other_id = [
        (await substrate.do("record_learning", title="Ask", description="x"))["learning_id"] for _ in range(2)
    ]
    waits = await substrate.propose("consolidate_memories", kept_id=kept_id, duplicate_ids=[other_id], reason="Same.")
    await substrate.call("approve", action_id=waits["action_id"])
    assert (await undo(waits["action_id"]))["requires_approval"] is True
    assert (await substrate.propose("revert_action", action_id=waits["action_id"]))["requires_approval"] is False


async def test_snapshots_count_what_there_is_once_a_day(substrate: Substrate) -> None:
    await substrate.do("upsert_entity", type="person", display_name="Ada")
    await substrate.do("record_commitment", description="x", status="confirmed", due_at="2020-01-01T00:00:00Z")
    await decide_something(substrate)
    await substrate.propose("send_email_draft", **DRAFT)
    services, organisation = substrate.harness.services, substrate.owner.organisation_id
    now = services.clock.now()
    for _ in range(2):
        async with services.database.writing_unit(lock=organisation) as unit:
            await take_snapshot(unit.execute, services.database.dialect, organisation, now.date(), now)
    (snapshot,) = (await substrate.call("snapshots", days=1))["snapshots"]
    assert snapshot["snapshot_date"] == now.date()
    counts = {name: snapshot[name] for name in ("entity_count", "decision_count_24h", "overdue_commitments")}
    assert counts == {"entity_count": 2, "decision_count_24h": 1, "overdue_commitments": 1}
    assert (snapshot["pending_actions"], snapshot["entities_by_type"]) == (1, {"person": 1, "self": 1})
