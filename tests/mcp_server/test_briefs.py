"""Models are not sent what they have just said, or what another tool reads; programs are sent all of it."""

import asyncio
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from baobab.tools import toolsets
from baobab.tools.agents.graphs import GRAPH_EXAMPLE
from baobab.tools.core.registry import Registry
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool, read_refusal, send_message
from tests.mcp_server.test_approvals import create_approval_key

_WHOLE = "/mcp?toolsets=all"
_GRAPH: Any = GRAPH_EXAMPLE["graph_spec"]


async def call(baobab: Baobab, tool: str, **arguments: Any) -> dict[str, Any]:
    result = await call_tool(baobab, tool, arguments, path=_WHOLE)
    answer: dict[str, Any] = result.get("structuredContent", {})
    assert not result["isError"], result
    return answer


def test_each_short_form_names_members_that_its_results_have() -> None:
    tools = [tool for tool in Registry(toolsets()).tools.values() if tool.brief is not None]
    assert len(tools) >= 6
    for tool in tools:
        assert tool.brief is not None
        assert tool.output_schema is not None
        schema = tool.output_schema["properties"][tool.brief.of]
        assert tool.brief.leaves_out <= schema.get("items", schema)["properties"].keys(), tool.name


async def test_an_agent_that_is_written_is_answered_without_its_graph(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    creation = await call(baobab, "agents_create", app_id=app_id, name="asker", graph_spec=_GRAPH)
    update = await call(baobab, "agents_update", app_id=app_id, name="asker", description="It asks.")
    for answer in (creation, update):
        assert answer["agent"]["name"] == "asker"
        assert "graph_spec" not in answer["agent"]
        assert "agents_get" in answer["shortened"]
    agents_list = await call(baobab, "agents_list", app_id=app_id)
    assert [agent["name"] for agent in agents_list["agents"]] == ["asker"]
    assert "graph_spec" not in agents_list["agents"][0]
    assert "agents_get" in agents_list["shortened"]
    whole = await call(baobab, "agents_get", app_id=app_id, name="asker")
    assert whole["agent"]["graph_spec"] == _GRAPH
    path = f"/v1/{app_id}/agents"
    over_rest = await baobab.client.patch(f"{path}/asker", json={"description": "Asks."}, headers=baobab.owner)
    assert over_rest.json()["agent"]["graph_spec"] == _GRAPH
    assert "shortened" not in over_rest.json()


async def test_a_schema_is_answered_in_sentences_and_its_sql_is_read_elsewhere(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    schema = {"tables": {"items": {"columns": {"id": {"type": "integer", "primaryKey": True}}}}}
    for dry_run in (True, False):
        answer = await call(baobab, "schema_apply", app_id=app_id, schema=schema, dry_run=dry_run)
        assert answer["statements"] == [{"description": "create the table items", "destructive": False}]
        assert "schema_migrations" in answer["shortened"]
    again = await call(baobab, "schema_apply", app_id=app_id, schema=schema)
    assert "shortened" not in again
    [migration] = (await call(baobab, "schema_migrations", app_id=app_id))["migrations"]
    assert migration["applied_sql"][0].startswith("CREATE TABLE")
    body = {"schema": {"tables": {**schema["tables"], "more": schema["tables"]["items"]}}, "dry_run": True}
    over_rest = await baobab.client.post(f"/v1/{app_id}/schema/apply", json=body, headers=baobab.owner)
    assert over_rest.json()["statements"][0]["sql"].startswith("CREATE TABLE")


@pytest.mark.parametrize(("value", "status"), [(1, "executed"), ("a text", "failed")])
async def test_an_approved_call_is_answered_with_how_it_ended(baobab: Baobab, value: Any, status: str) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    call_of_agent = {"app_id": app_id, "key": "visits"}
    waiting = read_refusal(await call_tool(baobab, "kv_incr", call_of_agent, by=agent))
    await call_tool(baobab, "kv_put", {**call_of_agent, "value": value})
    approvals_list = await call(baobab, "approvals_list", app_id=app_id)
    [approval] = approvals_list["approvals"]
    assert (approval["status"], approval["tool"]) == ("pending", "kv_incr")
    assert "visits" in approval["title"]
    assert not {"arguments", "asker", "title_parts", "button"} & approval.keys()
    assert "approvals_get" in approvals_list["shortened"]
    which = {"approval_id": waiting["details"]["approval_id"]}
    whole = await call(baobab, "approvals_get", **which)
    assert whole["approval"]["arguments"] == call_of_agent
    answer = await call(baobab, "approvals_approve", **which, even_if_failing=True)
    assert answer["approval"]["status"] == status
    assert (answer["approval"]["error"] is None) is (status == "executed")
    assert not {"arguments", "asker", "title_parts"} & answer["approval"].keys()
    over_rest = (await baobab.client.get("/v1/approvals", headers=baobab.owner)).json()
    mine = next(each for each in over_rest["approvals"] if each["id"] == which["approval_id"])
    assert {"arguments", "asker", "title_parts", "button"} <= mine.keys()


async def test_the_schemas_of_results_say_what_is_left_out(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    listed_tools = (await send_message(baobab, "tools/list", path="/mcp?toolsets=agents")).result["tools"]
    schema = next(tool for tool in listed_tools if tool["name"] == "agents_create")["outputSchema"]
    assert "graph_spec" not in schema["properties"]["agent"]["properties"]
    answer = await call(baobab, "agents_create", app_id=app_id, name="asker", graph_spec=_GRAPH)
    Draft202012Validator(schema).validate(answer)


async def test_whoever_proposed_a_call_can_wait_for_the_decision(baobab: Baobab) -> None:
    app_id, agent = await baobab.create_app(), await create_approval_key(baobab)
    waiting = read_refusal(await call_tool(baobab, "kv_incr", {"app_id": app_id, "key": "visits"}, by=agent))
    which = {"approval_id": waiting["details"]["approval_id"]}
    path = f"/v1/approvals/{which['approval_id']}"
    read = asyncio.create_task(baobab.client.get(f"{path}?wait_seconds=55", headers=agent))
    await baobab.client.post(f"{path}/reject", json={}, headers=baobab.owner)
    assert (await read).json()["approval"]["status"] == "rejected"
