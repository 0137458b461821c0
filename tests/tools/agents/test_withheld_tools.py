"""What users and visitors cannot do in a run is said when the graph is saved, and when a model is not offered it."""

from typing import Any

import pytest

from baobab.tools.core.auth.callers import Anonymous
from tests.tools.agents.conftest import Agency, build_graph

PUBLIC = {"visibility": "public", "safety_acknowledged": True}


def chat_graph(*names: str) -> dict[str, Any]:
    tools = [{"source": "builtin", "name": name} for name in names]
    think = {
        "type": "llm",
        "system_prompt": "Be brief.",
        "input_template": "Hello.",
        "output_key": "said",
        "tools": tools,
    }
    nodes = {"think": think, "done": {"type": "end", "output_template": "{{ state.said }}"}}
    return build_graph(nodes, ("think", "done"), tools={"builtin": list(names)})


def list_messages(answer: dict[str, Any]) -> list[str]:
    messages = [warning["message"] for warning in answer.get("warnings", [])]
    return [message for message in messages if "cannot call" in message]


@pytest.mark.parametrize(
    ("visibility", "warnings"),
    [
        ("private", []),
        ("authenticated", ["users cannot call update_row in their runs; they can call data_update"]),
        (
            "public",
            [
                "visitors cannot call files_list in their runs",
                "users and visitors cannot call update_row in their runs; they can call data_update",
            ],
        ),
    ],
)
async def test_saving_and_checking_a_graph_warn_of_tools_that_its_callers_do_not_get(
    agency: Agency, visibility: str, warnings: list[str]
) -> None:
    arguments: dict[str, Any] = {
        "app_id": agency.app_id,
        "name": "chat",
        "graph_spec": chat_graph("files_list", "data_list", "update_row"),
    }
    settings: dict[str, Any] = {"visibility": visibility, "safety_acknowledged": True}
    for tool in ("agents_validate", "agents_create", "agents_update"):
        answer = await agency.harness.call(tool, agency.owner, **arguments, **settings)
        assert sorted(list_messages(answer)) == sorted(warnings), tool


async def test_a_graph_whose_tools_all_callers_get_has_no_such_warning(agency: Agency) -> None:
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "chat", **PUBLIC}
    arguments["graph_spec"] = chat_graph("kv_get", "data_list")
    assert list_messages(await agency.harness.call("agents_create", agency.owner, **arguments)) == []


async def test_a_run_says_which_tools_a_model_was_not_offered_and_the_model_knows_that_some_are_missing(
    agency: Agency,
) -> None:
    await agency.create_agent("chat", chat_graph("files_list", "kv_get"), **PUBLIC)
    visitor = Anonymous(agency.app_id)
    new_run = await agency.harness.call("agents_public_run", visitor, app_id=agency.app_id, name="chat", input={})
    run = await agency.wait_for_run("chat", new_run["run_id"])
    assert run["status"] == "completed", run
    (event,) = await agency.list_events("chat", run["id"], "tools_withheld")
    assert event["payload"] == {"node_id": "think", "tools": ["files_list"]}
    of_run = {"app_id": agency.app_id, "name": "chat", "id": run["id"]}
    calls = await agency.harness.call("agents_runs_model_calls", agency.owner, **of_run)
    system = calls["model_calls"][0]["prompt"][0]
    assert system["role"] == "system"
    assert system["content"].startswith("Be brief.")
    assert "not available to whoever started this run" in system["content"]
    assert "files_list" not in system["content"]
    # The names of an app's tools are not for its visitors.
    shown_events = await agency.harness.call("agents_public_events_list", visitor, app_id=agency.app_id, id=run["id"])
    (seen_event,) = [event for event in shown_events["events"] if event["type"] == "tools_withheld"]
    assert seen_event["payload"] == {"node_id": "think"}


async def test_a_run_of_those_who_get_all_tools_says_nothing_of_it(agency: Agency) -> None:
    await agency.create_agent("chat", chat_graph("files_list", "kv_get"), **PUBLIC)
    run = await agency.run_agent("chat")
    assert await agency.list_events("chat", run["id"], "tools_withheld") == []


async def test_misspelt_tables_and_collections_are_warned_of_when_a_graph_is_saved(agency: Agency) -> None:
    document = {"tables": {"orders": {"columns": {"id": {"type": "serial", "primaryKey": True}}}}}
    of_app: dict[str, Any] = {"app_id": agency.app_id}
    await agency.harness.call("schema_apply", agency.owner, **of_app, schema=document)
    await agency.harness.call("rag_collections_create", agency.owner, **of_app, name="docs")
    names = ["query_table", "rag_query"]
    nodes: dict[str, Any] = {
        "rows": {"type": "tool", "args_template": {"table": "order"}},
        "known": {"type": "tool", "args_template": {"table": "orders"}},
        "chosen": {"type": "tool", "args_template": {"table": "{{ input.table }}"}},
        "texts": {"type": "tool", "args_template": {"name": "doc", "query": "{{ input.q }}"}},
    }
    for name, node in nodes.items():
        node["tool_ref"] = {"source": "builtin", "name": names[name == "texts"]}
    nodes["done"] = {"type": "end"}
    edges = [("rows", "known"), ("known", "chosen"), ("chosen", "texts"), ("texts", "done")]
    arguments = {**of_app, "name": "look", "graph_spec": build_graph(nodes, *edges, tools={"builtin": names})}
    for tool in ("agents_validate", "agents_create", "agents_update"):
        answer = await agency.harness.call(tool, agency.owner, **arguments)
        assert answer["warnings"] == [
            {
                "path": ["nodes", "rows", "args_template", "table"],
                "message": 'the app has no table "order"; did you mean "orders"?',
            },
            {
                "path": ["nodes", "texts", "args_template", "name"],
                "message": 'the app has no collection "doc"; did you mean "docs"?',
            },
        ], tool
