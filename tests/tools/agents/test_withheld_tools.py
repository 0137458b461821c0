"""What users and visitors cannot do in a run is said when the graph is saved, and when a model is not offered it."""

from itertools import pairwise
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Anonymous
from tests.tools.agents.conftest import Agency, build_graph

PUBLIC: dict[str, Any] = {"visibility": "public", "safety_acknowledged": True}


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


ROWS = {"columns": {"id": {"type": "serial", "primaryKey": True}, "note": {"type": "text"}}}


def write_graph(*, run_as: str | None = None) -> dict[str, Any]:
    """Inserts, changes, deletes and writes rows in a batch, and lets a model insert some."""
    table = {"table": "appointments"}
    arguments_by_tool: dict[str, dict[str, Any]] = {
        "insert_row": {**table, "values": {"note": "{{ input.note }}"}},
        "data_update": {**table, "row_id": "{{ input.id }}", "changes": {"note": "moved"}},
        "data_delete": {**table, "row_id": "{{ input.id }}"},
        "data_batch": {"writes": [{"op": "insert", **table, "values": {"note": "{{ input.note }}"}}]},
    }
    nodes: dict[str, Any] = {}
    for name, arguments in arguments_by_tool.items():
        if run_as is not None and name == "data_batch":
            continue
        ref = {"source": "builtin", "name": name}
        nodes[name] = {"type": "tool", "tool_ref": ref, "args_template": arguments}
        if run_as is not None:
            nodes[name] |= {"run_as": run_as, "approvers": "admin"}
    if run_as is None:
        nodes["think"] = chat_graph("data_insert")["nodes"]["think"]
    nodes["done"] = {"type": "end"}
    names = list(nodes)
    tools = {"builtin": [*(name for name in names if name not in ("think", "done")), "data_insert"]}
    return build_graph(nodes, *pairwise(names), tools=tools)


async def test_writes_that_no_policy_lets_users_or_visitors_make_are_warned_of(agency: Agency) -> None:
    of_app: dict[str, Any] = {"app_id": agency.app_id}
    await agency.harness.call("schema_apply", agency.owner, **of_app, schema={"tables": {"appointments": ROWS}})

    async def list_barred(visibility: str, graph: dict[str, Any]) -> dict[str, str]:
        arguments = {**of_app, "name": "book", "graph_spec": graph, "visibility": visibility}
        answer = await agency.harness.call("agents_validate", agency.owner, **arguments)
        assert answer["valid"], answer
        return {
            warning["path"][1]: warning["message"]
            for warning in answer.get("warnings", [])
            if warning["message"].startswith("no policy")
        }

    assert await list_barred("private", write_graph()) == {}
    assert await list_barred("public", write_graph(run_as="app")) == {}
    warnings_by_tool = await list_barred("public", write_graph())
    assert set(warnings_by_tool) == {"insert_row", "data_update", "data_delete", "data_batch", "think"}
    assert warnings_by_tool["insert_row"] == (
        "no policy of `appointments` lets users or visitors insert rows: open just the rows that they may write with "
        "rls_create_policy, or set run_as: app with approvers on the node"
    )
    assert warnings_by_tool["think"].startswith("no policy of any table lets users or visitors insert rows")
    policy: dict[str, Any] = {"table_name": "appointments", "policy_name": "book", "command": "INSERT", "role": "user"}
    await agency.harness.call("rls_create_policy", agency.owner, **of_app, **policy, with_check_expression="true")
    assert set(await list_barred("authenticated", write_graph())) == {"data_update", "data_delete"}
    warnings_by_tool = await list_barred("public", write_graph())
    assert warnings_by_tool["data_batch"].startswith("no policy of `appointments` lets visitors insert rows")
    new_agent = await agency.harness.call(
        "agents_create", agency.owner, **of_app, name="book", graph_spec=write_graph(), **PUBLIC
    )
    assert warnings_by_tool["data_batch"] in [warning["message"] for warning in new_agent["warnings"]]


async def test_models_that_the_app_cannot_call_are_warned_of_when_a_graph_is_saved(agency: Agency) -> None:
    of_app: dict[str, Any] = {"app_id": agency.app_id, "name": "think"}
    nodes: dict[str, Any] = {
        name: {"type": "llm", "input_template": "Hello.", "output_key": name}
        for name in ("known", "misspelt", "default")
    }
    nodes["known"]["model"], nodes["misspelt"]["model"] = "baobab/echo", "baobab/ecko"
    nodes["done"] = {"type": "end"}
    graph = build_graph(nodes, ("known", "misspelt"), ("misspelt", "default"), ("default", "done"))
    for tool in ("agents_validate", "agents_create", "agents_update"):
        answer = await agency.harness.call(
            tool, agency.owner, **of_app, graph_spec=graph, default_model="nobody/has-it"
        )
        assert sorted(answer["warnings"], key=lambda warning: warning["path"]) == [
            {"path": ["default_model"], "message": 'the app can call no model "nobody/has-it" now'},
            {
                "path": ["nodes", "misspelt", "model"],
                "message": 'the app can call no model "baobab/ecko" now; did you mean "baobab/echo"?',
            },
        ], tool
    await agency.harness.call("ai_config_update", agency.owner, app_id=agency.app_id, allowedModels=["baobab/picture"])
    nodes["misspelt"]["model"] = nodes["default"]["model"] = "baobab/echo"
    answer = await agency.harness.call("agents_validate", agency.owner, **of_app, graph_spec=graph)
    assert {warning["message"] for warning in answer["warnings"]} == {
        'the app\'s settings do not allow the model "baobab/echo"'
    }
