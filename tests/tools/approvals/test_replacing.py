"""Replacing a value destroys the one before: a key that must ask before it destroys asks before that, too."""

import asyncio
from typing import Any

import pytest

from tests.tools.approvals.conftest import ApprovalsClient


@pytest.fixture
async def careful(approvals_client: ApprovalsClient) -> dict[str, str]:
    """A key whose destructive calls wait."""
    return (await approvals_client.create_key(approval="destructive"))[0]


async def get_value(approvals_client: ApprovalsClient, key: str) -> object:
    response = await approvals_client.ask("GET", f"/v1/{approvals_client.app}/kv/{key}", approvals_client.baobab.owner)
    return response.json().get("value") if response.status_code == 200 else None


async def test_a_put_over_a_value_waits_and_one_in_an_empty_place_does_not(
    approvals_client: ApprovalsClient, careful: dict[str, str]
) -> None:
    path = f"/v1/{approvals_client.app}/kv/precious"
    assert (await approvals_client.ask("PUT", path, careful, {"value": 1})).status_code == 204
    waiting = await approvals_client.ask("PUT", path, careful, {"value": None, "ttl": 1})
    approval_id = await approvals_client.parse_approval_id(waiting)
    assert await get_value(approvals_client, "precious") == 1
    approval = await approvals_client.get_approval(approval_id)
    assert (approval["approval"]["effect"], approval["approval"]["tool"]) == ("destructive", "kv_put")
    assert "destroys or replaces" in approval["approval"]["summary"]
    # Asked again it is the same proposal, also where the value has gone meanwhile.
    await approvals_client.ask("DELETE", path, approvals_client.baobab.owner)
    assert (
        await approvals_client.parse_approval_id(
            await approvals_client.ask("PUT", path, careful, {"value": None, "ttl": 1})
        )
        == approval_id
    )
    assert await get_value(approvals_client, "precious") is None


async def test_an_approved_put_is_made_once_and_its_outcome_told(
    approvals_client: ApprovalsClient, careful: dict[str, str]
) -> None:
    path, body = f"/v1/{approvals_client.app}/kv/k", {"value": 2}
    await approvals_client.ask("PUT", path, approvals_client.baobab.owner, {"value": 1})
    approval_id = await approvals_client.parse_approval_id(await approvals_client.ask("PUT", path, careful, body))
    await approvals_client.approve_and_wait(approval_id)
    assert (await approvals_client.ask("PUT", path, careful, body)).status_code == 204
    assert await get_value(approvals_client, "k") == 2


@pytest.mark.parametrize(
    ("before", "expected_value", "answer"),
    [
        (None, None, 200),
        (1, 2, 200),
        (1, 1, 428),
        (1, None, 200),
    ],
)
async def test_a_swap_waits_where_it_would_replace_a_value(
    approvals_client: ApprovalsClient,
    careful: dict[str, str],
    before: int | None,
    expected_value: int | None,
    answer: int,
) -> None:
    path = f"/v1/{approvals_client.app}/kv/k"
    if before is not None:
        await approvals_client.ask("PUT", path, approvals_client.baobab.owner, {"value": before})
    response = await approvals_client.ask("POST", f"{path}/cas", careful, {"expected": expected_value, "next": 9})
    assert response.status_code == answer, response.text
    assert await get_value(approvals_client, "k") == (9 if before is None else before)


async def test_of_many_puts_at_once_into_an_empty_place_one_is_made_and_the_others_wait(
    approvals_client: ApprovalsClient, careful: dict[str, str]
) -> None:
    path = f"/v1/{approvals_client.app}/kv/contested"
    puts = [approvals_client.ask("PUT", path, careful, {"value": number}) for number in range(10)]
    status_codes = sorted(answer.status_code for answer in await asyncio.gather(*puts))
    assert status_codes == [204, *[428] * 9]


@pytest.mark.parametrize("limits", [{"approval": "destructive"}, {"approval": "external"}, {"toolsets": ["agents"]}])
async def test_a_key_with_limits_cannot_take_the_guards_away(
    approvals_client: ApprovalsClient, limits: dict[str, Any]
) -> None:
    acl = {"x": {"mode": "read_only"}}
    spec: dict[str, Any] = {"spec_version": 1, "entry": "done", "nodes": {"done": {"type": "end"}}, "edges": []}
    response = await approvals_client.ask(
        "POST",
        f"/v1/{approvals_client.app}/agents",
        approvals_client.baobab.owner,
        {"name": "helper", "graph_spec": spec},
    )
    assert response.status_code == 201, response.text
    ref = {"source": "builtin", "name": "interrupt"}
    ask = {
        "type": "tool",
        "tool_ref": ref,
        "args_template": {"reason": "?"},
        "approvers": {"persons": 2, "of": "member"},
    }
    nodes = {**spec["nodes"], "ask": ask}
    asking = {**spec, "entry": "ask", "nodes": nodes, "edges": [{"from": "ask", "to": "done"}]}
    asking["tools"] = {"builtin": ["interrupt"]}
    body: Any = {"name": "asker", "graph_spec": asking}
    response = await approvals_client.ask(
        "POST", f"/v1/{approvals_client.app}/agents", approvals_client.baobab.owner, body
    )
    assert response.status_code == 201, response.text
    key_headers, _ = await approvals_client.create_key(
        **{**limits, "toolsets": ["agents", "config", "kv", "model_servers", "ai"]}
    )
    for method, path, body in (
        ("PATCH", "agents/helper", {"taint_checks": False}),
        ("PATCH", "agents/helper", {"visibility": "authenticated"}),
        ("PATCH", "agents/helper", {"visibility": "public", "safety_acknowledged": True}),
        ("POST", "agents", {"name": "other", "graph_spec": spec, "visibility": "authenticated"}),
        ("PATCH", "agents/helper", {"approvers": "starter"}),
        ("PATCH", "agents/helper", {"approvers": None}),
        ("PATCH", "agents/helper", {"graph_spec": asking}),
        ("PATCH", "agents/asker", {"graph_spec": spec}),
        ("POST", "agents", {"name": "other", "graph_spec": spec, "approvers": {"role": "customer"}}),
        ("POST", "agents", {"name": "other", "graph_spec": asking}),
        ("PATCH", "config/cors", {"allowed_origins": ["https://evil.example"]}),
        ("PATCH", "config/access-mode", {"access_mode": "public"}),
        ("PATCH", "config/visibility", {"visibility": "public"}),
        ("PUT", "ai/config", {"byokKey": "sk-proj-SUPERSECRET0123456789"}),
        ("POST", "mcp-servers", {"name": "s", "url": "https://m.example/mcp", "auth_header": "Bearer SUPERSECRET"}),
        ("POST", "mcp-servers", {"name": "s", "url": "https://m.example/mcp", "tool_acl": acl}),
        ("DELETE", "kv/_expose/denied:*", None),
    ):
        refusal = await approvals_client.ask(method, f"/v1/{approvals_client.app}/{path}", key_headers, body)
        assert refusal.status_code == 403, (path, refusal.text)
        assert "AUTH_KEY_LIMITED" in refusal.text, (path, refusal.text)
        assert "SUPERSECRET" not in refusal.text
    # What takes nothing away it may still do.
    narrowed_response = await approvals_client.ask(
        "PATCH", f"/v1/{approvals_client.app}/config/access-mode", key_headers, {"access_mode": "authenticated"}
    )
    assert narrowed_response.status_code == 200, narrowed_response.text
    assert (
        await approvals_client.ask(
            "PATCH", f"/v1/{approvals_client.app}/agents/helper", key_headers, {"taint_checks": True}
        )
    ).status_code == 200
    stricter = {"name": "other", "graph_spec": spec, "approvers": "admin"}
    assert (
        await approvals_client.ask("POST", f"/v1/{approvals_client.app}/agents", key_headers, stricter)
    ).status_code == 201
