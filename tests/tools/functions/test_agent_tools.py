"""Functions are tools of agents and MCP clients."""

import json
from typing import Any

import pytest

from tests.mcp_server.test_users_over_mcp import open_mcp, send
from tests.people import create_key, create_person
from tests.tools.agents.conftest import build_graph
from tests.tools.functions.conftest import Workshop
from tests.tools.functions.test_calls import make_user

GREET = """
export const inputSchema = {type: "object", properties: {name: {type: "string"}}, required: ["name"]};
export default async (req, ctx) => {
  const {name, writes} = await req.json();
  if (writes) await ctx.kv.set("written", name);
  return Response.json({text: `Hello ${name}`, user: ctx.user, written: await ctx.kv.get("written")});
}
"""


async def make_agent(workshop: Workshop, values: dict[str, Any], visibility: str = "private") -> None:
    node = {"type": "tool", "tool_ref": {"source": "function", "name": "greet"}, "args_template": values}
    graph = build_graph({"act": node, "done": {"type": "end"}}, ("act", "done"), tools={"functions": ["greet"]})
    body = {"name": "greeter", "graph_spec": graph, "visibility": visibility}
    await workshop.request("POST", "/agents", 201, json=body)


async def run_agent(workshop: Workshop, headers: dict[str, str] | None = None) -> Any:
    run = await workshop.request(
        "POST", "/agents/greeter/runs", 201, json={"input": {}}, headers=headers or workshop.owner
    )
    await workshop.advance()
    return await read_run(workshop, run["run_id"])


async def read_run(workshop: Workshop, run_id: str) -> Any:
    return (await workshop.request("GET", f"/agents/greeter/runs/{run_id}"))["run"]


async def test_a_graph_calls_a_function_that_reads_and_asks_nobody(workshop: Workshop) -> None:
    await workshop.deploy("greet", GREET, agent_tool=True, agent_tool_description="Greets somebody")
    await make_agent(workshop, {"name": "Ada"})
    run = await run_agent(workshop)
    assert (run["status"], run["error"]) == ("completed", None)
    [row] = await workshop.list_logs("greet")
    assert (row["trigger"], row["statusCode"], row["request_id"].split(":")[0]) == ("tool", 200, run["id"])


async def test_a_function_that_reads_only_cannot_write_when_an_agent_calls_it(workshop: Workshop) -> None:
    await workshop.deploy("greet", GREET, agent_tool=True)
    await make_agent(workshop, {"name": "Ada", "writes": True})
    run = await run_agent(workshop)
    assert run["status"] == "failed"
    [row] = await workshop.list_logs("greet")
    assert "agent_tool_mode is read_only" in row["error"]
    assert (await workshop.send("GET", "/kv/written")).status_code == 404
    # Called by its own address, it is what its developer wrote.
    answer = await workshop.call("greet", headers=workshop.owner, json={"name": "Ada", "writes": True})
    assert answer.json()["written"] == "Ada"


async def test_a_function_that_writes_waits_for_a_person(workshop: Workshop) -> None:
    await workshop.deploy("greet", GREET, agent_tool=True, agent_tool_mode="read_write")
    await make_agent(workshop, {"name": "Ada", "writes": True})
    run = await run_agent(workshop)
    assert run["status"] == "paused"
    assert await workshop.list_logs("greet") == []
    approvals = await workshop.client.get("/v1/approvals?status=pending", headers=workshop.owner)
    [approval] = approvals.json()["approvals"]
    assert "greet" in approval["summary"]
    path = f"/v1/approvals/{approval['id']}/approve"
    answer = await workshop.client.post(path, json={}, headers=workshop.owner)
    assert answer.status_code == 200, answer.text
    await workshop.advance()
    assert (await read_run(workshop, run["id"]))["status"] == "completed"
    assert (await workshop.send("GET", "/kv/written")).json()["value"] == "Ada"
    assert len(await workshop.list_logs("greet")) == 1


async def test_a_graph_that_uses_a_function_which_is_no_tool_is_not_valid(workshop: Workshop) -> None:
    await workshop.deploy("greet", GREET)
    node = {"type": "tool", "tool_ref": {"source": "function", "name": "greet"}, "args_template": {}}
    graph = build_graph({"act": node, "done": {"type": "end"}}, ("act", "done"), tools={"functions": ["greet"]})
    refusal = await workshop.request("POST", "/agents", 400, json={"name": "greeter", "graph_spec": graph})
    assert "agent_tool" in str(refusal)


@pytest.mark.parametrize("exposed_to", ["developer_only", "end_user"])
async def test_users_call_over_mcp_what_is_exposed_to_them(workshop: Workshop, exposed_to: str) -> None:
    settings: dict[str, Any] = {"agent_tool": True, "agent_tool_exposed_to": exposed_to}
    await workshop.deploy("greet", GREET, **settings)
    user = await make_user(workshop)
    registry, credentials = workshop.application.registry, workshop.application.services.credentials
    from baobab.tools.core.context import RequestContext

    caller = await credentials.caller(user["authorization"].encode())
    context = RequestContext("mcp", "request-1")
    tools = (await registry.call("functions_tools", {"app_id": workshop.app}, caller, context))["tools"]
    if exposed_to == "developer_only":
        assert tools == []
        return
    [tool] = tools
    assert (tool["mode"], tool["input_schema"]["required"]) == ("read_only", ["name"])
    arguments = {"app_id": workshop.app, "name": "greet", "arguments": {"name": "Ben"}}
    answer = await registry.call("functions_read", arguments, caller, context)
    assert answer["result"]["text"] == "Hello Ben"
    assert answer["result"]["user"]["id"] == "11111111-1111-4111-8111-111111111111"


async def ask_mcp(
    workshop: Workshop, method: str, headers: dict[str, str] | None = None, view: str | None = None, **params: Any
) -> Any:
    """The answer to one MCP message at the address of the app, or at another one."""
    path = f"?app_id={workshop.app}" if view is None else view
    return await send(workshop, headers or workshop.owner, method, path, **params)


async def list_functions(workshop: Workshop, headers: dict[str, str] | None = None, view: str | None = None) -> Any:
    answer = await ask_mcp(workshop, "tools/list", headers, view)
    return {tool["name"]: tool for tool in answer["result"]["tools"] if tool["name"].startswith("function_")}


async def test_each_function_is_a_tool_of_its_own_at_the_address_of_its_app(workshop: Workshop) -> None:
    await workshop.deploy("greet", GREET, agent_tool=True, agent_tool_description="Greets somebody")
    await workshop.deploy("write", GREET, agent_tool=True, agent_tool_mode="read_write")
    await workshop.deploy("inner", GREET)
    await workshop.deploy("n" * 60, GREET, agent_tool=True)
    tools = await list_functions(workshop)
    assert set(tools) == {"function_greet", "function_write"}
    assert tools["function_greet"]["description"] == "Greets somebody"
    assert tools["function_greet"]["inputSchema"]["required"] == ["name"]
    assert tools["function_greet"]["annotations"] == {"readOnlyHint": True, "openWorldHint": True}
    assert tools["function_write"]["annotations"]["readOnlyHint"] is False
    answer = await ask_mcp(workshop, "tools/call", name="function_greet", arguments={"name": "Ada"})
    assert answer["result"]["structuredContent"]["result"]["text"] == "Hello Ada"
    answer = await ask_mcp(workshop, "tools/call", name="function_write", arguments={"name": "Ada", "writes": True})
    assert answer["result"]["structuredContent"]["result"]["written"] == "Ada"
    refusal = await ask_mcp(workshop, "tools/call", name="function_greet", arguments={"name": "B", "writes": True})
    assert "agent_tool_mode is read_only" in str(refusal["result"])
    assert refusal["result"]["isError"]
    for name in ("function_inner", "function_none"):
        refusal = await ask_mcp(workshop, "tools/call", name=name, arguments={"name": "Ada"})
        assert refusal["error"]["data"]["code"] == "RESOURCE_NOT_FOUND"


async def test_functions_are_listed_to_nobody_who_may_not_call_them(workshop: Workshop) -> None:
    settings: dict[str, Any] = {"agent_tool": True, "agent_tool_mode": "read_write"}
    await workshop.deploy("mine", GREET, **settings)
    await workshop.deploy("open", GREET, agent_tool_exposed_to="end_user", **settings)
    assert set(await list_functions(workshop)) == {"function_mine", "function_open"}
    for view in ("", f"?app_id={workshop.app}&read_only=true", f"?app_id={workshop.app}&toolsets=kv"):
        assert await list_functions(workshop, view=view) == {}
    stranger = await create_key(workshop, (await create_person(workshop, "eve")).headers)
    assert await list_functions(workshop, stranger) == {}
    user = await make_user(workshop)
    assert await list_functions(workshop, user) == {}
    await open_mcp(workshop, workshop.app, ["functions_call"])
    assert set(await list_functions(workshop, user)) == {"function_open"}
    answer = await ask_mcp(workshop, "tools/call", user, name="function_open", arguments={"name": "Ben"})
    assert answer["result"]["structuredContent"]["result"]["text"] == "Hello Ben"
    refusal = await ask_mcp(workshop, "tools/call", user, name="function_mine", arguments={"name": "Ben"})
    assert "error" in refusal


async def test_many_functions_leave_the_list_short(workshop: Workshop) -> None:
    long = GREET.replace('{type: "string"}', '{type: "string", description: "x".repeat(5000)}')
    for name in ("one", "three", "two"):
        await workshop.deploy(name, long, agent_tool=True)
    tools = await list_functions(workshop)
    assert len(json.dumps(tools)) < 13_000
    assert tools["function_two"]["inputSchema"] == {"type": "object"}
    assert "functions_tools" in tools["function_two"]["description"]


async def test_mcp_clients_hear_of_functions_that_come_and_go(workshop: Workshop) -> None:
    subjects: list[str] = []
    workshop.application.services.notices.subscribe("tools", subjects.append)
    await workshop.deploy("plain", GREET)
    assert subjects == []
    await workshop.deploy("greet", GREET, agent_tool=True)
    assert f"app:{workshop.app}" in subjects
    subjects.clear()
    await workshop.request("DELETE", "/functions/greet")
    assert f"app:{workshop.app}" in subjects
