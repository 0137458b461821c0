"""Graphs read and write the rows of their app by the names that graphs from elsewhere have for it."""

import json
from typing import Any

import pytest

from baobab.tools.core.context import RequestContext
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_models_and_tools import tool_refs

_TASKS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "title": {"type": "text", "nullable": False},
        "status": {"type": "text", "default": "'open'"},
    }
}
_NAMES = ("query_table", "insert_row", "update_row", "delete_row")


@pytest.fixture
async def tasks(agency: Agency) -> Agency:
    await agency.harness.call("schema_apply", agency.owner, app_id=agency.app_id, schema={"tables": {"tasks": _TASKS}})
    for title in ("One", "Two"):
        await agency.harness.call(
            "data_insert", agency.owner, app_id=agency.app_id, table="tasks", values={"title": title}
        )
    return agency


async def _list(tasks: Agency) -> list[tuple[str, str]]:
    rows = await tasks.harness.call("data_list", tasks.owner, app_id=tasks.app_id, table="tasks")
    return [(row["title"], row["status"]) for row in rows]


def _graph(prompt: str, *names: str) -> dict[str, Any]:
    think = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": tool_refs(*names)}
    end = {"type": "end", "output_template": "{{ state.answer }}"}
    return build_graph({"think": think, "done": end}, ("think", "done"), tools={"builtin": list(names)})


def _tool_node(name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    ref = {"source": "builtin", "name": name}
    node = {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}
    end = {"type": "end", "output_template": "{{ state.answer }}"}
    return build_graph({"call": node, "done": end}, ("call", "done"), tools={"builtin": [name]})


async def test_a_model_queries_a_table_and_its_write_waits_for_a_person(tasks: Agency) -> None:
    query = json.dumps({"table": "tasks", "filter": {"title": "eq.One"}, "limit": 5})
    insert = json.dumps({"table": "tasks", "values": {"title": "Three"}})
    await tasks.create_agent("a", _graph(f"/call query_table {query}\n/then insert_row {insert}", *_NAMES))
    run = await tasks.run_agent("a")
    assert run["status"] == "paused", run
    # What users wrote may be in the rows.
    assert run["tainted"] is True
    payload = (await tasks.list_events("a", run["id"], "run_paused"))[-1]["payload"]
    assert payload["tool_name"] == "insert_row"
    assert await _list(tasks) == [("One", "open"), ("Two", "open")]
    run = await tasks.decide("a", run["id"])
    assert run["status"] == "completed", run
    assert await _list(tasks) == [("One", "open"), ("Two", "open"), ("Three", "open")]


@pytest.mark.parametrize(
    ("name", "arguments", "preview", "rows"),
    [
        (
            "update_row",
            {"table": "tasks", "id": "1", "patch": {"status": "done", "title": "One"}},
            '{"status": ["open", "done"]}',
            [("One", "done"), ("Two", "open")],
        ),
        ("delete_row", {"table": "tasks", "id": "2"}, "'title': 'Two'", [("One", "open")]),
        (
            "insert_row",
            {"table": "tasks", "values": {"title": "Three", "status": "new"}},
            '"title": "Three"',
            [("One", "open"), ("Two", "open"), ("Three", "new")],
        ),
        (
            "data_update_many",
            {"table": "tasks", "where": {"status": "eq.open"}, "changes": {"status": "done"}},
            "2 rows",
            [("One", "done"), ("Two", "done")],
        ),
    ],
)
async def test_who_approves_a_write_sees_rows_before_and_after(
    tasks: Agency, name: str, arguments: dict[str, Any], preview: str, rows: list[tuple[str, str]]
) -> None:
    await tasks.create_agent("a", _tool_node(name, arguments))
    run = await tasks.run_agent("a")
    assert run["status"] == "paused", run
    [waiting] = (await tasks.harness.call("approvals_list", tasks.owner))["approvals"]
    result = await tasks.harness.call("approvals_get", tasks.owner, approval_id=waiting["id"])
    assert preview in str(result), result
    await tasks.decide("a", run["id"])
    assert sorted(await _list(tasks)) == sorted(rows)


async def test_a_write_that_would_fail_is_told_at_once(tasks: Agency) -> None:
    await tasks.create_agent("a", _tool_node("update_row", {"table": "tasks", "id": "9", "patch": {"status": "done"}}))
    run = await tasks.run_agent("a")
    assert run["status"] == "failed", run
    assert "no row" in run["error"]["message"]


async def test_runs_of_users_read_what_policies_open_and_are_not_offered_writes(tasks: Agency) -> None:
    insert = json.dumps({"table": "tasks", "values": {"title": "Three"}})
    await tasks.create_agent("writer", _graph(f"/call insert_row {insert}", *_NAMES), visibility="authenticated")
    run = await tasks.run_agent("writer", tasks.end_user("ada"))
    assert "no tool called `insert_row`; there are query_table." in run["output"]
    query = json.dumps({"table": "tasks"})
    await tasks.create_agent("reader", _graph(f"/call query_table {query}", *_NAMES), visibility="authenticated")
    run = await tasks.run_agent("reader", tasks.end_user("ada"))
    [end_event] = await tasks.list_events("reader", run["id"], "tool_call_end")
    assert end_event["payload"]["status"] == "ok"
    # No policy opens a row to users.
    assert "One" not in str(run)


async def test_what_an_answer_leaves_out_is_told_to_the_model_and_in_the_event(tasks: Agency) -> None:
    query = json.dumps({"table": "tasks", "select": "id,titel"})
    await tasks.create_agent("a", _graph(f"/call query_table {query}\n/say $1", *_NAMES))
    run = await tasks.run_agent("a")
    warning = "`tasks` has no column `titel`, so it was left out. Did you mean `title`?"
    (event,) = await tasks.list_events("a", run["id"], "tool_call_end")
    assert event["payload"]["warnings"] == [warning]
    names = {"app_id": tasks.app_id, "name": "a", "id": run["id"]}
    answer = await tasks.harness.call("agents_runs_model_calls", tasks.owner, **names)
    assert f"Warnings: {warning}" in json.dumps(answer["model_calls"][-1], default=str)


_TITEL = '"tasks" has no column "titel", so that the call would be refused; did you mean "title"?'


@pytest.mark.parametrize(
    ("tool", "arguments", "paths"),
    [
        ("insert_row", {"table": "tasks", "values": {"title": "a", "titel": "b"}}, [["values", "titel"]]),
        ("data_insert", {"table": "tasks", "values": [{"titel": "b"}, {"titel": "c"}]}, [["values", 0, "titel"]]),
        ("update_row", {"table": "tasks", "id": "1", "patch": {"titel": "{{ input.title }}"}}, [["patch", "titel"]]),
        (
            "data_update_many",
            {"table": "tasks", "where": {"titel": "eq.a", "or": "(id.eq.1)"}, "changes": {"titel": "b"}},
            [["changes", "titel"], ["where", "titel"]],
        ),
        ("query_table", {"table": "tasks", "filter": {"titel": "eq.a"}, "limit": 5}, [["filter", "titel"]]),
        (
            "data_batch",
            {"writes": [{"op": "update", "table": "tasks", "where": {"id": "eq.1"}, "changes": {"titel": "b"}}]},
            [["writes", 0, "changes", "titel"]],
        ),
    ],
)
async def test_saving_a_graph_warns_of_columns_that_its_tables_do_not_have(
    tasks: Agency, tool: str, arguments: dict[str, Any], paths: list[list[Any]]
) -> None:
    fields: dict[str, Any] = {"app_id": tasks.app_id, "name": "a", "graph_spec": _tool_node(tool, arguments)}
    report = await tasks.harness.call("agents_validate", tasks.owner, **fields)
    new_agent = await tasks.harness.call("agents_create", tasks.owner, **fields)
    changed_agent = await tasks.harness.call("agents_update", tasks.owner, **fields)
    for answer in (report, new_agent, changed_agent):
        warnings = {tuple(warning["path"]): warning["message"] for warning in answer["warnings"]}
        for path in paths:
            assert warnings["nodes", "call", "args_template", *path] == _TITEL


async def test_a_graph_whose_columns_are_known_only_to_its_runs_has_no_warning(tasks: Agency) -> None:
    graph = _tool_node("insert_row", {"table": "tasks", "values": "{{ input.row }}"})
    assert "warnings" not in await tasks.create_agent("a", graph)


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("insert_row", {"table": "tasks", "values": {"title": "Three", "note": "lost"}}),
        ("update_row", {"table": "tasks", "id": "1", "patch": {"title": "Three", "note": "lost"}}),
        ("data_update_many", {"table": "tasks", "where": {"id": "eq.1"}, "changes": {"title": "x", "note": "lost"}}),
        (
            "data_batch",
            {"writes": [{"op": "insert", "table": "tasks", "values": {"title": "Three", "note": "lost"}}]},
        ),
    ],
)
async def test_a_run_that_writes_a_column_which_is_gone_fails_and_writes_nothing(
    tasks: Agency, tool: str, arguments: dict[str, Any]
) -> None:
    await tasks.create_agent("a", _tool_node(tool, arguments))
    rows = await _list(tasks)
    run = await tasks.run_agent("a")
    assert run["status"] == "failed", run
    assert await tasks.harness.call("approvals_list", tasks.owner) == {"approvals": [], "next_cursor": None}
    assert "`tasks` has no column `note`" in run["error"]["message"]
    assert "title" in run["error"]["details"]["columns"]
    assert await _list(tasks) == rows


async def test_a_column_that_is_renamed_while_a_call_waits_fails_the_call_and_loses_nothing(tasks: Agency) -> None:
    await tasks.create_agent("a", _tool_node("insert_row", {"table": "tasks", "values": {"title": "a", "status": "b"}}))
    run = await tasks.run_agent("a")
    assert run["status"] == "paused", run
    schema = {"tables": {"tasks": {"_renameColumns": {"status": "state"}}}}
    await tasks.harness.call("schema_apply", tasks.owner, app_id=tasks.app_id, schema=schema, mode="merge")
    token = (await tasks.list_events("a", run["id"], "run_paused"))[-1]["payload"]["approval_token"]
    resume = {"app_id": tasks.app_id, "name": "a", "id": run["id"], "approval_token": token, "approved": True}
    refusal = await tasks.catch_refusal("agents_runs_resume", tasks.owner, **resume)
    assert refusal.code == "APPROVAL_WOULD_FAIL"
    run = await tasks.decide("a", run["id"], even_if_failing=True)
    assert run["status"] == "failed", run
    assert "`tasks` has no column `status`" in run["error"]["message"]
    rows = await tasks.harness.call("data_list", tasks.owner, app_id=tasks.app_id, table="tasks")
    assert [row["title"] for row in rows] == ["One", "Two"]


async def test_a_change_of_the_schema_names_the_agents_that_use_what_it_takes_away(tasks: Agency) -> None:
    await tasks.create_agent("adder", _tool_node("insert_row", {"table": "tasks", "values": {"status": "new"}}))
    await tasks.create_agent("asker", _tool_node("query_table", {"table": "tasks", "filter": {"status": "eq.new"}}))
    await tasks.create_agent("opener", _tool_node("insert_row", {"table": "tasks", "values": "{{ input.row }}"}))
    await tasks.create_agent("titler", _tool_node("insert_row", {"table": "tasks", "values": {"title": "a"}}))
    await tasks.create_agent("gone", _tool_node("insert_row", {"table": "tasks", "values": {"status": "new"}}))
    await tasks.harness.call("agents_delete", tasks.owner, app_id=tasks.app_id, name="gone")

    async def apply(schema: dict[str, Any], **more: Any) -> list[str]:
        fields = {"app_id": tasks.app_id, "schema": schema, "mode": "merge", **more}
        answer = await tasks.harness.call("schema_apply", tasks.owner, **fields)
        action_ids.append(answer.get("action_id"))
        warnings: list[str] = answer.get("warnings", [])
        return [warning for warning in warnings if warning.startswith("The agent ")]

    action_ids: list[str | None] = []
    remedy = "its calls are refused until you change the graph with agents_update."
    expected_warnings = [
        f"The agent adder (node call) uses `tasks.status`, which this takes away: {remedy}",
        f"The agent asker (node call) uses `tasks.status`, which this takes away: {remedy}",
        "The agent opener (node call) writes columns of `tasks` that only its runs name. If `status` is among them, "
        + remedy,
    ]
    rename = {"tables": {"tasks": {"_renameColumns": {"status": "state"}}}}
    assert await apply(rename, dry_run=True) == expected_warnings
    assert await apply(rename) == expected_warnings
    assert await apply({"tables": {"tasks": {"columns": {"note": "text"}}}}) == []
    await tasks.harness.call(
        "agents_update",
        tasks.owner,
        app_id=tasks.app_id,
        name="adder",
        graph_spec=_tool_node("insert_row", {"table": "tasks", "values": {"state": "new"}}),
    )
    undoing = await tasks.harness.call("data_undo", tasks.owner, app_id=tasks.app_id, action_id=action_ids[1])
    assert f"The agent adder (node call) uses `tasks.state`, which this takes away: {remedy}" in undoing["warnings"]
    dropping = await apply({"tables": {}, "_drop": ["tasks"]})
    assert [warning.split(",")[0] for warning in dropping] == [
        f"The agent {name} (node call) uses `tasks`" for name in ("adder", "asker", "opener", "titler")
    ]


async def test_reading_a_paused_run_says_which_decision_it_waits_for(tasks: Agency) -> None:
    await tasks.create_agent("a", _tool_node("insert_row", {"table": "tasks", "values": {"title": "Three"}}))
    run = await tasks.run_agent("a")
    [waiting] = (await tasks.harness.call("approvals_list", tasks.owner, status="pending"))["approvals"]
    registry, arguments = tasks.harness.registry, {"app_id": tasks.app_id, "name": "a", "id": run["id"]}
    context = RequestContext("mcp", "r")
    _, call = await registry.run(registry.find("agents_runs_get"), arguments, tasks.owner, context)
    assert call.warnings == [
        f"The run waits for a person's decision about data_insert: approvals_get shows {waiting['id']}."
    ]
    await tasks.decide("a", run["id"])
    _, call = await registry.run(registry.find("agents_runs_get"), arguments, tasks.owner, context)
    assert call.warnings is None
