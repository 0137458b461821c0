"""An approved call is executed once, whatever happens to the executing process, or it fails with a reason."""

import json
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import insert, select, update

from baobab.storage.sql.database import Unit
from baobab.tools.approvals.executor import GOOD_FOR, JOB, MOST_ATTEMPTS, ApprovedCall
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import approvals
from baobab.tools.core.context import RequestContext
from baobab.tools.core.jobs import JobLost
from tests.jobs import jobs, run_due_jobs
from tests.people import create_person
from tests.tools.approvals.conftest import ApprovalsClient


class OvertakenJob:
    """The job of an attempt that another has overtaken."""

    async def hold(self, unit: Unit, *, last: bool = False) -> None:
        raise JobLost


async def approve_and_abandon(approvals_client: ApprovalsClient, answer: httpx.Response, attempts: int = 1) -> str:
    """A call that was approved, and begun so many times by servers which died."""
    approval_id = await approvals_client.parse_approval_id(answer)
    now = approvals_client.clock.now()
    values = {"status": "approved", "decided_at": now, "decided_by": approvals_client.person.id}
    job = {"id": f"approval:{approval_id}", "kind": JOB, "arguments": {"approval_id": approval_id}}
    lease = {"held_by": "the dead", "due_at": now + timedelta(seconds=10), "attempts": attempts, "epoch": attempts}
    async with approvals_client.baobab.application.services.database.writing() as connection:
        await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**values))
        await connection.execute(insert(jobs), {**job, **lease, "created_at": now})
    return approval_id


async def attempt_call(approvals_client: ApprovalsClient, approval_id: str) -> None:
    """An attempt that gets as far as its end, and finds there that its row is another's: nothing of it may count."""
    application = approvals_client.baobab.application
    async with application.services.database.reading() as connection:
        row = (await connection.execute(select(approvals).where(approvals.c.id == approval_id))).one()
    caller = await application.services.credentials.caller(approvals_client.agent["authorization"].encode())
    tool, arguments = application.registry.find(row.tool), application.services.approvals.arguments(row)
    overtaken: Any = OvertakenJob()
    attempt = ApprovedCall(approval_id, overtaken, service_of(application.services).texts.seals)
    with pytest.raises(JobLost):
        await application.registry.run(tool, arguments, caller, RequestContext("test", "t"), approved_attempt=attempt)


async def test_what_a_dead_server_left_is_executed_by_whoever_looks_next(approvals_client: ApprovalsClient) -> None:
    approval_id = await approve_and_abandon(approvals_client, await approvals_client.raise_counter())
    await approvals_client.expire_lease()
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"
    await approvals_client.expire_lease()
    assert await approvals_client.get_counter() == 1


async def test_what_another_server_is_at_is_left_to_it_until_its_lease_runs_out(
    approvals_client: ApprovalsClient,
) -> None:
    approval_id = await approve_and_abandon(approvals_client, await approvals_client.raise_counter())
    approvals_client.clock.advance(9)
    await approvals_client.run_maintenance()
    assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "approved"
    waiting = await approvals_client.raise_counter()
    assert waiting.json()["status"] == "approved", "the call made again meanwhile is told so, and does nothing"
    await approvals_client.expire_lease()
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"
    assert await approvals_client.get_counter() == 1


async def test_an_attempt_that_wrote_to_the_store_and_was_overtaken_is_not_counted_twice(
    approvals_client: ApprovalsClient,
) -> None:
    approval_id = await approve_and_abandon(approvals_client, await approvals_client.raise_counter(step=3))
    await attempt_call(approvals_client, approval_id)
    assert await approvals_client.get_counter() == 3
    await approvals_client.ask(
        "POST", f"/v1/{approvals_client.app}/kv/n/incr", approvals_client.baobab.owner, {"by": 100}
    )
    await approvals_client.expire_lease()
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"
    assert await approvals_client.get_counter() == 103
    assert (await approvals_client.raise_counter(step=3)).json() == {"value": 3}, (
        "the answer is that of the write that counted"
    )


async def test_an_attempt_that_was_overtaken_leaves_no_row_behind(approvals_client: ApprovalsClient) -> None:
    key_fields = {"name": "made once", "approval": "write"}
    approval_id = await approve_and_abandon(
        approvals_client, await approvals_client.ask("POST", "/api-keys", body=key_fields)
    )
    await attempt_call(approvals_client, approval_id)
    await approvals_client.expire_lease()
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"
    body = (await approvals_client.ask("POST", "/api-keys", body=key_fields)).json()
    keys = (await approvals_client.ask("GET", "/api-keys", approvals_client.baobab.owner)).json()["keys"]
    assert [key["id"] for key in keys if key["name"] == "made once"] == [body["key_id"]]


async def test_rows_and_store_come_to_the_same_end_where_a_server_died_between_them(
    approvals_client: ApprovalsClient,
) -> None:
    """The store was emptied, the rules were not yet: the next attempt must not take that for done."""
    store = f"/v1/{approvals_client.app}/kv"
    await approvals_client.ask(
        "PUT", f"{store}/_expose/public:**", approvals_client.baobab.owner, {"read": "public", "write": "deny"}
    )
    for key in "abc":
        await approvals_client.ask("PUT", f"{store}/{key}", approvals_client.baobab.owner, {"value": 1})
    flush = {"confirm": True, "include_config": True}
    approval_id = await approve_and_abandon(
        approvals_client, await approvals_client.ask("POST", f"{store}/_flush", body=flush)
    )
    await attempt_call(approvals_client, approval_id)
    await approvals_client.ask("PUT", f"{store}/later", approvals_client.baobab.owner, {"value": 1})
    await approvals_client.expire_lease()
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"
    assert (await approvals_client.ask("GET", f"{store}/_expose", approvals_client.baobab.owner)).json() == {
        "rules": []
    }
    assert (await approvals_client.ask("GET", f"{store}/_scan", approvals_client.baobab.owner)).json()["keys"] == [
        "later"
    ]
    assert (await approvals_client.ask("POST", f"{store}/_flush", body=flush)).json() == {"deleted": 3}


async def test_a_store_that_does_not_answer_is_asked_again_later(approvals_client: ApprovalsClient) -> None:
    kv: Any = approvals_client.baobab.application.services.regions["local"].kv
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await kv.close()
    await approvals_client.decide(approval_id)
    await run_due_jobs(approvals_client.baobab.application)
    assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "approved"
    await kv.open()
    await approvals_client.expire_lease()
    assert (await approvals_client.wait_for_outcome(approval_id))["status"] == "executed"


async def test_a_call_whose_every_attempt_ended_with_its_server_is_given_up(approvals_client: ApprovalsClient) -> None:
    approval_id = await approve_and_abandon(
        approvals_client, await approvals_client.raise_counter(), attempts=MOST_ATTEMPTS
    )
    await approvals_client.expire_lease()
    outcome = await approvals_client.wait_for_outcome(approval_id)
    assert (outcome["status"], outcome["error"]["code"]) == ("failed", "APPROVED_CALL_UNFINISHED")
    assert await approvals_client.get_counter() == 0


async def test_an_approval_that_no_server_was_there_for_is_not_acted_on_days_later(
    approvals_client: ApprovalsClient,
) -> None:
    approval_id = await approve_and_abandon(approvals_client, await approvals_client.raise_counter(), attempts=0)
    approvals_client.clock.advance(GOOD_FOR.total_seconds() + 1)
    await approvals_client.expire_lease()
    outcome = await approvals_client.wait_for_outcome(approval_id, by=approvals_client.baobab.owner)
    assert "nothing was done" in outcome["error"]["message"]
    assert await approvals_client.get_counter() == 0


async def get_failure_code(approvals_client: ApprovalsClient, approval_id: str) -> str:
    """The code of the error with which a call fails that is approved although it would fail."""
    refusal = await approvals_client.decide(approval_id)
    assert refusal.status_code == 409
    error = refusal.json()["error"]
    assert error["code"] == "APPROVAL_WOULD_FAIL"
    assert "even_if_failing" in error["remediation"]
    assert (await approvals_client.get_approval(approval_id))["approval"]["status"] == "pending"
    outcome = await approvals_client.approve_and_wait(approval_id, even_if_failing=True)
    assert outcome["status"] == "failed"
    code: str = outcome["error"]["code"]
    assert code == error["details"]["code"]
    return code


async def test_what_the_tool_refuses_is_told_to_the_call_that_asked_in_the_tools_words(
    approvals_client: ApprovalsClient,
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    # By now it can only fail, which nobody knew when it was proposed.
    await approvals_client.ask(
        "PUT", f"/v1/{approvals_client.app}/kv/n", approvals_client.baobab.owner, {"value": "text"}
    )
    assert await get_failure_code(approvals_client, approval_id) == "VALIDATION_INVALID_INPUT"
    answer = await approvals_client.raise_counter()
    assert (answer.status_code, answer.json()["error"]) == (409, "APPROVED_CALL_FAILED")
    assert "integer" in answer.json()["message"]
    assert (await approvals_client.raise_counter()).status_code == 400
    await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/n", approvals_client.baobab.owner, {"value": 1})
    assert await approvals_client.parse_approval_id(await approvals_client.raise_counter()) != approval_id


async def test_a_key_that_was_revoked_does_nothing_any_more(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await approvals_client.ask("DELETE", f"/api-keys/{approvals_client.agent_id}", approvals_client.baobab.owner)
    assert await get_failure_code(approvals_client, approval_id) == "AUTH_INVALID_API_KEY"
    assert await approvals_client.get_counter() == 0


async def test_an_app_that_was_deleted_is_the_reason(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    assert (
        await approvals_client.ask("DELETE", f"/apps/{approvals_client.app}", approvals_client.baobab.owner)
    ).status_code == 200
    assert await get_failure_code(approvals_client, approval_id) == "APP_NOT_FOUND"


async def test_a_member_who_was_removed_acts_no_more_through_a_key(approvals_client: ApprovalsClient) -> None:
    member = await create_person(approvals_client.baobab, "mia", role="member")
    theirs, _ = await approvals_client.create_key(
        member.headers, approval="write", organization_id=approvals_client.organisation
    )
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter(theirs))
    response = await approvals_client.ask(
        "DELETE",
        f"/v1/organizations/{approvals_client.organisation}/members/{member.id}",
        approvals_client.person.headers,
    )
    assert response.status_code == 200
    assert await get_failure_code(approvals_client, approval_id) == "AUTH_INVALID_API_KEY"
    assert await approvals_client.get_counter() == 0


async def test_a_key_that_may_less_by_now_is_held_to_that(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await approvals_client.ask(
        "PATCH", f"/api-keys/{approvals_client.agent_id}", approvals_client.baobab.owner, {"read_only": True}
    )
    assert await get_failure_code(approvals_client, approval_id) == "AUTH_KEY_LIMITED"
    assert await approvals_client.get_counter() == 0


async def test_what_was_executed_is_audited_under_the_proposing_key_and_its_approval(
    approvals_client: ApprovalsClient,
) -> None:
    approval_id = await approvals_client.parse_approval_id(
        await approvals_client.ask("PATCH", f"/apps/{approvals_client.app}", body={"name": "renamed"})
    )
    await approvals_client.approve_and_wait(approval_id, even_if_failing=True)
    logs = await approvals_client.ask(
        "GET", f"/v1/{approvals_client.app}/audit-logs?event_type=app.rename", approvals_client.baobab.owner
    )
    [log] = logs.json()["logs"]
    assert (log["actor_id"], log["event_data"]["approval_id"]) == (approvals_client.agent_id, approval_id)


async def test_what_an_approved_call_left_out_is_told_to_whoever_asked_and_to_whoever_decided(
    approvals_client: ApprovalsClient,
) -> None:
    owner, app = approvals_client.baobab.owner, f"/v1/{approvals_client.app}"
    columns = {"id": {"type": "serial", "primaryKey": True}, "title": "text"}
    schema = {"schema": {"tables": {"todos": {"columns": columns}}}}
    assert (await approvals_client.ask("POST", f"{app}/schema/apply", owner, schema)).status_code == 200
    call: tuple[str, str, None, dict[str, Any]] = ("POST", f"{app}/todos", None, {"title": "a", "titel": "b"})
    approval_id = await approvals_client.parse_approval_id(await approvals_client.ask(*call))
    approval = await approvals_client.approve_and_wait(approval_id)
    warning = "`todos` has no column `titel`, so what you sent for it was left out. Did you mean `title`?"
    assert (approval["status"], approval["warnings"]) == ("executed", [warning])
    outcome = await approvals_client.ask(*call)
    assert (outcome.status_code, json.loads(outcome.headers["x-baobab-warnings"])) == (201, [warning])
    without_mistake = await approvals_client.ask("POST", f"{app}/todos", body={"title": "a"})
    approval = await approvals_client.approve_and_wait(await approvals_client.parse_approval_id(without_mistake))
    assert approval["warnings"] == []
