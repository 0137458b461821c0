"""What is said against the arguments of a node before its agent is saved, and of agents that were saved before."""

from typing import Any

import pytest
from sqlalchemy import update

from baobab.runtime.agents.tables import agents
from baobab.tools.agents.errors import InvalidGraph
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool, read_refusal
from tests.tools.agents.conftest import Agency, build_graph

Path = list[str | int]


def call_graph(tool: str, arguments: Any, **node: Any) -> dict[str, Any]:
    """A graph of one call and an end."""
    ref = {"source": "builtin", "name": tool}
    call = {"type": "tool", "tool_ref": ref, "args_template": arguments, **node}
    return build_graph({"find": call, "done": {"type": "end"}}, ("find", "done"), tools={"builtin": [tool]})


def map_graph(tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
    return call_graph(tool, arguments, type="map", over="{{ input.rows }}", output_key="found")


async def list_issues(agency: Agency, spec: dict[str, Any]) -> list[tuple[Path, str]]:
    result = await agency.harness.call("agents_validate", agency.owner, app_id=agency.app_id, name="a", graph_spec=spec)
    assert result["valid"] is ("issues" not in result)
    return [(issue["path"], issue["message"]) for issue in result.get("issues", [])]


MISSPELT = [
    (
        ["nodes", "find", "args_template", "ky"],
        'is not an argument of kv_exists; did you mean "key"?; its arguments are key',
    ),
    (["nodes", "find", "args_template", "key"], "is required by kv_exists; its arguments are key"),
]


@pytest.mark.parametrize("graph", [call_graph, map_graph])
async def test_a_misspelt_argument_is_named_with_the_one_that_was_meant(agency: Agency, graph: Any) -> None:
    assert await list_issues(agency, graph("kv_exists", {"ky": "a"})) == MISSPELT


@pytest.mark.parametrize(
    ("tool", "given", "meant"),
    [("data_update", "patch", "changes"), ("data_list", "filter", "where"), ("rag_query", "collection", "name")],
)
async def test_a_name_that_models_may_use_over_mcp_is_answered_with_the_right_one(
    agency: Agency, tool: str, given: str, meant: str
) -> None:
    messages = {path[-1]: message for path, message in await list_issues(agency, call_graph(tool, {given: {}}))}
    assert f'did you mean "{meant}"?' in messages[given]


async def test_an_agent_with_a_misspelt_argument_is_neither_made_nor_changed(agency: Agency) -> None:
    await agency.create_agent("a", call_graph("kv_exists", {"key": "a"}))
    for tool, name in (("agents_create", "b"), ("agents_update", "a")):
        spec = call_graph("kv_exists", {"ky": "a"})
        refusal = await agency.catch_refusal(tool, agency.owner, app_id=agency.app_id, name=name, graph_spec=spec)
        assert isinstance(refusal, InvalidGraph)
        assert [(issue["path"], issue["message"]) for issue in refusal.details["issues"]] == MISSPELT


async def test_the_argument_is_named_over_rest(baobab: Baobab) -> None:
    path = f"/v1/{await baobab.create_app()}/agents"
    body = {"name": "a", "graph_spec": call_graph("kv_exists", {"ky": "a"})}
    answer = await baobab.client.post(f"{path}/_/validate", json=body, headers=baobab.owner)
    issues = [{"path": where, "message": message} for where, message in MISSPELT]
    assert answer.json() == {"valid": False, "issues": issues}
    answer = await baobab.client.post(path, json=body, headers=baobab.owner)
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid_graph_spec")
    assert answer.json()["issues"] == issues


async def test_the_argument_is_named_over_mcp(baobab: Baobab) -> None:
    arguments = {"app_id": await baobab.create_app(), "name": "a", "graph_spec": call_graph("kv_exists", {"ky": "a"})}
    error = read_refusal(await call_tool(baobab, "agents_create", arguments))
    assert error["message"].startswith("The graph is not valid: nodes.find.args_template.ky is not an argument of")
    assert [(issue["path"], issue["message"]) for issue in error["details"]["issues"]] == MISSPELT


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("kv_exists", {"key": "{{ input.key }}"}),
        ("kv_exists", {"key": "orders:{{ input.customer }}"}),
        ("kv_exists", {"key": "a", "app_id": "{{ input.app }}"}),
        ("kv_put", {"key": "a", "value": None}),
        ("kv_put", {"key": "a", "value": {"any": ["{{ input.x }}", 1]}, "ttl": "{{ input.seconds }}"}),
        ("kv_put", {"key": "a", "value": 1, "ttl": None}),
        ("kv_batch", {"ops": [{"op": "get", "key": "a"}]}),
        ("kv_batch", {"ops": [{"op": "{{ input.op }}", "key": 7}]}),
        ("query_table", {"table": "orders", "filter": {"status": "eq.open"}}),
        ("query_table", {"table": "orders", "where": {"status": "eq.open"}}),
        ("ai_chat", {"messages": [{"role": "user", "content": "Hello"}], "passed_on": 1}),
        ("substrate_entity", {"entity_id": "{{ input.id }}"}),
    ],
)
async def test_what_a_run_may_accept_is_not_refused_before(agency: Agency, tool: str, arguments: Any) -> None:
    assert await list_issues(agency, call_graph(tool, arguments)) == []


@pytest.mark.parametrize(
    ("tool", "arguments", "path", "message"),
    [
        ("kv_exists", {"key": 7}, ["key"], "must be text"),
        ("kv_exists", {"key": None}, ["key"], "must be text"),
        ("kv_exists", {"key": "_a"}, ["key"], "is not valid: Keys that start with `_` are reserved"),
        ("kv_put", {"key": "a", "value": 1, "ttl": "soon"}, ["ttl"], "must be a whole number"),
        ("kv_batch", {"ops": "get"}, ["ops"], "must be a list"),
        ("query_table", {"table": "orders", "filter": "open"}, ["filter"], "must be an object"),
        ("query_table", {"table": "a", "filter": {"b": 1}}, ["filter", "b"], "must be text or must be a list"),
        ("query_table", {"table": "orders", "fliter": {}}, ["fliter"], 'did you mean "filter"?'),
        ("interrupt", {}, ["reason"], "is required by interrupt; its arguments are reason, "),
        ("interrupt", {"reason": "?", "answer_schema": {"type": "thing"}}, ["answer_schema"], "must be a JSON Schema"),
        ("data_insert", {"table": "a", "values": 7}, ["values"], "must be an object or must be a list"),
        ("data_import", {"table": "a", "content": 7}, ["content"], "must be text"),
        ("substrate_entity", {"entity_id": "a"}, ["entity_id"], "must look like `ent_"),
    ],
)
async def test_what_no_run_could_accept_is_refused_before(
    agency: Agency, tool: str, arguments: dict[str, Any], path: Path, message: str
) -> None:
    issues = {tuple(where): text for where, text in await list_issues(agency, call_graph(tool, arguments))}
    assert list(issues) == [("nodes", "find", "args_template", *path)], issues
    assert message in next(iter(issues.values()))


async def test_arguments_that_are_no_object_are_not_called_missing(agency: Agency) -> None:
    issues = await list_issues(agency, call_graph("kv_exists", ["key"]))
    assert issues == [(["nodes", "find", "args_template"], "must be an object")]


async def test_an_agent_that_was_saved_with_a_wrong_argument_runs_as_before(agency: Agency) -> None:
    await agency.create_agent("a", call_graph("kv_exists", {"key": "a"}, on_error="tell", output_key="found"))
    spec = call_graph("kv_exists", {"ky": "a"}, on_error="tell", output_key="found")
    async with agency.harness.services.database.writing() as connection:
        await connection.execute(update(agents).where(agents.c.app_id == agency.app_id).values(graph_spec=spec))
    arguments = {"app_id": agency.app_id, "name": "a", "description": "Changed."}
    await agency.harness.call("agents_update", agency.owner, **arguments)
    run = await agency.run_agent("a")
    assert (run["status"], run["output"]["found"]["error"]["code"]) == ("completed", "VALIDATION_MISSING_FIELD")
