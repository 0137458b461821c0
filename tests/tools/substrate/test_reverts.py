"""Undo: an action alone, many at once, and those that others build on."""

from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.tools.core.errors import BaobabError
from baobab.tools.substrate import tables
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.proposals import propose_in
from tests.jobs import run_job
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate


async def propose(substrate: Substrate, capability: str, **payload: Any) -> tuple[str, Any]:
    proposal = await substrate.propose(capability, **payload)
    return proposal["action_id"], proposal["result"]


async def refuse(substrate: Substrate, action_id: str, **further: Any) -> str:
    with pytest.raises(BaobabError) as refusal:
        await substrate.do("revert_action", action_id=action_id, **further)
    return refusal.value.code


async def check(substrate: Substrate) -> None:
    assert await find_faults(substrate.harness.services.database, substrate.owner.organisation_id) == []


async def test_an_action_is_undone_once_and_says_by_which(substrate: Substrate) -> None:
    learning, _ = await propose(substrate, "record_learning", title="Red", description="x")
    decision, decision_result = await propose(substrate, "record_decision", title="Blue", kind="vision")
    undo, result = await propose(substrate, "revert_action", action_id=learning)
    assert result == {"reverted_action_id": learning, "reverted": [learning]}
    await substrate.do("revert_action", action_id=decision)
    action = await substrate.call("action", action_id=learning)
    assert (action["status"], action["reverted_by_action_id"]) == ("reverted", undo)
    (memory,) = (await substrate.call("memory_list"))["results"]
    assert (memory["id"], memory["status"]) == (decision_result["decision_id"], "reversed")
    assert await refuse(substrate, learning) == "already_reverted"
    assert await refuse(substrate, undo) == "not_reversible"
    assert await refuse(substrate, "act_01KAVF3T9GQZ8RT3Q0M5W9YB7C") == "RESOURCE_NOT_FOUND"
    await check(substrate)


async def test_an_entity_gets_back_what_it_was_step_by_step(substrate: Substrate) -> None:
    first, result = await propose(substrate, "upsert_entity", type="person", display_name="A", primary_email="a@b.de")
    entity_id = result["entity_id"]
    second, _ = await propose(substrate, "update_entity", id=entity_id, display_name="B", primary_email="b@b.de")
    third, _ = await propose(substrate, "patch_entity", id=entity_id, attrs_patch={"x": 1})
    with pytest.raises(BaobabError) as refusal:
        await substrate.do("revert_action", action_id=first)
    assert (refusal.value.code, set(refusal.value.details["action_ids"])) == ("built_upon", {second, third})
    await substrate.do("revert_action", action_id=third)
    await substrate.do("revert_action", action_id=second)
    entity = await substrate.call("entity", entity_id=entity_id)
    assert (entity["display_name"], entity["primary_email"], entity["attrs"]) == ("A", "a@b.de", {})
    await check(substrate)
    await substrate.do("revert_action", action_id=first)
    with pytest.raises(BaobabError):
        await substrate.call("entity", entity_id=entity_id)
    await check(substrate)


async def test_a_cascade_undoes_what_builds_on_an_action_and_stops_at_what_cannot_be_undone(
    substrate: Substrate,
) -> None:
    first, entity_result = await propose(substrate, "upsert_entity", type="person", display_name="A")
    entity_id = entity_result["entity_id"]
    promise, promise_result = await propose(
        substrate, "record_commitment", description="Pay", status="confirmed", from_entity=entity_id
    )
    payment, _ = await propose(
        substrate, "update_commitment", commitment_id=promise_result["commitment_id"], status="fulfilled"
    )
    assert await refuse(substrate, first) == "built_upon"
    _, result = await propose(substrate, "revert_action", action_id=first, cascade=True)
    assert result["reverted"] == [payment, promise, first]
    await check(substrate)
    other, entity_result = await propose(substrate, "upsert_entity", type="person", display_name="B")
    winner = (await substrate.do("upsert_entity", type="person", display_name="C"))["entity_id"]
    await substrate.do("merge_entities", loser_id=entity_result["entity_id"], winner_id=winner, reason="one")
    with pytest.raises(BaobabError, match="merge_entities cannot be undone") as refusal:
        await propose(substrate, "revert_action", action_id=other, cascade=True)
    assert (refusal.value.code, "cascade" in refusal.value.remedy) == ("built_upon", False)
    await substrate.do("unmerge_entities", entity_id=entity_result["entity_id"], reason="two")
    assert await refuse(substrate, other, cascade=True) == "built_upon"
    await check(substrate)


async def test_a_merge_that_was_taken_back_still_builds_on_the_entity_that_it_names(substrate: Substrate) -> None:
    first, winner = await propose(substrate, "upsert_entity", type="person", display_name="A")
    second, loser = await propose(substrate, "upsert_entity", type="person", display_name="B")
    arguments = {"loser_id": loser["entity_id"], "winner_id": winner["entity_id"], "reason": "one"}
    merge = await substrate.propose("merge_entities", **arguments)
    await substrate.call("approve", action_id=merge["action_id"])
    await substrate.do("unmerge_entities", entity_id=loser["entity_id"], reason="two")
    with pytest.raises(BaobabError) as refusal:
        await substrate.do("revert_action", action_id=first)
    assert (refusal.value.code, merge["action_id"] in refusal.value.details["action_ids"]) == ("built_upon", True)
    result = await substrate.do("bulk_revert_actions", action_ids=[first, second], reason="x", cascade=True)
    assert result["reverted"] == []
    assert {row["action_id"]: row["error"] for row in result["failed"]} == dict.fromkeys((first, second), "built_upon")
    assert (await substrate.call("entities", type="person", count=True))["total"] == 2
    await check(substrate)


async def test_what_named_an_id_before_an_entity_had_it_does_not_build_on_the_entity(substrate: Substrate) -> None:
    earlier = {"description": "Pay", "status": "confirmed", "from_entity": "ent_ada"}
    _, promise_result = await propose(substrate, "record_commitment", **earlier)
    upsert, _ = await propose(substrate, "upsert_entity", id="ent_ada", type="person", display_name="Ada")
    later, _ = await propose(substrate, "record_commitment", **{**earlier, "description": "Pay again"})
    _, result = await propose(substrate, "revert_action", action_id=upsert, cascade=True)
    assert result["reverted"] == [later, upsert]
    assert [row["id"] for row in (await substrate.call("memory_list"))["results"]] == [promise_result["commitment_id"]]
    await check(substrate)


async def test_what_came_from_an_artifact_stays_without_it(substrate: Substrate) -> None:
    upsert, artifact_result = await propose(substrate, "upsert_source_artifact", kind="note", title="Talk")
    learning, learning_result = await propose(
        substrate, "record_learning", title="Red", description="x", source_artifact_id=artifact_result["artifact_id"]
    )
    await substrate.do("revert_action", action_id=upsert)
    (memory,) = (await substrate.call("memory_list"))["results"]
    assert (memory["id"], memory["source_artifact_id"]) == (learning_result["learning_id"], None)
    await check(substrate)
    await substrate.do("revert_action", action_id=learning)
    assert (await substrate.call("memory_list"))["results"] == []
    await check(substrate)


async def test_many_are_undone_at_once_and_what_cannot_be_is_told(substrate: Substrate) -> None:
    first, entity_result = await propose(
        substrate, "upsert_entity", type="person", display_name="A", primary_email="a@b.de"
    )
    second, _ = await propose(substrate, "update_entity", id=entity_result["entity_id"], primary_email=None)
    await propose(substrate, "upsert_entity", type="person", display_name="B", primary_email="a@b.de")
    decision, _ = await propose(substrate, "record_decision", title="Blue", kind="vision")
    nothing = "act_01KAVF3T9GQZ8RT3Q0M5W9YB7C"
    result = await substrate.do(
        "bulk_revert_actions", action_ids=[first, decision, nothing, second, decision], reason="wrong day"
    )
    assert result["reverted"] == [decision]
    assert {row["action_id"]: row["error"] for row in result["failed"]} == {
        nothing: "RESOURCE_NOT_FOUND",
        second: "email_taken",
        first: "built_upon",
    }
    await check(substrate)


async def test_a_thousand_actions_are_undone_in_one_transaction(substrate: Substrate) -> None:
    action_ids, services, organisation = [], substrate.harness.services, substrate.owner.organisation_id
    # In one transaction, as an import would be.
    async with (
        services.database.writing_unit(lock=organisation) as unit,
        open_ledger(unit, services, organisation) as ledger,
    ):
        for number in range(200):
            person = {"type": "person", "display_name": f"Person {number}"}
            proposal: Any = await propose_in(ledger, Proposer("human", None), "upsert_entity", person)
            action_ids.append(proposal["action_id"])
            for step in range(4):
                patch = {"id": proposal["result"]["entity_id"], "attrs_patch": {"step": step}}
                await propose_in(ledger, Proposer("human", None), "patch_entity", patch)
    waits = await substrate.propose("bulk_revert_actions", action_ids=action_ids, reason="wrong import", cascade=True)
    result = await substrate.call("approve", action_id=waits["action_id"])
    assert (len(result["result"]["reverted"]), result["result"]["failed"]) == (1000, [])
    assert (await substrate.call("entities", type="person", count=True))["total"] == 0
    await check(substrate)


async def test_what_only_the_stream_needed_goes_after_two_days_and_undo_still_works(
    substrate: Substrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.tools.substrate.jobs._TRIMMED_AT_ONCE", 2)
    other = Substrate(substrate.harness, await substrate.harness.sign_up("eve@example.com"))
    proposals = [
        await propose(each, "record_learning", title="Old", description="x") for each in (substrate, other) * 3
    ]
    substrate.harness.clock.advance(3 * 86_400)
    await propose(substrate, "record_learning", title="New", description="x")
    await run_job(substrate.harness, "substrate_trim_changes")
    changes = tables.changes.c
    query = select(changes.action_id.is_(None), func.count()).group_by(changes.action_id.is_(None))
    async with substrate.harness.services.database.reading() as connection:
        counts = {bool(row[0]): row[1] for row in await connection.execute(query)}
    # Of the new learning, the change of the ledger itself; of all seven, the one that can be undone.
    assert counts == {True: 1, False: 7}
    result = await substrate.do("revert_action", action_id=proposals[0][0])
    assert result["reverted"] == [proposals[0][0]]
