"""What the engine on two servers owes to the workers that share them, and to keys that move between its tiers."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.kv import (
    Engine,
    Entry,
    KeysExhausted,
    Quota,
    Tier,
    Usage,
)
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.tiered.durable import DurableEngine
from baobab.storage.kv.tiered.engine import TieredEngine
from baobab.storage.kv.tiered.sqlite import SqliteDurableEngine
from baobab.storage.kv.valkey.engine import ValkeyEngine
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.histories import History
from tests.storage.kv.memory_engine import MemoryEngine
from tests.storage.kv.test_equivalence import collect_answers, read_state, steps
from tests.storage.kv.tiered_workers import FREE, D, E, PausedSqlite, list_ephemeral_keys, open_workers


@pytest.mark.parametrize(("name", "examples"), [("sqlite+valkey", 120), ("postgres+valkey", 25)])
def test_it_answers_as_the_dictionaries_do(
    name: str, examples: int, make_engine: Callable[[str], Engine], clock: Any
) -> None:
    engine, memory = make_engine(name), MemoryEngine(clock)
    spaces = (f"app{number}" for number in itertools.count())

    with asyncio.Runner() as runner:
        runner.run(engine.open())
        runner.run(memory.open())

        @settings(max_examples=examples)
        @given(st.lists(steps, min_size=1, max_size=25), st.booleans())
        def alike(program: list[Any], once: bool) -> None:
            runner.run(compare(next(spaces), program, once))

        async def compare(space: str, program: list[Any], once: bool) -> None:
            for number, step in enumerate(program):
                if isinstance(step, float):
                    clock.advance(step)
                elif step == "sweep":
                    await asyncio.gather(engine.sweep(2), memory.sweep(2))
                else:
                    # Each step as one attempt, made twice.
                    for _ in range(2 if once else 1):
                        tokens = f"{space}:{number}"
                        one, other = (
                            (engine.for_attempt(tokens), memory.for_attempt(tokens)) if once else (engine, memory)
                        )
                        assert await collect_answers(one, space, step) == await collect_answers(other, space, step)
                assert await read_state(engine, space) == await read_state(memory, space)

        alike()
        runner.run(engine.close())


class TestWorkers:
    @pytest.mark.parametrize("seed", range(4))
    async def test_what_they_are_told_of_keys_that_move_has_an_order(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str, seed: int
    ) -> None:
        chance, history = random.Random(seed), History()
        values = (b"%d" % number for number in itertools.count(100))
        keys = ["a", "b", "c"]

        async def caller(engine: TieredEngine) -> None:
            seen: object = None
            for _ in range(12):
                ask: Callable[..., Awaitable[object]]
                key, tier, value = chance.choice(keys), chance.choice([D, E]), next(values)
                match chance.choice(["put", "put", "put", "get", "get", "get", "delete", "setnx", "incr", "cas"]):
                    case "put":
                        ask = partial(engine.put, "app", key, value, None, tier, FREE)
                        await history.record(ask, key, "put", value)
                    case "get":
                        seen = await history.record(partial(engine.get, "app", key), key, "get")
                    case "delete":
                        await history.record(partial(engine.delete, "app", key), key, "delete")
                    case "setnx":
                        ask = partial(engine.setnx, "app", key, value, None, tier, FREE)
                        await history.record(ask, key, "setnx", value)
                    case "incr":
                        await history.record(partial(engine.incr, "app", key, 1, None, FREE), key, "incr")
                    case "cas":
                        old = seen if isinstance(seen, bytes) else b"0"
                        ask = partial(engine.cas, "app", key, old, value, None, FREE)
                        await history.record(ask, key, "cas", old, value)

        async with open_workers(make_durable, valkey_url) as (one, two):
            await asyncio.gather(*(caller(engine) for engine in (one, two) for _ in range(4)))
            for key in keys:
                await history.record(partial(two.get, "app", key), key, "get")
            history.check()
            assert await one.usage("app") == await recount_usage(two, "app")
        durable = make_durable()
        await durable.open()
        held, _ = await durable.scan("app", "", 100, None)
        assert set(held).isdisjoint(list_ephemeral_keys(valkey_url))
        await durable.close()

    async def test_a_key_that_only_moves_is_never_seen_absent(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        keys = [f"key{number}" for number in range(4)]

        async with open_workers(make_durable, valkey_url) as (one, two):
            for key in keys:
                await one.put("app", key, b"0", None, D, FREE)

            async def move(engine: TieredEngine, key: str) -> None:
                for turn in range(30):
                    await engine.put("app", key, b"%d" % turn, None, Tier(turn % 2), FREE)

            moving = asyncio.gather(*(move(engine, key) for engine in (one, two) for key in keys))
            while not moving.done():
                assert None not in await asyncio.gather(*(two.get("app", key) for key in keys))
                assert await one.scan("app", "key", 10, None) == (keys, None)
                assert [entry.key for entry in await two.export("app", None, 10)] == keys
            await moving

    async def test_a_counter_of_both_is_exact_in_either_tier(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as engines:
            await engines[0].put("app", "ephemeral", b"0", None, E, FREE)

            async def caller(engine: TieredEngine) -> None:
                for _ in range(10):
                    await engine.incr("app", "durable", 1, None, FREE)
                    await engine.incr("app", "ephemeral", 1, None, FREE)

            await asyncio.gather(*(caller(engine) for engine in engines for _ in range(16)))
            assert await engines[0].get("app", "durable") == b"320"
            assert await engines[1].get("app", "ephemeral") == b"320"
            assert list_ephemeral_keys(valkey_url) == ["ephemeral"]

    async def test_they_fill_a_quota_over_both_tiers_exactly(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as engines:
            # What one of them asks for alone would fit, and what both ask for would not.
            for turn, quota in enumerate([Quota(max_keys=10), Quota(max_bytes=40)] * 5):
                results = await asyncio.gather(
                    *(
                        engine.put(f"app{turn}", f"{at}{n:02}", b"1", None, Tier((n + at) % 2), quota)
                        for n in range(6)
                        for at, engine in enumerate(engines)
                    ),
                    return_exceptions=True,
                )
                assert results.count(None) == 10
                assert (
                    await engines[0].usage(f"app{turn}")
                    == await recount_usage(engines[1], f"app{turn}")
                    == Usage(10, 40)
                )

    async def test_a_key_that_goes_to_and_fro_at_the_cap_is_never_refused(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        quota = Quota(max_keys=3, max_bytes=12)
        async with open_workers(make_durable, valkey_url) as engines:
            for key in ("aaa", "bbb", "ccc"):
                await engines[0].put("app", key, b"1", None, D, quota)

            async def move(engine: TieredEngine, key: str) -> None:
                for turn in range(10):
                    await engine.put("app", key, b"%d" % turn, None, Tier(turn % 2), quota)

            await asyncio.gather(*(move(engine, key) for engine in engines for key in ("aaa", "bbb", "ccc")))
            with pytest.raises(KeysExhausted):
                await engines[1].put("app", "ddd", b"1", None, E, quota)
            assert await engines[1].usage("app") == Usage(3, 12)

    async def test_nobody_starves_for_keys_that_the_other_is_always_writing(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as (one, two):
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

    async def test_attempts_of_both_make_one_write_in_either_tier(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as engines:
            await engines[0].put("app", "e", b"0", None, E, FREE)
            for number in range(10):
                for key in ("d", "e"):
                    attempts = (
                        engine.for_attempt(f"{key}{number}").incr("app", key, 1, None, FREE) for engine in engines
                    )
                    assert await asyncio.gather(*attempts) == [number + 1, number + 1]

    async def test_a_frozen_space_takes_no_writes_from_either(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as (one, two):
            written: list[str] = []

            async def write(engine: TieredEngine, name: str) -> None:
                for turn in itertools.count():
                    results = await asyncio.gather(
                        *(engine.put("app", f"{name}{turn}:{t}", b"1", None, Tier(t), FREE) for t in range(2)),
                        return_exceptions=True,
                    )
                    written.extend(f"{name}{turn}:{t}" for t in range(2) if results[t] is None)
                    if results != [None, None]:
                        return

            writing = [asyncio.ensure_future(write(*each)) for each in ((one, "a"), (two, "b"))]
            await asyncio.sleep(0.05)
            await one.freeze("app")
            kept = await one.export("app", None, 100_000)
            await asyncio.gather(*writing)
            assert sorted(written) == [entry.key for entry in kept]
            await two.thaw("app")
            await one.put("app", "later", b"1", None, E, FREE)


@pytest.mark.parametrize(
    ("read", "answer"),
    [
        (lambda engine: engine.get("app", "key"), b"2"),
        (lambda engine: engine.scan("app", "", 10, None), (["key"], None)),
        (lambda engine: engine.scan("app", "k", 1, None), (["key"], None)),
        (lambda engine: engine.export("app", None, 10), [Entry("key", b"2", D)]),
    ],
)
@pytest.mark.parametrize("back", [False, True])
async def test_a_key_that_moves_while_it_is_read_is_found(
    tmp_path: Path, valkey_url: str, read: Callable[[Engine], Awaitable[object]], answer: object, back: bool
) -> None:
    """It leaves the ephemeral tier when the durable one has been looked at; `back`: it then returns."""
    durable = PausedSqlite(tmp_path, time.time)
    async with open_workers(lambda: SqliteDurableEngine(tmp_path, time.time), valkey_url, 1) as [other]:
        engine = TieredEngine(durable, valkey_url, time.time)
        await engine.open()

        async def move() -> None:
            await other.put("app", "key", b"2", None, D, FREE)
            if back:
                await other.put("app", "key", b"2", None, E, FREE)

        await other.put("app", "key", b"1", None, E, FREE)
        durable.meanwhile = move
        found = await read(engine)
        assert found == ([Entry("key", b"2", E)] if back and isinstance(answer, list) else answer)
        await engine.close()


@pytest.mark.parametrize(("source", "target"), [(D, E), (E, D)])
@pytest.mark.parametrize("beside", [[], [D], [E]])
async def test_a_key_is_in_a_tier_at_every_moment_of_its_move(
    tmp_path: Path, valkey_url: str, source: Tier, target: Tier, beside: list[Tier]
) -> None:
    """`beside`: what else is written in the same group."""
    durable, seen = PausedSqlite(tmp_path, time.time), []
    async with open_workers(lambda: SqliteDurableEngine(tmp_path, time.time), valkey_url, 1) as [other]:
        engine = TieredEngine(durable, valkey_url, time.time)
        await engine.open()
        await other.put("app", "key", b"1", None, source, FREE)

        async def look() -> None:
            seen.append((await other.get("app", "key"), await other.scan("app", "k", 10, None)))

        durable.around = look
        await asyncio.gather(
            engine.put("app", "key", b"2", None, target, FREE),
            *(engine.put("app", "beside", b"1", None, tier, FREE) for tier in beside),
        )
        first, *between, last = seen
        assert (first, last) == tuple((value, (["key"], None)) for value in (b"1", b"2"))
        # Where the first transaction finds that something must be done before it.
        assert set(map(repr, between)) <= {repr(first)}
        await engine.close()


@pytest.mark.parametrize(
    ("rows", "valkey_address", "durable", "kind"),
    [
        ("sqlite:///rows.db", "", "database", SqliteEngine),
        ("postgresql://db/rows", "", "database", PostgresEngine),
        ("sqlite:///rows.db", "redis://valkey", "database", TieredEngine),
        ("postgresql://db/rows", "redis://valkey", "database", TieredEngine),
        ("postgresql://db/rows", "redis://valkey", "valkey", ValkeyEngine),
        ("postgresql://db/rows", "", "valkey", PostgresEngine),
    ],
)
def test_addresses_choose_the_engine(
    tmp_path: Path, rows: str, valkey_address: str, durable: Any, kind: type[Engine]
) -> None:
    assert type(engine_at(tmp_path, rows, valkey_address, time.time, durable)) is kind
