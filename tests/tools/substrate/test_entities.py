"""Entities: found again, changed, merged and taken apart."""

import pytest

from baobab.tools.core.errors import BaobabError
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.ledger import open_ledger
from baobab.tools.substrate.proposals import propose_in
from tests.tools.substrate.conftest import Substrate


async def test_an_upsert_finds_an_entity_by_its_keys_and_then_by_its_address(substrate: Substrate) -> None:
    first = await substrate.do(
        "upsert_entity", type="person", display_name="Ada", primary_email="Ada@Example.com", canonical_keys={"crm": "1"}
    )
    assert (first["was_insert"], first["before"]) == (True, None)
    by_key = await substrate.do(
        "upsert_entity", type="person", display_name="Ada L.", canonical_keys={"crm": "1"}, attrs={"role": "cto"}
    )
    by_mail = await substrate.do(
        "upsert_entity", type="person", display_name="Ada", primary_email="ada@example.com", canonical_keys={"x": "9"}
    )
    assert [result["entity_id"] for result in (by_key, by_mail)] == [first["entity_id"]] * 2
    assert by_mail["before"]["display_name"] == "Ada L."
    entity = await substrate.call("entity", entity_id=first["entity_id"])
    assert entity["canonical_keys"] == {"crm": "1", "email": "ada@example.com", "x": "9"}
    assert (entity["attrs"], entity["primary_email"]) == ({"role": "cto"}, "ada@example.com")
    other = await substrate.do("upsert_entity", type="company", display_name="Ada", canonical_keys={"crm": "1"})
    assert other["was_insert"] is True


async def test_a_patch_is_a_merge_patch_and_refused_when_the_entity_has_changed_since(substrate: Substrate) -> None:
    upsert = await substrate.do(
        "upsert_entity", type="person", display_name="Ada", attrs={"a": 1, "b": {"c": 2, "d": 3}}
    )
    entity = await substrate.call("entity", entity_id=upsert["entity_id"])
    arguments = {"entity_id": upsert["entity_id"], "attrs": {"a": None, "b": {"c": 4}}}
    updated_at = entity["updated_at"].isoformat()
    result = await substrate.call("update_entity", **arguments, if_updated_at=updated_at)
    assert result["result"] == {"entity_id": upsert["entity_id"]}
    assert (await substrate.call("entity", entity_id=upsert["entity_id"]))["attrs"] == {"b": {"c": 4, "d": 3}}
    with pytest.raises(BaobabError) as refusal:
        await substrate.call("update_entity", **arguments, if_updated_at=updated_at)
    assert (refusal.value.code, refusal.value.status) == ("precondition_failed", 409)
    with pytest.raises(BaobabError) as refusal:
        await substrate.call("update_entity", entity_id=upsert["entity_id"])
    assert (refusal.value.status, refusal.value.message) == (400, "There is nothing to change.")


@pytest.mark.parametrize(("capability", "field"), [("patch_entity", "attrs_patch"), ("upsert_entity", "attrs")])
async def test_attributes_do_not_grow_without_end_by_small_changes(
    substrate: Substrate, capability: str, field: str
) -> None:
    fields = {"id": "ent_large"} | ({"type": "person", "display_name": "Ada"} if capability == "upsert_entity" else {})
    half, quarter = "x" * 32_000, "x" * 16_000
    await substrate.do("upsert_entity", id="ent_large", type="person", display_name="Ada", attrs={"a": half, "b": half})
    with pytest.raises(BaobabError, match="at most 65536 bytes"):
        await substrate.propose(capability, **fields, **{field: {"c": half}})
    await substrate.do(capability, **fields, **{field: {"a": quarter, "c": quarter}})
    entity = await substrate.call("entity", entity_id="ent_large")
    assert {name: len(value) for name, value in entity["attrs"].items()} == {"a": 16_000, "b": 32_000, "c": 16_000}


async def test_a_merged_entity_is_found_by_all_its_names_until_it_is_taken_apart(substrate: Substrate) -> None:
    ids = [
        (await substrate.do("upsert_entity", type="person", display_name=name, primary_email=f"{name}@example.com"))[
            "entity_id"
        ]
        for name in ("ann", "anna", "hannah")
    ]
    for loser, winner in (ids[:2], ids[1:]):
        await substrate.do("merge_entities", loser_id=loser, winner_id=winner, reason="one person")
    result = await substrate.call("entity", entity_id=ids[0])
    assert (result["id"], result["merged_from"], result["aliases"]) == (ids[2], ids[0], [ids[1]])
    assert result["alias_names"] == {ids[1]: "anna"}
    again = await substrate.do("upsert_entity", type="person", display_name="Ann", primary_email="ann@example.com")
    assert (again["entity_id"], again["was_insert"]) == (ids[2], False)
    assert (await substrate.call("entity", entity_id=ids[2]))["primary_email"] == "hannah@example.com"
    with pytest.raises(BaobabError):
        await substrate.do("merge_entities", loser_id=ids[2], winner_id=ids[0], reason="a circle")
    await substrate.do("unmerge_entities", entity_id=ids[1], reason="two after all")
    assert (await substrate.call("entity", entity_id=ids[0]))["id"] == ids[1]
    listed_result = await substrate.call("entities", type="person", count=True)
    assert (listed_result["total"], {row["id"] for row in listed_result["entities"]}) == (2, set(ids[1:]))


async def test_names_are_found_without_case_and_accents_the_most_similar_first(substrate: Substrate) -> None:
    for name in ("José Álvarez", "Josefine", "Bob", "50% off_"):
        await substrate.do("upsert_entity", type="person", display_name=name)
    entities = (await substrate.call("entities", q="jose"))["entities"]
    assert [row["display_name"] for row in entities] == ["José Álvarez", "Josefine"]
    assert entities[0]["sim"] > entities[1]["sim"] > 0
    assert [row["display_name"] for row in (await substrate.call("entities", q="%"))["entities"]] == ["50% off_"]


async def test_pages_of_entities_go_on_at_the_cursor(substrate: Substrate) -> None:
    ids = [
        (await substrate.do("upsert_entity", type="company", display_name=str(number)))["entity_id"]
        for number in range(5)
    ]
    found_ids, cursor = [], None
    while True:
        page = await substrate.call("entities", type="company", limit=2, cursor=cursor)
        found_ids += [row["id"] for row in page["entities"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert found_ids == ids[::-1]


@pytest.mark.parametrize("capability", ["update_entity", "patch_entity"])
async def test_two_entities_never_have_one_address(substrate: Substrate, capability: str) -> None:
    await substrate.do("upsert_entity", type="person", display_name="A", primary_email="a@example.com")
    other = await substrate.do("upsert_entity", type="person", display_name="B")
    with pytest.raises(BaobabError) as refusal:
        await substrate.do(capability, id=other["entity_id"], primary_email="a@example.com")
    assert refusal.value.code == "email_taken"


async def test_a_deleted_entity_is_gone_with_what_was_merged_into_it(substrate: Substrate) -> None:
    ids = [(await substrate.do("upsert_entity", type="person", display_name=name))["entity_id"] for name in ("a", "b")]
    await substrate.do("merge_entities", loser_id=ids[0], winner_id=ids[1], reason="one")
    await substrate.do("delete_entity", id=ids[1], reason="asked to be forgotten")
    for entity_id in ids:
        with pytest.raises(BaobabError) as refusal:
            await substrate.call("entity", entity_id=entity_id)
        assert refusal.value.status == 404


async def test_names_that_only_look_alike_are_two_entities(substrate: Substrate) -> None:
    latin, cyrillic, wide = "Ada", "\u0410da", "\uff21da"
    ids = [
        (await substrate.do("upsert_entity", type="person", display_name=name, canonical_keys={"crm": name}))[
            "entity_id"
        ]
        for name in (latin, cyrillic, wide)
    ]
    assert len(set(ids)) == 3
    # Forms that Unicode holds to be the same letter are found together; letters of another alphabet are not.
    entities = (await substrate.call("entities", q="ada"))["entities"]
    assert {entity["id"] for entity in entities} == {ids[0], ids[2]}
    entities = (await substrate.call("entities", q=cyrillic))["entities"]
    assert [entity["id"] for entity in entities] == [ids[1]]


async def test_an_entity_of_many_aliases_lists_the_first_and_counts_all(substrate: Substrate) -> None:
    services, organisation_id = substrate.harness.services, substrate.owner.organisation_id
    proposer = Proposer("human", "test", may_skip=True)
    # Past the registry, whose limit of calls a minute is lower.
    async with (
        services.database.writing_unit(lock=organisation_id) as unit,
        open_ledger(unit, services, organisation_id) as ledger,
    ):
        for number in range(206):
            person = {"id": f"ent_{number:03}", "type": "person", "display_name": f"Ada {number}"}
            await propose_in(ledger, proposer, "upsert_entity", person)
            if number:
                merge = {"loser_id": person["id"], "winner_id": "ent_000", "reason": "One."}
                await propose_in(ledger, proposer, "merge_entities", merge, skip_approval=True)
    entity = await substrate.call("entity", entity_id="ent_205")
    assert (entity["id"], entity["alias_count"], len(entity["aliases"])) == ("ent_000", 205, 200)
