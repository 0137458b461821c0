"""What the contract's own public clients send and read: the forms that they have met are answered as they expect."""

import re
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.core.guides import find_guide
from baobab.tools.data.schema import document
from baobab.tools.system.errors import SourceNotBuilt
from baobab.tools.system.unbuilt import UNBUILT, Unbuilt
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import call_tool

EMPTY_FILE = {
    "path": "README.md",
    "sha256": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "size": 0,
}
NOTES = {"columns": {"id": {"type": "integer", "primaryKey": True}, "text": "text"}}


@pytest.fixture
async def app(baobab: Baobab) -> str:
    return await baobab.create_app()


async def ask(baobab: Baobab, method: str, path: str, body: Any = None) -> Any:
    return await baobab.client.request(method, path, json=body, headers=baobab.owner)


async def test_a_snapshot_is_prepared_with_the_whole_manifest(baobab: Baobab, app: str) -> None:
    manifest = {"files": [EMPTY_FILE], "message": "Begin"}
    answer = await ask(baobab, "POST", f"/v1/{app}/repo/snapshots/prepare", manifest)
    assert answer.status_code == 200, answer.text
    alone = await ask(baobab, "POST", f"/v1/{app}/repo/snapshots/prepare", {"files": [EMPTY_FILE]})
    assert alone.json()["snapshot_id"] == answer.json()["snapshot_id"]
    preparation = await call_tool(baobab, "repo_prepare", {"app_id": app, **manifest})
    assert preparation["structuredContent"]["snapshot_id"] == answer.json()["snapshot_id"]


async def test_no_scopes_are_those_of_the_provider_and_a_second_configuration_replaces_the_first(
    baobab: Baobab, app: str
) -> None:
    path = f"/v1/{app}/auth/oauth-config"
    body = {"provider": "google", "client_id": "a", "client_secret": "s", "redirect_uris": ["https://x.example/cb"]}
    first = await ask(baobab, "POST", path, {**body, "scopes": []})
    assert (first.status_code, first.json()["config"]["scopes"]) == (201, ["openid", "email", "profile"])
    await ask(baobab, "PATCH", f"{path}/google", {"enabled": False, "scopes": ["openid"]})
    second = await ask(baobab, "POST", path, {**body, "client_id": "b"})
    assert second.status_code == 200, second.text
    config = second.json()["config"]
    assert (config["id"], config["client_id"], config["enabled"]) == (first.json()["config"]["id"], "b", True)
    assert config["scopes"] == ["openid", "email", "profile"]
    assert len((await ask(baobab, "GET", path)).json()["configs"]) == 1
    without_scopes = await ask(baobab, "PATCH", f"{path}/google", {"scopes": []})
    assert without_scopes.json()["config"]["scopes"] == ["openid", "email", "profile"]


@pytest.mark.parametrize("value", ["text", 7, 1.5, True, None, [1, "2"], {"value": {"a": 1}}, 2**70])
async def test_a_raw_value_is_the_whole_body(baobab: Baobab, app: str, value: Any) -> None:
    await ask(baobab, "PUT", f"/v1/{app}/kv/key", {"value": value})
    for raw in ("raw=1", "raw=true", "touch=1&raw=1"):
        answer = await ask(baobab, "GET", f"/v1/{app}/kv/key?{raw}")
        assert (answer.status_code, answer.json()) == (200, value), raw
        assert answer.headers["content-type"] == "application/json"
    for whole in ("", "?raw=0", "?raw=false"):
        assert (await ask(baobab, "GET", f"/v1/{app}/kv/key{whole}")).json() == {"value": value}
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/other?raw=1")).json()["error"] == "not_found"
    wrong = await ask(baobab, "GET", f"/v1/{app}/kv/key?raw=yes")
    assert (wrong.status_code, "`raw`" in wrong.json()["message"]) == (400, True)
    assert (await call_tool(baobab, "kv_get", {"app_id": app, "key": "key"}))["structuredContent"] == {"value": value}


@pytest.mark.parametrize("path", ["/v1/{app}/kv/_scan?cursor=wrong", "/v1/{app}/admin/auth/users?cursor=wrong"])
async def test_a_wrong_cursor_is_named(baobab: Baobab, app: str, path: str) -> None:
    answer = await ask(baobab, "GET", path.format(app=app))
    assert (answer.status_code, "without `cursor`" in answer.text) == (400, True)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/agents/nobody", None, 404, "agent_not_found"),
        ("POST", "/agents/nobody/runs", {"input": {}}, 404, "agent_not_found"),
        ("POST", "/public/agents/nobody/runs", {"input": {}}, 404, "agent_not_found"),
        ("GET", "/public/runs/00000000-0000-4000-8000-000000000000", None, 404, "run_not_found"),
        ("POST", "/agents", {"name": "a", "graph_spec": {"spec_version": 1}}, 400, "invalid_graph_spec"),
        ("POST", "/agents/_/validate", {"graph_spec": []}, 422, "validation_error"),
    ],
)
async def test_refusals_of_agents_have_a_sentence_beside_their_code(
    baobab: Baobab, app: str, method: str, path: str, body: Any, status: int, code: str
) -> None:
    answer = await ask(baobab, method, f"/v1/{app}{path}", body)
    refusal = answer.json()
    assert (answer.status_code, refusal["code"]) == (status, code)
    assert " " in refusal["error"]
    assert refusal["remediation"]


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/auth/app_zzzzzzzzzzzz/login", {"email": "a@example.com", "password": "x"}),
        ("POST", "/auth/app_zzzzzzzzzzzz/refresh", {"refresh_token": "x"}),
        ("GET", "/v1/app_zzzzzzzzzzzz/agents", None),
    ],
)
async def test_an_app_that_is_not_there_is_said_in_the_words_of_the_contract(
    baobab: Baobab, method: str, path: str, body: Any
) -> None:
    answer = await ask(baobab, method, path, body)
    assert (answer.status_code, answer.json()["error"]) == (404, "App not found")
    assert answer.json()["code"] == "APP_NOT_FOUND"


@pytest.mark.parametrize(
    ("path", "fields"),
    [("signup", {"password": "weak"}), ("reset-password", {"new_password": "weak", "code": "123456"})],
)
async def test_the_details_of_a_weak_password_are_the_rules_that_it_breaks(
    baobab: Baobab, app: str, path: str, fields: dict[str, str]
) -> None:
    answer = await baobab.client.post(f"/auth/{app}/{path}", json={"email": "a@example.com", **fields})
    refusal = answer.json()
    assert (answer.status_code, refusal["error"]) == (400, "Password does not meet requirements")
    assert refusal["details"] == [
        "at least 8 characters",
        "an uppercase letter",
        "a digit",
        "a special character",
    ]
    assert refusal["remediation"] == "Choose a password that meets all of details."


async def test_the_lifetime_of_access_tokens_has_two_names(baobab: Baobab, app: str) -> None:
    path = f"/v1/{app}/config/jwt"
    answer = await ask(baobab, "PATCH", path, {"access_token_ttl": "30m"})
    assert answer.status_code == 200, answer.text
    assert answer.json()["jwt_config"]["accessTokenTtl"] == answer.json()["jwt_config"]["access_token_ttl"] == "30m"
    assert (await ask(baobab, "GET", f"/v1/{app}/config")).json()["jwt_config"]["access_token_ttl"] == "30m"
    both = await ask(baobab, "PATCH", path, {"access_token_ttl": "1h", "accessTokenTtl": "2h"})
    assert (both.status_code, "have different values" in both.text) == (400, True)
    assert (await ask(baobab, "PATCH", path, {"access_token_ttl": "3h"})).status_code == 400
    result = await call_tool(baobab, "config_jwt", {"app_id": app, "accessTokenTtl": "1h"})
    assert "access_token_ttl" not in result["structuredContent"]["jwt_config"]


async def test_a_key_is_made_under_all_names_of_its_id(baobab: Baobab) -> None:
    creation = (await ask(baobab, "POST", "/api-keys", {"name": "one"})).json()
    assert creation["id"] == creation["keyId"] == creation["key_id"]
    result = (await call_tool(baobab, "api_keys_create", {"name": "two"}))["structuredContent"]
    assert not {"id", "keyId"} & result.keys()


async def test_an_action_has_its_capability_as_its_type_too(baobab: Baobab) -> None:
    proposal = {
        "capability": "record_commitment",
        "payload": {"description": "x", "status": "confirmed", "attrs": {"capability": "mine"}},
    }
    key = (await ask(baobab, "POST", "/api-keys", {"name": "memory", "scope": "substrate"})).json()["key"]
    base, headers = "/v1/me/substrate/actions", {"authorization": f"Bearer {key}"}
    response = await baobab.client.post(f"{base}/propose", json=proposal, headers=headers)
    assert response.status_code == 200, response.text
    actions = (await baobab.client.get(base, headers=headers)).json()["actions"]
    one = (await baobab.client.get(f"{base}/{response.json()['action_id']}", headers=headers)).json()
    assert one["action_type"] == one["capability"] == "record_commitment"
    assert one in actions
    # What a caller has stored stays as it is.
    assert one["payload"] == proposal["payload"]


async def test_a_collection_is_written_and_read_in_both_cases(baobab: Baobab, app: str) -> None:
    base = f"/v1/{app}/rag/collections"
    creation = await ask(baobab, "POST", base, {"name": "facts", "access_mode": "shared", "chunk_size": 300})
    assert creation.status_code == 201, creation.text
    collection = creation.json()
    assert (collection["accessMode"], collection["access_mode"]) == ("shared", "shared")
    assert (collection["chunkSize"], collection["chunk_size"], collection["chunk_overlap"]) == (300, 300, 64)
    assert (await ask(baobab, "GET", base)).json() == [collection]
    assert collection.items() <= (await ask(baobab, "GET", f"{base}/facts")).json().items()
    change = await ask(baobab, "PATCH", f"{base}/facts", {"access_mode": "private"})
    assert change.json()["accessMode"] == "private"
    both = await ask(baobab, "POST", base, {"name": "b", "access_mode": "shared", "accessMode": "private"})
    assert both.status_code == 400
    result = await call_tool(baobab, "rag_collections_get", {"app_id": app, "name": "facts"})
    assert "access_mode" not in result["structuredContent"]


async def test_the_document_describes_the_further_names(baobab: Baobab) -> None:
    paths = (await baobab.client.get("/openapi.json")).json()["paths"]
    schema = paths["/v1/{app_id}/rag/collections/{name}/query"]["post"]["responses"]["200"]["content"][
        "application/json"
    ]["schema"]
    assert list(schema["properties"]["chunks"]["items"]["properties"]["document"]["properties"]) == ["id", "filename"]
    assert (
        "`accessTokenTtl` may be called `access_token_ttl`" in paths["/v1/{app_id}/config/jwt"]["patch"]["description"]
    )
    kv = paths["/v1/{app_id}/kv/{key}"]["get"]
    assert "raw" in [parameter["name"] for parameter in kv["parameters"]]


async def test_marking_a_table_for_clones_is_a_change(baobab: Baobab, app: str) -> None:
    for seed, count in ((True, 1), (True, 0), (False, 1)):
        body = {"schema": {"tables": {"notes": {**NOTES, "_seed": seed}}}}
        if seed and count:
            await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"notes": NOTES}}})
        answer = await ask(baobab, "POST", f"/v1/{app}/schema/apply", body)
        assert answer.json()["applied"] == count, answer.text
        schema = (await ask(baobab, "GET", f"/v1/{app}/schema")).json()["schema"]
        assert schema["tables"]["notes"].get("_seed", False) is seed


@pytest.mark.parametrize("name", sorted(document.TAKEN))
async def test_a_new_table_or_view_cannot_have_the_name_of_another_route(baobab: Baobab, app: str, name: str) -> None:
    for schema in (
        {"tables": {name: NOTES}},
        {"tables": {"notes": NOTES}, "views": {name: "select id from notes"}},
    ):
        answer = await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": schema, "dry_run": False})
        error = answer.json()["error"]
        assert (answer.status_code, error["code"]) == (400, "VALIDATION_RESERVED_TABLE")
        assert f"/v1/{{app_id}}/data/{name}" in error["message"]


async def test_a_table_that_has_a_taken_name_already_keeps_working(
    baobab: Baobab, app: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as earlier:
        earlier.setattr(document, "TAKEN", frozenset())
        await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": {"tables": {"people": NOTES}}})
    path = f"/v1/{app}/data/people"
    assert (await ask(baobab, "POST", path, {"id": 1, "text": "Ada"})).status_code == 201
    assert (await ask(baobab, "GET", f"{path}/1")).json() == {"id": 1, "text": "Ada"}
    import_answer = await baobab.client.post(
        f"/v1/{app}/data-import/people",
        content=b"id,text\n2,Ben\n",
        headers={**baobab.owner, "content-type": "text/csv"},
    )
    assert import_answer.status_code == 200, import_answer.text
    subdomain = (await ask(baobab, "GET", f"/v1/{app}/config")).json()["subdomain"]
    on_own_host = await baobab.client.get(
        "/data/people?order=id", headers={**baobab.owner, "host": f"{subdomain}.localhost"}
    )
    assert [row["text"] for row in on_own_host.json()] == ["Ada", "Ben"]
    schema = (await ask(baobab, "GET", f"/v1/{app}/schema")).json()["schema"]
    schema["tables"]["people"]["columns"]["age"] = {"type": "integer"}
    apply_answer = await ask(baobab, "POST", f"/v1/{app}/schema/apply", {"schema": schema})
    assert (apply_answer.status_code, apply_answer.json()["applied"]) == (200, 1), apply_answer.text


@pytest.mark.parametrize("path", ["/_other", "/_other/1", "/data/_other", "/schema/_other"])
async def test_names_that_begin_with_an_underscore_are_reserved(baobab: Baobab, app: str, path: str) -> None:
    answer = await ask(baobab, "GET", f"/v1/{app}{path}")
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "VALIDATION_RESERVED_TABLE")


def list_missing_paths() -> list[str]:
    return [path for unbuilt in UNBUILT for path in unbuilt.paths]


@pytest.mark.parametrize("unbuilt", [pytest.param(each, id=each.what) for each in UNBUILT])
@pytest.mark.parametrize("method", ["GET", "POST", "PATCH", "DELETE"])
async def test_what_is_not_built_yet_says_so(baobab: Baobab, app: str, method: str, unbuilt: Unbuilt) -> None:
    # The contract has a status of its own for builds from source, which will never be here.
    is_never = unbuilt.error is SourceNotBuilt
    refusal = (501, "NOT_IMPLEMENTED") if is_never else (404, "RESOURCE_NOT_FOUND")
    for path in unbuilt.paths:
        for below in ("", "/one", "/one/two"):
            if is_never and not below and method in ("GET", "DELETE"):
                # This may as well be the id of a deployment, which it is not.
                continue
            answer = await ask(baobab, method, path.format(app_id=app) + below)
            body = answer.json()
            assert (answer.status_code, body["error"]["code"]) == refusal, path + below
            assert is_never or "not built yet" in body["error"]["message"]
            assert body["error"]["remediation"]


async def test_a_page_of_an_allowed_origin_can_read_that_something_is_not_built_yet(baobab: Baobab, app: str) -> None:
    page = "https://shop.example"
    await ask(baobab, "PATCH", f"/v1/{app}/config/cors", {"allowed_origins": [page]})
    answer = await baobab.client.get(f"/v1/{app}/edge-ssr/deployments", headers={"origin": page})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (404, page)


async def test_every_route_of_the_contract_is_built_or_said_to_be_missing(baobab: Baobab) -> None:
    routes = Path(__file__).with_name("routes.txt").read_text().splitlines()
    document_of_api = (await baobab.client.get("/openapi.json")).json()
    built_routes = {
        (method.upper(), re.sub(r"\{[^}]*\}", "{}", path))
        for path, item in document_of_api["paths"].items()
        for method in item
    }
    missing_paths = [re.sub(r"\{[^}]*\}", "{}", path) for path in list_missing_paths()]
    for line in routes:
        method, path = line.split()
        path = re.sub(r"\{[^}]*\}", "{}", path)
        is_missing = any(path == each or path.startswith(f"{each}/") for each in missing_paths)
        assert ((method, path) in built_routes) is not is_missing, line


async def test_the_guide_and_llms_txt_name_all_that_is_missing(baobab: Baobab) -> None:
    guide = find_guide("not-yet").text
    llms_txt = (await baobab.client.get("/llms.txt")).text.replace("\n", " ")
    for unbuilt in UNBUILT:
        assert f"**{unbuilt.what}**" in guide
        assert unbuilt.what in llms_txt
