"""What models and people are told about undo, left-out fields, missing tools and open data is what happens."""

import re
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool, read_refusal, send_message
from tests.people import create_key

_WHOLE = "/mcp?toolsets=all"
_USER = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"


async def call(baobab: Baobab, tool: str, by: Any = None, **arguments: Any) -> dict[str, Any]:
    return await call_tool(baobab, tool, arguments, path=_WHOLE, by=by)


async def create_table(baobab: Baobab) -> str:
    app_id = await baobab.create_app()
    columns = {"id": {"type": "integer", "primaryKey": True}, "name": "text"}
    await call(baobab, "schema_apply", app_id=app_id, schema={"tables": {"items": {"columns": columns}}})
    await call(baobab, "data_insert", app_id=app_id, table="items", values=[{"id": 1, "name": "a"}])
    return app_id


async def read_quickstart(baobab: Baobab) -> str:
    answer = await send_message(baobab, "prompts/get", {"name": "quickstart"}, path=_WHOLE)
    return str(answer.result["messages"][0]["content"]["text"])


async def test_quickstart_says_what_can_be_restored_and_it_can(baobab: Baobab) -> None:
    text = await read_quickstart(baobab)
    days = baobab.application.services.options.undo_days
    assert f"data_undo brings back rows, and tables and columns that schema_apply dropped, within {days} days" in text
    app_id = await create_table(baobab)
    drop = await call(baobab, "schema_apply", app_id=app_id, schema={"_drop": ["items"]})
    action = drop["structuredContent"]["action_id"]
    assert not (await call(baobab, "data_undo", app_id=app_id, action_id=action)).get("isError")
    rows = (await baobab.client.get(f"/v1/{app_id}/items", headers=baobab.owner)).json()
    assert rows == [{"id": 1, "name": "a"}]


async def test_quickstart_counts_the_tools_that_it_offers(baobab: Baobab) -> None:
    (count,) = re.findall(r"offers (\d+) tools", await read_quickstart(baobab))
    listed_tools = (await send_message(baobab, "tools/list", path=_WHOLE)).result
    names = [tool["name"] for tool in listed_tools["tools"]]
    while (cursor := listed_tools.get("nextCursor")) is not None:
        listed_tools = (await send_message(baobab, "tools/list", {"cursor": cursor}, path=_WHOLE)).result
        names += [tool["name"] for tool in listed_tools["tools"]]
    assert int(count) == len(names)


async def test_an_unknown_argument_is_an_error_and_an_unknown_column_a_warning(baobab: Baobab) -> None:
    app_id = await create_table(baobab)
    values = [{"id": 2, "nmae": "b"}]
    refusal = read_refusal(await call(baobab, "data_insert", app_id=app_id, table="items", values=values, deep=True))
    assert "`deep`" in refusal["message"]
    result = await call(baobab, "data_insert", app_id=app_id, table="items", values=values)
    assert "nmae" in " ".join(part["text"] for part in result["content"])


async def test_a_tool_that_is_not_offered_says_where_it_is(baobab: Baobab) -> None:
    tools = baobab.application.registry.tools
    for name in ("auth_signup", "agents_public_run"):
        error = (await send_message(baobab, "tools/call", {"name": name, "arguments": {}}, path=_WHOLE)).error
        rest = tools[name].rest
        assert rest is not None
        assert f"{name} is not called over MCP, only over REST: {rest.method} {rest.path}" in error["message"]


@pytest.mark.parametrize("tool", ["data_delete", "data_delete_many", "schema_apply"])
async def test_an_approval_of_rows_does_not_say_that_they_are_gone_for_good(baobab: Baobab, tool: str) -> None:
    app_id = await create_table(baobab)
    key = await create_key(baobab, approval="destructive")
    arguments_by_tool: dict[str, dict[str, Any]] = {
        "data_delete": {"table": "items", "row_id": "1"},
        "data_delete_many": {"table": "items", "where": {"id": "eq.1"}},
        "schema_apply": {"schema": {"_drop": ["items"]}},
    }
    refusal = read_refusal(await call(baobab, tool, key, app_id=app_id, **arguments_by_tool[tool]))
    assert refusal["code"] == "APPROVAL_REQUIRED"
    assert "data_undo" in refusal["details"]["summary"]
    assert "cannot be undone" not in refusal["details"]["summary"]


async def test_a_refused_user_is_not_told_to_sign_in_or_to_ask_what_users_may_not(baobab: Baobab) -> None:
    app_id = await create_table(baobab)
    user = await baobab.user_headers(app_id, _USER)
    key = (await baobab.client.get(f"/v1/{app_id}/kv/secret", headers=user)).json()
    assert "Sign in" not in str(key)
    row = await baobab.client.post(f"/v1/{app_id}/items", json={"id": 5}, headers=user)
    assert (row.status_code, "whoever runs the app" in row.json()["error"]["remediation"]) == (403, True)


async def test_the_address_of_no_app_is_refused_at_once(baobab: Baobab) -> None:
    answer = await send_message(baobab, "tools/list", path="/mcp?app_id=app_aaaaaaaaaaaa")
    assert (answer.status, answer.error["data"]["code"]) == (404, "APP_NOT_FOUND")


async def test_an_order_is_corrected_with_an_order(baobab: Baobab) -> None:
    app_id = await create_table(baobab)
    refusal = read_refusal(await call(baobab, "data_list", app_id=app_id, table="items", order="price desc"))
    assert refusal["remediation"].startswith("Write `order=id.desc`")
    assert not (await call(baobab, "data_list", app_id=app_id, table="items", order="id.desc")).get("isError")


async def test_a_number_is_lowered_safely_by_naming_the_value_that_was_read(baobab: Baobab) -> None:
    for question in ("stock minus one", "Lagerbestand um eins verringern", "reducir existencias", "diminuer le stock"):
        matches = (await call_tool(baobab, "search_tools", {"query": question}))["structuredContent"]
        assert matches["tools"][0]["name"] in ("data_update_many", "kv_decr"), question
    app_id = await baobab.create_app()
    columns = {"id": {"type": "integer", "primaryKey": True}, "stock": "integer"}
    await call(baobab, "schema_apply", app_id=app_id, schema={"tables": {"items": {"columns": columns}}})
    await call(baobab, "data_insert", app_id=app_id, table="items", values={"id": 7, "stock": 5})
    step = {"where": {"id": "eq.7", "stock": "eq.5"}, "changes": {"stock": 4}}
    first, late = [await call(baobab, "data_update_many", app_id=app_id, table="items", **step) for _ in range(2)]
    assert first["structuredContent"]["rows"] == [{"id": 7, "stock": 4}]
    assert late["structuredContent"]["rows"] == []


async def test_the_remedy_of_a_second_row_with_a_unique_value_updates_the_first(baobab: Baobab) -> None:
    app_id = await create_table(baobab)
    arguments = {"app_id": app_id, "table": "items", "values": {"id": 1, "name": "b"}}
    refusal = read_refusal(await call(baobab, "data_insert", **arguments))
    assert refusal["code"] == "VALIDATION_UNIQUE_CONSTRAINT_VIOLATION"
    assert "data_insert does if its `on_conflict` names the unique columns" in refusal["remediation"]
    result = await call(baobab, "data_insert", **arguments, on_conflict="id")
    assert result["structuredContent"]["rows"] == [{"id": 1, "name": "b"}]


async def test_who_acts_as_a_user_whom_the_app_does_not_have_is_told(baobab: Baobab) -> None:
    app_id = await create_table(baobab)
    changes = {"where": {"id": "eq.1"}, "changes": {"name": "b"}}
    for tool, arguments in (("data_list", {}), ("data_update_many", changes)):
        answer = await call(baobab, tool, app_id=app_id, table="items", as_user=_USER, **arguments)
        assert f"The app has no user {_USER}" in answer["content"][-1]["text"], tool
    person = {"email": "ada@example.com", "password": "A long enough passw0rd"}
    signup = await baobab.client.post(f"/auth/{app_id}/signup", json=person)
    assert signup.status_code < 300, signup.text
    users = (await call(baobab, "users_list", app_id=app_id))["structuredContent"]["users"]
    own_answer = await call(baobab, "data_list", app_id=app_id, table="items", as_user=users[0]["id"])
    assert len(own_answer["content"]) == 1
