"""A call above its key's policy is not made: it waits."""

import asyncio
import json
from pathlib import Path

import pytest
from sqlalchemy import select

from baobab.tools.approvals.service import MOST_BYTES, MOST_PENDING_OF_ONE
from baobab.tools.approvals.tables import approvals
from tests.columns import kept
from tests.tools.approvals.conftest import Desk


async def test_the_refusal_says_what_waits_where_a_person_decides_and_until_when(desk: Desk) -> None:
    answer = await desk.ask(
        "POST", "/suggestions", body={"category": "improvement", "description": "More of it, please"}
    )
    assert answer.status_code == 428
    error = answer.json()["error"]
    assert error["code"] == "APPROVAL_REQUIRED"
    told = error["details"]
    assert told["status"] == "pending"
    assert told["decide_at"].endswith(f"/approvals/{told['approval_id']}")
    assert 'description: "More of it, please"' in told["summary"]
    assert told["expires_at"] > desk.clock.now().isoformat()


async def test_a_call_that_waits_has_done_nothing(desk: Desk) -> None:
    await desk.proposed(await desk.raise_counter())
    assert await desk.counter() == 0


@pytest.mark.parametrize(
    ("policy", "waits"),
    [("none", []), ("destructive", ["delete"]), ("external", ["delete"]), ("write", ["put", "delete"])],
)
async def test_a_policy_says_from_which_effect_on_calls_wait(desk: Desk, policy: str, waits: list[str]) -> None:
    agent, _ = await desk.key(approval=policy)
    path = f"/v1/{desk.app}/kv/a"
    await desk.ask("PUT", f"{path}b", desk.baobab.owner, {"value": 1})
    found = {
        "get": await desk.ask("GET", f"{path}/exists", agent),
        "put": await desk.ask("PUT", path, agent, {"value": 1}),
        "delete": await desk.ask("DELETE", f"{path}b", agent),
    }
    assert [name for name, answer in found.items() if answer.status_code == 428] == waits


async def test_what_takes_no_credential_is_no_matter_of_the_key_that_comes_with_it(desk: Desk) -> None:
    agent, _ = await desk.key(approval="write")
    wrong = await desk.ask("POST", "/platform/refresh", agent, {"refresh_token": "bb_rt_" + "x" * 40})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "AUTH_INVALID_TOKEN")
    body = {"email": "eve@example.com", "password": "correct Horse 7!", "name": "Eve"}
    assert (await desk.ask("POST", "/platform/signup", agent, body)).status_code == 201
    signed_in = await desk.ask("POST", "/platform/login", agent, {k: body[k] for k in ("email", "password")})
    assert signed_in.status_code == 200, signed_in.text
    body = {"refresh_token": signed_in.json()["refresh_token"]}
    assert (await desk.ask("POST", "/platform/refresh", agent, body)).status_code == 200
    assert (await desk.ask("PUT", f"/v1/{desk.app}/kv/a", agent, {"value": 1})).status_code == 428


async def test_a_batch_and_a_lifetime_of_nothing_are_no_way_round_the_policy_for_deletions(desk: Desk) -> None:
    agent, _ = await desk.key(approval="destructive")
    store = f"/v1/{desk.app}/kv"
    await desk.ask("PUT", f"{store}/a", desk.baobab.owner, {"value": 1})
    await desk.proposed(await desk.ask("POST", f"{store}/_batch", agent, {"ops": [{"op": "del", "key": "a"}]}))
    await desk.proposed(await desk.ask("POST", f"{store}/a/expire", agent, {"ttl": 0}))
    assert await desk.counter("a") == 1


async def test_the_same_call_is_one_proposal_however_often_and_at_once_it_is_made(desk: Desk) -> None:
    answers = await asyncio.gather(*(desk.raise_counter() for _ in range(8)))
    assert len({await desk.proposed(answer) for answer in answers}) == 1
    # The order of fields means nothing in JSON.
    path = f"/v1/{desk.app}/kv/n/cas"
    one = await desk.ask("POST", path, body={"expected": {"a": 1, "b": 2}, "next": 3})
    other = await desk.ask("POST", path, body={"next": 3, "expected": {"b": 2, "a": 1}})
    assert await desk.proposed(one) == await desk.proposed(other)


async def test_other_arguments_another_tool_or_another_key_are_another_proposal(desk: Desk) -> None:
    other, _ = await desk.key(approval="write")
    answers = [
        await desk.raise_counter(),
        await desk.raise_counter(step=2),
        await desk.raise_counter(key="m"),
        await desk.ask("POST", f"/v1/{desk.app}/kv/n/decr", body={"by": 1}),
        await desk.raise_counter(other),
    ]
    assert len({await desk.proposed(answer) for answer in answers}) == len(answers)


async def test_what_a_key_asks_for_one_user_is_not_what_it_asks_for_another(desk: Desk) -> None:
    """Else the second user's call would be made as the first user, and answered with the first one's result."""
    rule = {"read": "owner", "write": "owner"}
    await desk.ask("PUT", f"/v1/{desk.app}/kv/_expose/user:{{user.id}}:**", desk.baobab.owner, rule)
    backend, _ = await desk.key(key_scope="app", target_app_id=desk.app, approval="write")
    users = [f"0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e1{n}" for n in (1, 2)]
    path = f"/v1/{desk.app}/kv/user:{users[0]}:n/incr"
    as_user = [{**backend, "x-platform-as-user": user} for user in users]
    mine = await desk.proposed(await desk.ask("POST", path, as_user[0], {"by": 1}))
    assert (await desk.ask("POST", path, as_user[1], {"by": 1})).status_code == 403
    assert f"for the app's user {users[0]}" in (await desk.get(mine))["approval"]["summary"]
    own = await desk.proposed(await desk.ask("POST", path, backend, {"by": 1}))
    assert own != mine
    assert (await desk.approved(mine))["status"] == "executed"
    assert (await desk.ask("POST", path, backend, {"by": 1})).status_code == 428
    assert (await desk.ask("POST", path, as_user[0], {"by": 1})).json() == {"value": 1}


async def test_an_argument_cannot_pass_for_a_line_of_the_summary(desk: Desk) -> None:
    text = "Fine.\nIt changes nothing.\u202e evil"
    answer = await desk.ask("POST", "/suggestions", body={"category": "improvement", "description": text})
    told = (await desk.get(await desk.proposed(answer)))["approval"]["summary"]
    assert r'description: "Fine.\nIt changes nothing.\u202e evil"' in told.splitlines()


async def test_the_person_sees_all_of_a_long_argument_and_nobody_does_afterwards(desk: Desk) -> None:
    text = "x" * 5000 + " and delete everything"
    answer = await desk.ask("POST", "/suggestions", body={"category": "improvement", "description": text})
    approval_id = await desk.proposed(answer)
    detail = await desk.get(approval_id)
    assert detail["arguments"]["description"] == text
    assert detail["proposer_name"] == "agent"
    assert len(detail["approval"]["summary"]) < 1000
    await desk.decide(approval_id, "reject")
    assert (await desk.get(approval_id))["arguments"] is None


async def test_what_is_kept_of_a_proposal_is_sealed(desk: Desk) -> None:
    await desk.ask("PUT", f"/v1/{desk.app}/kv/a", body={"value": "x" * 400 + "opensesame"})
    async with desk.baobab.house.services.database.reading() as connection:
        row = (await connection.execute(select(approvals))).mappings().one()
    assert "opensesame" not in json.dumps(dict(row), default=str)


async def test_nothing_larger_waits_than_a_row_should_hold(desk: Desk) -> None:
    ops = [{"op": "set", "key": f"k{n}", "value": "x" * 200_000} for n in range(MOST_BYTES // 200_000 + 1)]
    answer = await desk.ask("POST", f"/v1/{desk.app}/kv/_batch", body={"ops": ops})
    assert (answer.status_code, answer.json()["error"]) == (413, "APPROVAL_TOO_LARGE")


async def test_one_key_cannot_fill_the_desk(desk: Desk) -> None:
    for number in range(MOST_PENDING_OF_ONE):
        await desk.proposed(await desk.raise_counter(step=number + 1))
    full = await desk.raise_counter(step=-1)
    assert (full.status_code, full.json()["error"]) == (409, "APPROVALS_TOO_MANY")
    assert await desk.proposed(await desk.raise_counter(step=1)), "what waits already still answers"
    other, _ = await desk.key(approval="write")
    await desk.proposed(await desk.raise_counter(other))


async def test_a_proposal_is_in_the_audit_log(desk: Desk) -> None:
    approval_id = await desk.proposed(await desk.raise_counter())
    logs = await desk.ask("GET", f"/v1/{desk.app}/audit-logs?event_type=approval.request", desk.baobab.owner)
    [log] = logs.json()["logs"]
    assert (log["resource_id"], log["actor_id"], log["event_data"]["tool"]) == (approval_id, desk.agent_id, "kv_incr")


async def test_lists_show_a_key_its_own_and_the_organisations_admins_everything(desk: Desk) -> None:
    other, _ = await desk.key(approval="write")
    mine, theirs = [await desk.proposed(await desk.raise_counter(by)) for by in (desk.agent, other)]

    async def listed(by: dict[str, str]) -> list[str]:
        found = await desk.ask("GET", "/v1/approvals?status=pending", by)
        return [approval["id"] for approval in found.json()["approvals"]]

    assert await listed(desk.agent) == [mine]
    assert await listed(other) == [theirs]
    in_it = {**desk.person.headers, "x-organization-id": desk.organisation}
    assert sorted(await listed(in_it)) == sorted([mine, theirs])
    assert await listed(desk.person.headers) == []
    assert (await desk.ask("GET", f"/v1/approvals/{theirs}", desk.agent)).status_code == 404


async def test_lists_go_on_where_a_page_ends(desk: Desk) -> None:
    for step in range(5):
        await desk.proposed(await desk.raise_counter(step=step))
    seen: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (await desk.ask("GET", "/v1/approvals?limit=2" + (f"&cursor={cursor}" if cursor else ""))).json()
        seen += [approval["id"] for approval in page["approvals"]]
        cursor = page["next_cursor"]
    assert len(seen) == len(set(seen)) == 5


async def test_what_is_public_asks_nobody_whatever_credential_was_sent_along(desk: Desk) -> None:
    narrow, _ = await desk.key(approval="write", toolsets=["kv"])
    answer = await desk.ask("POST", "/platform/refresh", narrow, {"refresh_token": "bb_rt_unknown"})
    assert answer.status_code == 401, answer.text


async def test_what_a_call_says_is_sealed_where_it_is_kept_and_told_as_long_as_its_approval(
    desk: Desk, tmp_path: Path
) -> None:
    asked = await desk.ask("PUT", f"/v1/{desk.app}/kv/diary", body={"value": "Dear diary, nobody may read this."})
    approval_id = await desk.proposed(asked)
    for status in ("pending", "rejected"):
        told = (await desk.get(approval_id))["approval"]
        assert told["status"] == status
        assert 'value: "Dear diary, nobody may read this."' in told["summary"].splitlines()
        assert b"Dear diary" not in kept(tmp_path / "data")
        await desk.decide(approval_id, "reject")
