"""An argument may have another default over MCP than over REST, and both schemas say which."""

from typing import Any

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool, read_refusal, send_message

_TWO: dict[str, Any] = {"tables": {"a": {"columns": {"id": "integer"}}, "b": {"columns": {"id": "integer"}}}}
_ONE: dict[str, Any] = {"tables": {"a": {"columns": {"id": "integer", "phone": "text"}}}}


async def test_a_part_of_a_schema_is_merged_over_mcp_and_is_the_whole_over_rest(baobab: Baobab) -> None:
    app_id = await baobab.create_app()

    async def apply(schema: dict[str, Any], **options: Any) -> Any:
        arguments = {"app_id": app_id, "schema": schema, **options}
        return await call_tool(baobab, "schema_apply", arguments, path="/mcp?toolsets=data")

    assert (await apply(_TWO))["structuredContent"]["applied"] == 2
    over_rest = await baobab.client.post(f"/v1/{app_id}/schema/apply", json={"schema": _ONE}, headers=baobab.owner)
    assert over_rest.json()["error"]["code"] == "SCHEMA_DESTRUCTIVE_CHANGE"
    assert read_refusal(await apply(_ONE, mode="exact"))["code"] == "SCHEMA_DESTRUCTIVE_CHANGE"
    for mode in ({}, {"mode": None}):
        assert "isError" not in await apply(_ONE, **mode) or not (await apply(_ONE, **mode))["isError"]
    schema = (await baobab.client.get(f"/v1/{app_id}/schema", headers=baobab.owner)).json()["schema"]
    assert list(schema["tables"]) == ["a", "b"]
    assert list(schema["tables"]["a"]["columns"]) == ["id", "phone"]


async def test_each_interface_describes_its_own_default(baobab: Baobab) -> None:
    tools = (await send_message(baobab, "tools/list", path="/mcp?toolsets=data")).result["tools"]
    [schema] = [tool["inputSchema"] for tool in tools if tool["name"] == "schema_apply"]
    assert schema["properties"]["mode"]["default"] == "merge"
    openapi = (await baobab.client.get("/openapi.json")).json()
    body = openapi["paths"]["/v1/{app_id}/schema/apply"]["post"]["requestBody"]["content"]["application/json"]
    assert body["schema"]["properties"]["mode"]["default"] == "exact"


async def test_a_list_is_shorter_over_mcp_unless_it_is_asked_for_more(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    for number in range(30):
        settings = {"allowed_origins": [f"https://a{number}.example"]}
        answer = await baobab.client.patch(f"/v1/{app_id}/config/cors", json=settings, headers=baobab.owner)
        assert answer.status_code == 200, answer.text
    over_rest = (await baobab.client.get(f"/v1/{app_id}/audit-logs", headers=baobab.owner)).json()
    assert len(over_rest["logs"]) > 20
    for options, count in (({}, 20), ({"limit": 25}, 25)):
        result = await call_tool(
            baobab, "audit_logs_list", {"app_id": app_id, **options}, path="/mcp?toolsets=audit_logs"
        )
        assert len(result["structuredContent"]["logs"]) == count
