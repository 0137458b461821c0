"""Batches: every operation answered by itself, in its place."""

from typing import Any

import pytest

from tests.clock import FixedClock
from tests.http.installation import Answer, App, Headers, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

MONTH = 30 * 86400


async def send_batch(world: Installation, app: App, ops: Any, by: Headers | None = None) -> Answer:
    return await world.ask("POST", f"{app.kv}/_batch", world.owner if by is None else by, {"ops": ops})


async def test_results_stand_in_the_order_of_the_operations(world: Installation, app: App) -> None:
    await world.put(app, "old", "before")
    answer = await send_batch(
        world,
        app,
        [
            {"op": "get", "key": "old"},
            {"op": "set", "key": "old", "value": "after"},
            {"op": "get", "key": "old"},
            {"op": "get", "key": "absent"},
            {"op": "set", "key": "null", "value": None},
            {"op": "get", "key": "null"},
            {"op": "del", "key": "old"},
            {"op": "del", "key": "old"},
            {"op": "get", "key": "old"},
        ],
    )
    assert answer.status == 200
    assert answer.json == {
        "results": [
            {"value": "before"},
            {"ok": True},
            {"value": "after"},
            {"value": None},
            {"ok": True},
            {"value": None},
            {"deleted": 1},
            {"deleted": 0},
            {"value": None},
        ]
    }
    assert (await world.ask("GET", f"{app.kv}/null", world.owner)).json == {"value": None}


@pytest.mark.parametrize(
    ("item", "error"),
    [
        ({"op": "put", "key": "a", "value": 1}, "invalid op"),
        ({"op": "GET", "key": "a"}, "invalid op"),
        ({"op": None, "key": "a"}, "invalid op"),
        ({"op": ["get"], "key": "a"}, "invalid op"),
        ({"op": {}, "key": "a"}, "invalid op"),
        ({"key": "a"}, "invalid op"),
        ({}, "invalid op"),
        (None, "invalid op"),
        ("get", "invalid op"),
        ([], "invalid op"),
        (1, "invalid op"),
        ({"op": "get"}, "key_invalid"),
        ({"op": "get", "key": ""}, "key_invalid"),
        ({"op": "get", "key": None}, "key_invalid"),
        ({"op": "get", "key": 1}, "key_invalid"),
        ({"op": "get", "key": ["a"]}, "key_invalid"),
        ({"op": "get", "key": "_a"}, "key_invalid"),
        ({"op": "del", "key": "a//b"}, "key_invalid"),
        ({"op": "del", "key": "../a"}, "key_invalid"),
        ({"op": "set", "key": "a\u0000", "value": 1}, "key_invalid"),
        ({"op": "set", "key": "\u00e9", "value": 1}, "key_invalid"),
        ({"op": "set", "key": "k" * 513, "value": 1}, "key_invalid"),
        ({"op": "set", "key": "a"}, "missing value"),
        ({"op": "set", "key": "a", "value": "x" * (256 * 1024 - 1)}, "KV_VALUE_TOO_LARGE"),
        ({"op": "set", "key": "a", "value": "a\u0000b"}, "bad_request"),
        ({"op": "set", "key": "a", "value": {"\u0000": 1}}, "bad_request"),
    ],
    ids=lambda item: repr(item)[:40],
)
async def test_a_refused_item_does_not_stop_the_others(world: Installation, app: App, item: Any, error: str) -> None:
    before, after = {"op": "set", "key": "first", "value": 1}, {"op": "set", "key": "last", "value": 2}
    answer = await send_batch(world, app, [before, item, after])
    assert answer.status == 200
    first, refusal, last = answer.json["results"]
    assert (first, last) == ({"ok": True}, {"ok": True})
    assert refusal["error"] == error
    assert set(refusal) <= {"error", "message"}
    got = await send_batch(world, app, [{"op": op, "key": key} for op in ("get", "del") for key in ("first", "last")])
    assert got.json["results"] == [{"value": 1}, {"value": 2}, {"deleted": 1}, {"deleted": 1}]
    assert (await world.ask("GET", f"{app.kv}/a/exists", world.owner)).json == {"exists": False}


async def test_a_set_in_a_batch_lives_thirty_days_whatever_ttl_it_names(
    world: Installation, app: App, clock: FixedClock
) -> None:
    assert (await send_batch(world, app, [{"op": "set", "key": "t", "value": 1, "ttl": 5}])).json["results"] == [
        {"ok": True}
    ]
    assert (await world.ask("GET", f"{app.kv}/t/ttl", world.owner)).json == {"ttl": MONTH}


@pytest.mark.parametrize(
    "ops", [None, {}, "get", 1, True, {"op": "get", "key": "a"}, [{"op": "get", "key": "a"}] * 101]
)
async def test_ops_must_be_a_list_of_at_most_a_hundred(world: Installation, app: App, ops: Any) -> None:
    answer = await send_batch(world, app, ops)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "ops" in answer.json["message"]


async def test_a_batch_may_be_empty_or_full_but_not_without_ops(world: Installation, app: App) -> None:
    assert (await send_batch(world, app, [])).json == {"results": []}
    full = [{"op": "set", "key": f"n{n}", "value": n} for n in range(100)]
    assert (await send_batch(world, app, full)).json["results"] == [{"ok": True}] * 100
    missing = await world.ask("POST", f"{app.kv}/_batch", world.owner, {})
    assert (missing.status, missing.json["error"]) == (400, "bad_request")


async def test_a_hundred_of_the_largest_values_fit_one_body(world: Installation, app: App) -> None:
    ops = [{"op": "set", "key": f"large{n}", "value": "x" * (256 * 1024 - 2)} for n in range(100)]
    answer = await send_batch(world, app, ops)
    assert answer.status == 200
    assert answer.json["results"] == [{"ok": True}] * 100


async def test_end_users_and_anonymous_callers_are_checked_for_each_operation(world: Installation) -> None:
    app = await world.create_app()
    await world.expose(
        app, ("public:*", "public", "deny"), ("own:{user.id}:*", "owner", "owner"), ("open:*", "public", "public")
    )
    for key in ("public:a", "own:ada:a", "own:bob:a", "hidden"):
        await world.put(app, key, key)
    read = ("public:a", "own:ada:a", "own:bob:a", "hidden")
    ops: list[dict[str, Any]] = [{"op": "get", "key": key} for key in read]
    ops += [{"op": "set", "key": key, "value": 1} for key in ("public:a", "own:ada:b", "own:bob:b", "open:a")]
    ops += [{"op": "del", "key": key} for key in ("own:ada:a", "own:bob:a", "public:a")]
    no = {"error": "KV_FORBIDDEN"}
    for by, expected_results in [
        ({}, [{"value": "public:a"}, no, no, no, no, no, no, {"ok": True}, no, no, no]),
        (
            await world.user_headers(app, "ada"),
            [
                {"value": "public:a"},
                {"value": "own:ada:a"},
                no,
                no,
                no,
                {"ok": True},
                no,
                {"ok": True},
                {"deleted": 1},
                no,
                no,
            ],
        ),
    ]:
        answer = await send_batch(world, app, ops, by)
        assert answer.status == 200
        assert answer.json["results"] == expected_results
    assert (await world.ask("GET", f"{app.kv}/own:bob:a", world.owner)).json == {"value": "own:bob:a"}
