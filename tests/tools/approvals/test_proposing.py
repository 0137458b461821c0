"""A call above its key's policy is not made: it waits."""

import asyncio
import json
from pathlib import Path

import pytest
from sqlalchemy import select

from baobab.tools.approvals.proposals import MOST_BYTES, MOST_PENDING_OF_ONE
from baobab.tools.approvals.tables import approvals
from tests.backends import read_database
from tests.tools.approvals.conftest import ApprovalsClient


async def test_the_refusal_says_what_waits_where_a_person_decides_and_until_when(
    approvals_client: ApprovalsClient,
) -> None:
    answer = await approvals_client.ask(
        "POST", "/suggestions", body={"category": "improvement", "description": "More of it, please"}
    )
    assert answer.status_code == 428
    error = answer.json()["error"]
    assert error["code"] == "APPROVAL_REQUIRED"
    details = error["details"]
    assert details["status"] == "pending"
    assert details["decide_at"].endswith(f"/approvals/{details['approval_id']}")
    assert 'description: "More of it, please"' in details["summary"]
    assert details["expires_at"] > approvals_client.clock.now().isoformat()


async def test_a_call_that_waits_has_done_nothing(approvals_client: ApprovalsClient) -> None:
    await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    assert await approvals_client.get_counter() == 0


@pytest.mark.parametrize(
    ("policy", "waits"),
    [("none", []), ("destructive", ["delete"]), ("external", ["delete"]), ("write", ["put", "delete"])],
)
async def test_a_policy_says_from_which_effect_on_calls_wait(
    approvals_client: ApprovalsClient, policy: str, waits: list[str]
) -> None:
    agent, _ = await approvals_client.create_key(approval=policy)
    path = f"/v1/{approvals_client.app}/kv/a"
    await approvals_client.ask("PUT", f"{path}b", approvals_client.baobab.owner, {"value": 1})
    answers = {
        "get": await approvals_client.ask("GET", f"{path}/exists", agent),
        "put": await approvals_client.ask("PUT", path, agent, {"value": 1}),
        "delete": await approvals_client.ask("DELETE", f"{path}b", agent),
    }
    assert [name for name, answer in answers.items() if answer.status_code == 428] == waits


@pytest.mark.parametrize("policy", ["destructive", "external", "write"])
async def test_the_key_that_signs_tokens_is_replaced_only_after_a_person_agrees(
    approvals_client: ApprovalsClient, policy: str
) -> None:
    agent, _ = await approvals_client.create_key(approval=policy)
    jwks = f"/auth/{approvals_client.app}/.well-known/jwks.json"
    before = (await approvals_client.ask("GET", jwks, agent)).json()
    answer = await approvals_client.ask("POST", f"/v1/{approvals_client.app}/auth/rotate-keys", agent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (428, "APPROVAL_REQUIRED")
    assert (await approvals_client.ask("GET", jwks, agent)).json() == before


async def test_what_takes_no_credential_is_no_matter_of_the_key_that_comes_with_it(
    approvals_client: ApprovalsClient,
) -> None:
    agent, _ = await approvals_client.create_key(approval="write")
    wrong = await approvals_client.ask("POST", "/platform/refresh", agent, {"refresh_token": "bb_rt_" + "x" * 40})
    assert (wrong.status_code, wrong.json()["error"]["code"]) == (401, "AUTH_INVALID_TOKEN")
    body = {"email": "eve@example.com", "password": "correct Horse 7!", "name": "Eve"}
    assert (await approvals_client.ask("POST", "/platform/signup", agent, body)).status_code == 201
    signed_in = await approvals_client.ask(
        "POST", "/platform/login", agent, {k: body[k] for k in ("email", "password")}
    )
    assert signed_in.status_code == 200, signed_in.text
    body = {"refresh_token": signed_in.json()["refresh_token"]}
    assert (await approvals_client.ask("POST", "/platform/refresh", agent, body)).status_code == 200
    assert (
        await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/a", agent, {"value": 1})
    ).status_code == 428


async def test_a_batch_and_a_lifetime_of_nothing_are_no_way_round_the_policy_for_deletions(
    approvals_client: ApprovalsClient,
) -> None:
    agent, _ = await approvals_client.create_key(approval="destructive")
    store = f"/v1/{approvals_client.app}/kv"
    await approvals_client.ask("PUT", f"{store}/a", approvals_client.baobab.owner, {"value": 1})
    await approvals_client.parse_approval_id(
        await approvals_client.ask("POST", f"{store}/_batch", agent, {"ops": [{"op": "del", "key": "a"}]})
    )
    await approvals_client.parse_approval_id(await approvals_client.ask("POST", f"{store}/a/expire", agent, {"ttl": 0}))
    assert await approvals_client.get_counter("a") == 1


async def test_the_same_call_is_one_proposal_however_often_and_at_once_it_is_made(
    approvals_client: ApprovalsClient,
) -> None:
    answers = await asyncio.gather(*(approvals_client.raise_counter() for _ in range(8)))
    assert len({await approvals_client.parse_approval_id(answer) for answer in answers}) == 1
    # The order of fields means nothing in JSON.
    path = f"/v1/{approvals_client.app}/kv/n/cas"
    one = await approvals_client.ask("POST", path, body={"expected": {"a": 1, "b": 2}, "next": 3})
    other = await approvals_client.ask("POST", path, body={"next": 3, "expected": {"b": 2, "a": 1}})
    assert await approvals_client.parse_approval_id(one) == await approvals_client.parse_approval_id(other)


async def test_other_arguments_another_tool_or_another_key_are_another_proposal(
    approvals_client: ApprovalsClient,
) -> None:
    other, _ = await approvals_client.create_key(approval="write")
    answers = [
        await approvals_client.raise_counter(),
        await approvals_client.raise_counter(step=2),
        await approvals_client.raise_counter(key="m"),
        await approvals_client.ask("POST", f"/v1/{approvals_client.app}/kv/n/decr", body={"by": 1}),
        await approvals_client.raise_counter(other),
    ]
    assert len({await approvals_client.parse_approval_id(answer) for answer in answers}) == len(answers)


async def test_what_a_key_asks_for_one_user_is_not_what_it_asks_for_another(approvals_client: ApprovalsClient) -> None:
    """Else the second user's call would be made as the first user, and answered with the first one's result."""
    rule = {"read": "owner", "write": "owner"}
    await approvals_client.ask(
        "PUT", f"/v1/{approvals_client.app}/kv/_expose/user:{{user.id}}:**", approvals_client.baobab.owner, rule
    )
    backend, _ = await approvals_client.create_key(
        key_scope="app", target_app_id=approvals_client.app, approval="write"
    )
    users = [f"0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e1{n}" for n in (1, 2)]
    path = f"/v1/{approvals_client.app}/kv/user:{users[0]}:n/incr"
    as_user = [{**backend, "x-platform-as-user": user} for user in users]
    mine = await approvals_client.parse_approval_id(await approvals_client.ask("POST", path, as_user[0], {"by": 1}))
    assert (await approvals_client.ask("POST", path, as_user[1], {"by": 1})).status_code == 403
    assert f"for the app's user {users[0]}" in (await approvals_client.get_approval(mine))["approval"]["summary"]
    own = await approvals_client.parse_approval_id(await approvals_client.ask("POST", path, backend, {"by": 1}))
    assert own != mine
    assert (await approvals_client.approve_and_wait(mine))["status"] == "executed"
    assert (await approvals_client.ask("POST", path, backend, {"by": 1})).status_code == 428
    assert (await approvals_client.ask("POST", path, as_user[0], {"by": 1})).json() == {"value": 1}


async def test_an_argument_cannot_pass_for_a_line_of_the_summary(approvals_client: ApprovalsClient) -> None:
    text = "Fine.\nIt changes nothing.\u202e evil"
    answer = await approvals_client.ask("POST", "/suggestions", body={"category": "improvement", "description": text})
    summary = (await approvals_client.get_approval(await approvals_client.parse_approval_id(answer)))["approval"][
        "summary"
    ]
    assert r'description: "Fine.\nIt changes nothing.\u202e evil"' in summary.splitlines()


async def test_the_person_sees_all_of_a_long_argument_and_nobody_does_afterwards(
    approvals_client: ApprovalsClient,
) -> None:
    text = "x" * 5000 + " and delete everything"
    answer = await approvals_client.ask("POST", "/suggestions", body={"category": "improvement", "description": text})
    approval_id = await approvals_client.parse_approval_id(answer)
    detail = await approvals_client.get_approval(approval_id)
    assert detail["arguments"]["description"] == text
    assert detail["proposer_name"] == "agent"
    assert len(detail["approval"]["summary"]) < 1000
    await approvals_client.decide(approval_id, "reject")
    assert (await approvals_client.get_approval(approval_id))["arguments"] is None


async def test_what_is_kept_of_a_proposal_is_sealed(approvals_client: ApprovalsClient) -> None:
    await approvals_client.ask("PUT", f"/v1/{approvals_client.app}/kv/a", body={"value": "x" * 400 + "opensesame"})
    async with approvals_client.baobab.application.services.database.reading() as connection:
        row = (await connection.execute(select(approvals))).mappings().one()
    assert "opensesame" not in json.dumps(dict(row), default=str)


async def test_nothing_larger_waits_than_a_row_should_hold(approvals_client: ApprovalsClient) -> None:
    ops = [{"op": "set", "key": f"k{n}", "value": "x" * 200_000} for n in range(MOST_BYTES // 200_000 + 1)]
    answer = await approvals_client.ask("POST", f"/v1/{approvals_client.app}/kv/_batch", body={"ops": ops})
    assert (answer.status_code, answer.json()["error"]) == (413, "APPROVAL_TOO_LARGE")


async def test_one_key_cannot_fill_the_desk(approvals_client: ApprovalsClient) -> None:
    for number in range(MOST_PENDING_OF_ONE):
        await approvals_client.parse_approval_id(await approvals_client.raise_counter(step=number + 1))
    full = await approvals_client.raise_counter(step=-1)
    assert (full.status_code, full.json()["error"]) == (409, "APPROVALS_TOO_MANY")
    assert await approvals_client.parse_approval_id(await approvals_client.raise_counter(step=1)), (
        "what waits already still answers"
    )
    other, _ = await approvals_client.create_key(approval="write")
    await approvals_client.parse_approval_id(await approvals_client.raise_counter(other))


async def test_a_proposal_is_in_the_audit_log(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    logs = await approvals_client.ask(
        "GET", f"/v1/{approvals_client.app}/audit-logs?event_type=approval.request", approvals_client.baobab.owner
    )
    [log] = logs.json()["logs"]
    assert (log["resource_id"], log["actor_id"], log["event_data"]["tool"]) == (
        approval_id,
        approvals_client.agent_id,
        "kv_incr",
    )


async def test_lists_show_a_key_its_own_and_the_organisations_admins_everything(
    approvals_client: ApprovalsClient,
) -> None:
    other, _ = await approvals_client.create_key(approval="write")
    mine, theirs = [
        await approvals_client.parse_approval_id(await approvals_client.raise_counter(by))
        for by in (approvals_client.agent, other)
    ]

    async def list_pending(by: dict[str, str]) -> list[str]:
        answer = await approvals_client.ask("GET", "/v1/approvals?status=pending", by)
        return [approval["id"] for approval in answer.json()["approvals"]]

    assert await list_pending(approvals_client.agent) == [mine]
    assert await list_pending(other) == [theirs]
    in_it = {**approvals_client.person.headers, "x-organization-id": approvals_client.organisation}
    assert sorted(await list_pending(in_it)) == sorted([mine, theirs])
    assert await list_pending(approvals_client.person.headers) == []
    assert (await approvals_client.ask("GET", f"/v1/approvals/{theirs}", approvals_client.agent)).status_code == 404


async def test_lists_go_on_where_a_page_ends(approvals_client: ApprovalsClient) -> None:
    for step in range(5):
        await approvals_client.parse_approval_id(await approvals_client.raise_counter(step=step))
    approval_ids: list[str] = []
    cursor = ""
    while cursor is not None:
        page = (
            await approvals_client.ask("GET", "/v1/approvals?limit=2" + (f"&cursor={cursor}" if cursor else ""))
        ).json()
        approval_ids += [approval["id"] for approval in page["approvals"]]
        cursor = page["next_cursor"]
    assert len(approval_ids) == len(set(approval_ids)) == 5


async def test_what_is_public_asks_nobody_whatever_credential_was_sent_along(approvals_client: ApprovalsClient) -> None:
    narrow, _ = await approvals_client.create_key(approval="write", toolsets=["kv"])
    answer = await approvals_client.ask("POST", "/platform/refresh", narrow, {"refresh_token": "bb_rt_unknown"})
    assert answer.status_code == 401, answer.text


async def test_what_a_call_says_is_sealed_where_it_is_kept_and_told_as_long_as_its_approval(
    approvals_client: ApprovalsClient, tmp_path: Path
) -> None:
    answer = await approvals_client.ask(
        "PUT", f"/v1/{approvals_client.app}/kv/diary", body={"value": "Dear diary, nobody may read this."}
    )
    approval_id = await approvals_client.parse_approval_id(answer)
    for status in ("pending", "rejected"):
        approval = (await approvals_client.get_approval(approval_id))["approval"]
        assert approval["status"] == status
        assert 'value: "Dear diary, nobody may read this."' in approval["summary"].splitlines()
        assert b"Dear diary" not in read_database(tmp_path / "data")
        await approvals_client.decide(approval_id, "reject")
