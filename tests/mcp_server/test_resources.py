"""Resources: the guide, and each app that the visitor may read."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.conftest import Baobab
from tests.mcp_server.many_apps import create_many_apps
from tests.mcp_server.mcp_requests import ERAS, send_message
from tests.people import create_key, create_person

pytestmark = pytest.mark.own_installation

USER = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
GUIDE = "baobab://llms.txt"

each_era = pytest.mark.parametrize("era", ERAS)


async def list_resources(baobab: Baobab, **how: Any) -> list[dict[str, Any]]:
    """The resources of all pages of the list, without those of the documentation."""
    resources, cursor = [], None
    while True:
        page = (await send_message(baobab, "resources/list", {"cursor": cursor} if cursor else {}, **how)).result
        resources += page["resources"]
        cursor = page.get("nextCursor")
        if cursor is None:
            return [resource for resource in resources if not resource["uri"].startswith("baobab://docs/")]


async def list_uris(baobab: Baobab, by: Mapping[str, str] | None = None, **how: Any) -> list[str]:
    return [resource["uri"] for resource in await list_resources(baobab, by=by, **how)]


async def read_resource(baobab: Baobab, uri: str, **how: Any) -> dict[str, Any]:
    """The one content of a resource."""
    (content,) = (await send_message(baobab, "resources/read", {"uri": uri}, **how)).result["contents"]
    assert content["uri"] == uri
    resource_content: dict[str, Any] = content
    return resource_content


async def read_refusal(baobab: Baobab, uri: str, **how: Any) -> dict[str, Any]:
    """Reads a resource that must be refused. Returns the error, without the requested address."""
    answer = await send_message(baobab, "resources/read", {"uri": uri}, **how)
    return json.loads(json.dumps(answer.error).replace(uri, "URI"))  # type: ignore[no-any-return]


@each_era
async def test_the_guide_is_a_resource(baobab: Baobab, era: str) -> None:
    (guide,) = await list_resources(baobab, era=era)
    assert (guide["uri"], guide["name"], guide["mimeType"]) == (GUIDE, "llms.txt", "text/markdown")
    assert guide["title"]
    assert guide["description"]
    content = await read_resource(baobab, GUIDE, era=era)
    assert content["mimeType"] == "text/markdown"
    assert content["text"] == (await baobab.client.get("/llms.txt")).text


@each_era
async def test_an_account_is_listed_the_apps_of_its_organisation(baobab: Baobab, era: str) -> None:
    older, newer = await baobab.create_app(), await baobab.create_app()
    resources = await list_resources(baobab, era=era)
    assert [resource["uri"] for resource in resources] == [GUIDE, f"baobab://apps/{newer}", f"baobab://apps/{older}"]
    assert resources[1]["mimeType"] == "application/json"
    assert newer in resources[1]["description"]


@each_era
async def test_an_app_tells_what_a_model_wants_to_know_before_it_acts(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    content = await read_resource(baobab, f"baobab://apps/{app_id}", era=era)
    assert content["mimeType"] == "application/json"
    payload = json.loads(content["text"])
    config = (await baobab.client.get(f"/v1/{app_id}/config", headers=baobab.owner)).json()
    for name in ("name", "region", "access_mode", "visibility", "paused", "created_at"):
        assert payload[name] == config[name]
    assert payload["app_id"] == app_id
    assert payload["status"] == "ready"
    assert payload["api_base_url"].endswith(f"/v1/{app_id}")
    assert {"kv_get", "kv_put"} <= set(payload["tools"]["kv"]["names"])


async def test_the_tools_of_an_app_are_those_that_the_connection_offers(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    content = await read_resource(baobab, f"baobab://apps/{app_id}", path="/mcp?toolsets=kv&read_only=true")
    families = json.loads(content["text"])["tools"]
    assert set(families) == {"kv"}
    assert "kv_get" in families["kv"]["names"]
    assert "kv_put" not in families["kv"]["names"]


@each_era
async def test_there_are_templates_for_apps_and_their_tables(baobab: Baobab, era: str) -> None:
    templates = (await send_message(baobab, "resources/templates/list", era=era)).result["resourceTemplates"]
    uris = [template["uriTemplate"] for template in templates]
    assert uris == ["baobab://apps/{app_id}", "baobab://apps/{app_id}/schema"]
    assert {template["mimeType"] for template in templates} == {"application/json"}


@each_era
async def test_the_tables_of_an_app_are_a_resource_for_those_who_run_it(baobab: Baobab, era: str) -> None:
    app_id = await baobab.create_app()
    tables = {"posts": {"columns": {"id": {"type": "serial", "primaryKey": True}, "title": {"type": "text"}}}}
    body = {"schema": {"tables": tables}}
    assert (await baobab.client.post(f"/v1/{app_id}/schema/apply", json=body, headers=baobab.owner)).status_code == 200
    content = await read_resource(baobab, f"baobab://apps/{app_id}/schema", era=era)
    applied_body = (await baobab.client.get(f"/v1/{app_id}/schema", headers=baobab.owner)).json()
    assert json.loads(content["text"]) == applied_body["schema"]
    by = await baobab.user_headers(app_id, USER)
    refusal = await read_refusal(baobab, f"baobab://apps/{app_id}/schema", by=by)
    assert refusal["data"]["code"] == "RESOURCE_NOT_FOUND"


async def test_an_app_key_sees_its_own_app_only(baobab: Baobab) -> None:
    own, other = await baobab.create_app(), await baobab.create_app()
    by = await create_key(baobab, key_scope="app", target_app_id=own)
    assert await list_uris(baobab, by) == [GUIDE, f"baobab://apps/{own}"]
    assert json.loads((await read_resource(baobab, f"baobab://apps/{own}", by=by))["text"])["app_id"] == own
    assert (await read_refusal(baobab, f"baobab://apps/{other}", by=by))["data"]["code"] == "RESOURCE_NOT_FOUND"


async def test_an_end_user_sees_no_page_for_those_who_build_apps(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    by = await baobab.user_headers(app_id, USER)
    assert await list_uris(baobab, by) == []
    assert (await read_refusal(baobab, GUIDE, by=by))["data"]["code"] == "RESOURCE_NOT_FOUND"
    assert (await read_refusal(baobab, f"baobab://apps/{app_id}", by=by))["data"]["code"] == "RESOURCE_NOT_FOUND"


async def test_a_stranger_is_listed_nobody_elses_apps(baobab: Baobab) -> None:
    await baobab.create_app()
    stranger = await create_person(baobab, "stranger")
    assert await list_uris(baobab, stranger.headers) == [GUIDE]


@each_era
async def test_a_foreign_app_looks_exactly_like_a_missing_one(baobab: Baobab, era: str) -> None:
    app_id, other = await baobab.create_app(), await baobab.create_app()
    callers = (
        (await create_person(baobab, "stranger")).headers,
        await create_key(baobab, key_scope="app", target_app_id=other),
        await baobab.user_headers(other, USER),
    )
    for by in callers:
        foreign = await read_refusal(baobab, f"baobab://apps/{app_id}", by=by, era=era)
        missing = await read_refusal(baobab, "baobab://apps/app_0000000000ab", by=by, era=era)
        assert foreign == missing
        assert foreign["code"] == -32602
        assert foreign["data"]["remediation"]


async def test_a_connection_for_one_app_sees_that_app_only(baobab: Baobab) -> None:
    own, other = await baobab.create_app(), await baobab.create_app()
    path = f"/mcp?app_id={own}"
    assert await list_uris(baobab, path=path) == [GUIDE, f"baobab://apps/{own}"]
    assert (await read_resource(baobab, f"baobab://apps/{own}", path=path))["text"]
    assert (await read_refusal(baobab, f"baobab://apps/{other}", path=path))["data"]["code"] == "RESOURCE_NOT_FOUND"


async def test_a_key_that_does_not_open_settings_is_told_so(baobab: Baobab) -> None:
    app_id = await baobab.create_app()
    by = await create_key(baobab, toolsets=["kv"])
    assert await list_uris(baobab, by) == []
    assert (await read_refusal(baobab, f"baobab://apps/{app_id}", by=by))["data"]["code"] == "AUTH_KEY_LIMITED"


@pytest.mark.parametrize(
    "uri", ["baobab://apps/", "baobab://apps/../llms.txt", "baobab://apps", "baobab://nothing", "file:///etc/passwd"]
)
async def test_what_is_no_address_of_a_resource_is_refused_with_a_remedy(baobab: Baobab, uri: str) -> None:
    await baobab.create_app()
    error = await read_refusal(baobab, uri)
    assert error["code"] == -32602
    assert error["data"]["code"] == "RESOURCE_NOT_FOUND"
    assert error["data"]["remediation"]


async def test_at_most_a_thousand_apps_are_listed(baobab: Baobab) -> None:
    await create_many_apps(baobab, 1010)
    uris = await list_uris(baobab)
    assert len(set(uris)) == len(uris) == 1001
