"""The audit log: what is written down, how it is found again, and what must never stand in it."""

import asyncio
from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
import pytest_asyncio
from sqlalchemy import select

from baobab.storage.sql.tables import metadata
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.mcp_server.mcp_requests import call_tool
from tests.people import create_key, create_person

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def baobab(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Any]:
    """One installation for all tests of this module: each has an app of its own, and that is what it looks at."""
    async with open_installation(tmp_path_factory.mktemp("data")) as installation:
        yield installation


USER = "11111111-1111-4111-8111-111111111111"
FIELDS = (
    "id app_id category event_type action resource_type resource_id actor_type actor_id actor_name event_data "
    "ip_address user_agent success error_message correlation_id created_at"
)


async def list_logs(baobab: Baobab, app: Any, headers: Any = None, **query: Any) -> Any:
    answer = await baobab.client.get(f"/v1/{app}/audit-logs", params=query, headers=headers or baobab.owner)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def pause_app(baobab: Baobab, app: Any, headers: Any = None, *, is_paused: Any = True) -> Any:
    body = {"paused": is_paused}
    return await baobab.client.patch(f"/v1/{app}/config/pause", json=body, headers=headers or baobab.owner)


async def list_rows(baobab: Baobab) -> Any:
    """All rows of the log, those of no app included."""
    table = metadata.tables["audit_logs"]
    await baobab.application.services.audit_log.flush()
    async with baobab.application.services.database.reading() as connection:
        return (await connection.execute(select(table).order_by(table.c.created_at))).mappings().all()


async def test_a_change_is_one_row_that_says_who_did_what_from_where(baobab: Baobab) -> None:
    app, admin = await baobab.create_app(), await create_person(baobab, "ada", role="admin")
    headers = {**admin.headers, "user-agent": "curl/8", "x-request-id": "req-17"}
    await pause_app(baobab, app, headers)
    row = (await list_logs(baobab, app, event_type="app.config.paused"))["logs"][0]
    assert set(row) == set(FIELDS.split())
    expected_fields = {
        "app_id": app,
        "category": "admin",
        "event_type": "app.config.paused",
        "action": "update",
        "resource_type": "app",
        "resource_id": app,
        "actor_type": "platform_user",
        "actor_id": admin.id,
        "event_data": {"tool": "config_pause", "door": "rest"},
        "ip_address": "127.0.0.1",
        "user_agent": "curl/8",
        "success": True,
        "error_message": None,
        "correlation_id": "req-17",
    }
    assert {field: row[field] for field in expected_fields} == expected_fields


async def test_reads_and_refused_credentials_and_invalid_requests_leave_no_row(baobab: Baobab) -> None:
    app = await baobab.create_app()
    before = await list_rows(baobab)
    reads = (f"/v1/{app}/config", "/apps", f"/apps/{app}/status", f"/v1/{app}/kv/_stats", "/platform/me", "/llms.txt")
    for path in reads:
        assert (await baobab.client.get(path, headers=baobab.owner)).status_code == 200, path
    assert (await pause_app(baobab, app, {"authorization": "Bearer bb_sk_none"})).status_code == 401
    invalid = await baobab.client.patch(f"/v1/{app}/config/pause", json={"paused": 1}, headers=baobab.owner)
    assert invalid.status_code == 400
    assert await list_rows(baobab) == before


async def test_calling_init_again_for_an_app_that_is_there_leaves_no_row(baobab: Baobab) -> None:
    await baobab.create_app(name="shop")
    before = await list_rows(baobab)
    again = await baobab.client.post("/init", json={"name": "shop"}, headers=baobab.owner)
    assert again.status_code == 200
    assert await list_rows(baobab) == before


async def test_writes_of_data_are_counted_in_one_row_for_each_tool_and_caller(baobab: Baobab) -> None:
    app = await baobab.create_app()
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    for number in range(5):
        await baobab.client.put(f"/v1/{app}/kv/k{number}", json={"value": number}, headers=baobab.owner)
    await baobab.client.put(f"/v1/{app}/kv/k", json={"value": 1}, headers=app_key)
    await baobab.client.post(f"/v1/{app}/kv/n/incr", json={}, headers=baobab.owner)
    logs = await list_logs(baobab, app, category="data")
    counts = {(row["event_data"]["tool"], row["actor_id"]): 0 for row in logs["logs"]}
    for row in logs["logs"]:
        assert (row["event_type"], row["resource_id"], row["actor_type"]) == ("kv.write", None, "api_key")
        counts[row["event_data"]["tool"], row["actor_id"]] += row["event_data"]["count"]
    assert sorted(counts.values()) == [1, 1, 5]


async def test_what_was_counted_is_kept_though_whoever_writes_it_down_is_cancelled(baobab: Baobab) -> None:
    app = await baobab.create_app()
    await baobab.client.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=baobab.owner)
    async with baobab.application.services.database.writing():
        writing = asyncio.create_task(baobab.application.services.audit_log.flush())
        await asyncio.sleep(0)
        writing.cancel()
        await asyncio.sleep(0)
    with pytest.raises(asyncio.CancelledError):
        await writing
    logs = await list_logs(baobab, app, category="data")
    assert [row["event_data"]["count"] for row in logs["logs"]] == [1]


async def test_the_kind_of_actor_is_written_down_for_each_kind_of_caller(baobab: Baobab) -> None:
    app, admin = await baobab.create_app(), await create_person(baobab, "ada", role="admin")
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    rule = {"rules": [{"pattern": "**", "read": "public", "write": "public"}]}
    await baobab.client.put(f"/v1/{app}/kv/_expose", json=rule, headers=baobab.owner)
    user = await baobab.user_headers(app, USER)
    as_user = {**app_key, "x-platform-as-user": USER}
    for headers in (baobab.owner, admin.headers, app_key, user, as_user, {"x-none": ""}):
        put = await baobab.client.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=headers)
        assert put.status_code == 204, put.text
    rows = (await list_logs(baobab, app, event_type="kv.write"))["logs"]
    kinds = [row["actor_type"] for row in rows]
    assert set(kinds) == {"api_key", "platform_user", "app_user", "anonymous"}
    ids = {row["actor_type"]: row["actor_id"] for row in rows}
    assert (ids["platform_user"], ids["app_user"], ids["anonymous"]) == (admin.id, USER, None)


async def test_a_key_that_acts_for_a_user_is_the_actor(baobab: Baobab) -> None:
    app = await baobab.create_app()
    key_fields = {"name": "k", "key_scope": "app", "target_app_id": app}
    body = (await baobab.client.post("/api-keys", json=key_fields, headers=baobab.owner)).json()
    rule = {"rules": [{"pattern": "**", "read": "public", "write": "public"}]}
    await baobab.client.put(f"/v1/{app}/kv/_expose", json=rule, headers=baobab.owner)
    as_user = {"authorization": f"Bearer {body['key']}", "x-platform-as-user": USER}
    await baobab.client.put(f"/v1/{app}/kv/a", json={"value": 1}, headers=as_user)
    rows = (await list_logs(baobab, app, actor_id=body["key_id"]))["logs"]
    assert [row["actor_type"] for row in rows] == ["api_key"]


@pytest.mark.parametrize(
    ("query", "events"),
    [
        ({"category": "admin", "resource_type": "app"}, ["app.config.jwt", "app.config.paused", "app.config.paused"]),
        ({"event_type": "app.config.jwt"}, ["app.config.jwt"]),
        ({"event_type": "app.config"}, []),
        ({"action": "delete"}, []),
        ({"action": "update", "event_type": "app.config.paused"}, ["app.config.paused", "app.config.paused"]),
        ({"resource_type": "app", "action": "create"}, []),
        ({"resource_id": "other"}, []),
        ({"category": "ai"}, []),
        ({"category": "agents"}, []),
        ({"event_type": "' OR 1=1 --"}, []),
    ],
)
async def test_each_filter_narrows_the_list(baobab: Baobab, query: Any, events: Any) -> None:
    app, other = await baobab.create_app(), await baobab.create_app()
    await pause_app(baobab, app)
    await pause_app(baobab, app, is_paused=False)
    await pause_app(baobab, other)
    await baobab.client.patch(f"/v1/{app}/config/jwt", json={"accessTokenTtl": "2h"}, headers=baobab.owner)
    event_types = [row["event_type"] for row in (await list_logs(baobab, app, **query))["logs"]]
    assert [event for event in event_types if event != "app.create"] == events


async def test_the_actor_is_found_by_either_name_of_the_filter(baobab: Baobab) -> None:
    app, admin = await baobab.create_app(), await create_person(baobab, "ada", role="admin")
    await pause_app(baobab, app)
    await pause_app(baobab, app, admin.headers)
    for name in ("actor_id", "user_id"):
        logs = await list_logs(baobab, app, **{name: admin.id})
        assert [row["actor_id"] for row in logs["logs"]] == [admin.id]
    assert (await list_logs(baobab, app, actor_id=admin.id, user_id=USER))["total"] == 0


async def test_the_outcome_is_a_filter_over_rest_and_mcp(baobab: Baobab) -> None:
    app, other = await baobab.create_app(), await baobab.create_app(name="taken-name")
    await baobab.client.patch(f"/apps/{app}", json={"name": "taken-name"}, headers=baobab.owner)
    await pause_app(baobab, app)
    failure_types, success_types = ["app.rename_failed"], ["app.config.paused", "app.create"]
    for success, event_types in ((False, failure_types), (True, success_types)):
        logs = await list_logs(baobab, app, success=str(success).lower())
        assert ([row["event_type"] for row in logs["logs"]], logs["total"]) == (event_types, len(event_types))
        result = await call_tool(baobab, "audit_logs_list", {"app_id": app, "success": success})
        assert [row["event_type"] for row in result["structuredContent"]["logs"]] == event_types
    assert (await list_logs(baobab, app))["total"] == 3
    assert (await list_logs(baobab, other, success="false"))["logs"] == []
    assert (await list_logs(baobab, app, success="false", event_type="app.create"))["logs"] == []


async def test_pages_hold_every_row_once_newest_first(baobab: Baobab) -> None:
    app = await baobab.create_app()
    for number in range(7):
        await pause_app(baobab, app, is_paused=number % 2 == 0)
    only = {"event_type": "app.config.paused", "limit": 3}
    rows, offset = [], 0
    while offset is not None:
        page = await list_logs(baobab, app, **only, offset=offset)
        assert (page["total"], page["limit"], page["offset"]) == (7, 3, offset)
        rows += page["logs"]
        offset = page["nextOffset"]
    assert len({row["id"] for row in rows}) == len(rows) == 7
    moments = [row["created_at"] for row in rows]
    assert moments == sorted(moments, reverse=True)


async def test_from_is_inclusive_and_to_is_exclusive_and_both_know_zones(baobab: Baobab) -> None:
    app = await baobab.create_app()
    for number in range(3):
        await pause_app(baobab, app, is_paused=number % 2 == 0)
    rows = (await list_logs(baobab, app, event_type="app.config.paused"))["logs"]
    newest, middle, _ = (datetime.fromisoformat(row["created_at"]) for row in rows)
    only = {"event_type": "app.config.paused"}

    async def ids(**query: Any) -> Any:
        return [row["id"] for row in (await list_logs(baobab, app, **only, **query))["logs"]]

    elsewhere = middle.astimezone(datetime.strptime("+0530", "%z").tzinfo)
    without_zone = middle.replace(tzinfo=None)
    for moment in (middle, elsewhere, without_zone):
        assert await ids(**{"from": moment.isoformat()}) == [row["id"] for row in rows[:2]]
        assert await ids(to=moment.isoformat()) == [row["id"] for row in rows[2:]]
    assert await ids(**{"from": (newest + timedelta(days=1)).isoformat()}) == []
    assert await ids(**{"from": "0001-01-01T00:00:00Z", "to": "9999-12-31T23:59:59Z"}) == [row["id"] for row in rows]


@pytest.mark.parametrize(
    "query",
    [
        {"from": "yesterday"},
        {"to": ""},
        {"from": "0001-01-01T00:00:00+14:00"},
        {"to": "9999-12-31T23:59:59-14:00"},
        {"since": "2026-01-01T00:00:00Z"},
        {"category": "everything"},
        {"action": "read"},
        {"success": "perhaps"},
        {"success": ""},
        {"limit": "501"},
        {"limit": "0"},
        {"offset": "-1"},
        {"event_type": ""},
        {"resource_id": "x" * 201},
        {"resource_id": "\x00"},
        {"colour": "red"},
    ],
)
async def test_a_query_that_says_nonsense_is_refused(baobab: Baobab, query: Any) -> None:
    app = await baobab.create_app()
    refusal = await baobab.client.get(f"/v1/{app}/audit-logs", params=query, headers=baobab.owner)
    assert refusal.status_code == 400, refusal.text


async def test_only_admins_and_keys_of_the_app_read_its_log(baobab: Baobab) -> None:
    app = await baobab.create_app()
    member, admin = await create_person(baobab, "ada", role="member"), await create_person(baobab, "bob", role="admin")
    path = f"/v1/{app}/audit-logs"
    assert (await baobab.client.get(path)).status_code == 401
    for headers in (member.headers, await baobab.user_headers(app, USER), (await create_person(baobab, "eve")).headers):
        assert (await baobab.client.get(path, headers=headers)).status_code == 403
    for headers in (admin.headers, await create_key(baobab, key_scope="app", target_app_id=app)):
        assert (await baobab.client.get(path, headers=headers)).status_code == 200


async def test_what_a_handler_refuses_is_written_down_as_failed_with_its_reason(baobab: Baobab) -> None:
    app, other = await baobab.create_app(), await baobab.create_app(name="taken")
    await baobab.client.patch(f"/apps/{app}", json={"name": "taken"}, headers=baobab.owner)
    row = (await list_logs(baobab, app, event_type="app.rename_failed"))["logs"][0]
    assert row["success"] is False
    assert row["error_message"] == "The organisation has an app named `taken`."
    assert (await list_logs(baobab, other, event_type="app.rename_failed"))["total"] == 0


async def test_failed_sign_ins_are_written_down_without_what_was_typed(baobab: Baobab) -> None:
    body = {"email": "owner@localhost", "password": "my secret Guess 1!"}
    assert (await baobab.client.post("/platform/login", json=body)).status_code in (400, 401)
    body["email"] = "nobody@example.com"
    assert (await baobab.client.post("/platform/login", json=body)).status_code == 401
    rows = [row for row in await list_rows(baobab) if row["event_type"] == "login_failed"]
    assert rows
    assert all(row["category"] == "auth" and not row["success"] for row in rows)
    assert "my secret Guess" not in repr(rows)
