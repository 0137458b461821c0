"""Memory is found by meaning, says when it is true and where it comes from, and duplicates become one."""

import json
from datetime import timedelta
from typing import Any

import pytest

from baobab.tools.core.errors import BaobabError
from tests.jobs import run_job
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate


async def learn(substrate: Substrate, title: str, description: str = "x", **further: Any) -> str:
    result = await substrate.do("record_learning", title=title, description=description, **further)
    return str(result["learning_id"])


async def fill(substrate: Substrate) -> None:
    """Lets the job run that makes the vectors."""
    await run_job(substrate.harness, "substrate_embed")


async def find(substrate: Substrate, q: str, **further: Any) -> list[str]:
    return [row["title"] for row in (await substrate.call("search_memory", q=q, **further))["results"]]


async def test_a_question_finds_what_is_meant_in_other_words(substrate: Substrate) -> None:
    await learn(substrate, "Invoices are paid late", "Customers in Lyon take sixty days to pay a bill.")
    await learn(substrate, "The coffee machine", "It must be descaled every month.")
    await substrate.do("record_decision", title="Hire a gardener", kind="operational", rationale="The hedge grows.")
    assert await find(substrate, "paying bills", search_by="meaning") == []
    await fill(substrate)
    assert (await find(substrate, "paying bills late", search_by="meaning"))[0] == "Invoices are paid late"
    assert (await find(substrate, "descaled", search_by="both"))[0] == "The coffee machine"
    assert await find(substrate, "hedge gardener", search_by="meaning", kinds="decisions") == ["Hire a gardener"]
    results = (await substrate.call("search_memory", q="coffee", search_by="meaning", limit=1))["results"]
    assert 0 < results[0]["rank"] <= 1


async def test_everyday_words_do_not_outweigh_what_is_meant(substrate: Substrate) -> None:
    for number in range(3):
        await learn(substrate, f"Note {number}", "The cat of the neighbours sleeps in the garden of the house.")
    await learn(substrate, "Invoices are late", "Clients in Lyon need sixty days for each bill.")
    artifact = {"kind": "note", "external_system": "crm", "external_id": "1"}
    await substrate.do(
        "upsert_source_artifact", title="Minutes", content="said nothing " * 2000 + "xylotomy", **artifact
    )
    await fill(substrate)
    arguments = {"search_by": "both", "match": "or"}
    assert (await find(substrate, "Which of the customers take a long time to pay?", **arguments))[
        0
    ] == "Invoices are late"
    # A name that only a long text has, far down.
    assert "Minutes" in (await find(substrate, "Who is in xylotomy?", **arguments))
    assert await find(substrate, "?!", **arguments) != []


async def test_what_was_changed_or_undone_is_found_as_it_is(substrate: Substrate) -> None:
    artifact = {"kind": "note", "external_system": "crm", "external_id": "1"}
    await substrate.do("upsert_source_artifact", title="Bread recipes", summary="Flour, water, salt.", **artifact)
    proposal = await substrate.propose("record_learning", title="Bread rises", description="Yeast needs warmth.")
    await fill(substrate)
    assert (await find(substrate, "baking bread", search_by="meaning", limit=2)) != []
    await substrate.do("upsert_source_artifact", title="Tax law", summary="Depreciation of assets.", **artifact)
    await substrate.do("revert_action", action_id=proposal["action_id"])
    await fill(substrate)
    assert await find(substrate, "taxes on assets", search_by="meaning") == ["Tax law"]


async def test_others_memories_are_never_near(substrate: Substrate) -> None:
    await learn(substrate, "Our secret plan", "We buy the harbour.")
    stranger = Substrate(substrate.harness, await substrate.harness.sign_up("eve@example.com"))
    await learn(stranger, "Lunch", "We eat at noon.")
    await fill(substrate)
    assert await find(stranger, "secret plan to buy the harbour", search_by="meaning") in ([], ["Lunch"])


async def test_a_changed_fact_does_not_erase_what_was_known_before(substrate: Substrate) -> None:
    clock = substrate.harness.clock
    old = await learn(substrate, "Ada lives in Paris")
    clock.advance(3600)
    before, moved_at = clock.now(), clock.now() + timedelta(hours=1)
    clock.advance(7200)
    new = await learn(substrate, "Ada lives in Rome", replaces=old, valid_from=moved_at.isoformat())
    clock.advance(1)

    async def ask(**moments: Any) -> list[str]:
        result = await substrate.call("memory_list", **moments)
        return sorted(row["id"] for row in result["results"])

    assert await ask() == sorted([old, new])
    assert await ask(known_at=before) == [old]
    assert await ask(known_at=clock.now()) == [new]
    assert await ask(valid_at=before) == [old, new][:1]
    assert await ask(valid_at=moved_at) == [new]
    assert await ask(valid_at=moved_at, known_at=before) == [old]
    assert (await substrate.call("search_memory", q="Ada lives", known_at=before))["results"][0]["id"] == old
    with pytest.raises(BaobabError) as refusal:
        await learn(substrate, "Ada lives in Oslo", replaces=old)
    assert refusal.value.code == "wrong_status"
    with pytest.raises(BaobabError):
        await learn(substrate, "Never", valid_from=moved_at.isoformat(), valid_to=before.isoformat())


async def test_what_was_known_is_found_among_many_nearer_memories_of_later(substrate: Substrate) -> None:
    old = "The coffee machine"
    await learn(substrate, old, "It must be descaled every month.")
    substrate.harness.clock.advance(60)
    then = substrate.harness.clock.now()
    substrate.harness.clock.advance(60)
    rows = ({"id": f"lrn_{number:026}", "title": f"Ada {number}", "description": "In Rome."} for number in range(150))
    lines = (json.dumps({"table": "learnings", "row": row}) for row in rows)
    await substrate.import_lines("\n".join(lines).encode())
    await fill(substrate)
    arguments = {"search_by": "meaning", "limit": 150}
    assert old not in await find(substrate, "Ada in Rome", **arguments)
    assert await find(substrate, "Ada in Rome", known_at=then, **arguments) == [old]
    assert len(await find(substrate, "Ada in Rome", **arguments)) == 150


async def test_what_was_known_is_told_as_it_was_then(substrate: Substrate) -> None:
    clock = substrate.harness.clock
    commitment = await substrate.do("record_commitment", description="Send the report", status="tentative")
    clock.advance(60)
    then = clock.now()
    clock.advance(60)
    arguments = {"commitment_id": commitment["commitment_id"], "status": "broken", "description": "Send nothing"}
    await substrate.do("update_commitment", **arguments)
    (row,) = (await substrate.call("memory_list", known_at=then))["results"]
    assert (row["title"], row["status"]) == ("Send the report", "tentative")
    (row,) = (await substrate.call("memory_list"))["results"]
    assert (row["title"], row["status"]) == ("Send nothing", "broken")


async def test_duplicates_are_found_and_become_one_when_a_person_agrees(substrate: Substrate) -> None:
    first = await learn(substrate, "Customers pay late", "Most customers pay their bills after sixty days.")
    second = await learn(substrate, "Customers pay late", "Most customers pay their bills after sixty days!")
    await learn(substrate, "The moon", "It is far away.")
    await fill(substrate)
    (group,) = (await substrate.call("memory_duplicates"))["groups"]
    assert {row["id"] for row in group["memories"]} == {first, second}
    proposal = await substrate.propose("consolidate_memories", **group["payload"])
    assert proposal["requires_approval"]
    await substrate.call("approve", action_id=proposal["action_id"])
    assert len(await find(substrate, "customers pay")) == 1
    await substrate.do("revert_action", action_id=proposal["action_id"])
    assert len(await find(substrate, "customers pay")) == 2
    database = substrate.harness.services.database
    assert await find_faults(database, substrate.owner.organisation_id) == []


async def test_duplicates_are_proposed_once_a_day_and_wait_for_a_person(substrate: Substrate) -> None:
    harness = substrate.harness

    async def look() -> list[Any]:
        harness.clock.advance(86_400)
        await fill(substrate)
        await run_job(harness, "substrate_propose_consolidations")
        result = await substrate.call("actions", capability="consolidate_memories")
        return list(result["actions"])

    ids = [await learn(substrate, "Customers pay late", "Most pay after sixty days.") for _ in range(2)]
    await learn(substrate, "The moon", "It is far away.")
    (action,) = await look()
    assert (action["status"], action["proposed_by_kind"]) == ("proposed", "agent")
    assert {action["payload"]["kept_id"], *action["payload"]["duplicate_ids"]} == set(ids)
    ids.append(await learn(substrate, "Customers pay late", "Most pay after sixty days."))
    # What waits is not proposed again with one more, and what a person has rejected never again.
    assert len(await look()) == 1
    await substrate.call("reject", action_id=action["id"])
    wider, _ = await look()
    assert {wider["payload"]["kept_id"], *wider["payload"]["duplicate_ids"]} == set(ids)
    await substrate.call("reject", action_id=wider["id"])
    await learn(substrate, "The sun", "It is hot.")
    assert len(await look()) == 2


async def test_who_has_switched_the_daily_proposals_off_gets_none(substrate: Substrate) -> None:
    for _ in range(2):
        await learn(substrate, "Customers pay late", "Most pay after sixty days.")
    settings = await substrate.call("set_consolidation", propose_consolidations=False)
    assert (settings["propose_consolidations"], settings["yolo_mode"]) == (False, False)
    await fill(substrate)
    await run_job(substrate.harness, "substrate_propose_consolidations")
    assert (await substrate.call("actions", status="proposed"))["actions"] == []


async def test_what_is_kept_of_decisions_supersedes_the_others(substrate: Substrate) -> None:
    kept_id, other_id = [
        (await substrate.do("record_decision", title=title, kind="vision"))["decision_id"] for title in ("A", "B")
    ]
    arguments = {"kept_id": kept_id, "duplicate_ids": [other_id], "reason": "the same", "title": "A, and B"}
    await substrate.do("consolidate_memories", **arguments)
    rows = {row["id"]: row for row in (await substrate.call("memory_list"))["results"]}
    assert (rows[kept_id]["title"], rows[other_id]["status"]) == ("A, and B", "superseded")
    for wrong in ({"duplicate_ids": [kept_id]}, {"duplicate_ids": ["lrn_" + "0" * 26]}):
        with pytest.raises(BaobabError):
            await substrate.do("consolidate_memories", **{**arguments, **wrong})
