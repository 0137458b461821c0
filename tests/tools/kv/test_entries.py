"""Entries over REST: every route of one key, its defaults and its refusals."""

import asyncio
import json
from typing import Any

import pytest

from tests.clock import FixedClock
from tests.http.installation import Answer, App, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")

DAY = 86400
MONTH = 30 * DAY


async def ask_line(world: Installation, app: App, line: str, body: Any = None) -> Answer:
    """`line` is a method and what stands behind /kv, as the owner asks."""
    method, _, path = line.partition(" ")
    return await world.ask(method, app.kv + path, world.owner, body)


async def get_ttl(world: Installation, app: App, key: str) -> Any:
    return (await ask_line(world, app, f"GET /{key}/ttl")).json["ttl"]


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 1.5, 1e300, 2**53 + 1, 10**30, "", "text", "__NULL__", [], {}, [None],
        {"a": [1, {"b": None}]}, "\u00e9\u4e2d\U0001f600", "\u2028\"\\/\b\f\n\r\t\x7f", {"": {"": ""}},
    ],
    ids=repr,
)  # fmt: skip
async def test_any_json_value_comes_back_as_it_was_put(world: Installation, app: App, value: Any) -> None:
    put = await ask_line(world, app, "PUT /value", {"value": value})
    assert (put.status, put.content) == (204, b"")
    assert "content-type" not in put.headers
    got = await ask_line(world, app, "GET /value")
    assert (got.status, got.json) == (200, {"value": value})
    assert got.headers["content-type"] == "application/json"


async def test_a_put_replaces_value_and_expiry_at_once(world: Installation, app: App) -> None:
    await world.put(app, "replaced", {"old": 1}, ttl=None)
    await world.put(app, "replaced", [2])
    assert (await ask_line(world, app, "GET /replaced")).json == {"value": [2]}
    assert await get_ttl(world, app, "replaced") == MONTH


@pytest.mark.parametrize(
    ("options", "ttl"),
    [
        ({}, MONTH),
        ({"ttl": None}, None),
        ({"ttl": 1}, 1),
        ({"ttl": 10**10}, 10**10),
        ({"ephemeral": False}, MONTH),
        ({"ephemeral": True}, 3600),
        ({"ephemeral": True, "ttl": 60}, 60),
        ({"ephemeral": True, "ttl": None}, None),
    ],
)
@pytest.mark.parametrize("route", ["PUT /lived", "POST /lived/setnx"])
async def test_an_omitted_ttl_is_thirty_days_or_an_ephemeral_hour(
    world: Installation, app: App, route: str, options: dict[str, Any], ttl: int | None
) -> None:
    await ask_line(world, app, "DELETE /lived")
    answer = await ask_line(world, app, route, {"value": 1, **options})
    assert answer.status in {204, 201}
    assert await get_ttl(world, app, "lived") == ttl


async def test_an_entry_is_gone_the_instant_it_expires(world: Installation, app: App, clock: FixedClock) -> None:
    await world.put(app, "short", 1, ttl=10)
    clock.advance(9)
    assert await get_ttl(world, app, "short") == 1
    clock.advance(1)
    assert (await ask_line(world, app, "GET /short")).status == 404
    assert (await ask_line(world, app, "GET /short/ttl")).status == 404
    assert (await ask_line(world, app, "GET /short/exists")).json == {"exists": False}
    assert (await ask_line(world, app, "DELETE /short")).json == {"deleted": 0}


async def test_an_absent_key_is_answered_by_each_route_in_its_own_way(world: Installation, app: App) -> None:
    for line in ("GET /none", "GET /none?touch=true", "GET /none/ttl"):
        answer = await ask_line(world, app, line)
        assert (answer.status, answer.json["error"]) == (404, "not_found")
        assert answer.json["message"]
        assert answer.json["remediation"]
    assert (await ask_line(world, app, "GET /none/exists")).json == {"exists": False}
    assert (await ask_line(world, app, "DELETE /none")).json == {"deleted": 0}
    assert (await ask_line(world, app, "POST /none/expire", {"ttl": 5})).json == {"applied": False}


async def test_a_stored_null_is_there_although_its_value_is_null(world: Installation, app: App) -> None:
    await world.put(app, "null", None)
    assert (await ask_line(world, app, "GET /null")).json == {"value": None}
    assert (await ask_line(world, app, "GET /null/exists")).json == {"exists": True}
    assert (await ask_line(world, app, "DELETE /null")).json == {"deleted": 1}


async def test_delete_counts_what_it_removed(world: Installation, app: App) -> None:
    await world.put(app, "counted", 1)
    await world.put(app, "counted", 1, ephemeral=True)
    # A write to one tier takes the key out of the other.
    assert (await ask_line(world, app, "DELETE /counted")).json == {"deleted": 1}


async def test_touch_restarts_the_time_to_live_that_was_given(world: Installation, app: App, clock: FixedClock) -> None:
    await world.put(app, "touched", 1, ttl=100)
    await world.put(app, "untouched", 1, ttl=100)
    await world.put(app, "forever", 1, ttl=None)
    await world.put(app, "fleeting", 1, ttl=100, ephemeral=True)
    clock.advance(40)
    assert (await ask_line(world, app, "GET /touched?touch=1")).json == {"value": 1}
    assert (await ask_line(world, app, "GET /untouched?touch=0")).json == {"value": 1}
    for key in ("forever", "fleeting"):
        await ask_line(world, app, f"GET /{key}?touch=true")
    ttls = [await get_ttl(world, app, key) for key in ("touched", "untouched", "forever", "fleeting")]
    assert ttls == [100, 60, None, 60]


@pytest.mark.parametrize(
    ("stored_value", "line", "body", "value"),
    [
        (None, "incr", None, 1),
        (None, "incr", {}, 1),
        (None, "decr", None, -1),
        (None, "incr", {"by": 5}, 5),
        (None, "decr", {"by": 5}, -5),
        (10, "incr", {"by": -3}, 7),
        (10, "decr", {"by": -3}, 13),
        (10, "incr", {"by": 0}, 10),
        (2**63 - 2, "incr", {"by": 1}, 2**63 - 1),
        (-(2**63) + 1, "decr", {"by": 1}, -(2**63)),
    ],
)
async def test_counters_count(
    world: Installation, app: App, stored_value: int | None, line: str, body: Any, value: int
) -> None:
    await ask_line(world, app, "DELETE /counter")
    if stored_value is not None:
        await world.put(app, "counter", stored_value)
    answer = await ask_line(world, app, f"POST /counter/{line}", body)
    assert (answer.status, answer.json) == (200, {"value": value})
    assert (await ask_line(world, app, "GET /counter")).json == {"value": value}


async def test_a_new_counter_lives_thirty_days_and_an_old_one_keeps_its_expiry(
    world: Installation, app: App, clock: FixedClock
) -> None:
    await ask_line(world, app, "POST /fresh/incr")
    await world.put(app, "aged", 1, ttl=100)
    clock.advance(10)
    await ask_line(world, app, "POST /aged/incr")
    assert [await get_ttl(world, app, key) for key in ("fresh", "aged")] == [MONTH - 10, 90]


@pytest.mark.parametrize("action", ["incr", "decr"])
async def test_a_new_counter_lives_as_long_as_its_ttl_says_and_one_without_says_that_it_expires(
    world: Installation, app: App, action: str
) -> None:
    silent = await ask_line(world, app, f"POST /ever_{action}/{action}", {"ttl": None})
    assert "x-baobab-warnings" not in silent.headers
    await ask_line(world, app, f"POST /short_{action}/{action}", {"ttl": 60})
    again = await ask_line(world, app, f"POST /ever_{action}/{action}", {"ttl": 60})
    assert "x-baobab-warnings" not in again.headers
    assert [await get_ttl(world, app, f"{name}_{action}") for name in ("ever", "short")] == [None, 60]
    plain = await ask_line(world, app, f"POST /plain_{action}/{action}")
    assert "expires in 30 days" in plain.headers["x-baobab-warnings"]


@pytest.mark.parametrize("by", [1.5, 2.0, "1", True, [], {}, 2**63, -(2**63), 10**400], ids=lambda by: repr(by)[:9])
@pytest.mark.parametrize("action", ["incr", "decr"])
async def test_a_step_that_is_no_whole_64_bit_number_is_refused(
    world: Installation, app: App, action: str, by: Any
) -> None:
    answer = await ask_line(world, app, f"POST /step/{action}", {"by": by})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert "by" in answer.json["message"]
    assert (await ask_line(world, app, "GET /step")).status == 404


@pytest.mark.parametrize("stored_value", ["1", 1.0, 1e3, None, True, [1], {"a": 1}], ids=repr)
async def test_only_an_integer_can_be_counted_up(world: Installation, app: App, stored_value: Any) -> None:
    await world.put(app, "no counter", stored_value)
    answer = await ask_line(world, app, "POST /no%20counter/incr")
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert answer.json["message"] == "The stored value is not an integer."
    assert (await ask_line(world, app, "GET /no%20counter")).json == {"value": stored_value}


@pytest.mark.parametrize(
    ("stored_value", "action", "by"),
    [(2**63 - 1, "incr", 1), (-(2**63), "decr", 1), (1, "incr", 2**63 - 1), (10**30, "decr", 1)],
)
async def test_a_counter_does_not_leave_64_bits(
    world: Installation, app: App, stored_value: int, action: str, by: int
) -> None:
    await world.put(app, "edge", stored_value)
    answer = await ask_line(world, app, f"POST /edge/{action}", {"by": by})
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert (await ask_line(world, app, "GET /edge")).json == {"value": stored_value}


async def test_concurrent_increments_are_all_counted(world: Installation, app: App) -> None:
    answers = await asyncio.gather(*(ask_line(world, app, "POST /raced/incr") for _ in range(50)))
    assert sorted(answer.json["value"] for answer in answers) == list(range(1, 51))


async def test_setnx_writes_once_and_says_whether_it_did(world: Installation, app: App) -> None:
    first = await ask_line(world, app, "POST /once/setnx", {"value": "a", "ttl": 60})
    second = await ask_line(world, app, "POST /once/setnx", {"value": "b"})
    assert (first.status, first.json) == (201, {"wrote": True})
    assert (second.status, second.json) == (200, {"wrote": False})
    assert (await ask_line(world, app, "GET /once")).json == {"value": "a"}
    assert await get_ttl(world, app, "once") == 60


async def test_setnx_sees_the_other_tier_and_a_stored_null(world: Installation, app: App) -> None:
    await world.put(app, "there", None, ephemeral=True)
    assert (await ask_line(world, app, "POST /there/setnx", {"value": 1})).json == {"wrote": False}


async def test_of_many_setnx_at_once_one_wins(world: Installation, app: App) -> None:
    answers = await asyncio.gather(*(ask_line(world, app, "POST /lock/setnx", {"value": n}) for n in range(30)))
    assert sorted(answer.status for answer in answers) == [200] * 29 + [201]
    winner = next(n for n, answer in enumerate(answers) if answer.status == 201)
    assert (await ask_line(world, app, "GET /lock")).json == {"value": winner}


@pytest.mark.parametrize(
    ("stored_value", "expected_value", "is_swapped"),
    [
        ("absent", None, True),
        ("absent", "__NULL__", True),
        ("absent", 0, False),
        ("absent", "", False),
        (None, None, True),
        ("__NULL__", None, True),
        ("__NULL__", "__NULL__", True),
        (1, 1, True),
        (1, 2, False),
        (1, None, False),
        (1, "1", False),
        (1, True, False),
        (0, False, False),
        ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, True),
        ({"a": 1}, {"a": 1, "b": 2}, False),
        ([1, 2], [2, 1], False),
        (1.0, 1, True),
        (100, 1e2, True),
    ],
    ids=repr,
)
async def test_cas_swaps_where_the_stored_json_means_the_expected(
    world: Installation, app: App, stored_value: Any, expected_value: Any, is_swapped: bool
) -> None:
    await ask_line(world, app, "DELETE /cas")
    if stored_value != "absent":
        await world.put(app, "cas", stored_value)
    answer = await ask_line(world, app, "POST /cas/cas", {"expected": expected_value, "next": "next"})
    assert (answer.status, answer.json) == (200, {"swapped": is_swapped})
    got = await ask_line(world, app, "GET /cas")
    if is_swapped:
        assert got.json == {"value": "next"}
    elif stored_value == "absent":
        assert got.status == 404
    else:
        assert got.json == {"value": stored_value}


async def test_cas_keeps_the_remaining_time_and_starts_a_new_key_with_thirty_days(
    world: Installation, app: App, clock: FixedClock
) -> None:
    await world.put(app, "timed", 1, ttl=100)
    await world.put(app, "endless", 1, ttl=None)
    clock.advance(30)
    for key in ("timed", "endless"):
        assert (await ask_line(world, app, f"POST /{key}/cas", {"expected": 1, "next": 2})).json == {"swapped": True}
    assert (await ask_line(world, app, "POST /born/cas", {"expected": None, "next": None})).json == {"swapped": True}
    assert [await get_ttl(world, app, key) for key in ("timed", "endless", "born")] == [70, None, MONTH]
    assert (await ask_line(world, app, "GET /born")).json == {"value": None}


async def test_of_many_cas_at_once_one_swaps(world: Installation, app: App) -> None:
    await world.put(app, "contended", 0)
    swaps = (ask_line(world, app, "POST /contended/cas", {"expected": 0, "next": n}) for n in range(1, 21))
    assert [answer.json["swapped"] for answer in await asyncio.gather(*swaps)].count(True) == 1


async def test_expire_sets_removes_and_lifts_the_expiry(world: Installation, app: App, clock: FixedClock) -> None:
    await world.put(app, "expiring", 1)
    for ttl in (7, None, 10**10):
        answer = await ask_line(world, app, "POST /expiring/expire", {"ttl": ttl})
        assert (answer.status, answer.json) == (200, {"applied": True})
        assert await get_ttl(world, app, "expiring") == ttl
    assert (await ask_line(world, app, "POST /expiring/expire", {"ttl": 0})).json == {"applied": True}
    assert (await ask_line(world, app, "GET /expiring")).status == 404


@pytest.mark.parametrize(
    ("line", "body", "field"),
    [
        ("PUT /k", None, "value"),
        ("PUT /k", {}, "value"),
        ("PUT /k", {"ttl": 5}, "value"),
        ("PUT /k", {"value": 1, "ttl": 0}, "ttl"),
        ("PUT /k", {"value": 1, "ttl": -1}, "ttl"),
        ("PUT /k", {"value": 1, "ttl": 1.5}, "ttl"),
        ("PUT /k", {"value": 1, "ttl": "60"}, "ttl"),
        ("PUT /k", {"value": 1, "ttl": True}, "ttl"),
        ("PUT /k", {"value": 1, "ttl": 10**10 + 1}, "ttl"),
        ("PUT /k", {"value": 1, "ephemeral": 1}, "ephemeral"),
        ("PUT /k", {"value": 1, "tll": 5}, "tll"),
        ("POST /k/setnx", {"ttl": 5}, "value"),
        ("POST /k/cas", {"next": 1}, "expected"),
        ("POST /k/cas", {"expected": 1}, "next"),
        ("POST /k/expire", {}, "ttl"),
        ("POST /k/expire", {"ttl": -1}, "ttl"),
        ("POST /k/expire", {"ttl": 0.5}, "ttl"),
        ("GET /k?touch=2", None, "touch"),
        ("GET /k?touch=", None, "touch"),
        ("GET /k?touched=true", None, "touched"),
    ],
)
async def test_a_missing_or_mistyped_field_is_a_bad_request_that_names_it(
    world: Installation, app: App, line: str, body: Any, field: str
) -> None:
    answer = await ask_line(world, app, line, body)
    assert (answer.status, answer.json["error"]) == (400, "bad_request")
    assert f"`{field}`" in answer.json["message"]
    assert (await ask_line(world, app, "GET /k/exists")).json == {"exists": False}


LIMIT = 256 * 1024


@pytest.mark.parametrize(
    ("line", "field", "rest"),
    [("PUT /big", "value", {}), ("POST /big/setnx", "value", {}), ("POST /big/cas", "next", {"expected": None})],
)
async def test_a_value_of_256_kb_is_taken_and_one_byte_more_is_not(
    world: Installation, app: App, line: str, field: str, rest: dict[str, Any]
) -> None:
    await ask_line(world, app, "DELETE /big")
    # Its JSON text counts, quotes included, in UTF-8.
    fits = "\u00e9" * ((LIMIT - 2) // 2)
    refusal = await ask_line(world, app, line, {field: fits + "x", **rest})
    assert refusal.status == 413
    assert refusal.json["error"] == "KV_VALUE_TOO_LARGE"
    assert (refusal.json["size"], refusal.json["max"]) == (LIMIT + 1, LIMIT)
    assert (await ask_line(world, app, "GET /big")).status == 404
    assert (await ask_line(world, app, line, {field: fits, **rest})).status in {200, 201, 204}
    assert (await ask_line(world, app, "GET /big")).json == {"value": fits}


async def test_the_spelling_of_a_value_does_not_count_against_it(world: Installation, app: App) -> None:
    spaced_body = b'{"value": [' + b" " * (LIMIT + 1) + b"1 ]}"
    answer = await world.ask("PUT", f"{app.kv}/spaced", world.owner, content=spaced_body)
    assert answer.status == 204
    escaped_body = json.dumps({"value": "\u00e9" * (LIMIT // 2 - 1)}).encode()
    assert len(escaped_body) > 2 * LIMIT
    assert (await world.ask("PUT", f"{app.kv}/escaped", world.owner, content=escaped_body)).status == 204


async def test_a_body_over_the_limit_is_refused_whatever_it_holds(world: Installation, app: App) -> None:
    answer = await world.ask("PUT", f"{app.kv}/huge", world.owner, content=b" " * (2 * 2**20 + 1))
    assert (answer.status, answer.json["error"]) == (413, "KV_VALUE_TOO_LARGE")
    assert answer.json["max_bytes"] == 2 * 2**20
    # The detail is beside the code here, and that is where the remedy says it is.
    assert answer.json["remediation"] == "Send less in one request; max_bytes is the limit."
