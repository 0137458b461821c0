"""The prompt `quickstart`: first calls, with what the visitor has."""

from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import ERAS, send_message
from tests.people import create_key, create_person

USER = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"

each_era = pytest.mark.parametrize("era", ERAS)


async def read_prompt(baobab: Baobab, app_id: str | None = None, **how: Any) -> str:
    """The text of the prompt."""
    params = {"name": "quickstart", "arguments": {} if app_id is None else {"app_id": app_id}}
    (message,) = (await send_message(baobab, "prompts/get", params, **how)).result["messages"]
    assert message["role"] == "user"
    text: str = message["content"]["text"]
    return text


@each_era
async def test_the_prompt_is_listed_with_its_argument(baobab: Baobab, era: str) -> None:
    (prompt,) = (await send_message(baobab, "prompts/list", era=era)).result["prompts"]
    assert prompt["name"] == "quickstart"
    assert prompt["title"]
    assert prompt["description"]
    (argument,) = prompt["arguments"]
    assert argument["name"] == "app_id"
    assert not argument.get("required")


@each_era
async def test_without_an_app_it_begins_with_finding_or_making_one(baobab: Baobab, era: str) -> None:
    text = await read_prompt(baobab, era=era)
    assert text.index("apps_list") < text.index("apps_init") < text.index("kv_put")
    for word in ("remediation", "APPROVAL_REQUIRED", "search_tools", "call_tool"):
        assert word in text


@each_era
async def test_with_an_app_its_name_and_id_are_filled_in(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    name = (await baobab.client.get(f"/v1/{app_id}/config", headers=baobab.owner)).json()["name"]
    text = await read_prompt(baobab, app_id, era=era)
    assert f"the app {name} ({app_id})" in text
    assert f'kv_put {{"app_id":"{app_id}","key":"greeting"' in text
    assert "apps_init" not in text


async def test_an_argument_left_empty_is_one_left_out(baobab: Baobab) -> None:
    assert await read_prompt(baobab, "") == await read_prompt(baobab)


async def test_a_connection_for_one_app_is_told_that_no_tool_asks_for_it(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    for text in (
        await read_prompt(baobab, path=f"/mcp?app_id={app_id}"),
        await read_prompt(baobab, by=await create_key(baobab, key_scope="app", target_app_id=app_id)),
    ):
        assert f"({app_id})" in text
        assert 'kv_get {"key":"greeting"}' in text


async def test_only_tools_that_the_connection_has_are_named(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    text = await read_prompt(baobab, app_id, path="/mcp?toolsets=kv&read_only=true")
    assert "kv_get" in text
    for name in ("kv_put", "config_get", "search_tools"):
        assert name not in text


async def test_a_key_that_acts_for_a_user_is_told_of_its_app_by_id(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    app_key = await create_key(baobab, key_scope="app", target_app_id=app_id)
    text = await read_prompt(baobab, by={**app_key, "x-platform-as-user": USER})
    assert app_id in text
    assert "kv_get" in text
    assert "apps_init" not in text


async def test_a_key_that_does_not_open_settings_is_told_of_its_app_by_id(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    assert f"the app {app_id}" in await read_prompt(baobab, app_id, by=await create_key(baobab, toolsets=["kv"]))


@each_era
async def test_a_foreign_app_looks_exactly_like_a_missing_one(baobab: Baobab, era: str) -> None:
    app_id, other = await baobab.create_app(), await baobab.create_app()
    callers = (
        (await create_person(baobab, "stranger")).headers,
        await create_key(baobab, key_scope="app", target_app_id=other),
    )
    for by in callers:
        errors = []
        for requested_id in (app_id, "app_0000000000ab"):
            params = {"name": "quickstart", "arguments": {"app_id": requested_id}}
            error = (await send_message(baobab, "prompts/get", params, by=by, era=era)).error
            assert error["data"].pop("details") == {"app_id": requested_id}
            errors.append(error)
        assert errors[0] == errors[1]
        assert errors[0]["code"] == -32602
        assert errors[0]["data"]["code"] == "APP_NOT_FOUND"


@each_era
@pytest.mark.parametrize(
    ("params", "code"),
    [
        ({"name": "slowstart"}, "RESOURCE_NOT_FOUND"),
        ({"name": "quickstart", "arguments": {"app": "x"}}, "VALIDATION_INVALID_SCHEMA"),
        ({"name": "quickstart", "arguments": {"app_id": "../x"}}, "APP_NOT_FOUND"),
        ({"name": "quickstart", "arguments": {"app_id": 7}}, "PROTOCOL_INVALID_PARAMS"),
    ],
)
async def test_what_cannot_be_answered_is_refused_with_a_remedy(
    baobab: Baobab, era: str, params: dict[str, Any], code: str
) -> None:
    error = (await send_message(baobab, "prompts/get", params, era=era)).error
    assert error["code"] == -32602
    assert error["data"]["code"] == code
    assert error["data"]["remediation"]
