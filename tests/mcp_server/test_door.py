"""The MCP door: it lists and calls what its caller may, as that caller."""

import json
from typing import Any

import pytest

from tests.conftest import Baobab

ACCEPT = {"accept": "application/json, text/event-stream"}


async def rpc(baobab: Baobab, method: str, params: dict[str, Any] | None = None, **headers: str) -> Any:
    """One message of the era before 2026, and the answer to it."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    sent = {**ACCEPT, **baobab.owner, "mcp-protocol-version": "2025-06-18", **headers}
    answer = await baobab.client.post("/mcp", json=body, headers=sent)
    assert answer.status_code == 200, answer.text
    data = next(line for line in answer.text.splitlines() if line.startswith("data: {"))
    return json.loads(data.removeprefix("data: "))


async def use(baobab: Baobab, tool: str, by: dict[str, str] | None = None, **arguments: Any) -> Any:
    return (await rpc(baobab, "tools/call", {"name": tool, "arguments": arguments}, **(by or {})))["result"]


async def test_a_client_may_begin_with_initialize(baobab: Baobab) -> None:
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "test", "version": "1"},
    }
    answered = await rpc(baobab, "initialize", hello)
    assert answered["result"]["serverInfo"]["name"] == "baobab"
    assert "tools" in answered["result"]["capabilities"]


async def test_what_is_stored_over_mcp_is_read_over_rest(baobab: Baobab) -> None:
    made = await use(baobab, "apps_init", name="over-mcp")
    app_id = made["structuredContent"]["app_id"]
    assert not (await use(baobab, "kv_put", app_id=app_id, key="a/b", value={"n": 1})).get("isError")
    read = await baobab.client.get(f"/v1/{app_id}/kv/a%2Fb", headers=baobab.owner)
    assert read.json() == {"value": {"n": 1}}
    assert (await use(baobab, "kv_get", app_id=app_id, key="a/b"))["structuredContent"] == {"value": {"n": 1}}


async def test_every_tool_is_listed_with_schema_and_hints(baobab: Baobab) -> None:
    tools = {tool["name"]: tool for tool in (await rpc(baobab, "tools/list"))["result"]["tools"]}
    assert list(tools) == sorted(tools)
    assert tools["kv_get"]["annotations"]["readOnlyHint"] is True
    assert tools["kv_flush"]["annotations"]["destructiveHint"] is True
    assert tools["kv_put"]["inputSchema"]["required"] == ["app_id", "key", "value"]
    assert "$ref" not in json.dumps(list(tools.values()))


async def test_a_caller_is_listed_only_what_it_could_use(baobab: Baobab) -> None:
    app_id = await baobab.app()
    user = await baobab.user(app_id, "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11")
    names = {tool["name"] for tool in (await rpc(baobab, "tools/list", **user))["result"]["tools"]}
    assert "kv_get" in names
    assert not names & {"kv_flush", "apps_init", "config_get", "api_keys_create"}


async def test_a_call_runs_as_its_caller(baobab: Baobab) -> None:
    app_id = await baobab.app()
    user = await baobab.user(app_id, "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11")
    refused = await use(baobab, "kv_get", user, app_id=app_id, key="secret")
    assert refused["isError"] is True
    assert refused["structuredContent"]["error"]["code"] == "AUTH_INSUFFICIENT_PERMISSIONS"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"key": "a"}, "APP_NOT_FOUND"),
        ({"app_id": "APP", "key": 7}, "VALIDATION_INVALID_TYPE"),
        ({"app_id": "APP"}, "VALIDATION_MISSING_FIELD"),
        ({"app_id": "APP", "key": "a", "colour": "red"}, "VALIDATION_INVALID_SCHEMA"),
        ({"app_id": "APP", "key": "../../admin"}, "key_invalid"),
        ({"app_id": "../APP", "key": "a"}, "APP_NOT_FOUND"),
        ({"app_id": "APP", "key": "nobody"}, "not_found"),
    ],
)
async def test_a_refusal_tells_code_and_remedy(baobab: Baobab, arguments: dict[str, Any], code: str) -> None:
    app_id = await baobab.app()
    given = {k: v.replace("APP", app_id) if isinstance(v, str) else v for k, v in arguments.items()}
    refused = await use(baobab, "kv_get", **given)
    assert refused["isError"] is True
    told = refused["structuredContent"]["error"]
    assert told["code"] == code
    assert told["remediation"]
    assert told["message"] in refused["content"][0]["text"]


async def test_an_unknown_tool_is_the_protocols_own_error(baobab: Baobab) -> None:
    answered = await rpc(baobab, "tools/call", {"name": "no_such_tool", "arguments": {}})
    assert answered["error"]["code"] == -32602
    assert answered["error"]["data"]["remediation"]


async def test_without_a_credential_nothing_is_answered(baobab: Baobab) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    for headers in ({}, {"authorization": "Bearer bb_sk_unknown"}, {"authorization": "Basic eA=="}):
        answer = await baobab.client.post("/mcp", json=body, headers={**ACCEPT, **headers})
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"].startswith("Bearer")
        assert answer.json()["error"]["remediation"]


async def test_a_foreign_host_or_origin_is_refused_here_too(baobab: Baobab) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    rebound = await baobab.client.post("/mcp", json=body, headers={**ACCEPT, **baobab.owner, "host": "evil.example"})
    assert rebound.status_code == 421
    page = await baobab.client.post(
        "/mcp", json=body, headers={**ACCEPT, **baobab.owner, "origin": "https://evil.example"}
    )
    assert page.status_code == 403


async def test_there_is_no_stream_to_open(baobab: Baobab) -> None:
    answer = await baobab.client.get("/mcp", headers={**ACCEPT, **baobab.owner})
    assert answer.status_code == 405
    assert "POST" in answer.headers["allow"]
