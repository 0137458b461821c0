"""What was approved is executed once, whatever becomes of those who execute it; or it fails, and says why."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, select, update

from baobab.storage.database import Unit
from baobab.tools.approvals.executor import GOOD_FOR, JOB, MOST_ATTEMPTS, ApprovedCall
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.context import RequestContext
from baobab.tools.core.jobs import JobLost
from tests.jobs import jobs, settled
from tests.people import person
from tests.tools.approvals.conftest import Desk


class Overtaken:
    """The job of an attempt that another has overtaken."""

    async def hold(self, unit: Unit, *, last: bool = False) -> None:
        raise JobLost


async def approved_and_left(desk: Desk, answer: httpx.Response, attempts: int = 1) -> str:
    """A call that was approved, and begun so many times by servers which died."""
    approval_id = await desk.proposed(answer)
    now = desk.clock.now()
    values = {"status": "approved", "decided_at": now, "decided_by": desk.person.id}
    job = {"id": f"approval:{approval_id}", "kind": JOB, "arguments": {"approval_id": approval_id}}
    lease = {"held_by": "the dead", "due_at": now + timedelta(seconds=10), "attempts": attempts, "epoch": attempts}
    async with desk.baobab.house.services.database.writing() as connection:
        await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**values))
        await connection.execute(insert(jobs), {**job, **lease, "created_at": now})
    return approval_id


async def attempted(desk: Desk, approval_id: str) -> None:
    """An attempt that gets as far as its end, and finds there that its row is another's: nothing of it may count."""
    house = desk.baobab.house
    async with house.services.database.reading() as connection:
        row = (await connection.execute(select(approvals).where(approvals.c.id == approval_id))).one()
    caller = await house.services.credentials.caller(desk.agent["authorization"].encode())
    tool, arguments = house.registry.find(row.tool), house.services.approvals.arguments(row)
    overtaken: Any = Overtaken()
    with pytest.raises(JobLost):
        await house.registry.run(
            tool, arguments, caller, RequestContext("test", "t"), approved=ApprovedCall(approval_id, overtaken)
        )


async def test_what_a_dead_server_left_is_executed_by_whoever_looks_next(desk: Desk) -> None:
    approval_id = await approved_and_left(desk, await desk.raise_counter())
    await desk.after_a_lease()
    assert (await desk.settled(approval_id))["status"] == "executed"
    await desk.after_a_lease()
    assert await desk.counter() == 1


async def test_what_another_server_is_at_is_left_to_it_until_its_lease_runs_out(desk: Desk) -> None:
    approval_id = await approved_and_left(desk, await desk.raise_counter())
    desk.clock.advance(9)
    await desk.tend()
    assert (await desk.get(approval_id))["approval"]["status"] == "approved"
    waiting = await desk.raise_counter()
    assert waiting.json()["status"] == "approved", "the call made again meanwhile is told so, and does nothing"
    await desk.after_a_lease()
    assert (await desk.settled(approval_id))["status"] == "executed"
    assert await desk.counter() == 1


async def test_an_attempt_that_wrote_to_the_store_and_was_overtaken_is_not_counted_twice(desk: Desk) -> None:
    approval_id = await approved_and_left(desk, await desk.raise_counter(step=3))
    await attempted(desk, approval_id)
    assert await desk.counter() == 3
    await desk.ask("POST", f"/v1/{desk.app}/kv/n/incr", desk.baobab.owner, {"by": 100})
    await desk.after_a_lease()
    assert (await desk.settled(approval_id))["status"] == "executed"
    assert await desk.counter() == 103
    assert (await desk.raise_counter(step=3)).json() == {"value": 3}, "the answer is that of the write that counted"


async def test_an_attempt_that_was_overtaken_leaves_no_row_behind(desk: Desk) -> None:
    wanted = {"name": "made once", "approval": "write"}
    approval_id = await approved_and_left(desk, await desk.ask("POST", "/api-keys", body=wanted))
    await attempted(desk, approval_id)
    await desk.after_a_lease()
    assert (await desk.settled(approval_id))["status"] == "executed"
    made = (await desk.ask("POST", "/api-keys", body=wanted)).json()
    listed = (await desk.ask("GET", "/api-keys", desk.baobab.owner)).json()["keys"]
    assert [key["id"] for key in listed if key["name"] == "made once"] == [made["key_id"]]


async def test_rows_and_store_come_to_the_same_end_where_a_server_died_between_them(desk: Desk) -> None:
    """The store was emptied, the rules were not yet: the next attempt must not take that for done."""
    store = f"/v1/{desk.app}/kv"
    await desk.ask("PUT", f"{store}/_expose/public:**", desk.baobab.owner, {"read": "public", "write": "deny"})
    for key in "abc":
        await desk.ask("PUT", f"{store}/{key}", desk.baobab.owner, {"value": 1})
    flush = {"confirm": True, "include_config": True}
    approval_id = await approved_and_left(desk, await desk.ask("POST", f"{store}/_flush", body=flush))
    await attempted(desk, approval_id)
    await desk.ask("PUT", f"{store}/later", desk.baobab.owner, {"value": 1})
    await desk.after_a_lease()
    assert (await desk.settled(approval_id))["status"] == "executed"
    assert (await desk.ask("GET", f"{store}/_expose", desk.baobab.owner)).json() == {"rules": []}
    assert (await desk.ask("GET", f"{store}/_scan", desk.baobab.owner)).json()["keys"] == ["later"]
    assert (await desk.ask("POST", f"{store}/_flush", body=flush)).json() == {"deleted": 3}


async def test_a_store_that_does_not_answer_is_asked_again_later(desk: Desk) -> None:
    kv: Any = desk.baobab.house.services.regions["local"].kv
    approval_id = await desk.proposed(await desk.raise_counter())
    await kv.close()
    await desk.decide(approval_id)
    await settled(desk.baobab.house)
    assert (await desk.get(approval_id))["approval"]["status"] == "approved"
    await kv.open()
    await desk.after_a_lease()
    assert (await desk.settled(approval_id))["status"] == "executed"


async def test_a_call_whose_every_attempt_ended_with_its_server_is_given_up(desk: Desk) -> None:
    approval_id = await approved_and_left(desk, await desk.raise_counter(), attempts=MOST_ATTEMPTS)
    await desk.after_a_lease()
    settled = await desk.settled(approval_id)
    assert (settled["status"], settled["error"]["code"]) == ("failed", "APPROVED_CALL_UNFINISHED")
    assert await desk.counter() == 0


async def test_an_approval_that_no_server_was_there_for_is_not_acted_on_days_later(desk: Desk) -> None:
    approval_id = await approved_and_left(desk, await desk.raise_counter(), attempts=0)
    desk.clock.advance(GOOD_FOR.total_seconds() + 1)
    await desk.after_a_lease()
    settled = await desk.settled(approval_id, by=desk.baobab.owner)
    assert "nothing was done" in settled["error"]["message"]
    assert await desk.counter() == 0


async def failed(desk: Desk, approval_id: str) -> str:
    settled = await desk.approved(approval_id)
    assert settled["status"] == "failed"
    code: str = settled["error"]["code"]
    return code


async def test_what_the_tool_refuses_is_told_to_the_call_that_asked_in_the_tools_words(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    # By now it can only fail, which nobody knew when it was proposed.
    await desk.ask("PUT", f"/v1/{desk.app}/kv/n", desk.baobab.owner, {"value": "text"})
    assert await failed(desk, approval_id) == "VALIDATION_INVALID_INPUT"
    answer = await desk.raise_counter()
    assert (answer.status_code, answer.json()["error"]) == (409, "APPROVED_CALL_FAILED")
    assert "integer" in answer.json()["message"]
    assert (await desk.raise_counter()).status_code == 400
    await desk.ask("PUT", f"/v1/{desk.app}/kv/n", desk.baobab.owner, {"value": 1})
    assert await desk.proposed(await desk.raise_counter()) != approval_id


async def test_a_key_that_was_revoked_does_nothing_any_more(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    await desk.ask("DELETE", f"/api-keys/{desk.agent_id}", desk.baobab.owner)
    assert await failed(desk, approval_id) == "AUTH_INVALID_API_KEY"
    assert await desk.counter() == 0


async def test_an_app_that_was_deleted_is_the_reason(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    assert (await desk.ask("DELETE", f"/apps/{desk.app}", desk.baobab.owner)).status_code == 200
    assert await failed(desk, approval_id) == "APP_NOT_FOUND"


async def test_a_member_who_was_removed_acts_no_more_through_a_key(desk: Desk) -> None:
    member = await person(desk.baobab, "mia", role="member")
    theirs, _ = await desk.key(member.headers, approval="write", organization_id=desk.organisation)
    approval_id = await desk.proposed(await desk.raise_counter(theirs))
    removed = await desk.ask(
        "DELETE", f"/v1/organizations/{desk.organisation}/members/{member.id}", desk.person.headers
    )
    assert removed.status_code == 200
    assert await failed(desk, approval_id) == "AUTH_INVALID_API_KEY"
    assert await desk.counter() == 0


async def test_a_key_that_may_less_by_now_is_held_to_that(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    await desk.ask("PATCH", f"/api-keys/{desk.agent_id}", desk.baobab.owner, {"read_only": True})
    assert await failed(desk, approval_id) == "AUTH_KEY_LIMITED"
    assert await desk.counter() == 0


async def test_a_tool_that_has_changed_since_is_not_used(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    async with desk.baobab.house.services.database.writing() as connection:
        await connection.execute(update(approvals).values(tool_version="of yesterday"))
    assert "the tool has changed" in (await desk.get(approval_id))["preview"]
    assert await failed(desk, approval_id) == "RESOURCE_NOT_FOUND"
    assert await desk.counter() == 0


async def test_what_was_executed_is_audited_under_the_proposing_key_and_its_approval(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.ask("PATCH", f"/apps/{desk.app}", body={"name": "renamed"}))
    await desk.approved(approval_id)
    logs = await desk.ask("GET", f"/v1/{desk.app}/audit-logs?event_type=app.rename", desk.baobab.owner)
    [log] = logs.json()["logs"]
    assert (log["actor_id"], log["event_data"]["approval_id"]) == (desk.agent_id, approval_id)
