"""Graphs read and write the rows of their app by the names that graphs from elsewhere have for it."""

import json
from typing import Any

import pytest

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
