"""Arguments that models spell in another way mean what they can only mean."""

from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool, read_refusal, send_message

SCHEMA = {
    "tables": {
        "posts": {
            "columns": {
                "id": {"type": "integer", "primaryKey": True},
                "title": {"type": "text"},
                "price": {"type": "integer"},
                "is_open": {"type": "boolean"},
            }
        }
    }
}
ROWS = [
    {"id": 1, "title": "a", "price": 48, "is_open": True},
    {"id": 2, "title": "b", "price": 50, "is_open": False},
    {"id": 3, "title": "c", "price": None, "is_open": True},
]


async def create_app_with_rows(baobab: Baobab) -> str:
    app_id = await baobab.create_app()
    for tool, arguments in (("schema_apply", {"schema": SCHEMA}), ("data_insert", {"table": "posts", "rows": ROWS})):
        result = await call_tool(baobab, tool, {"app_id": app_id, **arguments})
        assert not result.get("isError"), result
    return app_id


@pytest.mark.parametrize(
    ("arguments", "expected_ids"),
    [
        ({"where": {"price": 48}}, [1]),
        ({"where": {"title": "b"}}, [2]),
        ({"filter": {"price": "gt.40"}}, [1, 2]),
        ({"where": {"is_open": True}}, [1, 3]),
        ({"where": {"price": None}}, [3]),
        ({"where": {"id": [1, 3]}}, [1, 3]),
        ({"select": ["id", "title"]}, [1, 2, 3]),
        ({"order": "id desc"}, [3, 2, 1]),
        ({"order": ["id desc", "title asc"]}, [3, 2, 1]),
        ({"limit": "2"}, [1, 2]),
        ({"table_name": "posts", "table": None}, [1, 2, 3]),
    ],
)
async def test_filters_and_orders_are_read_in_nearby_forms(
    baobab: Baobab, arguments: dict[str, Any], expected_ids: list[int]
) -> None:
    app_id = await create_app_with_rows(baobab)
    wish = {"app_id": app_id, "table": "posts", "order": "id", **arguments}
    if wish["table"] is None:
        del wish["table"]
    result = await call_tool(baobab, "data_list", wish)
    assert not result.get("isError"), result
    ids = [line.split(",")[0].split("}")[0] for line in result["content"][0]["text"].split('"id":')[1:]]
    assert list(map(int, ids)) == expected_ids


@pytest.mark.parametrize("by", [{"row_id": 1}, {"id": 1}, {"row_id": "1"}])
async def test_a_row_is_named_by_a_number_and_by_either_name(baobab: Baobab, by: dict[str, Any]) -> None:
    app_id = await create_app_with_rows(baobab)
    where = {"app_id": app_id, "table": "posts"}
    result = await call_tool(baobab, "data_update", {**where, **by, "patch": {"title": "z"}})
    assert not result.get("isError"), result
    assert "z" in (await call_tool(baobab, "data_get", {**where, **by}))["content"][0]["text"]


async def test_names_of_one_thing_are_the_same_in_every_tool(baobab: Baobab) -> None:
    app_id = await create_app_with_rows(baobab)
    policy = {"app_id": app_id, "table": "posts", "policy": "see", "using": "true"}
    assert not (await call_tool(baobab, "rls_create_policy", policy)).get("isError")
    graph = {
        "spec_version": 1,
        "entry": "done",
        "nodes": {"done": {"type": "end", "output_template": "ok"}},
        "edges": [],
    }
    creation = await call_tool(baobab, "agents_create", {"app_id": app_id, "agent": "a", "graph": graph})
    assert not creation.get("isError"), creation
    run_start = await call_tool(baobab, "agents_run", {"app_id": app_id, "agent": "a", "input": "{}"})
    run_id = run_start["structuredContent"]["run_id"]
    run_answer = await call_tool(baobab, "agents_runs_get", {"app_id": app_id, "agent": "a", "run_id": run_id})
    assert run_answer["structuredContent"]["run"]["id"] == run_id


async def test_an_app_may_be_named_by_its_name(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    name = (await baobab.client.get(f"/v1/{app_id}/config", headers=baobab.owner)).json()["name"]
    assert not (await call_tool(baobab, "kv_put", {"app_id": name, "key": "a", "value": 1})).get("isError")
    assert (await call_tool(baobab, "kv_get", {"app_id": app_id, "key": "a"}))["structuredContent"] == {"value": 1}
    refusal = read_refusal(await call_tool(baobab, "kv_get", {"app_id": "nobody-has-this", "key": "a"}))
    assert refusal["code"] == "APP_NOT_FOUND"


async def test_one_argument_under_two_names_is_refused_if_they_differ(baobab: Baobab) -> None:
    app_id = await create_app_with_rows(baobab)
    wish = {"app_id": app_id, "table": "posts", "where": {"id": 1}, "filter": {"id": 2}}
    refusal = read_refusal(await call_tool(baobab, "data_list", wish))
    assert "`where` are the same argument" in refusal["message"]


async def test_an_error_of_a_form_shows_the_form_and_a_wrong_name_the_nearest(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    refusal = read_refusal(await call_tool(baobab, "data_list", {"app_id": app_id, "table": "posts", "where": "x"}))
    assert "its form is {" in refusal["message"]
    assert '"status":"eq.open"' in refusal["message"]
    refusal = read_refusal(await call_tool(baobab, "kv_put", {"app_id": app_id, "key": "a", "valu": 1}))
    assert "Did you mean `value`?" in refusal["message"]


async def test_the_schemas_show_one_name_for_each_argument(baobab: Baobab) -> None:
    tools = (await send_message(baobab, "tools/list", path="/mcp?toolsets=data")).result["tools"]
    for tool in tools:
        assert not {"filter", "rows", "patch"} & tool["inputSchema"]["properties"].keys()
