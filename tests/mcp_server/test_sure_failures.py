"""What can only fail is refused at once over MCP, and not put before a person first."""

from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import ERAS, call_tool, read_refusal

pytestmark = pytest.mark.own_installation

RUN = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"

NEEDS_NONE = {"oauth_programs_revoke", "users_rotate_keys"}
"""Destructive tools without a preview: no key may call the first, and the second fails for no app that there is."""

HOPELESS: list[tuple[str, dict[str, Any], str]] = [
    ("agents_delete", {"name": "nobody"}, "agent_not_found"),
    ("agents_update", {"name": "nobody", "display_name": "x"}, "agent_not_found"),
    ("agents_create", {"name": "new", "graph_spec": {"spec_version": 1}}, "invalid_graph_spec"),
    ("agents_runs_delete", {"name": "nobody", "id": RUN}, "run_not_found"),
    ("agents_runs_cancel", {"name": "nobody", "id": RUN}, "run_not_found"),
    ("agents_runs_fork", {"name": "nobody", "id": RUN}, "run_not_found"),
    ("people_erase", {"networkProfileUrl": "nothing"}, "VALIDATION_INVALID_INPUT"),
    ("agents_threads_delete", {"name": "nobody", "thread_id": "t"}, "agent_not_found"),
    ("mcp_servers_delete", {"id": RUN}, "tool_server_not_found"),
    ("mcp_servers_probe", {"id": RUN}, "tool_server_not_found"),
    ("agents_runs_webhook", {"name": "nobody", "id": RUN}, "run_not_found"),
    ("ai_chat", {"model": "openai/none", "messages": [{"role": "user", "content": "Hi"}]}, "model_not_found"),
    ("ai_embeddings", {"model": "openai/none", "input": "Hi"}, "model_not_found"),
    ("images_generate", {"model": "openai/none", "prompt": "A tree"}, "model_not_found"),
    ("videos_generate", {"model": "openai/none", "prompt": "A tree"}, "model_not_found"),
    ("moves_start", {"dest_region": "nowhere"}, "ineligible"),
    ("moves_reverse", {"migration_id": RUN}, "RESOURCE_NOT_FOUND"),
    ("moves_abort", {"migration_id": RUN}, "RESOURCE_NOT_FOUND"),
    ("kv_flush", {}, "CONFIRM_REQUIRED"),
    ("triggers_delete", {"name": "nothing"}, "TRIGGER_NOT_FOUND"),
    ("users_delete", {"user_id": RUN}, "RESOURCE_NOT_FOUND"),
    ("users_providers_delete", {"provider": "google"}, "RESOURCE_NOT_FOUND"),
]
HOPELESS_ELSEWHERE: list[tuple[str, dict[str, Any], str]] = [
    ("gateway_response_delete", {"response_id": "resp_0123456789abcdef01234567"}, "RESPONSE_NOT_FOUND"),
    ("model_servers_delete", {"name": "mine"}, "NOT_FOUND"),
    ("gateway_responses", {"model": "openai/none", "input": "Hi"}, "MODEL_NOT_FOUND"),
    ("model_servers_update", {"name": "mine", "url": "https://models.example.com/v1"}, "NOT_FOUND"),
    ("model_servers_probe", {"name": "mine"}, "NOT_FOUND"),
    ("provider_keys_delete", {"provider": "openai"}, "NOT_FOUND"),
    ("source_replicas_delete", {"migration_id": RUN}, "RESOURCE_NOT_FOUND"),
    ("api_keys_revoke", {"key_id": RUN}, "NOT_FOUND"),
]


async def create_approval_key(baobab: Baobab) -> dict[str, str]:
    response = await baobab.client.post("/api-keys", json={"name": "held", "approval": "write"}, headers=baobab.owner)
    return {"authorization": f"Bearer {response.json()['key']}"}


async def list_pending(baobab: Baobab) -> list[Any]:
    pending_approvals: list[Any] = (await baobab.client.get("/v1/approvals", headers=baobab.owner)).json()["approvals"]
    return pending_approvals


async def call_indirectly(baobab: Baobab, name: str, arguments: dict[str, Any], era: str) -> dict[str, Any]:
    call_arguments = {"name": name, "arguments": arguments}
    return await call_tool(baobab, "call_tool", call_arguments, by=await create_approval_key(baobab), era=era)


def test_every_destructive_tool_knows_beforehand_or_says_why_it_need_not(baobab: Baobab) -> None:
    tools = baobab.application.registry.tools.values()
    # What hands out credentials or rights is never proposed: keys with limits may not call it.
    unchecked_tools = [
        tool for tool in tools if tool.effect == "destructive" and tool.preview is None and not tool.grants
    ]
    assert {tool.name for tool in unchecked_tools} == NEEDS_NONE


@pytest.mark.parametrize("era", ERAS)
@pytest.mark.parametrize(("name", "arguments", "code"), HOPELESS, ids=str)
async def test_a_call_about_what_is_not_there_asks_nobody(
    baobab: Baobab, era: str, name: str, arguments: dict[str, Any], code: str
) -> None:
    refusal = read_refusal(await call_indirectly(baobab, name, {"app_id": await baobab.create_app(), **arguments}, era))
    assert refusal["code"].upper() == code.upper()
    assert await list_pending(baobab) == []


async def test_what_is_no_counter_is_not_proposed_to_be_counted(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    text = {"value": "text"}
    assert (await baobab.client.put(f"/v1/{app_id}/kv/a", json=text, headers=baobab.owner)).status_code == 204
    for name in ("kv_incr", "kv_decr"):
        refusal = read_refusal(await call_indirectly(baobab, name, {"app_id": app_id, "key": "a"}, ERAS[0]))
        assert refusal["code"] != "APPROVAL_REQUIRED"
    assert await list_pending(baobab) == []


@pytest.mark.parametrize(
    ("name", "arguments", "answer"),
    [
        ("kv_delete", {"key": "missing"}, {"deleted": 0}),
        ("kv_batch", {"ops": [{"op": "get", "key": "a"}]}, {"results": [{"value": 1}]}),
        (
            "kv_batch",
            {"ops": [{"op": "del", "key": "missing"}, {"op": "get", "key": "a"}, {"op": "del", "key": "b"}]},
            {"results": [{"deleted": 0}, {"value": 1}, {"deleted": 0}]},
        ),
        (
            "kv_batch",
            {"ops": [{"op": "rename", "key": "a"}, {"op": "set", "key": "a"}]},
            {"results": [{"error": "invalid op"}, {"error": "missing value"}]},
        ),
    ],
)
@pytest.mark.parametrize("era", ERAS)
async def test_a_call_that_changes_nothing_is_answered_and_asks_nobody(
    baobab: Baobab, era: str, name: str, arguments: dict[str, Any], answer: dict[str, Any]
) -> None:
    app_id = await baobab.create_app()
    assert (await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": 1}, headers=baobab.owner)).status_code == 204
    result = await call_indirectly(baobab, name, {"app_id": app_id, **arguments}, era)
    assert result["structuredContent"] == answer
    assert await list_pending(baobab) == []


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("kv_delete", {"key": "a"}),
        ("kv_batch", {"ops": [{"op": "get", "key": "a"}, {"op": "del", "key": "a"}]}),
        ("kv_batch", {"ops": [{"op": "del", "key": "missing"}, {"op": "set", "key": "b", "value": 1}]}),
        ("kv_batch", {"ops": [{"op": "none"}, {"op": "set", "key": "a", "value": 2}]}),
    ],
)
async def test_a_call_that_may_change_something_still_waits(
    baobab: Baobab, name: str, arguments: dict[str, Any]
) -> None:
    app_id = await baobab.create_app()
    path = f"/v1/{app_id}/kv/a"
    assert (await baobab.client.put(path, json={"value": 1}, headers=baobab.owner)).status_code == 204
    refusal = read_refusal(await call_indirectly(baobab, name, {"app_id": app_id, **arguments}, ERAS[0]))
    assert refusal["code"] == "APPROVAL_REQUIRED"
    assert (await baobab.client.get(path, headers=baobab.owner)).json() == {"value": 1}


@pytest.mark.parametrize(("name", "arguments", "code"), HOPELESS_ELSEWHERE, ids=str)
async def test_a_call_outside_of_apps_about_what_is_not_there_asks_nobody(
    baobab: Baobab, name: str, arguments: dict[str, Any], code: str
) -> None:
    refusal = read_refusal(await call_indirectly(baobab, name, arguments, ERAS[0]))
    assert code in refusal["code"].upper()
    assert await list_pending(baobab) == []


async def test_an_organisation_that_cannot_be_deleted_is_not_proposed_for_it(baobab: Baobab) -> None:
    me = (await baobab.client.get("/platform/me", headers=baobab.owner)).json()
    organisation = (await call_tool(baobab, "call_tool", {"name": "organisations_list"}))["structuredContent"]
    organisation_id = organisation["organizations"][0]["id"]
    here = {"organization_id": organisation_id}
    assert (
        "cannot be deleted"
        in read_refusal(await call_indirectly(baobab, "organisations_delete", here, ERAS[0]))["message"]
    )
    leave = {**here, "account_id": me["user"]["id"]}
    assert (
        read_refusal(await call_indirectly(baobab, "organisations_remove_member", leave, ERAS[0]))["code"]
        != "APPROVAL_REQUIRED"
    )
    withdraw = {**here, "invitation_id": RUN}
    refusal = read_refusal(await call_indirectly(baobab, "organisations_withdraw_invitation", withdraw, ERAS[0]))
    assert refusal["code"] != "APPROVAL_REQUIRED"
    assert await list_pending(baobab) == []


@pytest.mark.parametrize("era", ERAS)
async def test_what_can_be_done_still_waits_and_says_what_it_would_do(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    await baobab.client.put(f"/v1/{app_id}/kv/a", json={"value": 1}, headers=baobab.owner)
    refusal = read_refusal(await call_indirectly(baobab, "kv_expire", {"app_id": app_id, "key": "a", "ttl": 0}, era))
    assert refusal["code"] == "APPROVAL_REQUIRED"
    path = f"/v1/approvals/{refusal['details']['approval_id']}"
    assert "at once" in (await baobab.client.get(path, headers=baobab.owner)).json()["preview"]
