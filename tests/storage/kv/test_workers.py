"""What every engine owes to the workers that share a store, and to keys that move between its tiers."""

from __future__ import annotations

import asyncio
import itertools
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from baobab.storage.kv.engine import Engine, Quota, Tier, Usage
from baobab.storage.kv.errors import KeysExhausted
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.histories import History
from tests.storage.kv.worker_child import engine_at

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
CHILD = Path(__file__).with_name("worker_child.py")


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that workers can share."""
    if request.param == "sqlite":
        return str(tmp_path)
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@pytest.fixture
async def workers(address: str) -> AsyncIterator[list[Engine]]:
    """Two of one store."""
    engines = [engine_at(address) for _ in range(2)]
    for engine in engines:
        await engine.open()
    yield engines
    for engine in engines:
        await engine.close()


@pytest.mark.parametrize("seed", range(4))
async def test_what_they_are_told_of_keys_that_move_has_an_order(workers: list[Engine], seed: int) -> None:
    chance, history = random.Random(seed), History()
    values = (b"%d" % number for number in itertools.count(100))
    keys = ["a", "b", "c"]

    async def caller(engine: Engine) -> None:
        seen_value: object = None
        for _ in range(12):
            ask: Callable[..., Awaitable[object]]
            key, tier, value = chance.choice(keys), chance.choice([D, E]), next(values)
            match chance.choice(["put", "put", "put", "get", "get", "get", "delete", "setnx", "incr", "cas"]):
                case "put":
                    ask = partial(engine.put, "app", key, value, None, tier, FREE)
                    await history.record(ask, key, "put", value)
                case "get":
                    seen_value = await history.record(partial(engine.get, "app", key), key, "get")
                case "delete":
                    await history.record(partial(engine.delete, "app", key), key, "delete")
                case "setnx":
                    ask = partial(engine.setnx, "app", key, value, None, tier, FREE)
                    await history.record(ask, key, "setnx", value)
                case "incr":
                    await history.record(partial(engine.incr, "app", key, 1, None, FREE), key, "incr")
                case "cas":
                    old = seen_value if isinstance(seen_value, bytes) else b"0"
                    ask = partial(engine.cas, "app", key, old, value, None, FREE)
                    await history.record(ask, key, "cas", old, value)

    one, two = workers
    await asyncio.gather(*(caller(engine) for engine in workers for _ in range(4)))
    for key in keys:
        await history.record(partial(two.get, "app", key), key, "get")
    history.check()
    assert await one.usage("app") == await recount_usage(two, "app")


async def test_a_key_that_only_moves_is_never_seen_absent(workers: list[Engine]) -> None:
    one, two = workers
    keys = [f"key{number}" for number in range(4)]
    for key in keys:
        await one.put("app", key, b"0", None, D, FREE)

    async def move(engine: Engine, key: str) -> None:
        for turn in range(30):
            await engine.put("app", key, b"%d" % turn, None, Tier(turn % 2), FREE)

    moving = asyncio.gather(*(move(engine, key) for engine in workers for key in keys))
    while not moving.done():
        assert None not in await asyncio.gather(*(two.get("app", key) for key in keys))
        assert await one.scan("app", "key", 10, None) == (keys, None)
        assert [entry.key for entry in await two.export("app", None, 10)] == keys
        # Files are read on the event loop, which the callers need too.
        await asyncio.sleep(0)
    await moving


async def test_a_counter_of_both_is_exact_in_either_tier(workers: list[Engine]) -> None:
    one, two = workers
    await one.put("app", "ephemeral", b"0", None, E, FREE)

    async def caller(engine: Engine) -> None:
        for _ in range(10):
            await engine.incr("app", "durable", 1, None, FREE)
            await engine.incr("app", "ephemeral", 1, None, FREE)

    await asyncio.gather(*(caller(engine) for engine in workers for _ in range(16)))
    entries = {entry.key: (entry.value, entry.tier) for entry in await two.export("app", None, 10)}
    assert entries == {"durable": (b"320", D), "ephemeral": (b"320", E)}


async def test_they_fill_a_quota_over_both_tiers_exactly(workers: list[Engine]) -> None:
    # What one of them asks for alone would fit, and what both ask for would not.
    for turn, quota in enumerate([Quota(max_keys=10), Quota(max_bytes=40)] * 5):
        results = await asyncio.gather(
            *(
                engine.put(f"app{turn}", f"{at}{n:02}", b"1", None, Tier((n + at) % 2), quota)
                for n in range(6)
                for at, engine in enumerate(workers)
            ),
            return_exceptions=True,
        )
        assert results.count(None) == 10
        one, two = workers
        assert await one.usage(f"app{turn}") == await recount_usage(two, f"app{turn}") == Usage(10, 40)


async def test_a_key_that_goes_to_and_fro_at_the_cap_is_never_refused(workers: list[Engine]) -> None:
    one, two = workers
    quota = Quota(max_keys=3, max_bytes=12)
    for key in ("aaa", "bbb", "ccc"):
        await one.put("app", key, b"1", None, D, quota)

    async def move(engine: Engine, key: str) -> None:
        for turn in range(10):
            await engine.put("app", key, b"%d" % turn, None, Tier(turn % 2), quota)

    await asyncio.gather(*(move(engine, key) for engine in workers for key in ("aaa", "bbb", "ccc")))
    with pytest.raises(KeysExhausted):
        await two.put("app", "ddd", b"1", None, E, quota)
    assert await two.usage("app") == Usage(3, 12)


async def test_nobody_starves_for_a_key_that_the_other_is_always_writing(workers: list[Engine]) -> None:
    one, two = workers
    stopping = False

    async def busy() -> None:
        while not stopping:
            await one.incr("app", "hits", 1, None, FREE)

    callers = [asyncio.ensure_future(busy()) for _ in range(8)]
    for turn in range(10):
        await two.put("app", "hits", b"0", None, Tier(turn % 2), FREE)
        await two.batch("app", [], FREE)
    stopping = True
    await asyncio.gather(*callers)


async def test_attempts_of_both_make_one_write_in_either_tier(workers: list[Engine]) -> None:
    await workers[0].put("app", "e", b"0", None, E, FREE)
    for number in range(10):
        for key in ("d", "e"):
            attempts = (engine.for_attempt(f"{key}{number}").incr("app", key, 1, None, FREE) for engine in workers)
            assert await asyncio.gather(*attempts) == [number + 1, number + 1]


async def test_a_frozen_space_takes_no_writes_of_either_tier_from_either(workers: list[Engine]) -> None:
    one, two = workers
    written_keys: list[str] = []
    has_begun = asyncio.Event()

    async def write(engine: Engine, name: str) -> None:
        for turn in itertools.count():
            results = await asyncio.gather(
                *(engine.put("app", f"{name}{turn}:{t}", b"1", None, Tier(t), FREE) for t in range(2)),
                return_exceptions=True,
            )
            written_keys.extend(f"{name}{turn}:{t}" for t in range(2) if results[t] is None)
            if len(written_keys) > 10:
                has_begun.set()
            if results != [None, None]:
                return

    writing = [asyncio.ensure_future(write(*each)) for each in ((one, "a"), (two, "b"))]
    await has_begun.wait()
    await one.freeze("app")
    kept_entries = await one.export("app", None, 100_000)
    await asyncio.gather(*writing)
    assert sorted(written_keys) == [entry.key for entry in kept_entries]
    await two.thaw("app")
    await one.put("app", "later", b"1", None, E, FREE)


async def test_a_worker_that_is_killed_leaves_both_tiers_in_order(address: str) -> None:
    child = subprocess.Popen([sys.executable, str(CHILD), "move", address], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    lines = [await asyncio.to_thread(child.stdout.readline) for _ in range(100)]
    child.kill()
    lines += (await asyncio.to_thread(child.communicate))[0].splitlines(keepends=True)
    # The last one may be half a line.
    turns_by_key = dict(line.split() for line in lines if line.endswith("\n"))
    assert len(turns_by_key) == 16
    engine = engine_at(address)
    await engine.open()
    for key, turn in turns_by_key.items():
        assert 0 <= int(await engine.get("app", key) or b"0") - int(turn) <= 1, key
    await engine.sweep()
    assert await engine.usage("app") == await recount_usage(engine, "app")
    await engine.close()
