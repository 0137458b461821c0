"""What a plan lets a substrate keep: counted exactly, whatever is done and however many do it at once."""

import asyncio
import json
from dataclasses import replace
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest
from sqlalchemy import update

from baobab.tools.core.errors import BaobabError
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.substrate import tables
from tests.jobs import list_unfinished_jobs, run_due_jobs, run_job
from tests.tools.substrate.access_policy import RULE
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

TEXT = "x" * 5000


async def read_used(substrate: Substrate) -> int:
    settings = await substrate.call("settings")
    used_bytes: int = settings["used_bytes"]
    return used_bytes


async def leave_room(substrate: Substrate, monkeypatch: pytest.MonkeyPatch, room: int) -> None:
    """Give the organisation's plan so many bytes more than it uses."""
    limit = await read_used(substrate) + room
    for name, plan in PLANS.items():
        monkeypatch.setitem(PLANS, name, replace(plan, memory_bytes=limit))
    assert (await substrate.call("settings"))["limit_bytes"] == limit


async def learn(substrate: Substrate, title: str) -> str:
    result = await substrate.do("record_learning", title=title, description=TEXT)
    learning_id: str = result["learning_id"]
    return learning_id


async def check(substrate: Substrate) -> None:
    assert await find_faults(substrate.harness.services.database, substrate.owner.organisation_id) == []


async def test_all_that_is_kept_is_counted_and_forgetting_gives_it_back(substrate: Substrate) -> None:
    await substrate.do("upsert_entity", type="person", display_name="Ada", id="ent_ada")
    await substrate.do(
        "upsert_entity", type="person", display_name="Eve", id="ent_eve", attrs={"n": 1.5e300, "é": "東"}
    )
    await substrate.do("merge_entities", loser_id="ent_eve", winner_id="ent_ada", reason="Same.")
    await substrate.do("unmerge_entities", entity_id="ent_eve", reason="Not the same.")
    empty = await read_used(substrate)
    first, second = await learn(substrate, "One"), await learn(substrate, "Two")
    await substrate.do("consolidate_memories", kept_id=first, duplicate_ids=[second], reason="Same.", text="y" * 5000)
    waits = await substrate.propose("place_call", to="Ada", purpose=f"Ask about {first}")
    old = {"old_decision_id": (await substrate.do("record_decision", title="a", kind="vision"))["decision_id"]}
    failing = await substrate.propose("supersede_decision", **old, new_title="b", kind="vision")
    for _ in range(2):
        row = {"table": "learnings", "row": {"id": f"lrn_{1:026}", "title": "file", "description": TEXT}}
        result = await substrate.import_lines(json.dumps(row).encode())
    assert result["result"]["skipped"] == 1
    await substrate.do("supersede_decision", **old, new_title="c", kind="vision")
    assert (await substrate.call("approve", action_id=failing["action_id"]))["status"] == "failed"
    await check(substrate)
    # Two memories twice, as payload and as row, the words that replaced one, and the row before.
    assert await read_used(substrate) - empty > 8 * 5000
    before = await read_used(substrate)
    await substrate.do("forget", ids=[first, f"lrn_{1:026}"], reason="They asked us to.")
    assert (await substrate.call("action", action_id=waits["action_id"]))["status"] == "rejected"
    await check(substrate)
    assert before - await read_used(substrate) > 6 * 5000


async def test_a_full_memory_refuses_and_says_how_to_make_room(
    substrate: Substrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = await substrate.propose("record_learning", title="Old", description=TEXT)
    one, other = [await learn(substrate, title) for title in ("One", "Other")]
    better = {"kept_id": one, "duplicate_ids": [other], "reason": "Same.", "text": TEXT}
    waits = await substrate.propose("consolidate_memories", **better)
    await leave_room(substrate, monkeypatch, 4000)
    row = {"table": "learnings", "row": {"id": f"lrn_{1:026}", "title": "file", "description": TEXT}}
    for write in (
        learn(substrate, "More"),
        substrate.import_lines(json.dumps(row).encode()),
        substrate.call("approve", action_id=waits["action_id"]),
    ):
        with pytest.raises(BaobabError) as refusal:
            await write
        assert (refusal.value.status, refusal.value.code) == (403, "plan_limit_exceeded")
        assert "`forget`" in refusal.value.remediation
    assert (await substrate.call("action", action_id=waits["action_id"]))["status"] == "proposed"
    await substrate.do("revert_action", action_id=old["action_id"])
    await leave_room(substrate, monkeypatch, 0)
    proposal = await substrate.propose("forget", ids=[old["result"]["learning_id"]], reason="No room.")
    await substrate.call("approve", action_id=proposal["action_id"])
    assert (await substrate.call("approve", action_id=waits["action_id"]))["status"] == "executed"
    await check(substrate)


async def test_callers_who_come_at_once_do_not_pass_the_limit_together(
    substrate: Substrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await read_used(substrate)
    await learn(substrate, "first")
    size = await read_used(substrate) - before
    await leave_room(substrate, monkeypatch, 3 * size)
    proposals = [substrate.propose("record_learning", title=f"no. {n}", description=TEXT) for n in range(8)]
    answers: list[Any] = await asyncio.gather(*proposals, return_exceptions=True)
    codes = [answer.code for answer in answers if isinstance(answer, BaobabError)]
    assert codes == ["plan_limit_exceeded"] * 5
    await check(substrate)


async def test_what_a_rule_proposes_into_a_full_memory_is_an_error_of_its_tick(
    substrate: Substrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    await substrate.do("record_decision", title="ship", kind="vision")
    payload = {"title": "{{row.title}}", "description": TEXT}
    rule = await substrate.call(
        "rule_create", **{**RULE, "trigger_cron": "* * * * *", "action_payload_template": payload}
    )
    await leave_room(substrate, monkeypatch, 100)
    substrate.harness.clock.advance(60)
    await run_job(substrate.harness, "substrate_tick")
    await run_due_jobs(substrate.harness)
    (firing,) = (await substrate.call("rule_firings", rule_id=rule["id"]))["firings"]
    assert firing["status"] == "error"
    assert "plan_limit_exceeded" in firing["skip_reason"]


async def test_users_who_sign_up_while_the_memory_is_full_are_mirrored_once_there_is_room(
    substrate: Substrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness, owner = substrate.harness, substrate.owner
    app_id = (await harness.call("apps_init", owner, name="shop"))["app_id"]
    await harness.call("apps_link_substrate", owner, app_id=app_id)
    await harness.call("apps_set_substrate_autopropagate", owner, app_id=app_id, users=True)
    big = await learn(substrate, "big")

    async def tell(event: str, name: str) -> None:
        user = {"id": str(uuid5(NAMESPACE_DNS, name)), "email": f"{name}@example.com", "display_name": name}
        async with harness.services.database.writing_unit() as unit:
            data = {"user": user, "isNewUser": True, "event": event}
            await harness.services.jobs.emit(unit, event, app_id=app_id, data=data, tenant=None)
        await run_due_jobs(harness)

    async def list_people() -> list[Any]:
        return [entity["display_name"] for entity in (await substrate.call("entities", type="person"))["entities"]]

    await leave_room(substrate, monkeypatch, 100)
    await tell("user.authenticated", "Ada")
    await tell("user.authenticated", "Eve")
    await tell("user.deleted", "Eve")
    assert await list_people() == []
    waiting = await list_unfinished_jobs(harness)
    (job,) = [row for row in waiting if row.kind == "substrate_mirror_later"]
    assert job.tenant == owner.organisation_id
    assert "do not fit" in job.error
    await substrate.do("forget", ids=[big], reason="To make room.")
    harness.clock.advance(601)
    await run_due_jobs(harness)
    assert await list_people() == ["Ada"]
    await check(substrate)


async def forget_count(substrate: Substrate) -> None:
    async with substrate.harness.services.database.writing(lock=substrate.owner.organisation_id) as connection:
        await connection.execute(update(tables.settings).values(used_bytes=None))


async def test_the_memory_of_an_earlier_version_is_counted_while_others_write(substrate: Substrate) -> None:
    # More rows than are read at once.
    for number in range(120):
        await substrate.do("record_decision", title=f"no. {number}", kind="vision")
    before = await read_used(substrate)
    await forget_count(substrate)
    await learn(substrate, "before it is counted")
    assert await read_used(substrate) == 0
    counts = [run_job(substrate.harness, "substrate_count_bytes") for _ in range(2)]
    await asyncio.gather(*counts, *(learn(substrate, f"meanwhile {number}") for number in range(10)))
    assert await read_used(substrate) > before + 11 * len(TEXT)
    await check(substrate)
    await learn(substrate, "later")
    await check(substrate)


async def test_little_is_added_to_a_limited_memory_before_it_is_counted(
    substrate: Substrate, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = "x" * 15_000
    # The count that each start begins with.
    await run_due_jobs(substrate.harness)
    await learn(substrate, "before")
    await leave_room(substrate, monkeypatch, 0)
    await forget_count(substrate)
    calls = [substrate.do("record_learning", title=f"no. {n}", description=large) for n in range(50)]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert 0 < sum(isinstance(answer, dict) for answer in answers) < 1024 // 30
    refusal = next(answer for answer in answers if isinstance(answer, BaobabError))
    assert (refusal.code, refusal.remedy) == ("plan_limit_exceeded", "Try again in a minute or two.")
    await run_job(substrate.harness, "substrate_count_bytes")
    with pytest.raises(BaobabError, match="are used"):
        await learn(substrate, "More")
    await check(substrate)
