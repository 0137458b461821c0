"""Expose rules: how they are declared, listed, replaced and deleted."""

from typing import Any
from urllib.parse import quote

import pytest

from tests.http.installation import Answer, App, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def expose_pattern(
    world: Installation, app: App, pattern: str, read: Any = "public", write: Any = "deny"
) -> Answer:
    target = f"{app.kv}/_expose/{quote(pattern, safe='')}"
    return await world.ask("PUT", target, world.owner, {"read": read, "write": write})


async def list_rules(world: Installation, app: App) -> list[tuple[Any, ...]]:
    answer = await world.ask("GET", f"{app.kv}/_expose", world.owner)
    assert answer.status == 200
    return [(rule["pattern"], rule["read"], rule["write"], rule["order"]) for rule in answer.json["rules"]]


async def test_rules_are_listed_in_the_order_of_their_declaration(world: Installation) -> None:
    app = await world.create_app()
    assert await list_rules(world, app) == []
    for pattern, read, write in [
        ("b:**", "public", "authed"),
        ("a:*", "authed", "deny"),
        ("c:{user.id}", "owner", "owner"),
    ]:
        answer = await expose_pattern(world, app, pattern, read, write)
        assert (answer.status, answer.content) == (204, b"")
    assert await list_rules(world, app) == [
        ("b:**", "public", "authed", 0),
        ("a:*", "authed", "deny", 1),
        ("c:{user.id}", "owner", "owner", 2),
    ]


async def test_the_same_rule_again_changes_nothing_and_another_for_its_pattern_conflicts(world: Installation) -> None:
    app = await world.create_app()
    for _ in range(2):
        assert (await expose_pattern(world, app, "a:*", "public", "deny")).status == 204
    for read, write in [("authed", "deny"), ("public", "public")]:
        answer = await expose_pattern(world, app, "a:*", read, write)
        assert (answer.status, answer.json["error"]) == (409, "KV_EXPOSE_CONFLICT")
        assert answer.json["existing"] == {"pattern": "a:*", "read": "public", "write": "deny", "order": 0}
    # Patterns that overlap are no conflict.
    assert (await expose_pattern(world, app, "a:**", "deny", "deny")).status == 204
    assert await list_rules(world, app) == [("a:*", "public", "deny", 0), ("a:**", "deny", "deny", 1)]


async def test_a_rule_is_changed_by_deleting_and_declaring_it_again(world: Installation) -> None:
    app = await world.create_app()
    await world.put(app, "a/b")
    assert (await expose_pattern(world, app, "a/*", "public")).status == 204
    assert (await world.ask("GET", f"{app.kv}/a/b")).status == 200
    for deleted_count in (1, 0):
        answer = await world.ask("DELETE", f"{app.kv}/_expose/a%2F%2A", world.owner)
        assert (answer.status, answer.json) == (200, {"deleted": deleted_count})
    assert (await world.ask("GET", f"{app.kv}/a/b")).status == 401
    assert (await expose_pattern(world, app, "a/*", "authed")).status == 204
    assert (await world.ask("GET", f"{app.kv}/a/b")).status == 401
    assert (await world.ask("GET", f"{app.kv}/a/b", await world.user_headers(app, "ada"))).status == 200


async def test_a_pattern_may_hold_slashes_raw_or_encoded(world: Installation) -> None:
    app = await world.create_app()
    body = {"read": "public", "write": "deny"}
    assert (await world.ask("PUT", f"{app.kv}/_expose/a/b/ttl", world.owner, body)).status == 204
    assert (await world.ask("PUT", f"{app.kv}/_expose/a%2Fb%2Fttl", world.owner, body)).status == 204
    assert await list_rules(world, app) == [("a/b/ttl", "public", "deny", 0)]
    assert (await world.ask("DELETE", f"{app.kv}/_expose/a/b%2Fttl", world.owner)).json == {"deleted": 1}


async def test_all_rules_are_replaced_at_once_in_the_order_given(world: Installation) -> None:
    app = await world.create_app()
    await expose_pattern(world, app, "old")
    body = {"rules": [
        {"pattern": "z", "read": True, "write": False},
        {"pattern": "own:{user.id}:**", "read": "owner", "write": "authed"},
    ]}  # fmt: skip
    answer = await world.ask("PUT", f"{app.kv}/_expose", world.owner, body)
    assert (answer.status, answer.content) == (204, b"")
    assert await list_rules(world, app) == [("z", "public", "deny", 0), ("own:{user.id}:**", "owner", "authed", 1)]
    assert (await expose_pattern(world, app, "new")).status == 204
    assert (await list_rules(world, app))[-1] == ("new", "public", "deny", 2)
    assert (await world.ask("PUT", f"{app.kv}/_expose", world.owner, {"rules": []})).status == 204
    assert await list_rules(world, app) == []


GOOD = {"pattern": "a", "read": "public", "write": "deny"}


@pytest.mark.parametrize(
    "rule",
    [
        None, "a", [], {}, {"pattern": "a"}, {"pattern": "a", "read": "public"}, {**GOOD, "order": 1}, {**GOOD,
        "read": "all"},
        {**GOOD, "read": None}, {**GOOD, "read": 1}, {**GOOD, "read": "owner"}, {**GOOD, "pattern": ""}, {**GOOD,
        "pattern": None},
        {**GOOD, "pattern": 5}, {**GOOD, "pattern": "_x"}, {**GOOD, "pattern": "a\u0000"}, {**GOOD,
        "pattern": "\ud800"}, GOOD,
    ],
    ids=repr,
)  # fmt: skip
async def test_a_list_with_one_wrong_rule_replaces_nothing(world: Installation, app: App, rule: Any) -> None:
    await world.expose(app, ("kept", "public", "deny"))
    body = {"rules": [GOOD, rule]}
    answer = await world.ask("PUT", f"{app.kv}/_expose", world.owner, body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert await list_rules(world, app) == [("kept", "public", "deny", 0)]


@pytest.mark.parametrize(
    "pattern",
    [
        "_a", "a\u00e9", "{user.name}", "{user.id", "}", "{", "{{user.id}}", "a***", "a*b*c", "*{user.id}",
        "{user.id}{user.role}",
        ":".join("*" * 9), "a" * 513, "\x7f",
    ],
)  # fmt: skip
async def test_what_is_no_pattern_is_refused(world: Installation, app: App, pattern: str) -> None:
    answer = await expose_pattern(world, app, pattern)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "pattern" in answer.json["message"]


@pytest.mark.parametrize("body", [None, {}, {"read": "public"}, {"write": "deny"}, {"read": "public", "write": "all"},
                                  {"read": "PUBLIC", "write": "deny"}, {"read": True, "write": False}, {"read": None,
                                  "write": "deny"},
                                  {"read": "public", "write": "deny", "pattern": "b"}])  # fmt: skip
async def test_a_rule_needs_both_levels_and_knows_four(world: Installation, app: App, body: Any) -> None:
    answer = await world.ask("PUT", f"{app.kv}/_expose/x", world.owner, body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert ("x",) not in [rule[:1] for rule in await list_rules(world, app)]


@pytest.mark.parametrize("levels", [("owner", "deny"), ("public", "owner")])
async def test_an_owner_rule_must_name_its_owner(world: Installation, app: App, levels: tuple[str, str]) -> None:
    answer = await expose_pattern(world, app, "user:*", *levels)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "{user.id}" in answer.json["remediation"]


async def test_an_app_has_at_most_five_hundred_rules(world: Installation) -> None:
    app = await world.create_app()
    many = [{"pattern": f"p{n}", "read": True, "write": True} for n in range(501)]
    assert (await world.ask("PUT", f"{app.kv}/_expose", world.owner, {"rules": many})).status == 400
    assert (await world.ask("PUT", f"{app.kv}/_expose", world.owner, {"rules": many[:500]})).status == 204
    assert (await expose_pattern(world, app, "one more")).status == 400
    assert (await expose_pattern(world, app, "p0", "public", "public")).status == 204


async def test_every_action_asks_the_rule_for_reading_or_writing(world: Installation) -> None:
    app = await world.create_app()
    await world.expose(app, ("read:*", "public", "deny"), ("write:*", "deny", "public"))
    reads = [("GET", "", None), ("HEAD", "", None), ("GET", "/ttl", None), ("GET", "/exists", None)]
    writes = [
        ("PUT", "", {"value": 1}),
        ("POST", "/incr", {}),
        ("POST", "/decr", {}),
        ("POST", "/setnx", {"value": 1}),
        ("POST", "/cas", {"expected": 1, "next": 1}),
        ("POST", "/expire", {"ttl": None}),
        ("DELETE", "", None),
    ]
    for open_key, closed_key, actions in (("read:a", "write:a", reads), ("write:a", "read:a", writes)):
        await world.put(app, "read:a")
        await world.put(app, "write:a")
        for method, action, body in actions:
            assert (await world.ask(method, f"{app.kv}/{open_key}{action}", {}, body)).status in {200, 204}
            assert (await world.ask(method, f"{app.kv}/{closed_key}{action}", {}, body)).status == 401
    assert (await world.ask("GET", f"{app.kv}/read:a", world.owner)).json == {"value": 1}


async def test_a_touch_needs_no_more_than_a_read(world: Installation) -> None:
    app = await world.create_app()
    await world.expose(app, ("a", "public", "deny"))
    await world.put(app, "a")
    assert (await world.ask("GET", f"{app.kv}/a?touch=true")).status == 200


async def test_the_list_warns_where_another_rule_opens_what_is_the_owners(world: Installation, app: App) -> None:
    owners = {"pattern": "user:{user.id}:**", "read": "owner", "write": "owner"}
    broad = {"pattern": "**", "read": "authed", "write": "deny"}
    closing = {"pattern": "user:*:**", "read": "deny", "write": "deny"}
    for rules, number in (([owners], 0), ([owners, broad], 1), ([owners, closing, broad], 0)):
        assert (await world.ask("PUT", f"{app.kv}/_expose", world.owner, {"rules": rules})).status == 204
        answer_json = (await world.ask("GET", f"{app.kv}/_expose", world.owner)).json
        assert len(answer_json.get("warnings", [])) == number, answer_json
