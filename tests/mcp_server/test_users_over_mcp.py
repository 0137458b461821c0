"""An app's users over MCP: they get the tools that the app gives to its users, and no others."""

import json
from typing import Any

import pytest

from tests.conftest import Baobab

pytestmark = pytest.mark.own_installation

ADA = "11111111-1111-4111-8111-111111111111"
TOOLS = ["ai_models", "kv_get", "kv_put"]


async def open_mcp(baobab: Baobab, app_id: str, tools: list[str] | None = None) -> Any:
    """Gives tools to the users of an app, and returns the answer."""
    body = {"tools": TOOLS if tools is None else tools}
    return await baobab.client.patch(f"/v1/{app_id}/config/user-tools", json=body, headers=baobab.owner)


async def send(baobab: Baobab, headers: dict[str, str], method: str, view: str = "", **params: Any) -> Any:
    """The answer to one MCP message, or the HTTP status where it is refused."""
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    accept = {"accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-11-25"}
    answer = await baobab.client.post(f"/mcp{view}", json=message, headers={**headers, **accept})
    if answer.status_code != 200:
        return answer.status_code
    if answer.headers["content-type"].startswith("application/json"):
        return answer.json()
    lines = [line for line in answer.text.splitlines() if line.startswith("data: {")]
    return json.loads(lines[-1][6:])


async def list_names(baobab: Baobab, headers: dict[str, str], view: str = "") -> list[str]:
    return [tool["name"] for tool in (await send(baobab, headers, "tools/list", view))["result"]["tools"]]


async def test_a_user_sees_the_tools_that_the_app_gives_and_can_call_no_others(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    ada = await baobab.user_headers(app_id, ADA)
    assert await list_names(baobab, ada) == []
    answer = await open_mcp(baobab, app_id)
    assert answer.json()["user_tools"] == TOOLS
    assert answer.json()["mcp_url"].endswith(f"/mcp?app_id={app_id}")
    for view in ("", f"?app_id={app_id}", "?toolsets=all"):
        assert await list_names(baobab, ada, view) == TOOLS
    for name in ("kv_delete", "config_get", "approvals_list", "call_tool"):
        refusal = await send(baobab, ada, "tools/call", name=name, arguments={})
        assert refusal["error"]["data"]["code"] == "RESOURCE_NOT_FOUND", refusal
    assert (await send(baobab, ada, "prompts/list"))["result"]["prompts"] == []
    assert (await send(baobab, ada, "resources/list"))["result"]["resources"] == []
    assert "error" in await send(baobab, ada, "resources/read", uri="baobab://docs/kv")
    assert "error" in await send(baobab, ada, "prompts/get", name="quickstart")
    client: dict[str, Any] = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "a client", "version": "1"},
    }
    instructions = (await send(baobab, ada, "initialize", "", **client))["result"]["instructions"]
    assert "one of its users" in instructions
    assert "API keys" in (await send(baobab, baobab.owner, "initialize", "", **client))["result"]["instructions"]
    await open_mcp(baobab, app_id, [])
    assert await list_names(baobab, ada) == []


async def test_only_tools_that_admit_users_can_be_given(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    for name in ("config_get", "approvals_approve", "approvals_list", "auth_login", "users_list", "no_such_tool"):
        refusal = await open_mcp(baobab, app_id, ["kv_get", name])
        assert refusal.status_code == 400
        error = refusal.json()["error"]
        assert error["code"] == "USER_TOOLS_REFUSED"
        assert "kv_get" in error["details"]["possible"]
        assert name not in error["details"]["possible"]
    assert (await baobab.client.get(f"/v1/{app_id}/config", headers=baobab.owner)).json()["user_tools"] == []


async def test_a_user_is_refused_at_the_endpoint_of_another_app(baobab: Baobab) -> None:
    here, elsewhere = await baobab.create_app(), await baobab.create_app()
    for app_id in (here, elsewhere):
        await open_mcp(baobab, app_id)
    ada = await baobab.user_headers(here, ADA)
    assert await send(baobab, ada, "tools/list", f"?app_id={elsewhere}") == 401


async def test_a_token_of_an_mcp_client_is_good_at_the_endpoint_of_its_app_only(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    await open_mcp(baobab, app_id)
    base_url = baobab.application.services.options.base_url
    bound_headers = await baobab.user_headers(app_id, ADA, aud=f"{base_url}/mcp?app_id={app_id}")
    free = await baobab.user_headers(app_id, ADA)
    for _ in range(2):
        assert await list_names(baobab, bound_headers, f"?app_id={app_id}") == TOOLS
        assert await send(baobab, bound_headers, "tools/list") == 401
        answer = await baobab.client.get(f"/auth/{app_id}/me", headers=bound_headers)
        assert answer.status_code == 401
        assert "MCP" in answer.json()["error"]
        assert (await baobab.client.get(f"/auth/{app_id}/me", headers=free)).status_code == 200
    for audience in (f"{base_url}/mcp", "https://elsewhere.example/mcp", "", ["x"], 7):
        odd = await baobab.user_headers(app_id, ADA, aud=audience)
        assert await send(baobab, odd, "tools/list", f"?app_id={app_id}") == 401


async def test_the_keys_of_those_who_run_the_app_see_what_they_saw(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    before = await list_names(baobab, baobab.owner, f"?app_id={app_id}")
    await open_mcp(baobab, app_id)
    assert await list_names(baobab, baobab.owner, f"?app_id={app_id}") == before
    assert "search_tools" in before
