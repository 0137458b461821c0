"""The caps of a plan: operations per second, keys and bytes."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.core.limits import plans
from baobab.tools.core.limits.plans import Plan
from tests.clock import FixedClock
from tests.http.installation import Answer, App, Installation, open_installation


@pytest.fixture
def plan() -> str:
    return "playground"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def world(
    tmp_path: Path, plan: str, clock: FixedClock, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Installation]:
    monkeypatch.setitem(plans.PLANS, "small", Plan("small", None, None, 1000, 3))
    monkeypatch.setitem(plans.PLANS, "tiny", Plan("tiny", 300, 3, None, None))
    async with open_installation(tmp_path, clock, plan=plan) as installation:
        yield installation


def build_gets(count: int) -> dict[str, Any]:
    return {"ops": [{"op": "get", "key": "a"}] * count}


async def send_batch(world: Installation, app: App, count: int) -> Answer:
    return await world.ask("POST", f"{app.kv}/_batch", world.owner, build_gets(count))


async def test_a_full_batch_takes_the_whole_second_of_a_small_plan(world: Installation, clock: FixedClock) -> None:
    app, other = await world.create_app(), await world.create_app()
    assert (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["limit"] == {
        "max_ops_per_sec": 50,
        "max_storage_bytes": 10 * 2**20,
        "max_keys_total": 100_000,
        "max_value_bytes": 256 * 1024,
    }
    clock.advance(1.05)
    answers = await asyncio.gather(*(send_batch(world, app, 100) for _ in range(4)), send_batch(world, other, 100))
    # Each app has a second of its own.
    assert answers.pop().status == 200
    answer, refusal = answers[0], answers[-1]
    assert answer.status == 200
    assert answer.headers["ratelimit-policy"] == '"kv";q=50;w=1'
    assert answer.headers["ratelimit"] == '"kv";r=0;t=1'
    assert refusal.status == 429
    assert refusal.json["error"] == "kv_rate_limited"
    assert refusal.json["retry_after"] == 1
    assert refusal.json["message"]
    assert refusal.json["remediation"]
    assert refusal.headers["retry-after"] == "1"
    assert refusal.headers["x-ratelimit-limit"] == "50"
    assert refusal.headers["x-ratelimit-remaining"] == "0"
    assert refusal.headers["x-ratelimit-reset"] == "1"
    clock.advance(1.05)
    assert (await send_batch(world, app, 100)).status == 200


@pytest.mark.parametrize("plan", ["tiny"])
async def test_every_operation_counts_and_what_is_refused_does_not(world: Installation, clock: FixedClock) -> None:
    app = await world.create_app()
    await world.expose(app, ("a", "public", "deny"))
    clock.advance(1.05)
    calls = [("GET", "/a"), ("GET", "/b"), ("GET", "/_audit_recent"), ("POST", "/a/incr"), ("GET", "/_stats")]
    answers = await asyncio.gather(*(world.ask(method, app.kv + path, world.owner) for method, path in calls))
    statuses = [answer.status for answer in answers]
    assert statuses[3:] == [429, 429]
    assert 429 not in statuses[:3]
    assert [answer.headers["ratelimit"] for answer in answers if answer.status == 200] == ['"kv";r=0;t=1']
    # A caller whom the rules turn away spends nothing of the app's.
    clock.advance(1.05)
    strangers = await asyncio.gather(*(world.ask("GET", f"{app.kv}/hidden") for _ in range(20)))
    assert {answer.status for answer in strangers} == {401}
    assert (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["ops_per_sec"] == 1


@pytest.mark.parametrize("plan", ["small"])
async def test_one_key_more_than_the_plan_has_is_refused(world: Installation) -> None:
    app, other = await world.create_app(), await world.create_app()
    for key in "abc":
        await world.put(app, key)
    for method, path, body in [
        ("PUT", "/d", {"value": 1}),
        ("PUT", "/d", {"value": 1, "ephemeral": True}),
        ("POST", "/d/setnx", {"value": 1}),
        ("POST", "/d/incr", {}),
        ("POST", "/d/cas", {"expected": None, "next": 1}),
    ]:
        answer = await world.ask(method, app.kv + path, world.owner, body)
        assert (answer.status, answer.json["error"]) == (507, "kv_keys_exhausted")
        assert (answer.json["keys"], answer.json["cap"]) == (3, 3)
        assert answer.json["remediation"]
    body = {
        "ops": [{"op": "set", "key": "d", "value": 1}, {"op": "del", "key": "a"}, {"op": "set", "key": "d", "value": 1}]
    }
    results = (await world.ask("POST", f"{app.kv}/_batch", world.owner, body)).json["results"]
    assert results[0]["error"] == "kv_keys_exhausted"
    assert results[1:] == [{"deleted": 1}, {"ok": True}]
    # What is there can be changed, and other apps have room of their own.
    await world.put(app, "b", "changed")
    assert (await world.ask("POST", f"{app.kv}/c/incr", world.owner)).status == 200
    await world.put(other, "a")


@pytest.mark.parametrize("plan", ["small"])
async def test_bytes_over_the_plans_storage_are_refused_to_the_byte(world: Installation) -> None:
    app = await world.create_app()
    # One byte of key, two of quotes.
    await world.put(app, "a", "x" * 497)
    over = await world.ask("PUT", f"{app.kv}/b", world.owner, {"value": "x" * 498})
    assert (over.status, over.json["error"]) == (507, "kv_storage_full")
    assert (over.json["used_bytes"], over.json["cap_bytes"]) == (500, 1000)
    body = {"ops": [{"op": "set", "key": "b", "value": "x" * 498}]}
    assert (await world.ask("POST", f"{app.kv}/_batch", world.owner, body)).json["results"][0][
        "error"
    ] == "kv_storage_full"
    await world.put(app, "b", "x" * 497)
    assert (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["bytes_used"] == 1000
    refusal = await world.ask("PUT", f"{app.kv}/a", world.owner, {"value": "x" * 498})
    assert refusal.status == 507
    assert (await world.ask("GET", f"{app.kv}/a", world.owner)).json == {"value": "x" * 497}
    await world.put(app, "a", "x")
    await world.put(app, "b", "x" * 900)


@pytest.mark.parametrize("plan", ["small"])
async def test_expired_entries_take_no_room(world: Installation, clock: FixedClock) -> None:
    app = await world.create_app()
    for key in "abc":
        await world.put(app, key, 1, ttl=1)
    clock.advance(1.1)
    await world.put(app, "d")
    assert (await world.ask("GET", f"{app.kv}/_stats", world.owner)).json["keys_total"] == 1
