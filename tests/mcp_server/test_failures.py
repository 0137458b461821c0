"""What fails is told as a failure to models, also where the contract of REST has it in an ordinary body."""

from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import ERAS, call_tool, read_refusal
from tests.people import create_key
from tests.ports import free_port


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise", "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_server_that_does_not_answer_its_probe_is_a_failure(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    arguments = {"app_id": app_id, "name": "docs", "url": f"http://127.0.0.1:{free_port()}/mcp"}
    result = await call_tool(baobab, "call_tool", {"name": "mcp_servers_create", "arguments": arguments}, era=era)
    server = result["structuredContent"]["mcp_server"]
    probe = {"app_id": app_id, "id": server["id"]}
    refusal = read_refusal(
        await call_tool(baobab, "call_tool", {"name": "mcp_servers_probe", "arguments": probe}, era=era)
    )
    assert refusal["code"] == "tool_server_failed"
    assert refusal["message"] == server["problem"]
    over_rest = await baobab.client.post(f"/v1/{app_id}/mcp-servers/{server['id']}/probe", headers=baobab.owner)
    assert over_rest.status_code == 502
    assert over_rest.json() == {"ok": False, "error": refusal["message"], "remediation": refusal["remediation"]}


@pytest.mark.parametrize("era", ERAS)
async def test_refusals_are_kept_for_the_developer_of_the_app(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    reader = await create_key(baobab, read_only=True)
    tries: list[tuple[str, dict[str, Any], Any]] = [
        ("kv_get", {"key": "missing"}, None),
        ("kv_get", {"key": "a", "deep": True}, None),
        ("kv_put", {"key": "b", "value": 1}, reader),
    ]
    for tool, arguments, by in tries:
        read_refusal(await call_tool(baobab, tool, {"app_id": app_id, **arguments}, era=era, by=by))
    read_refusal(await call_tool(baobab, "kv_get", {"app_id": "app_nosuchapp00", "key": "a"}, era=era))
    await baobab.client.get(f"/v1/{app_id}/kv/missing", headers=baobab.owner)
    entries = (await baobab.client.get(f"/v1/{app_id}/kv/_audit_recent", headers=baobab.owner)).json()["entries"]
    assert [(e["method"], e["path"], e["status_code"], e["error_code"], e["key"]) for e in reversed(entries)] == [
        ("MCP", "kv_get", 404, "not_found", "missing"),
        ("MCP", "kv_get", 400, "bad_request", "a"),
        ("MCP", "kv_put", 403, "forbidden", "b"),
        ("GET", f"/v1/{app_id}/kv/missing", 404, "not_found", "missing"),
    ]
