"""What a request has that its answer leaves out is named: in a header over REST, and beside the result over MCP."""

import json
from typing import Any

import pytest

from tests.http.installation import Answer
from tests.tools.data.conftest import ADA, Tables

pytestmark = pytest.mark.asyncio(loop_scope="module")

_TODOS: dict[str, Any] = {
    "columns": {
        "id": {"type": "serial", "primaryKey": True},
        "title": "text",
        "size": "integer",
        "twice": {"type": "integer", "generated": "size * 2"},
    }
}
_TITEL = "`todos` has no column `titel`, so what you sent for it was left out. Did you mean `title`?"


def read_warnings(answer: Answer) -> list[str]:
    assert answer.status < 300, answer.content
    warnings: list[str] = json.loads(answer.headers.get("x-baobab-warnings", "[]"))
    return warnings


@pytest.fixture
async def todos(tables: Tables) -> Tables:
    await tables.apply({"todos": _TODOS, "notes": {"columns": {"id": {"type": "serial", "primaryKey": True}}}})
    await tables.insert("todos", {"title": "a", "size": 1})
    return tables


async def call_tool(
    tables: Tables, name: str, arguments: dict[str, Any], further_params: dict[str, Any] | None = None
) -> dict[str, Any]:
    params = {"name": name, "arguments": {"app_id": tables.app.id, **arguments}, **(further_params or {})}
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {
        **tables.world.owner,
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2025-06-18",
    }
    answer = await tables.world.ask("POST", "/mcp", headers, message)
    text = answer.content.decode()
    if text.startswith(("event:", "data:")):
        text = next(line[5:] for line in text.splitlines() if line.startswith("data:"))
    assert "result" in text, text
    result: dict[str, Any] = json.loads(text)["result"]
    assert not result["isError"], result
    return result


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/todos", {"title": "b", "titel": "c"}),
        ("POST", "/todos", [{"title": "b"}, {"title": "c", "titel": "d"}]),
        ("POST", "/todos?on_conflict=id", {"id": 1, "titel": "b"}),
        ("PATCH", "/todos/1", {"size": 2, "titel": "b"}),
        ("PATCH", "/todos?id=eq.1", {"size": 2, "titel": "b"}),
        ("POST", "/data-batch", {"writes": [{"op": "insert", "table": "todos", "values": {"titel": "b", "size": 1}}]}),
    ],
)
async def test_a_key_that_is_no_column_is_named_by_every_write(
    todos: Tables, method: str, path: str, body: Any
) -> None:
    assert read_warnings(await todos.ask(method, path, body)) == [_TITEL]
    for _ in range(2):
        assert read_warnings(await todos.ask(method, path, body, idempotency_key="once")) == [_TITEL]


async def test_what_is_written_as_it_was_sent_has_no_warning(todos: Tables) -> None:
    [row] = await todos.list("todos")
    assert read_warnings(await todos.ask("PATCH", "/todos/1", row)) == []
    assert read_warnings(await todos.ask("POST", "/todos?columns=title", {"title": "a", "titel": "b"})) == []
    assert read_warnings(await todos.ask("GET", "/todos?select=id,name:title,*")) == []


async def test_a_column_that_a_query_selects_and_the_table_does_not_have_is_named(todos: Tables) -> None:
    expected_warnings = ["`todos` has no column `titel`, so it was left out. Did you mean `title`?"]
    for path in ("/todos?select=id,titel", "/todos/1?select=id,titel", "/data-export/todos?select=id,titel"):
        assert read_warnings(await todos.ask("GET", path)) == expected_warnings
    for method, body in (("PATCH", {"size": 1}), ("DELETE", None)):
        assert read_warnings(await todos.ask(method, "/todos?id=eq.1&select=id,titel", body)) == expected_warnings


async def test_many_warnings_are_bounded_and_say_how_many_more_there_are(todos: Tables) -> None:
    row = {"title": "b"} | {f"key{number}{'é' * 50}": 1 for number in range(300)}
    answer = await todos.ask("POST", "/todos", row)
    assert len(answer.headers["x-baobab-warnings"]) < 5000
    warnings = read_warnings(answer)
    assert 2 < len(warnings) <= 11
    assert "more" in warnings[-1]


@pytest.mark.parametrize("progress", [{}, {"_meta": {"progressToken": 1}}])
async def test_a_model_is_told_beside_the_result(todos: Tables, progress: dict[str, Any]) -> None:
    arguments = {"table": "todos", "values": {"title": "b", "titel": "c"}}
    result = await call_tool(todos, "data_insert", arguments, progress)
    assert json.loads(result["content"][0]["text"])["rows"][0]["title"] == "b"
    assert [block["text"] for block in result["content"][1:]] == [f"Warnings: {_TITEL}"]
    assert result["_meta"]["baobab/warnings"] == [_TITEL]


async def test_a_schema_of_the_database_that_is_not_there_is_refused(todos: Tables) -> None:
    user = await todos.user(ADA)
    for by in (None, user):
        read = await todos.ask("GET", "/todos", None, by, accept_profile="reports")
        write_answer = await todos.ask("POST", "/todos", {"title": "b"}, by, content_profile="reports")
        for answer in (read, write_answer):
            assert (answer.status, answer.json["error"]["code"]) == (406, "PGRST106")
    assert (await todos.ask("GET", "/todos", accept_profile="public")).status == 200
    assert len(await todos.list("todos")) == 1


async def test_keys_without_a_value_are_left_out_if_the_request_accepts_that(todos: Tables) -> None:
    array_type = "application/vnd.pgrst.array+json;nulls=stripped"
    [row] = await todos.insert("todos", {"title": "b"})
    assert await todos.list(f"todos?id=eq.{row['id']}", accept=array_type) == [{"id": row["id"], "title": "b"}]
    one = "application/vnd.pgrst.object+json; nulls=stripped"
    assert await todos.list(f"todos?id=eq.{row['id']}", accept=one) == {"id": row["id"], "title": "b"}
    answer = await todos.ask("POST", "/todos", {"size": None, "title": "c"}, accept=array_type)
    assert answer.json.keys() == {"id", "title"}


async def test_a_form_of_rows_that_is_not_there_is_refused_and_nothing_is_written(todos: Tables) -> None:
    for media_type in ("application/geo+json", "application/vnd.pgrst.made-up", "application/vnd.pgrst.plan+json"):
        for method, path, body in (("POST", "/todos", {"title": "b"}), ("DELETE", "/todos?id=eq.1", None)):
            answer = await todos.ask(method, path, body, accept=media_type)
            assert (answer.status, answer.json["error"]["code"]) == (406, "PGRST107"), media_type
    assert len(await todos.list("todos")) == 1
    for media_type in (
        "text/html,application/xhtml+xml,*/*;q=0.8",
        "application/geo+json, application/json",
        "image/png",
    ):
        assert len(await todos.list("todos", accept=media_type)) == 1


async def test_a_key_of_the_app_sees_how_the_database_reads_and_which_index_it_uses(todos: Tables) -> None:
    table = {**_TODOS, "indexes": {"todos_title": {"columns": ["title", "id"]}}}
    await todos.apply({"todos": table, "notes": {"columns": {"id": {"type": "serial", "primaryKey": True}}}})
    await todos.insert("todos", *[{"title": str(number)} for number in range(500)])
    query = "title=eq.7&order=id&limit=1"
    plan = await todos.list(f"todos?{query}", accept="application/vnd.pgrst.plan+json")
    assert "todos_title" in json.dumps(plan)
    text = 'application/vnd.pgrst.plan+text; for="application/json"; options=analyze|verbose;'
    assert b"todos_title" in (await todos.ask("GET", f"/todos?{query}", accept=text)).content
    plan_answer = (await todos.ask("GET", f"/data-explain/todos?{query}")).json
    assert "todos_title" in json.dumps(plan_answer["plan"])
    assert "?" in plan_answer["sql"]
    result = await call_tool(todos, "data_explain", {"table": "todos", "where": {"title": "eq.7"}, "analyze": True})
    assert "todos_title" in result["content"][0]["text"]


async def test_users_and_visitors_see_no_plan(todos: Tables) -> None:
    await todos.policy("todos", "open", using_expression="true")
    for by in ({}, await todos.user(ADA)):
        answer = await todos.ask("GET", "/todos", None, by, accept="application/vnd.pgrst.plan+json")
        assert (answer.status in (401, 403), answer.json["error"]["code"][:5]) == (True, "AUTH_"), answer.content
        assert (await todos.ask("GET", "/data-explain/todos", None, by)).status in (401, 403)
