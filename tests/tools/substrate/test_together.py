"""Several at once: nobody's change is lost, and what is done once is done once."""

import asyncio
from typing import Any

import pytest
from sqlalchemy import insert

from baobab.tools.core.errors import BaobabError
from baobab.tools.substrate.tables import entities
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

AT_ONCE = 6


async def gather_codes(*calls: Any) -> list[str]:
    """Makes the calls together. Returns `ok` or the code of the refusal for each."""
    results = await asyncio.gather(*calls, return_exceptions=True)
    assert all(not isinstance(result, BaseException) or isinstance(result, BaobabError) for result in results), results
    return sorted(result.code if isinstance(result, BaobabError) else "ok" for result in results)


async def test_of_changes_of_one_entity_at_once_none_is_lost(substrate: Substrate) -> None:
    entity_id = (await substrate.do("upsert_entity", type="person", display_name="Ada"))["entity_id"]
    await asyncio.gather(
        *(substrate.do("patch_entity", id=entity_id, attrs_patch={f"n{n}": n}) for n in range(AT_ONCE))
    )
    entity = await substrate.call("entity", entity_id=entity_id)
    assert entity["attrs"] == {f"n{n}": n for n in range(AT_ONCE)}
    updated_at = entity["updated_at"].isoformat()
    racing = (
        substrate.do("patch_entity", id=entity_id, display_name="B", if_updated_at=updated_at) for _ in range(AT_ONCE)
    )
    assert await gather_codes(*racing) == ["ok", *["precondition_failed"] * (AT_ONCE - 1)]


async def test_of_decisions_and_undoing_at_once_one_counts(substrate: Substrate) -> None:
    proposal = await substrate.propose("record_decision", title="Ship", kind="vision")
    waits = await substrate.propose("place_call", to="Ada", purpose="Ask")
    words = ["approve", "reject"] * (AT_ONCE // 2)
    deciding = (substrate.call(word, action_id=waits["action_id"]) for word in words)
    assert await gather_codes(*deciding) == ["ok", *["wrong_status"] * (AT_ONCE - 1)]
    undoing = (substrate.do("revert_action", action_id=proposal["action_id"]) for _ in range(AT_ONCE))
    assert await gather_codes(*undoing) == [*["already_reverted"] * (AT_ONCE - 1), "ok"]
    database, organisation = substrate.harness.services.database, substrate.owner.organisation_id
    assert await find_faults(database, organisation) == []


async def test_one_key_of_idempotency_is_one_action_and_one_address_one_entity(substrate: Substrate) -> None:
    person = {"type": "person", "display_name": "Ada", "primary_email": "ada@example.com"}
    arguments: Any = {"capability": "upsert_entity", "payload": person, "idempotency_key": "once"}
    answers = await asyncio.gather(*(substrate.call("propose", **arguments) for _ in range(AT_ONCE)))
    assert len({answer["action_id"] for answer in answers}) == 1
    assert sorted(answer.get("replay", False) for answer in answers) == [False, *[True] * (AT_ONCE - 1)]
    results = await asyncio.gather(*(substrate.do("upsert_entity", **person) for _ in range(AT_ONCE)))
    assert {result["was_insert"] for result in results} == {False}
    assert (await substrate.call("entities", type="person", count=True))["total"] == 1


async def test_of_merges_in_a_circle_at_once_one_is_done(substrate: Substrate) -> None:
    ids = [
        (await substrate.do("upsert_entity", type="person", display_name=name))["entity_id"] for name in ("Ann", "Anna")
    ]
    waiting = [
        (await substrate.propose("merge_entities", loser_id=loser, winner_id=winner, reason="one"))["action_id"]
        for loser, winner in (ids, ids[::-1])
    ]
    results = await asyncio.gather(*(substrate.call("approve", action_id=each) for each in waiting))
    assert sorted(row["status"] for row in results) == ["executed", "failed"]
    assert await find_faults(substrate.harness.services.database, substrate.owner.organisation_id) == []


async def test_ten_thousand_aliases_lead_to_their_entity(substrate: Substrate) -> None:
    entity_id = (await substrate.do("upsert_entity", type="person", display_name="Ada"))["entity_id"]
    services, organisation = substrate.harness.services, substrate.owner.organisation_id
    at = services.clock.now()
    common: dict[str, Any] = {
        "organisation_id": organisation,
        "type": "person",
        "display_name": "A",
        "search_name": "a",
    }
    common |= {"attrs": {}, "canonical_keys": {}, "action_id": "", "from_strangers": False}
    ids = [f"ent_{number}" for number in range(10_000)]
    # The first hundred were merged one into the other, the others into the entity.
    into = [*ids[1:100], *[entity_id] * 9_901]
    rows = [
        {**common, "id": own, "merged_into": winner, "created_at": at, "updated_at": at}
        for own, winner in zip(ids, into, strict=True)
    ]
    async with services.database.writing_unit(lock=organisation, bulk=True) as unit:
        await unit.execute(insert(entities), rows)
    for alias in (ids[0], ids[-1]):
        result = await substrate.call("entity", entity_id=alias)
        assert (result["id"], result["merged_from"]) == (entity_id, alias)
        changed_result = await substrate.call("update_entity", entity_id=alias, display_name="Ada L.")
        assert changed_result["result"] == {"entity_id": entity_id}
    other = (await substrate.do("upsert_entity", type="person", display_name="Eve"))["entity_id"]
    with pytest.raises(BaobabError) as refusal:
        await substrate.do("merge_entities", loser_id=entity_id, winner_id=other, reason="one more")
    assert refusal.value.code == "VALIDATION_INVALID_INPUT"
