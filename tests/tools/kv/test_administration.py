"""The store as a whole: scan, stats, flush, recent refusals, the function key."""

import re
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.clock import FixedClock
from tests.http.installation import Answer, App, Installation, bearer_headers

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def scan_keys(world: Installation, app: App, query: str = "") -> Answer:
    return await world.ask("GET", f"{app.kv}/_scan?{query}", world.owner)


async def scan_pages(world: Installation, app: App, query: str) -> list[list[str]]:
    pages, cursor = [], ""
    while True:
        page = (await scan_keys(world, app, query + cursor)).json
        pages.append(page["keys"])
        if page["cursor"] is None:
            return pages
        cursor = f"&cursor={page['cursor']}"


async def test_a_scan_lists_keys_of_both_tiers_in_order(world: Installation) -> None:
    app = await world.create_app()
    assert (await scan_keys(world, app)).json == {"keys": [], "cursor": None}
    for key in ("b", "a", "c/d", "a:1"):
        await world.put(app, key)
    await world.put(app, "ab", ephemeral=True)
    assert (await scan_keys(world, app)).json == {"keys": ["a", "a:1", "ab", "b", "c/d"], "cursor": None}
    assert (await scan_keys(world, app, "prefix=a")).json["keys"] == ["a", "a:1", "ab"]
    assert (await scan_keys(world, app, "prefix=a%3A")).json["keys"] == ["a:1"]
    assert (await scan_keys(world, app, "prefix=zz")).json == {"keys": [], "cursor": None}
    assert (await scan_keys(world, app, "prefix=%25")).json == {"keys": [], "cursor": None}
    assert (await scan_keys(world, app, "prefix=_")).json == {"keys": [], "cursor": None}


async def test_pages_follow_each_other_without_gap_or_repetition(world: Installation) -> None:
    app = await world.create_app()
    ops: list[dict[str, Any]] = [{"op": "set", "key": f"k{n:03}", "value": n} for n in range(100)]
    for start in ("", "x"):
        body = {"ops": [{**op, "key": start + op["key"]} for op in ops]}
        assert (await world.ask("POST", f"{app.kv}/_batch", world.owner, body)).status == 200
    expected_keys = [f"k{n:03}" for n in range(100)]
    assert await scan_pages(world, app, "prefix=k&limit=40") == [
        expected_keys[:40],
        expected_keys[40:80],
        expected_keys[80:],
    ]
    keys = [key for page in await scan_pages(world, app, "limit=7") for key in page]
    assert keys == [*expected_keys, *(f"x{key}" for key in expected_keys)]
    # The default is a page of 100.
    assert [len(page) for page in await scan_pages(world, app, "")] == [100, 100]


async def test_a_key_that_is_there_throughout_is_listed_once_whatever_else_changes(world: Installation) -> None:
    app = await world.create_app()
    for key in "bdfh":
        await world.put(app, key)
    first = (await scan_keys(world, app, "limit=2")).json
    for key in "ac":
        await world.put(app, key)
    await world.ask("DELETE", f"{app.kv}/d", world.owner)
    rest = (await scan_keys(world, app, f"limit=10&cursor={first['cursor']}")).json
    assert (first["keys"], rest["keys"], rest["cursor"]) == (["b", "d"], ["f", "h"], None)
    again = (await scan_keys(world, app, f"limit=10&cursor={first['cursor']}")).json
    assert again == rest


async def test_a_cursor_is_opaque_and_good_for_its_own_list_only(world: Installation) -> None:
    app, other = await world.create_app(), await world.create_app()
    for one in (app, other):
        for key in ("secret1", "secret2", "secret3"):
            await world.put(one, key)
    cursor = (await scan_keys(world, app, "limit=1")).json["cursor"]
    middle = len(cursor) // 2
    bad = [
        "x", "%00", "a.b", "MQ", cursor[:-2],
        cursor[:middle] + ("A" if cursor[middle] != "A" else "B") + cursor[middle + 1 :],
        "%C3%A9", "secret1", "A" * 1024,
    ]  # fmt: skip
    for bad_cursor in bad:
        answer = await scan_keys(world, app, f"limit=1&cursor={bad_cursor}")
        assert (answer.status, answer.json["error"]) == (400, "bad_request"), bad_cursor
    for path, query in [(other, "limit=1"), (app, "limit=1&prefix=s")]:
        answer = await scan_keys(world, path, f"{query}&cursor={cursor}")
        assert (answer.status, answer.json["error"]) == (400, "bad_request")
        assert answer.json["message"] == "The cursor does not come from this list."
    assert (await scan_keys(world, app, f"limit=5&cursor={cursor}")).json["keys"] == ["secret2", "secret3"]


@pytest.mark.parametrize("query", ["limit=0", "limit=1001", "limit=-1", "limit=1.5", "limit=a", "limit=",
    "limit=" + "9" * 30,
                                   "cursor=", "cursor=" + "A" * 1025, "prefix=" + "a" * 513, "prefix=%00", "Prefix=a",
                                   "limit=1&limit=1", "prefix=%FF"])  # fmt: skip
async def test_a_scan_refuses_what_its_parameters_do_not_say(world: Installation, app: App, query: str) -> None:
    answer = await scan_keys(world, app, query)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


async def test_the_cursor_0_is_the_first_page(world: Installation) -> None:
    app = await world.create_app()
    await world.put(app, "a")
    await world.put(app, "b")
    first = await scan_keys(world, app, "limit=1&cursor=0")
    assert (first.status, first.json) == (200, (await scan_keys(world, app, "limit=1")).json)
    assert (await scan_keys(world, app, f"cursor={first.json['cursor']}")).json == {"keys": ["b"], "cursor": None}


async def test_stats_count_keys_and_bytes_and_name_the_caps(world: Installation) -> None:
    app = await world.create_app()
    await world.put(app, "ab", "xyz")
    await world.put(app, "c", [1, 2], ephemeral=True)
    answer = await world.ask("GET", f"{app.kv}/_stats", world.owner)
    assert answer.status == 200
    assert answer.json == {
        "keys_total": 2,
        # The keys ab and c, and their values as compact JSON.
        "bytes_used": 2 + 5 + 1 + 5,
        "ops_per_sec": None,
        "limit": {
            "max_ops_per_sec": None,
            "max_storage_bytes": None,
            "max_keys_total": None,
            "max_value_bytes": 256 * 1024,
        },
    }


@pytest.mark.parametrize("body", [None, {}, {"confirm": False}, {"include_config": True}])
async def test_flush_needs_confirmation(world: Installation, app: App, body: Any) -> None:
    await world.put(app, "kept")
    answer = await world.ask("POST", f"{app.kv}/_flush", world.owner, body)
    assert (answer.status, answer.json["error"]) == (400, "confirm_required")
    assert (await world.ask("GET", f"{app.kv}/kept", world.owner)).status == 200


@pytest.mark.parametrize("confirm", ["true", 1, None, [], {}])
async def test_only_a_boolean_confirms(world: Installation, app: App, confirm: Any) -> None:
    await world.put(app, "kept")
    answer = await world.ask("POST", f"{app.kv}/_flush", world.owner, {"confirm": confirm})
    assert (answer.status, answer.json["error"]) == (400, "confirm_required")
    assert (await world.ask("GET", f"{app.kv}/kept", world.owner)).status == 200


@pytest.mark.parametrize(("include_config", "rules"), [(None, 1), (False, 1), (True, 0)])
async def test_flush_deletes_every_key_of_this_app_and_the_rules_only_if_told(
    world: Installation, include_config: bool | None, rules: int
) -> None:
    app, other = await world.create_app(), await world.create_app()
    await world.expose(app, ("**", "public", "deny"))
    await world.expose(other, ("**", "public", "deny"))
    for one in (app, other):
        await world.put(one, "durable")
        await world.put(one, "ephemeral", ephemeral=True)
    body = {"confirm": True} if include_config is None else {"confirm": True, "include_config": include_config}
    answer = await world.ask("POST", f"{app.kv}/_flush", world.owner, body)
    assert (answer.status, answer.json) == (200, {"deleted": 2})
    assert (await scan_keys(world, app)).json["keys"] == []
    assert len((await world.ask("GET", f"{app.kv}/_expose", world.owner)).json["rules"]) == rules
    assert (await world.ask("GET", f"{app.kv}/durable")).status == (404 if rules else 401)
    assert (await world.ask("GET", f"{other.kv}/durable")).json == {"value": 1}
    assert (await scan_keys(world, other)).json["keys"] == ["durable", "ephemeral"]


async def list_recent(world: Installation, app: App, query: str = "", by: Any = None) -> Any:
    answer = await world.ask("GET", f"{app.kv}/_audit_recent{query}", world.owner if by is None else by)
    assert answer.status == 200, answer.content
    return answer.json["entries"]


async def test_refusals_are_listed_newest_first_with_what_was_refused(world: Installation) -> None:
    app, other = await world.create_app(), await world.create_app()
    await world.put(app, "fine")
    requests: list[tuple[Any, ...]] = [
        ("GET", "/missing/key", world.owner, None, 404, "not_found", "missing/key"),
        ("GET", "/a%2Fttl", world.owner, None, 404, "not_found", "a/ttl"),
        ("GET", "/fine", {}, None, 401, "unauthorized", "fine"),
        ("GET", "/fine", await world.user_headers(app, "ada"), None, 403, "forbidden", "fine"),
        ("GET", "/fine", bearer_headers("bb_sk_no"), None, 401, "auth_failed", "fine"),
        ("PUT", "/fine", world.owner, {}, 400, "bad_request", "fine"),
        ("POST", "/fine", world.owner, None, 405, "method_not_allowed", "fine"),
        ("POST", "/_flush", world.owner, None, 400, "confirm_required", None),
        ("GET", "/%00", world.owner, None, 400, "key_invalid", "%00"),
        ("GET", "/%FF", world.owner, None, 400, "bad_request", "%FF"),
    ]
    for method, path, by, body, status, code, _ in requests:
        answer = await world.ask(method, app.kv + path, by, body)
        assert (answer.status, answer.json["error"]) == (status, code)
    entries = await list_recent(world, app)
    assert [(e["method"], e["path"], e["status_code"], e["error_code"], e["key"]) for e in reversed(entries)] == [
        (method, app.kv + path, status, code, key) for method, path, _, _, status, code, key in requests
    ]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", entry["at"]) for entry in entries)
    assert await list_recent(world, other) == []


async def test_a_user_sees_the_refusals_of_their_own_calls_only(world: Installation) -> None:
    app = await world.create_app()
    ada, ben = await world.user_headers(app, "ada"), await world.user_headers(app, "ben")
    for key, by in (("ada", ada), ("ben", ben), ("mine", world.owner), ("nobody", {})):
        await world.ask("GET", f"{app.kv}/secret:{key}", by)
    assert [entry["key"] for entry in await list_recent(world, app, by=ada)] == ["secret:ada"]
    assert len(await list_recent(world, app)) == 4


async def test_the_list_of_refusals_is_fifty_long_unless_asked_otherwise(world: Installation) -> None:
    app = await world.create_app()
    for n in range(60):
        await world.ask("GET", f"{app.kv}/n{n}", world.owner)
    assert [entry["key"] for entry in await list_recent(world, app)] == [f"n{n}" for n in range(59, 9, -1)]
    assert len(await list_recent(world, app, "?limit=200")) == 60
    assert [entry["key"] for entry in await list_recent(world, app, "?limit=1")] == ["n59"]
    assert len(await list_recent(world, app, "?limit=201")) == 60
    assert len(await list_recent(world, app, "?limit=100000")) == 60
    for limit in ("0", "x", "-1"):
        answer = await world.ask("GET", f"{app.kv}/_audit_recent?limit={limit}", world.owner)
        assert (answer.status, answer.json["error"]) == (400, "bad_request")


async def test_refusals_are_narrowed_to_a_time(world: Installation, clock: FixedClock) -> None:
    app, moments = await world.create_app(), []
    for key in "abc":
        moments.append(datetime.fromtimestamp(clock.time(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"))
        await world.ask("GET", f"{app.kv}/{key}", world.owner)
        clock.advance(1)
    for query, keys in [
        (f"?from={moments[1]}", ["c", "b"]),
        (f"?to={moments[1]}", ["a"]),
        (f"?from={moments[1]}&to={moments[2]}", ["b"]),
        (f"?from={moments[0]}&limit=1", ["c"]),
        ("?from=9999-01-01", []),
    ]:
        assert [entry["key"] for entry in await list_recent(world, app, query)] == keys, query
    answer = await world.ask("GET", f"{app.kv}/_audit_recent?from=yesterday", world.owner)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")


async def test_refusals_of_apps_that_do_not_exist_are_not_kept(world: Installation) -> None:
    query = "SELECT count(*) FROM failures"
    await world.application.services.failures.flush()
    async with world.application.services.database.reading() as connection:
        before = (await connection.exec_driver_sql(query)).scalar()
    for app_id in ("app_nosuchapp00", "x" * 300, "app_%00", "..", "1"):
        for by in ({}, world.owner, bearer_headers("garbage")):
            assert (await world.ask("GET", f"/v1/{app_id}/kv/a", by)).status in {400, 401, 404}
    await world.application.services.failures.flush()
    async with world.application.services.database.reading() as connection:
        assert (await connection.exec_driver_sql(query)).scalar() == before


async def test_the_function_key_is_48_hex_characters_and_void_once_rotated(world: Installation) -> None:
    app, other = await world.create_app(), await world.create_app()
    first = await world.ask("POST", f"{app.kv}/_rotate_key", world.owner)
    assert first.status == 200
    key = bearer_headers(first.json["function_key"])
    assert re.fullmatch(r"[0-9a-f]{48}", first.json["function_key"])
    assert (await world.ask("PUT", f"{app.kv}/a", key, {"value": 1})).status == 204
    stranger = await world.ask("GET", f"{other.kv}/a", key)
    assert (stranger.status, stranger.json["error"]) == (403, "auth_failed")
    # It is for functions: it gives out no key, its own successor neither.
    assert (await world.ask("POST", f"{app.kv}/_rotate_key", key)).status == 403
    second = await world.ask("POST", f"{app.kv}/_rotate_key", world.owner)
    assert second.status == 200
    refusal = await world.ask("GET", f"{app.kv}/a", key)
    assert (refusal.status, refusal.json["error"], refusal.json["code"]) == (401, "auth_failed", "AUTH_INVALID_API_KEY")
    assert (await world.ask("GET", f"{app.kv}/a", bearer_headers(second.json["function_key"]))).json == {"value": 1}


@pytest.mark.parametrize(
    "app_id", ["app_nosuchapp00", "app_", "app", "x", "app_UPPERCASE000", "app_%C3%A9", "a" * 300, "%00"]
)
async def test_an_app_that_does_not_exist_has_no_store(world: Installation, app_id: str) -> None:
    body: Any
    for method, path, body in [
        ("GET", "key", None),
        ("PUT", "key", {"value": 1}),
        ("GET", "_stats", None),
        ("POST", "_batch", {"ops": []}),
    ]:
        for by in ({}, world.owner):
            answer = await world.ask(method, f"/v1/{app_id}/kv/{path}", by, body)
            assert (answer.status, answer.json["error"]) == (404, "no_kv_credential")


async def test_the_store_of_a_deleted_app_is_gone(world: Installation) -> None:
    app = await world.create_app()
    await world.expose(app, ("**", "public", "public"))
    await world.put(app, "a")
    assert (await world.ask("GET", f"{app.kv}/a")).status == 200
    assert (await world.ask("DELETE", f"/apps/{app.id}", world.owner)).status == 200
    for by in ({}, world.owner):
        answer = await world.ask("GET", f"{app.kv}/a", by)
        assert (answer.status, answer.json["error"]) == (404, "no_kv_credential")
    assert (await world.application.services.regions["local"].kv.usage(app.id)).keys == 0
