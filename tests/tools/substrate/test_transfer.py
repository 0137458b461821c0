"""A substrate is exported and imported as JSON lines; nobody can make up where rows come from."""

import json
from typing import Any

import pytest

from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate


async def fill(substrate: Substrate) -> None:
    artifact = (await substrate.do("upsert_source_artifact", kind="note", title="Talk"))["artifact_id"]
    await substrate.do("record_learning", title="Ask", description="first", source_artifact_id=artifact)
    await substrate.do("record_decision", title="Ship", kind="vision", valid_from="2027-05-01T00:00:00Z")
    await substrate.do("record_commitment", description="Send", status="confirmed", amount=3)
    person = {"type": "person", "display_name": "Ada", "primary_email": "ada@example.com"}
    await substrate.do("upsert_entity", **person, canonical_keys={"crm": "1"})


async def export(substrate: Substrate) -> bytes:
    context = RequestContext("test", "1")
    stream = await substrate.harness.registry.call("substrate_export", {}, substrate.owner, context)
    return b"".join([piece async for piece in stream.pieces])


async def list_titles(substrate: Substrate) -> list[tuple[str, bool]]:
    rows = (await substrate.call("memory_list"))["results"]
    return sorted((row["title"], row["from_strangers"]) for row in rows)


async def test_another_substrate_imports_what_one_exported_and_can_undo_it(substrate: Substrate) -> None:
    await fill(substrate)
    text = await export(substrate)
    other = Substrate(substrate.harness, await substrate.harness.sign_up("eve@example.com"))
    with pytest.raises(BaobabError) as refusal:
        await other.import_lines(text)
    assert refusal.value.code == "provenance_forged"
    key = json.loads(text.splitlines()[0])["public_key"]
    # As it comes from a query in which nobody has escaped a plus sign.
    import_result = await other.import_lines(text, trusted_key=key.replace("+", " "))
    assert import_result["result"]["imported"] == {
        "entities": 1,
        "source_artifacts": 1,
        "decisions": 1,
        "commitments": 1,
        "learnings": 1,
    }
    assert await list_titles(other) == await list_titles(substrate)
    assert (await other.import_lines(text, trusted_key=key))["result"]["skipped"] == 5
    database, organisation = substrate.harness.services.database, other.owner.organisation_id
    assert await find_faults(database, organisation) == []
    await other.do("revert_action", action_id=import_result["action_id"])
    assert [title for title, _ in await list_titles(other)] == ["Ship"]
    assert await find_faults(database, organisation) == []


async def test_forged_provenance_is_refused(substrate: Substrate) -> None:
    await fill(substrate)
    lines = (await export(substrate)).splitlines(keepends=True)
    title = b"".join(lines).replace(b'"title":"Ask"', b'"title":"Pay"')
    row = {"table": "learnings", "row": {"id": "lrn_" + "1" * 26, "title": "x", "description": "y"}}
    forged_row = {**row, "row": {**row["row"], "from_strangers": False}}  # type: ignore[dict-item]
    for forgery in (
        title,
        b"".join(lines[:-1]),
        b"".join(lines[1:]),
        b"".join(lines[1:-1]),
        json.dumps(forged_row).encode(),
    ):
        with pytest.raises(BaobabError) as refusal:
            await substrate.import_lines(forgery)
        assert refusal.value.code == "provenance_forged"
    assert (await substrate.import_lines(json.dumps(row).encode()))["result"]["skipped"] == 0
    assert ("x", True) in await list_titles(substrate)


async def test_an_imported_address_is_the_one_that_an_upsert_finds(substrate: Substrate) -> None:
    row = {"id": "ent_1", "type": "person", "display_name": "Ada", "primary_email": "Ada@Example.com"}
    await substrate.import_lines(json.dumps({"table": "entities", "row": row}).encode())
    result = await substrate.do("upsert_entity", type="person", display_name="Ada", primary_email="ada@example.com")
    assert (result["entity_id"], result["was_insert"]) == ("ent_1", False)


async def test_an_empty_rationale_is_exported_and_imported(substrate: Substrate) -> None:
    proposal = await substrate.propose("record_decision", title="Ship", kind="vision", rationale="")
    lines = await export(substrate)
    await substrate.do("forget", ids=[proposal["result"]["decision_id"]], reason="To import it again.")
    assert (await substrate.import_lines(lines))["result"]["imported"]["decisions"] == 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[1]",
        '{"table": "action_ledger", "row": {}}',
        '{"table": "learnings", "row": {"id": "lrn_1"}}',
        '{"table": "learnings", "row": {"id": "lrn_11111111111111111111111111", "title": "x"}}',
        '{"table": "learnings", "row": {"id": "lrn_11111111111111111111111111", "title": 1, "description": "x"}}',
        '{"table": "learnings", "row": {"id": "lrn_11111111111111111111111111", "title": "", "description": "x"}}',
        '{"table": "learnings", "row": {"id": "lrn_11111111111111111111111111", "title": "\\u0000", "description": 1}}',
        '{"table": "learnings", "row": {"id": "lrn_11111111111111111111111111", "sql": "x"}}',
        '{"table": "entities", "row": {"id": "ent_1", "type": "person", "organisation_id": "another"}}',
        '{"table": "entities", "row": {"id": "ent_1", "type": "person", "merged_into": "ent_2"}}',
        '{"table": "decisions", "row": {"id": "dec_11111111111111111111111111", "title": "x", "kind": "law"}}',
        '{"table": "entities", "row": {"id": "ent_1", "type": "self", "display_name": "x"}}',
        '{"table": "entities", "row": {"id": "ent_1", "type": "person", "attrs": [1]}}',
        '{"table": "entities", "row": {"id": "ent_1", "type": "person", "display_name": "Ad\\u200ba"}}',
        '{"table": "entities", "row": {"id": "ent_1", "type": "person", "primary_email": "ada"}}',
        '{"table": "source_artifacts", "row": {"id": "art_1", "kind": "mail", "title": "x", "url": "javascript:x"}}',
        json.dumps({"table": "learnings", "row": {"id": f"lrn_{'1' * 26}", "title": "x", "description": "x" * 20_001}}),
        '{"table": "entities", "row": {"id": "ent_1", "type": "person"}}\n' * 2,
        '{"table": "entities", "row": {"id": "ent_1", "type": "person"}}\n' * 5003,
    ],
)
async def test_a_file_that_cannot_be_imported_changes_nothing(substrate: Substrate, text: str) -> None:
    with pytest.raises(BaobabError) as refusal:
        await substrate.import_lines(text.encode())
    assert refusal.value.status == 400
    assert (await substrate.call("actions"))["actions"] == []


@pytest.mark.parametrize("name", ["source_app_id", "from_strangers", "action_id", "created_by_kind", "created_at"])
@pytest.mark.parametrize("capability", ["upsert_source_artifact", "upsert_entity", "record_learning"])
async def test_no_payload_says_where_a_row_comes_from(substrate: Substrate, capability: str, name: str) -> None:
    payloads: dict[str, dict[str, Any]] = {
        "upsert_source_artifact": {"kind": "note", "title": "Talk"},
        "upsert_entity": {"type": "person", "display_name": "Ada"},
        "record_learning": {"title": "Ask", "description": "x"},
    }
    with pytest.raises(BaobabError) as refusal:
        await substrate.propose(capability, **payloads[capability], **{name: "forged"})
    assert refusal.value.status == 400
    assert (await substrate.call("actions"))["actions"] == []


async def test_an_import_is_held_to_the_principles_of_what_it_records(substrate: Substrate) -> None:
    await substrate.do(
        "record_principle",
        title="Ask first",
        applies_to={"capability": "record_decision"},
        constraint_spec={"type": "require_approval"},
    )
    learnings = {"capability": "record_learning"}
    at_most = {"type": "max_per_day", "params": {"n": 2}}
    await substrate.do("record_principle", title="Few", applies_to=learnings, constraint_spec=at_most)
    decision = {"table": "decisions", "row": {"id": "dec_" + "0" * 26, "title": "Ship", "kind": "vision"}}
    learning_rows = [
        {"table": "learnings", "row": {"id": f"lrn_{number:026}", "title": "Ask", "description": "x"}}
        for number in range(3)
    ]
    for rows in ([decision], learning_rows):
        with pytest.raises(BaobabError) as refusal:
            await substrate.import_lines("\n".join(map(json.dumps, rows)).encode())
        assert refusal.value.code == "held_by_principle"
    import_result = await substrate.import_lines("\n".join(map(json.dumps, learning_rows[:2])).encode())
    assert import_result["result"]["imported"]["learnings"] == 2
