"""Actions have signed receipts, and what is forgotten is gone everywhere."""

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, text

from baobab.storage.sql.tables import metadata
from baobab.tools.core.errors import BaobabError
from tests.jobs import run_due_jobs, run_job
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

GUIDE = Path(__file__).parents[3] / "docs/substrate.md"


async def read_everything(substrate: Substrate) -> str:
    """All that the tables of substrates hold, as text, and the full-text index of SQLite."""
    texts = []
    database = substrate.harness.services.database
    async with database.reading() as connection:
        if database.dialect == "sqlite":
            blocks = await connection.execute(text("SELECT block FROM substrate_memory_fts_data"))
            texts += [block.decode("latin-1") for block in blocks.scalars()]
        for table in metadata.sorted_tables:
            if table.name.startswith("substrate_"):
                texts += [repr(tuple(row)) for row in await connection.execute(select(table))]
    return "\n".join(texts)


async def require_consistency(substrate: Substrate) -> None:
    assert await find_faults(substrate.harness.services.database, substrate.owner.organisation_id) == []


def verify(key: str, folder: Path, *pages: Any) -> subprocess.CompletedProcess[str]:
    """Runs the script of the guide, as somebody does who has only the pages and the key."""
    (script,) = re.findall(r"```python\n(# verify_receipts.py\n.*?)```", GUIDE.read_text(), re.DOTALL)
    (folder / "verify_receipts.py").write_text(script)
    names = [f"receipts-{number}.json" for number in range(len(pages))]
    for name, page in zip(names, pages, strict=True):
        (folder / name).write_text(json.dumps(page))
    command = [sys.executable, "verify_receipts.py", key, *names]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60, check=False)


async def test_a_third_party_checks_the_receipts_offline(substrate: Substrate, tmp_path: Path) -> None:
    payload = {"description": "Shïp \u2028", "status": "confirmed", "amount": 1e-7, "attrs": {"n": 2.0e22}}
    await substrate.do("record_commitment", **payload)
    waits = await substrate.propose("place_call", to="Ada", purpose="Ask")
    await substrate.call("reject", action_id=waits["action_id"])
    proposal = await substrate.propose("record_learning", title="Ask", description="first")
    await substrate.do("revert_action", action_id=proposal["action_id"])
    result = await substrate.call("receipts")
    bodies = [json.loads(receipt["body"]) for receipt in result["receipts"]]
    assert [(body["capability"], body["status"]) for body in bodies] == [
        ("record_commitment", "executed"),
        ("place_call", "rejected"),
        ("record_learning", "executed"),
        ("revert_action", "executed"),
    ]
    assert bodies[-1]["reverted"] == [proposal["action_id"]]
    key = result["public_key"]
    assert verify(key, tmp_path, result).stdout == "4 receipts are in order.\n"
    first = await substrate.call("receipts", limit=3)
    rest = await substrate.call("receipts", limit=3, after=first["next_after"])
    assert verify(key, tmp_path, first, rest).stdout == "4 receipts are in order.\n"
    salted_text = result["receipts"][0]["salt"] + json.dumps(payload, ensure_ascii=False, separators=(",", ":"))
    assert hashlib.sha256(salted_text.encode()).hexdigest() == bodies[0]["payload_sha256"]
    changed_payload = json.loads(json.dumps(result))
    changed_payload["receipts"][1]["body"] = changed_payload["receipts"][1]["body"].replace("rejected", "executed")
    left_out = {**result, "receipts": [result["receipts"][0], *result["receipts"][2:]]}
    for forgery in (changed_payload, left_out, rest):
        assert verify(key, tmp_path, forgery).returncode == 1
    other = Substrate(substrate.harness, await substrate.harness.sign_up("eve@example.com"))
    await other.do("record_commitment", **payload)
    assert "InvalidSignature" in verify(key, tmp_path, await other.call("receipts")).stderr


async def test_what_is_forgotten_is_nowhere_any_more_and_the_receipts_still_hold(
    substrate: Substrate, tmp_path: Path
) -> None:
    secret = "Zyzzyva"
    target = {"webhook_url": "https://told.invalid/", "signing_secret": "a secret of eight"}
    await substrate.call("outbox_target_put", capability="upsert_entity", **target)
    person: Any = {"type": "person", "display_name": secret, "attrs": {"note": secret}}
    entity = (await substrate.do("upsert_entity", **person, primary_email="zyzzyva@example.com"))["entity_id"]
    await substrate.do("patch_entity", id=entity, attrs_patch={"note": secret + " again"})
    waiting = await substrate.propose("delete_entity", id=entity, reason=f"{secret} asked for it")
    artifact = (await substrate.do("upsert_source_artifact", kind="note", title=secret))["artifact_id"]
    fields = {"title": secret, "description": secret, "source_artifact_id": artifact}
    learning = (await substrate.do("record_learning", **fields))["learning_id"]
    learning_id = (await substrate.do("record_learning", **{**fields, "title": "Other", "description": "x"}))[
        "learning_id"
    ]
    proposal = await substrate.propose("record_learning", title=secret, description="twice")
    await substrate.do("revert_action", action_id=proposal["action_id"])
    undone_learning_id = proposal["result"]["learning_id"]
    await run_job(substrate.harness, "substrate_embed")
    await substrate.call("search_memory", q="something", search_by="meaning")
    assert secret in await read_everything(substrate)
    receipt = await substrate.do(
        "forget", ids=[entity, artifact, learning, undone_learning_id], reason="They asked us to."
    )
    assert {name: receipt[name] for name in ("rows", "deliveries", "embeddings")} == {
        "rows": 3,
        "deliveries": 1,
        "embeddings": 2,
    }
    substrate.harness.clock.advance(360)
    await run_due_jobs(substrate.harness)
    everything = await read_everything(substrate)
    assert secret.casefold() not in everything.casefold()
    assert (await substrate.call("action", action_id=waiting["action_id"]))["status"] == "rejected"
    (row,) = (await substrate.call("memory_list"))["results"]
    assert (row["id"], row["source_artifact_id"]) == (learning_id, None)
    await require_consistency(substrate)
    receipts = await substrate.call("receipts")
    assert verify(receipts["public_key"], tmp_path, receipts).returncode == 0
    with pytest.raises(BaobabError) as refusal:
        await substrate.do("revert_action", action_id=json.loads(receipts["receipts"][0]["body"])["action_id"])
    assert refusal.value.code == "not_reversible"


async def test_what_rules_and_people_said_about_a_forgotten_row_goes_too(substrate: Substrate) -> None:
    secret = "Zyzzyva"
    entity = (await substrate.do("upsert_entity", type="person", display_name=secret))["entity_id"]
    rule = {
        "name": "Write to new people",
        "trigger_cron": "* * * * *",
        "condition_mode": "row_query",
        "condition": {"table": "entities", "where": {"==": [{"var": "type"}, "person"]}},
        "action_capability": "send_email_draft",
        "action_payload_template": {"to": "ada@example.com", "subject": "{{row.display_name}}", "body": "Hello"},
    }
    await substrate.call("rule_create", **rule)
    substrate.harness.clock.advance(60)
    await run_job(substrate.harness, "substrate_tick")
    await run_due_jobs(substrate.harness)
    (waiting,) = (await substrate.call("actions", status="proposed"))["actions"]
    assert waiting["payload"]["subject"] == secret
    applies = {"capability": "delete_entity"}
    await substrate.do("record_principle", title="Keep", applies_to=applies, constraint_spec={"type": "forbid"})
    for word in ("reject", "uphold"):
        proposal = await substrate.propose("delete_entity", id=entity, reason="Gone")
        if word == "reject":
            await substrate.call("reject", action_id=proposal["action_id"], reason=f"{secret} stays")
        else:
            (conflict,) = proposal["verdict"]["conflicts"]
            arguments = {"conflict_id": conflict["conflict_id"], "resolution": word, "reason": f"{secret} stays"}
            await substrate.call("resolve_policy_conflict", **arguments)
    await substrate.do("forget", ids=[entity], reason="They asked us to.")
    substrate.harness.clock.advance(360)
    await run_due_jobs(substrate.harness)
    assert secret.casefold() not in (await read_everything(substrate)).casefold()
    assert (await substrate.call("action", action_id=waiting["id"]))["status"] == "rejected"
    await require_consistency(substrate)


async def test_forgetting_an_id_leaves_those_that_begin_with_it(substrate: Substrate) -> None:
    for entity_id in ("ent_ada", "ent_ada-2"):
        await substrate.do("upsert_entity", type="person", id=entity_id, display_name="Ada")
    about = ("ent_ada-2", "ent_ada")
    waits = [(await substrate.propose("delete_entity", id=each, reason="Gone"))["action_id"] for each in about]
    mentions = {"to": "Eve", "purpose": "Ask about\nent_ada"}
    waits.append((await substrate.propose("place_call", **mentions))["action_id"])
    await substrate.do("forget", ids=["ent_ada"], reason="They asked us to.")
    actions = [await substrate.call("action", action_id=each) for each in waits]
    assert [action["status"] for action in actions] == ["proposed", "rejected", "rejected"]
    await require_consistency(substrate)


async def test_what_must_stay_is_not_forgotten(substrate: Substrate) -> None:
    own = (await substrate.call("provision"))["self_entity_id"]
    principle = await substrate.do(
        "record_principle", title="No", applies_to={"capability": "forget"}, constraint_spec={"type": "forbid"}
    )
    for each in (own, principle["principle_id"], "lrn_" + "0" * 26):
        with pytest.raises(BaobabError):
            await substrate.propose("forget", ids=[each], reason="x")
