"""Calls that wait for a person while the server is upgraded: they can go on, or are refused before anybody approves."""

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select, update

from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.tables import approvals
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.tools.approvals.conftest import ApprovalsClient, Headers


async def store_as_before(baobab: Baobab, approval_id: str, **values: Any) -> None:
    """Changes the row of a waiting call to what a former version would have stored."""
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(update(approvals).where(approvals.c.id == approval_id).values(**values))


def digest_as_before(caller: dict[str, Any], arguments: dict[str, Any]) -> str:
    return sha256(json.dumps([caller, arguments], sort_keys=True, separators=(",", ":")).encode()).hexdigest()


async def store_as_version_0(
    client: ApprovalsClient, approval_id: str, caller: dict[str, Any], arguments: dict[str, Any]
) -> None:
    """The form of the version of 22 November 2026: only the key, and no arguments as a person reads them."""
    values = {"caller": caller, "fields": None, "tool_version": "of before"}
    digest = digest_as_before(caller, arguments)
    await store_as_before(client.baobab, approval_id, **values, arguments_digest=digest)


@pytest.fixture(params=["key of an account", "key of an app", "key of an app, for a user"])
async def proposing(
    request: pytest.FixtureRequest, approvals_client: ApprovalsClient
) -> tuple[Headers, dict[str, Any]]:
    """The headers of a key that asks, and the caller as version 0 stored it."""
    if request.param == "key of an account":
        return approvals_client.agent, {"key_id": approvals_client.agent_id}
    fields: dict[str, Any] = {"approval": "write", "key_scope": "app", "target_app_id": approvals_client.app}
    headers, key_id = await approvals_client.create_key(**fields)
    if request.param == "key of an app":
        return headers, {"key_id": key_id}
    user_id = "11111111-1111-4111-8111-111111111111"
    rule = {"read": "authed", "write": "authed"}
    path = f"/v1/{approvals_client.app}/kv/_expose/n"
    response = await approvals_client.ask("PUT", path, approvals_client.baobab.owner, rule)
    assert response.status_code == 204, response.text
    return {**headers, "X-Platform-As-User": user_id}, {"key_id": key_id, "user_id": user_id, "role": "user"}


async def test_a_call_that_a_former_version_stored_is_executed_once_and_its_proposer_gets_the_result(
    approvals_client: ApprovalsClient, proposing: tuple[Headers, dict[str, Any]]
) -> None:
    headers, caller = proposing
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter(headers))
    arguments = {"app_id": approvals_client.app, "key": "n", "by": 1}
    await store_as_version_0(approvals_client, approval_id, caller, arguments)
    again = await approvals_client.raise_counter(headers)
    assert await approvals_client.parse_approval_id(again) == approval_id
    assert (await approvals_client.get_approval(approval_id))["preview"].startswith("The counter is not there")
    approval = await approvals_client.approve_and_wait(approval_id)
    assert (approval["status"], approval["title"]) == ("executed", 'Raise the counter "n" by 1')
    assert (await approvals_client.raise_counter(headers)).json() == {"value": 1}
    await approvals_client.expire_lease()
    assert await approvals_client.get_counter() == 1


async def test_a_call_of_a_newer_version_cannot_be_approved_here_but_waits(approvals_client: ApprovalsClient) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    caller = {"version": 99, "who": approvals_client.agent_id}
    await store_as_before(approvals_client.baobab, approval_id, caller=caller)
    answer = await approvals_client.decide(approval_id)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "STORED_CALL_UNREADABLE")
    approval = await approvals_client.get_approval(approval_id)
    assert (approval["approval"]["status"], "Another version" in approval["preview"]) == ("pending", True)
    assert (await approvals_client.decide(approval_id, "reject")).status_code == 200


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"tool": "kv_gone"}, "there is no tool `kv_gone` any more"),
        ({"effect": "external"}, "the effect of `kv_incr` was `external`"),
        ({"arguments": {"key": "n", "steps": 1}}, "`kv_incr` does not take the arguments"),
    ],
)
async def test_a_call_whose_tool_was_changed_by_an_upgrade_is_refused_before_it_is_approved(
    approvals_client: ApprovalsClient, changes: dict[str, Any], reason: str
) -> None:
    approval_id = await approvals_client.parse_approval_id(await approvals_client.raise_counter())
    await outdate(approvals_client.baobab, approval_id, changes)
    answer = await approvals_client.decide(approval_id)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "APPROVAL_OUTDATED")
    assert reason in answer.json()["error"]["message"]
    approval = await approvals_client.get_approval(approval_id)
    assert (approval["approval"]["status"], reason in approval["preview"]) == ("pending", True)
    assert await approvals_client.get_counter() == 0


async def outdate(baobab: Baobab, approval_id: str, changes: dict[str, Any]) -> None:
    if "arguments" in changes:
        seals = service_of(baobab.application.services).texts.seals
        changes = {"arguments": seals.seal(approval_id, "arguments", json.dumps(changes["arguments"]))}
    await store_as_before(baobab, approval_id, tool_version="of before", **changes)


async def test_a_start_refuses_what_no_server_can_make_any_more_and_says_how_much_waits(tmp_path: Path) -> None:
    data, clock = tmp_path / "data", FixedClock()
    async with open_installation(data, clock=clock) as baobab:
        app = await baobab.create_app()
        response = await baobab.client.post(
            "/api-keys", json={"name": "agent", "approval": "write"}, headers=baobab.owner
        )
        agent = {"authorization": f"Bearer {response.json()['key']}"}
        ids = []
        for key in ("stays", "goes"):
            answer = await baobab.client.post(f"/v1/{app}/kv/{key}/incr", json={}, headers=agent)
            ids.append(answer.json()["approval_id"])
        await outdate(baobab, ids[1], {"tool": "kv_gone"})
    async with open_installation(data, clock=clock) as baobab:
        first, second = baobab.application.waiting.describe()
        assert first == "2 calls and 0 runs wait for a person; this version cannot go on with 1 of them:"
        assert second.strip().startswith(f"{ids[1]} (kv_gone): The server was upgraded")
        query = select(approvals.c.id, approvals.c.status, approvals.c.error).order_by(approvals.c.created_at)
        async with baobab.application.services.database.reading() as connection:
            rows = {row.id: row for row in (await connection.execute(query)).all()}
        assert (rows[ids[0]].status, rows[ids[1]].status) == ("pending", "failed")
        assert rows[ids[1]].error["code"] == "APPROVAL_OUTDATED"
    async with open_installation(data, clock=clock) as baobab:
        assert baobab.application.waiting.describe() == [
            "1 call and 0 runs wait for a person; this version can go on with all of them."
        ]
