"""An app's settings: each change with its answer, its effect on what is read, its audit row, and who may make it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from baobab.tools.agents.graphs import GRAPH_EXAMPLE
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import create_key, create_person

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def baobab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """One installation for all tests of this module: each has an app of its own, and that is what it looks at."""
    async with open_installation(tmp_path_factory.mktemp("data")) as installation:
        yield installation


# Path below /v1/{app_id}, body, what the answer holds, what the whole record then says, the audit event.
CHANGES: dict[str, tuple[Any, ...]] = {
    "access mode": (
        "config/access-mode",
        {"access_mode": "authenticated"},
        {"access_mode": "authenticated"},
        {"access_mode": "authenticated"},
        "app.config.access_mode",
    ),
    "visibility": (
        "config/visibility",
        {"visibility": "public"},
        {"visibility": "public", "listed": True},
        {"visibility": "public", "listed": True},
        "app.config.visibility",
    ),
    "unlisted": (
        "config/visibility",
        {"visibility": "public", "listed": False},
        {"visibility": "public", "listed": False},
        {"visibility": "public", "listed": False},
        "app.config.visibility",
    ),
    "storage": (
        "config/storage",
        {
            "publicReadEnabled": True,
            "maxFileSizeMb": 25,
            "storageLimitBytes": 2**30,
            "allowedContentTypes": ["image/*", "application/pdf"],
        },
        {
            "storage_config": {
                "publicReadEnabled": True,
                "maxFileSizeMb": 25,
                "storageLimitBytes": 2**30,
                "allowedContentTypes": ["image/*", "application/pdf"],
            }
        },
        {"storage_config.maxFileSizeMb": 25},
        "app.config.storage",
    ),
    "one storage setting": (
        "config/storage",
        {"publicReadEnabled": True},
        {"storage_config": {"publicReadEnabled": True, "maxFileSizeMb": 10, "allowedContentTypes": []}},
        {"storage_config.publicReadEnabled": True, "storage_config.maxFileSizeMb": 10},
        "app.config.storage",
    ),
    "jwt": (
        "config/jwt",
        {"accessTokenTtl": "15m", "refreshTokenTtlDays": 30},
        {"jwt_config": {"accessTokenTtl": "15m", "access_token_ttl": "15m", "refreshTokenTtlDays": 30}},
        {"jwt_config.accessTokenTtl": "15m", "jwt_config.refreshTokenTtlDays": 30},
        "app.config.jwt",
    ),
    "one jwt setting": (
        "config/jwt",
        {"refreshTokenTtlDays": 1},
        {"jwt_config": {"accessTokenTtl": "1h", "access_token_ttl": "1h", "refreshTokenTtlDays": 1}},
        {"jwt_config.accessTokenTtl": "1h", "jwt_config.refreshTokenTtlDays": 1},
        "app.config.jwt",
    ),
    "cors": (
        "config/cors",
        {"allowed_origins": ["https://Shop.example.com", "http://localhost:3000", "https://shop.example.com"]},
        {"allowed_origins": ["https://shop.example.com", "http://localhost:3000"]},
        {"allowed_origins": ["https://shop.example.com", "http://localhost:3000"]},
        "app.config.cors",
    ),
    "user tools": (
        "config/user-tools",
        {"tools": ["kv_put", "kv_get", "kv_get"]},
        {"user_tools": ["kv_get", "kv_put"]},
        {"user_tools": ["kv_get", "kv_put"]},
        "app.config.user_tools",
    ),
    "pause": (
        "config/pause",
        {"paused": True, "reason": "maintenance"},
        {"paused": True, "paused_reason": "maintenance"},
        {"paused": True, "paused_reason": "maintenance"},
        "app.config.paused",
    ),
    "no auth hook": (
        "config/auth-hooks",
        {"post_auth_function": None},
        {"auth_hook_function": None},
        {"auth_hook_function": None},
        "app.config.auth_hooks",
    ),
    "secure": (
        "secure",
        {},
        {"access_mode": "authenticated", "tables_secured": [], "table_errors": []},
        {"access_mode": "authenticated"},
        "app.secure",
    ),
    "secure tables": (
        "secure",
        {"tables": [{"table_name": "posts", "user_column": "user_id", "public_read_column": "is_public"}]},
        {
            "access_mode": "authenticated",
            "tables_secured": [],
            "table_errors": [{"table": "posts", "error": "The app has no table `posts`."}],
        },
        {"access_mode": "authenticated"},
        "app.secure",
    ),
}


async def change_config(baobab: Baobab, app: Any, name: str, headers: Any = None) -> Any:
    path, body, *_ = CHANGES[name]
    method = "POST" if path == "secure" else "PATCH"
    return await baobab.client.request(method, f"/v1/{app}/{path}", json=body, headers=headers or baobab.owner)


async def get_config(baobab: Baobab, app: Any) -> Any:
    record = (await baobab.client.get(f"/v1/{app}/config", headers=baobab.owner)).json()
    return record | {f"{name}.{k}": v for name in ("storage_config", "jwt_config") for k, v in record[name].items()}


async def list_events(baobab: Baobab, app: Any) -> Any:
    answer = await baobab.client.get(f"/v1/{app}/audit-logs", params={"resource_type": "app"}, headers=baobab.owner)
    return [log["event_type"] for log in answer.json()["logs"] if log["event_type"] != "app.create"]


async def test_a_new_app_has_the_defaults_of_the_contract(baobab: Baobab) -> None:
    app = await baobab.create_app(name="shop")
    record = (await baobab.client.get(f"/v1/{app}/config", headers=baobab.owner)).json()
    organization_id, anon_key = record.pop("organization_id"), record.pop("anon_key")
    assert record.pop("created_at") == record.pop("updated_at")
    assert len(organization_id) == 36
    assert anon_key.startswith("bb_anon_")
    assert record == {
        "id": app,
        "name": "shop",
        "display_name": None,
        "subdomain": "shop",
        "db_name": app,
        "db_provisioned": True,
        "region": "local",
        "allowed_origins": [],
        "user_tools": [],
        "storage_config": {"maxFileSizeMb": 10, "allowedContentTypes": [], "publicReadEnabled": False},
        "jwt_config": {"accessTokenTtl": "1h", "access_token_ttl": "1h", "refreshTokenTtlDays": 7},
        "auth_hook_function": None,
        "access_mode": "public",
        "visibility": "private",
        "listed": True,
        "open_tables": [],
        "open_collections": [],
        "open_agents": [],
        "open_keys": [],
        "paused": False,
        "paused_at": None,
        "paused_reason": None,
        "template_source_app_id": None,
        "repo_latest_snapshot": None,
        "fork_count": 0,
        "substrate_organization_id": None,
    }


@pytest.mark.parametrize("name", CHANGES)
async def test_a_change_is_answered_kept_and_written_down(baobab: Baobab, name: str) -> None:
    app = await baobab.create_app()
    _, _, answer_fields, record_fields, event = CHANGES[name]
    answer = await change_config(baobab, app, name)
    assert answer.status_code == 200, answer.text
    assert answer.json()["message"]
    assert answer.json().get("app_id", app) == app
    assert {field: answer.json()[field] for field in answer_fields} == answer_fields
    record = await get_config(baobab, app)
    assert {field: record[field] for field in record_fields} == record_fields
    assert record["updated_at"] >= record["created_at"]
    assert await list_events(baobab, app) == [event]


@pytest.mark.parametrize("name", CHANGES)
async def test_a_member_cannot_change_a_setting_and_an_admin_and_a_key_of_the_app_can(
    baobab: Baobab, name: str
) -> None:
    app = await baobab.create_app()
    member, admin = await create_person(baobab, "ada", role="member"), await create_person(baobab, "bob", role="admin")
    stranger, app_key = await create_person(baobab, "eve"), await create_key(baobab, key_scope="app", target_app_id=app)
    before = await get_config(baobab, app)
    for headers in (member.headers, stranger.headers, await baobab.user_headers(app, member.id)):
        refusal = await change_config(baobab, app, name, headers)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_INSUFFICIENT_PERMISSIONS")
    assert (await change_config(baobab, app, name, {"x-none": ""})).status_code == 401
    assert await get_config(baobab, app) == before
    assert await list_events(baobab, app) == []
    assert (await change_config(baobab, app, name, app_key)).status_code == 200
    assert (await change_config(baobab, app, name, admin.headers)).status_code == 200


@pytest.mark.parametrize(
    ("path", "body"),
    [
        *((path, {}) for path in sorted({path for path, *_ in CHANGES.values() if path != "secure"})),
        *((path, None) for path in sorted({path for path, *_ in CHANGES.values() if path != "secure"})),
        ("config/access-mode", {"access_mode": "private"}),
        ("config/access-mode", {"access_mode": None}),
        ("config/access-mode", {"access_mode": "public", "accessMode": "public"}),
        ("config/visibility", {"listed": True}),
        ("config/visibility", {"visibility": "public", "listed": "yes"}),
        ("config/storage", {"publicReadEnabled": None}),
        ("config/storage", {"maxFileSizeMb": 0}),
        ("config/storage", {"maxFileSizeMb": "10"}),
        ("config/storage", {"maxFileSizeMb": 1.5}),
        ("config/storage", {"maxFileSizeMb": True}),
        ("config/storage", {"storageLimitBytes": 10**30}),
        ("config/storage", {"allowedContentTypes": ["image"]}),
        ("config/storage", {"allowedContentTypes": ["image/png"] * 101}),
        ("config/jwt", {"accessTokenTtl": "3h"}),
        ("config/jwt", {"accessTokenTtl": 3600}),
        ("config/jwt", {"refreshTokenTtlDays": 0}),
        ("config/jwt", {"refreshTokenTtlDays": 366}),
        ("config/cors", {"allowed_origins": []}),
        ("config/cors", {"allowed_origins": ["*"]}),
        ("config/cors", {"allowed_origins": ["null"]}),
        ("config/cors", {"allowed_origins": ["https://a.example/path"]}),
        ("config/cors", {"allowed_origins": ["https://a.example\n"]}),
        ("config/cors", {"allowed_origins": ["ftp://a.example"]}),
        ("config/cors", {"allowed_origins": "https://a.example"}),
        ("config/pause", {"paused": "true"}),
        ("config/pause", {"paused": False, "reason": "why"}),
        ("config/pause", {"paused": True, "reason": "x" * 501}),
        ("config/auth-hooks", {"post_auth_function": ""}),
        ("config/auth-hooks", {"post_auth_function": "not-deployed"}),
        ("secure", {"tables": [{"table_name": "posts"}]}),
        ("secure", {"tables": [{"table_name": "posts; drop table apps", "user_column": "u"}]}),
        ("secure", {"tables": [{"table_name": "posts", "user_column": "u", "column": "x"}]}),
        ("secure", {"tables": [{"table_name": "t", "user_column": "u"}] * 51}),
        ("secure", {"tables": {}}),
    ],
)
async def test_a_change_that_says_nothing_or_nonsense_is_refused_and_changes_nothing(
    baobab: Baobab, path: str, body: Any
) -> None:
    app = await baobab.create_app()
    before = await get_config(baobab, app)
    method = "POST" if path == "secure" else "PATCH"
    refusal = await baobab.client.request(method, f"/v1/{app}/{path}", json=body, headers=baobab.owner)
    assert refusal.status_code == 400, refusal.text
    assert refusal.json()["error"]["remediation"]
    assert await get_config(baobab, app) == before


async def test_securing_an_app_without_a_body_requires_sign_in(baobab: Baobab) -> None:
    app = await baobab.create_app()
    answer = await baobab.client.post(f"/v1/{app}/secure", headers=baobab.owner)
    assert answer.status_code == 200
    assert (await get_config(baobab, app))["access_mode"] == "authenticated"


async def test_an_app_that_is_authenticated_can_be_made_public_again(baobab: Baobab) -> None:
    app = await baobab.create_app()
    await change_config(baobab, app, "secure")
    body = {"access_mode": "public"}
    answer = await baobab.client.patch(f"/v1/{app}/config/access-mode", json=body, headers=baobab.owner)
    assert answer.json()["access_mode"] == (await get_config(baobab, app))["access_mode"] == "public"


async def test_a_hook_names_the_function_that_is_not_deployed_and_is_written_down_as_failed(baobab: Baobab) -> None:
    app = await baobab.create_app()
    body = {"post_auth_function": "welcome"}
    refusal = await baobab.client.patch(f"/v1/{app}/config/auth-hooks", json=body, headers=baobab.owner)
    assert refusal.status_code == 400
    assert "welcome" in refusal.json()["error"]["message"]
    assert await list_events(baobab, app) == ["app.config.auth_hooks_failed"]


async def test_a_private_app_keeps_whether_it_was_listed(baobab: Baobab) -> None:
    app = await baobab.create_app()
    await change_config(baobab, app, "unlisted")
    path = f"/v1/{app}/config/visibility"
    private = await baobab.client.patch(path, json={"visibility": "private"}, headers=baobab.owner)
    assert private.json()["listed"] is False


async def test_a_paused_app_says_since_when_and_runs_again_when_resumed(baobab: Baobab) -> None:
    app = await baobab.create_app()
    body = (await change_config(baobab, app, "pause")).json()
    assert (await get_config(baobab, app))["paused_at"] == body["paused_at"] is not None
    path = f"/v1/{app}/config/pause"
    response = await baobab.client.patch(path, json={"paused": False}, headers=baobab.owner)
    assert {k: response.json()[k] for k in ("paused", "paused_at", "paused_reason")} == {
        "paused": False,
        "paused_at": None,
        "paused_reason": None,
    }


async def test_settings_and_the_key_value_store_of_a_paused_app_keep_working(baobab: Baobab) -> None:
    app = await baobab.create_app()
    await change_config(baobab, app, "pause")
    put = await baobab.client.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=baobab.owner)
    assert put.status_code == 204
    assert (await change_config(baobab, app, "jwt")).status_code == 200


async def test_an_allowed_origin_may_call_at_once_and_one_that_is_taken_out_may_not(baobab: Baobab) -> None:
    app = await baobab.create_app()
    headers = {**baobab.owner, "origin": "https://shop.example.com"}
    assert (await baobab.client.get(f"/v1/{app}/config", headers=headers)).status_code == 403
    await change_config(baobab, app, "cors")
    response = await baobab.client.get(f"/v1/{app}/config", headers=headers)
    assert response.status_code == 200
    assert response.headers["access-control-allow-origin"] == "https://shop.example.com"
    other = {"allowed_origins": ["https://other.example"]}
    await baobab.client.patch(f"/v1/{app}/config/cors", json=other, headers=baobab.owner)
    assert (await baobab.client.get(f"/v1/{app}/config", headers=headers)).status_code == 403


async def test_changes_of_one_record_at_once_do_not_lose_each_other(baobab: Baobab) -> None:
    app = await baobab.create_app()
    storage = {"publicReadEnabled": True, "maxFileSizeMb": 77, "storageLimitBytes": 5, "allowedContentTypes": ["a/b"]}

    async def set_one(name: str) -> Any:
        path = f"/v1/{app}/config/storage"
        return await baobab.client.patch(path, json={name: storage[name]}, headers=baobab.owner)

    await asyncio.gather(*(set_one(name) for name in storage))
    assert (await get_config(baobab, app))["storage_config"] == storage


async def test_a_change_that_races_with_the_deletion_of_the_app_is_done_or_answers_404(baobab: Baobab) -> None:
    app = await baobab.create_app()
    deletion = baobab.client.delete(f"/apps/{app}", headers=baobab.owner)
    rename = baobab.client.patch(f"/apps/{app}", json={"name": "late"}, headers=baobab.owner)
    answers = await asyncio.gather(deletion, rename, *(change_config(baobab, app, name) for name in CHANGES))
    assert {answer.status_code for answer in answers} <= {200, 404}
    assert answers[0].status_code == 200


async def test_one_app_cannot_be_changed_through_the_path_of_another(baobab: Baobab) -> None:
    mine, other = await baobab.create_app(), await baobab.create_app()
    body = {"access_mode": "authenticated", "app_id": other}
    refusal = await baobab.client.patch(f"/v1/{mine}/config/access-mode", json=body, headers=baobab.owner)
    assert refusal.status_code == 400
    for app in (mine, other):
        assert (await get_config(baobab, app))["access_mode"] == "public"


async def test_a_value_of_the_wrong_form_is_refused_with_an_example(baobab: Baobab) -> None:
    app = await baobab.create_app()
    body = {"allowed_origins": ["https://shop.example.com", "shop.example.com"]}
    refusal = await baobab.client.patch(f"/v1/{app}/config/cors", json=body, headers=baobab.owner)
    message = refusal.json()["error"]["message"]
    assert message.startswith(
        "`allowed_origins.1`: string should look like `https://shop.example.com` and match '^https?"
    )


async def test_settings_name_the_agents_and_keys_that_visitors_reach(baobab: Baobab) -> None:
    app, by = await baobab.create_app(), baobab.owner
    for name, visibility in (("asker", "public"), ("clerk", "authenticated"), ("idle", "public")):
        agent = {**GRAPH_EXAMPLE, "name": name, "visibility": visibility, "safety_acknowledged": True}
        assert (await baobab.client.post(f"/v1/{app}/agents", json=agent, headers=by)).status_code == 201
    await baobab.client.patch(f"/v1/{app}/agents/idle", json={"status": "disabled"}, headers=by)
    for pattern, read, write in (
        ("news:*", "public", "deny"),
        ("polls:*", "public", "public"),
        ("own", "authed", "deny"),
    ):
        levels = {"read": read, "write": write}
        rule = await baobab.client.put(f"/v1/{app}/kv/_expose/{pattern}", json=levels, headers=by)
        assert rule.status_code == 204, rule.text
    record = await get_config(baobab, app)
    assert record["open_agents"] == ["The agent `asker`: anyone without signing in may run it."]
    assert record["open_keys"] == [
        "The keys `news:*`: anyone without signing in may read them.",
        "The keys `polls:*`: anyone without signing in may read and write them.",
    ]
    opened_app = await change_config(baobab, app, "visibility")
    assert opened_app.json()["warnings"] == [*record["open_agents"], *record["open_keys"]]
