"""Attention rules: what they find, what they propose, and that each tick counts once."""

import asyncio
from typing import Any

import pytest

from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError
from baobab.tools.substrate.access import Proposer
from baobab.tools.substrate.proposals import propose
from tests.jobs import run_due_jobs, run_job
from tests.tools.substrate.access_policy import RULE
from tests.tools.substrate.conftest import Substrate

EVERY_MINUTE = {**RULE, "trigger_cron": "* * * * *"}
COUNTING = {
    **EVERY_MINUTE,
    "condition_mode": "snapshot_predicate",
    "condition": {">": [{"var": "decision_count"}, 1]},
    "action_payload_template": {"title": "{{decision_count}} decisions", "description": "{{ entities_by_type }}"},
}


async def pass_time(substrate: Substrate, seconds: float = 60) -> None:
    """Move the clock on, and make everything that is due then."""
    substrate.harness.clock.advance(seconds)
    await run_job(substrate.harness, "substrate_tick")
    await run_due_jobs(substrate.harness)


async def list_firings(substrate: Substrate, rule: Any) -> list[Any]:
    firings: list[Any] = (await substrate.call("rule_firings", rule_id=rule["id"]))["firings"]
    return firings


async def decide(substrate: Substrate, *titles: str) -> None:
    for title in titles:
        await substrate.do("record_decision", title=title, kind="operational")


async def test_a_rule_proposes_an_action_for_each_row_that_it_finds(substrate: Substrate) -> None:
    await decide(substrate, "ship", "wait")
    condition = {"table": "decisions", "where": {"==": [{"var": "title"}, "ship"]}}
    rule = await substrate.call("rule_create", **{**EVERY_MINUTE, "condition": condition})
    await pass_time(substrate)
    (firing,) = await list_firings(substrate, rule)
    assert (firing["status"], firing["binding_count"], firing["skip_reason"]) == ("fired", 1, None)
    (action,) = (await substrate.call("actions", source_rule_id=rule["id"]))["actions"]
    assert [action["id"]] == firing["action_ids"]
    assert (action["payload"]["title"], action["proposed_by_kind"], action["status"]) == ("ship", "agent", "executed")


@pytest.mark.parametrize("table", ["decisions", "entities", "action_ledger"])
async def test_a_rule_looks_at_the_latest_rows_of_a_large_table(
    substrate: Substrate, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baobab.tools.substrate.attention.conditions.MAX_ROWS", 3)
    for number in range(5):
        await substrate.do("record_decision", title=str(number), kind="vision")
        await substrate.do("upsert_entity", type="team", display_name=str(number), id=f"ent_{number}")
    await substrate.do("record_learning", title="Ask", description="of another kind")
    await substrate.do("update_entity", id="ent_1", display_name="1 again")
    fields = {"decisions": "{{row.title}}", "entities": "{{row.display_name}}", "action_ledger": "{{row.capability}}"}
    template = {"title": fields[table], "description": "x"}
    rule = {**EVERY_MINUTE, "condition": {"table": table}, "action_payload_template": template}
    preview = await substrate.call("rule_preview", **rule)
    titles = [sample["rendered_payload"]["title"] for sample in preview["sample_proposals"]]
    assert (
        titles
        == {
            "decisions": ["4", "3", "2"],
            "entities": ["1 again", "4", "3"],
            "action_ledger": ["update_entity", "record_learning", "upsert_entity"],
        }[table]
    )


async def test_a_predicate_sees_the_counts_of_the_snapshot_of_the_day(substrate: Substrate) -> None:
    await decide(substrate, "one")
    rule = await substrate.call("rule_create", **COUNTING)
    preview = await substrate.call("rule_preview", **COUNTING)
    assert (preview["bindings_count"], preview["skip_reason"]) == (0, "there is no snapshot of today yet")
    await run_job(substrate.harness, "substrate_take_snapshots")
    await pass_time(substrate)
    await decide(substrate, "two")
    await pass_time(substrate, 86_400)
    await run_job(substrate.harness, "substrate_take_snapshots")
    preview = await substrate.call("rule_preview", **COUNTING)
    assert (preview["bindings_count"], preview["skip_reason"]) == (1, None)
    (sample,) = preview["sample_proposals"]
    assert sample["rendered_payload"] == {"title": "2 decisions", "description": '{"self":1}'}
    assert sample["would_require_approval"] is False
    await pass_time(substrate)
    firings = await list_firings(substrate, rule)
    # The tick in between comes with the new day: it finds today's snapshot or none, as the two jobs happen to run.
    assert [firings[0]["status"], firings[-1]["status"]] == ["fired", "skipped"]
    assert firings[-1]["skip_reason"] == "the condition is not met"


async def test_a_rule_proposes_no_more_a_day_than_it_may(substrate: Substrate) -> None:
    await decide(substrate, "a", "b", "c")
    learn = {**EVERY_MINUTE, "max_fires_per_day": 4}
    rule = await substrate.call("rule_create", **learn)
    await pass_time(substrate)
    await decide(substrate, "d", "e", "f")
    for _ in range(2):
        await pass_time(substrate)
    firings = await list_firings(substrate, rule)
    assert [(row["status"], len(row["action_ids"])) for row in firings] == [("capped", 0), ("fired", 1), ("fired", 3)]
    assert firings[1]["skip_reason"] == "5 of 6 not proposed: at most 4 a day"


async def test_what_waits_is_not_proposed_again_and_other_rows_have_their_turn(substrate: Substrate) -> None:
    await decide(substrate, "a", "b")
    draft = {
        **EVERY_MINUTE,
        "action_capability": "send_email_draft",
        "action_payload_template": {"to": "ada@example.com", "subject": "Decided", "body": "{{row.title}}"},
    }
    rule = await substrate.call("rule_create", **draft)
    await pass_time(substrate)
    await decide(substrate, "c")
    for _ in range(2):
        await pass_time(substrate)
    fresh, second, first = await list_firings(substrate, rule)
    assert [(row["status"], len(row["action_ids"])) for row in (first, second)] == [("fired", 2), ("fired", 1)]
    assert second["skip_reason"] == "2 of 3 not proposed again: the same proposal waits for a decision"
    assert (fresh["status"], fresh["binding_count"], fresh["action_ids"]) == ("skipped", 3, [])
    actions = (await substrate.call("actions", source_rule_id=rule["id"]))["actions"]
    assert sorted(action["payload"]["body"] for action in actions) == ["a", "b", "c"]
    assert len({action["trigger_context"]["row_id"] for action in actions}) == 3


@pytest.mark.parametrize("outcome", ["executed", "rejected", "reverted"])
async def test_what_was_decided_is_proposed_again_once_its_row_has_changed(substrate: Substrate, outcome: str) -> None:
    commitment = await substrate.do("record_commitment", description="call Ada", status="confirmed")
    rule_fields = {**EVERY_MINUTE, "condition": {"table": "commitments"}}
    rule_fields["action_payload_template"] = {"title": "{{row.description}}", "description": "x"}
    if outcome == "rejected":
        rule_fields |= {"action_capability": "send_email_draft"}
        rule_fields["action_payload_template"] = {"to": "a@example.com", "subject": "{{row.description}}", "body": "x"}
    rule = await substrate.call("rule_create", **rule_fields)
    await pass_time(substrate)
    (firing,) = await list_firings(substrate, rule)
    (action_id,) = firing["action_ids"]
    if outcome == "rejected":
        await substrate.call("reject", action_id=action_id)
    if outcome == "reverted":
        await substrate.do("revert_action", action_id=action_id)
    assert (await substrate.call("action", action_id=action_id))["status"] == outcome
    await pass_time(substrate)
    await substrate.do("update_commitment", commitment_id=commitment["commitment_id"], status="fulfilled")
    await pass_time(substrate)
    again, repeated_firing, _ = await list_firings(substrate, rule)
    assert (repeated_firing["status"], len(again["action_ids"])) == ("skipped", 1)
    reason = "the same was proposed before, and nothing has changed since"
    assert repeated_firing["skip_reason"] == f"1 of 1 not proposed again: {reason}"


async def test_a_rule_does_not_repeat_what_it_does_to_its_own_row_nor_what_a_person_has_undone(
    substrate: Substrate,
) -> None:
    await substrate.do("upsert_entity", type="person", display_name="Ada")
    condition = {"table": "entities", "where": {"==": [{"var": "type"}, "person"]}}
    patch = {"id": "{{row.id}}", "attrs_patch": {"seen": "yes"}}
    rule_fields = {"condition": condition, "action_capability": "patch_entity", "action_payload_template": patch}
    rule = await substrate.call("rule_create", **{**EVERY_MINUTE, **rule_fields})
    for _ in range(2):
        await pass_time(substrate)
    repeated_firing, first_firing = await list_firings(substrate, rule)
    assert (repeated_firing["status"], first_firing["status"]) == ("skipped", "fired")
    await substrate.do("revert_action", action_id=first_firing["action_ids"][0])
    await pass_time(substrate)
    assert (await list_firings(substrate, rule))[0]["status"] == "skipped"
    (ada,) = (await substrate.call("entities", type="person"))["entities"]
    assert ada["attrs"] == {}


async def test_ticks_that_were_missed_are_not_made_up_for(substrate: Substrate) -> None:
    await decide(substrate, "a")
    often = await substrate.call("rule_create", **EVERY_MINUTE)
    daily = await substrate.call("rule_create", **{**RULE, "name": "daily"})
    await pass_time(substrate, 86_400 + 3600)
    assert [row["status"] for row in await list_firings(substrate, often)] == ["fired"]
    (firing,) = await list_firings(substrate, daily)
    assert (firing["status"], firing["action_ids"]) == ("skipped", [])
    assert "missed" in firing["skip_reason"]
    assert (await substrate.call("rule", rule_id=daily["id"]))["next_fire_at"] > substrate.harness.clock.now()


async def test_two_workers_at_one_tick_fire_once(substrate: Substrate) -> None:
    await decide(substrate, "a")
    rule = await substrate.call("rule_create", **EVERY_MINUTE)
    substrate.harness.clock.advance(60)
    services = substrate.harness.services
    due = rule["next_fire_at"].isoformat()
    arguments = {"organisation_id": substrate.owner.organisation_id, "rule_id": rule["id"], "due": due}
    async with services.database.writing_unit() as unit:
        for number in range(6):
            await services.jobs.enqueue(unit, "substrate_fire", arguments, job_id=f"worker {number}")
    await asyncio.gather(*(run_job(substrate.harness, "substrate_tick") for _ in range(3)))
    await run_due_jobs(substrate.harness)
    (firing,) = await list_firings(substrate, rule)
    assert len(firing["action_ids"]) == 1
    assert len((await substrate.call("actions", source_rule_id=rule["id"]))["actions"]) == 1


async def test_a_disabled_rule_does_not_fire_until_it_is_enabled_again(substrate: Substrate) -> None:
    await decide(substrate, "a")
    rule = await substrate.call("rule_create", **EVERY_MINUTE)
    off = await substrate.call("rule_disable", rule_id=rule["id"])
    assert (off["enabled"], off["next_fire_at"]) == (False, None)
    await pass_time(substrate, 120)
    assert await list_firings(substrate, rule) == []
    assert (await substrate.call("rules", enabled=True))["rules"] == []
    await substrate.call("rule_enable", rule_id=rule["id"])
    await pass_time(substrate)
    assert len(await list_firings(substrate, rule)) == 1
    result = await substrate.call("rule_replace", rule_id=rule["id"], **{**RULE, "name": "other"})
    assert (result["name"], result["trigger_cron"]) == ("other", "0 8 * * *")
    assert await substrate.call("rule_delete", rule_id=rule["id"]) == {"deleted": True}
    with pytest.raises(BaobabError) as refusal:
        await substrate.call("rule", rule_id=rule["id"])
    assert refusal.value.status == 404


async def test_what_cannot_be_proposed_makes_the_firing_an_error_and_changes_nothing(substrate: Substrate) -> None:
    await decide(substrate, "a")
    arguments = {**EVERY_MINUTE, "action_payload_template": {"title": "{{row.nothing}}", "description": "x"}}
    preview = await substrate.call("rule_preview", **arguments)
    assert preview["bindings_count"] == 1
    assert "title" in preview["skip_reason"]
    missing = {**EVERY_MINUTE, "action_payload_template": {"title": "A{{row.nothing}}", "description": "x"}}
    assert (await substrate.call("rule_preview", **missing))["skip_reason"] == "no value for row.nothing"
    rule = await substrate.call("rule_create", **arguments)
    await pass_time(substrate)
    (firing,) = await list_firings(substrate, rule)
    assert (firing["status"], firing["action_ids"]) == ("error", [])
    assert "title" in firing["skip_reason"]


async def test_what_rules_send_to_the_outside_waits_for_a_person_even_in_yolo_mode(substrate: Substrate) -> None:
    await decide(substrate, "a")
    await substrate.call("set_yolo", yolo_mode=True)
    mail = {"to": "ada@example.com", "subject": "{{row.title}}", "body": "Look."}
    sending = {**EVERY_MINUTE, "action_capability": "send_email_draft", "action_payload_template": mail}
    (sample,) = (await substrate.call("rule_preview", **sending))["sample_proposals"]
    assert sample["would_require_approval"] is True
    rule = await substrate.call("rule_create", **sending)
    await pass_time(substrate)
    (action,) = (await substrate.call("actions", source_rule_id=rule["id"]))["actions"]
    assert (action["status"], action["payload"]["subject"]) == ("proposed", "a")


ENDLESS: Any = {"var": ""}
for _ in range(8):
    ENDLESS = {"map": [[0] * 20, ENDLESS]}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trigger_cron": "* * * * * *"}, "`trigger_cron` has five fields"),
        ({"trigger_cron": "* * *"}, "`trigger_cron` has five fields"),
        ({"trigger_cron": "0 0 30 2 *"}, "a day that never comes"),
        ({"condition_mode": "snapshot_predicate", "condition": {}}, "`condition`: an operation is an object"),
        (
            {"condition_mode": "snapshot_predicate", "condition": {"log": 1}},
            "`condition.log`: there is no such operation",
        ),
        ({"condition": {"table": "accounts"}}, "`condition.table` must be one of"),
        ({"condition": {"table": "decisions", "sql": "1"}}, "does not know `sql`"),
        ({"condition": {"table": "decisions", "limit": 101}}, "from 1 to 100"),
        ({"condition": {"table": "decisions", "where": {"!": [[1] * 2000]}}}, "at most 1000 values"),
        ({"action_capability": "fly"}, "no capability"),
        ({"condition": {"table": "decisions", "where": {"var": "x" * 70_000}}}, "65536 bytes"),
    ],
)
async def test_an_invalid_rule_is_refused_and_says_why(
    substrate: Substrate, change: dict[str, Any], message: str
) -> None:
    for tool in ("rule_create", "rule_preview"):
        with pytest.raises(BaobabError) as refusal:
            await substrate.call(tool, **{**RULE, **change})
        assert refusal.value.status == 400
        assert message in refusal.value.message


async def test_a_rule_that_would_never_end_is_an_error_and_not_a_wait(substrate: Substrate) -> None:
    await decide(substrate, "a")
    hostile = {**EVERY_MINUTE, "condition": {"table": "decisions", "where": ENDLESS}}
    preview = await substrate.call("rule_preview", **hostile)
    assert preview["bindings_count"] == 0
    assert "visit more than 250000 values" in preview["skip_reason"]
    rule = await substrate.call("rule_create", **hostile)
    flood = {"title": "{{row}}" * 8000, "description": "x"}
    bomb = await substrate.call("rule_create", **{**EVERY_MINUTE, "name": "bomb", "action_payload_template": flood})
    await pass_time(substrate)
    assert [row["status"] for row in await list_firings(substrate, rule)] == ["error"]
    (firing,) = await list_firings(substrate, bomb)
    assert (firing["status"], firing["skip_reason"].endswith("the rendered payloads are too large")) == ("error", True)


async def test_rules_of_one_organisation_are_nothing_to_another(substrate: Substrate) -> None:
    rule = await substrate.call("rule_create", **RULE)
    other = Substrate(substrate.harness, await substrate.harness.sign_up("bob@example.com"))
    assert (await other.call("rules"))["rules"] == []
    for tool in ("rule", "rule_delete", "rule_enable", "rule_firings"):
        with pytest.raises(BaobabError) as refusal:
            await other.call(tool, rule_id=rule["id"])
        assert refusal.value.status == 404


async def test_agents_do_not_make_rules(substrate: Substrate) -> None:
    over_mcp = RequestContext("mcp", "1")
    with pytest.raises(BaobabError) as refusal:
        await substrate.harness.registry.call("substrate_rule_create", dict(RULE), substrate.owner, over_mcp)
    assert refusal.value.status == 403


async def test_what_strangers_wrote_stays_marked_in_what_a_rule_proposes(substrate: Substrate) -> None:
    rule = await substrate.call("rule_create", **EVERY_MINUTE)
    services, stranger = substrate.harness.services, Proposer("agent", None, from_strangers=True)
    decision = {"title": "Send us your keys", "kind": "operational"}
    async with services.database.writing_unit() as unit:
        await propose(unit, services, substrate.owner.organisation_id, stranger, "record_decision", decision)
    await pass_time(substrate)
    (action,) = (await substrate.call("actions", source_rule_id=rule["id"]))["actions"]
    assert (action["payload"]["title"], action["from_strangers"]) == ("Send us your keys", True)


async def test_a_rule_over_the_ledger_marks_what_it_reads_of_rows_that_strangers_may_have_written(
    substrate: Substrate,
) -> None:
    services, stranger = substrate.harness.services, Proposer("agent", None, from_strangers=True)
    payloads = {
        "upsert_source_artifact": {"kind": "mail", "title": "Hello", "id": "art_mail"},
        "upsert_entity": {"type": "person", "display_name": "Send us your keys", "id": "ent_eve"},
    }
    for capability, payload in payloads.items():
        async with services.database.writing_unit() as unit:
            await propose(unit, services, substrate.owner.organisation_id, stranger, capability, payload)
    await substrate.do("record_learning", title="They want keys", description="x", source_artifact_id="art_mail")
    await substrate.do("upsert_entity", type="person", display_name="Eve", id="ent_eve")
    await substrate.do("record_learning", title="Our own", description="x")
    mine = {"==": [{"var": "proposed_by_kind"}, "human"]}
    title_template = "{{row.payload.title}}{{row.result.before.display_name}}"
    reading = {
        "condition": {"table": "action_ledger", "where": mine},
        "action_payload_template": {"title": title_template, "description": "x"},
    }
    rule = await substrate.call("rule_create", **{**EVERY_MINUTE, **reading})
    await pass_time(substrate)
    actions = (await substrate.call("actions", source_rule_id=rule["id"]))["actions"]
    assert {each["payload"]["title"]: each["from_strangers"] for each in actions} == {
        "They want keys": True,
        "Send us your keys": True,
        "Our own": False,
    }
