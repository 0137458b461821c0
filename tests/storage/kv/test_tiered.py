"""What the engine on two servers owes to them: workers that share them, crashes of each, moves between the tiers."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.kv import (
    Delete,
    Engine,
    Entry,
    KeysExhausted,
    MemoryEngine,
    Quota,
    Set,
    StoreUnavailable,
    Tier,
    Usage,
)
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.tiered.durable import Asked, Durable, Found
from baobab.storage.kv.tiered.engine import TieredEngine
from baobab.storage.kv.tiered.ephemeral import Ephemeral, Wish
from baobab.storage.kv.tiered.postgres import DurablePostgres
from baobab.storage.kv.tiered.sqlite import DurableFiles
from baobab.storage.kv.valkey.engine import ValkeyEngine
from tests.servers import PostgresServer, ValkeyServer, valkey
from tests.storage.kv.accounts import recount
from tests.storage.kv.histories import History
from tests.storage.kv.test_equivalence import answers, state, steps

T = TypeVar("T")

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
NOTHING = Usage(0, 0)
CHILD = Path(__file__).with_name("tiered_child.py")


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """One that a test may kill."""
    with valkey() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgres"])
def make_durable(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[], Durable]:
    """Another worker's view of one and the same durable tier."""
    if request.param == "sqlite":
        return lambda: DurableFiles(tmp_path, time.time)
    url = request.getfixturevalue("postgres_url")
    return lambda: DurablePostgres(url, time.time)


@pytest.fixture
def make_around(
    make_durable: Callable[[], Durable], tmp_path: Path, request: pytest.FixtureRequest
) -> Callable[[], Around]:
    if isinstance(make_durable(), DurableFiles):
        return lambda: FilesAround(tmp_path, time.time)
    url = request.getfixturevalue("postgres_url")
    return lambda: PostgresAround(url, time.time)


@asynccontextmanager
async def workers(
    make: Callable[[], Durable], url: str, count: int = 2, **options: Any
) -> AsyncIterator[list[TieredEngine]]:
    engines = [TieredEngine(make(), url, time.time, **options) for _ in range(count)]
    for engine in engines:
        await engine.open()
    try:
        yield engines
    finally:
        for engine in engines:
            await engine.close()


@asynccontextmanager
async def ephemeral(url: str, lease: float = 60.0) -> AsyncIterator[Ephemeral]:
    """A worker that a test leads step by step, and that may never come to the end of its turn."""
    made = Ephemeral(url, time.time, lease=lease, patience=2.0, queue_limit=100)
    await made.open()
    try:
        yield made
    finally:
        await made.close()


async def answering(engine: Engine) -> None:
    """Returns when it is served again, all by itself."""
    for _ in range(1000):
        try:
            return await engine.check()
        except StoreUnavailable:
            await asyncio.sleep(0.02)
    pytest.fail("the engine did not recover")


def in_valkey(url: str) -> list[str]:
    """The ephemeral entries of the space `app`."""
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return sorted(client.hkeys("kv:{app}:entries"))


def a_wish(*keys: str) -> Wish:
    return Wish("app", keys, (), alone=False, growth=NOTHING)


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
                        one, other = (engine.once(tokens), memory.once(tokens)) if once else (engine, memory)
                        assert await answers(one, space, step) == await answers(other, space, step)
                assert await state(engine, space) == await state(memory, space)

        alike()
        runner.run(engine.close())


class TestWorkers:
    @pytest.mark.parametrize("seed", range(4))
    async def test_what_they_are_told_of_keys_that_move_has_an_order(
        self, make_durable: Callable[[], Durable], valkey_url: str, seed: int
    ) -> None:
        chance, history = random.Random(seed), History()
        values = (b"%d" % number for number in itertools.count(100))
        keys = ["a", "b", "c"]

        async def caller(engine: TieredEngine) -> None:
            seen: object = None
            for _ in range(12):
                key, tier, value = chance.choice(keys), chance.choice([D, E]), next(values)
                match chance.choice(["put", "put", "put", "get", "get", "get", "delete", "setnx", "incr", "cas"]):
                    case "put":
                        ask = lambda k=key, v=value, t=tier: engine.put("app", k, v, None, t, FREE)  # noqa: E731
                        await history.ask(ask, key, "put", value)
                    case "get":
                        seen = await history.ask(lambda k=key: engine.get("app", k), key, "get")
                    case "delete":
                        await history.ask(lambda k=key: engine.delete("app", k), key, "delete")
                    case "setnx":
                        ask = lambda k=key, v=value, t=tier: engine.setnx("app", k, v, None, t, FREE)  # noqa: E731
                        await history.ask(ask, key, "setnx", value)
                    case "incr":
                        await history.ask(lambda k=key: engine.incr("app", k, 1, None, FREE), key, "incr")
                    case "cas":
                        old = seen if isinstance(seen, bytes) else b"0"
                        ask = lambda k=key, o=old, v=value: engine.cas("app", k, o, v, None, FREE)  # noqa: E731
                        await history.ask(ask, key, "cas", old, value)

        async with workers(make_durable, valkey_url) as (one, two):
            await asyncio.gather(*(caller(engine) for engine in (one, two) for _ in range(4)))
            for key in keys:
                await history.ask(lambda key=key: two.get("app", key), key, "get")
            history.check()
            assert await one.usage("app") == await recount(two, "app")
        durable = make_durable()
        await durable.open()
        held, _ = await durable.scan("app", "", 100, None)
        assert set(held).isdisjoint(in_valkey(valkey_url))
        await durable.close()

    async def test_a_key_that_only_moves_is_never_seen_absent(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        keys = [f"key{number}" for number in range(4)]

        async with workers(make_durable, valkey_url) as (one, two):
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
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as engines:
            await engines[0].put("app", "ephemeral", b"0", None, E, FREE)

            async def caller(engine: TieredEngine) -> None:
                for _ in range(10):
                    await engine.incr("app", "durable", 1, None, FREE)
                    await engine.incr("app", "ephemeral", 1, None, FREE)

            await asyncio.gather(*(caller(engine) for engine in engines for _ in range(16)))
            assert await engines[0].get("app", "durable") == b"320"
            assert await engines[1].get("app", "ephemeral") == b"320"
            assert in_valkey(valkey_url) == ["ephemeral"]

    async def test_they_fill_a_quota_over_both_tiers_exactly(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as engines:
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
                assert await engines[0].usage(f"app{turn}") == await recount(engines[1], f"app{turn}") == Usage(10, 40)

    async def test_a_key_that_goes_to_and_fro_at_the_cap_is_never_refused(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        quota = Quota(max_keys=3, max_bytes=12)
        async with workers(make_durable, valkey_url) as engines:
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
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as (one, two):
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
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as engines:
            await engines[0].put("app", "e", b"0", None, E, FREE)
            for number in range(10):
                for key in ("d", "e"):
                    attempts = (engine.once(f"{key}{number}").incr("app", key, 1, None, FREE) for engine in engines)
                    assert await asyncio.gather(*attempts) == [number + 1, number + 1]

    async def test_a_frozen_space_takes_no_writes_from_either(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as (one, two):
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


class Around:
    """Does something, once or always, before and after the transactions of a durable tier."""

    before: Callable[[], Awaitable[None]] | None = None
    around: Callable[[], Awaitable[None]] | None = None

    async def change(self, asked: Asked, work: Callable[[Any, Found], T], *, resizes: bool) -> T:
        before, self.before = self.before, None
        if before is not None:
            await before()
        if self.around is not None:
            await self.around()
        changed: T = await super().change(asked, work, resizes=resizes)  # type: ignore[misc]
        if self.around is not None:
            await self.around()
        return changed


class FilesAround(Around, DurableFiles):
    pass


class PostgresAround(Around, DurablePostgres):
    pass


class Paused(FilesAround):
    """Keeps what it has read to itself until `meanwhile` is done, once."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def get(self, space: str, key: str, touch: bool = False) -> bytes | None:
        return await self._after(await super().get(space, key, touch))

    async def scan(self, space: str, prefix: str, limit: int, cursor: str | None) -> tuple[list[str], str | None]:
        return await self._after(await super().scan(space, prefix, limit, cursor))

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        return await self._after(await super().export(space, after, limit))

    async def _after(self, found: T) -> T:
        meanwhile, self.meanwhile = self.meanwhile, None
        if meanwhile is not None:
            await meanwhile()
        return found


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
    durable = Paused(tmp_path, time.time)
    async with workers(lambda: DurableFiles(tmp_path, time.time), valkey_url, 1) as [other]:
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
    durable, seen = Paused(tmp_path, time.time), []
    async with workers(lambda: DurableFiles(tmp_path, time.time), valkey_url, 1) as [other]:
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


class TestTurns:
    """Workers that stop in the middle."""

    async def test_a_worker_that_never_comes_back_is_waited_for_no_longer_than_its_lease(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url, 1, lease=0.5) as [engine], ephemeral(valkey_url, 0.3) as lost:
            await engine.put("app", "other", b"1", None, E, FREE)
            await lost.enter(a_wish("key"))
            await engine.put("app", "key", b"1", None, D, FREE)
            assert await engine.get("app", "key") == b"1"

    async def test_who_came_first_is_served_first(self, valkey_url: str) -> None:
        async with ephemeral(valkey_url) as each:
            for _ in range(10):
                order: list[int] = []

                async def have(number: int, *keys: str, order: list[int] = order) -> None:
                    turn = await each.enter(a_wish(*keys))
                    order.append(number)
                    await asyncio.sleep(0.002)
                    each.leave(a_wish(*keys), turn, done=True)

                holding = await each.enter(a_wish("a", "b"))
                waiting = []
                for number, keys in enumerate(["a", "ab", "b", "c", "abc"]):
                    waiting.append(asyncio.ensure_future(have(number, *keys)))
                    await asyncio.sleep(0.005)
                each.leave(a_wish("a", "b"), holding, done=True)
                await asyncio.gather(*waiting)
                assert order == [0, 1, 2, 3, 4]

    async def test_where_it_is_too_long_the_store_is_unavailable(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url, 1, lease=0.1) as [engine], ephemeral(valkey_url) as slow:
            turn = await slow.enter(a_wish("key"))
            with pytest.raises(StoreUnavailable):
                await engine.put("app", "key", b"1", None, D, FREE)
            assert await engine.get("app", "key") is None
            await engine.put("app", "other", b"1", None, D, FREE)
            slow.leave(a_wish("key"), turn, done=False)
            await engine.put("app", "key", b"1", None, E, FREE)

    async def test_who_comes_back_after_it_changes_nothing_in_valkey(self, valkey_url: str) -> None:
        async with ephemeral(valkey_url, 0.05) as late:
            turn = await late.enter(a_wish("key"))
            await asyncio.sleep(0.1)
            assert await late.change("app", turn, [("put", "key", "", "", b"2")]) is False
            assert in_valkey(valkey_url) == []

    @pytest.mark.parametrize(
        ("source", "write", "answer", "after"),
        [
            (D, lambda engine: engine.incr("app", "key", 1, None, FREE), 11, b"11"),
            (E, lambda engine: engine.put("app", "key", b"2", None, D, FREE), None, b"2"),
            # In Valkey it has begun already.
            (D, lambda engine: engine.put("app", "key", b"2", None, E, FREE), None, b"2"),
            (D, lambda engine: engine.batch("app", [Delete("key"), Set("other", b"2", None)], FREE), [1, None], None),
        ],
    )
    @pytest.mark.parametrize("meanwhile", ["put", "move", "delete and put"])
    async def test_who_comes_back_after_it_with_a_transaction_begins_anew(
        self,
        make_around: Callable[[], Any],
        valkey_url: str,
        source: Tier,
        write: Callable[[Engine], Awaitable[object]],
        answer: object,
        after: bytes | None,
        meanwhile: str,
    ) -> None:
        async with workers(make_around, valkey_url, 1) as [engine]:
            durable = make_around()
            late = TieredEngine(durable, valkey_url, time.time, lease=0.05)
            await late.open()

            async def overtake() -> None:
                if meanwhile == "delete and put":
                    await engine.delete("app", "key")
                await engine.put("app", "key", b"10", None, E if meanwhile == "move" else D, FREE)

            await engine.put("app", "key", b"1", None, source, FREE)
            durable.before = overtake
            assert await write(late) == answer
            assert await engine.get("app", "key") == after
            assert await engine.usage("app") == await recount(engine, "app")
            await late.close()

    @pytest.mark.parametrize("how", ["sweep", "write"])
    async def test_a_copy_that_it_left_behind_is_found_and_removed(
        self, make_durable: Callable[[], Durable], valkey_url: str, how: str
    ) -> None:
        async with workers(make_durable, valkey_url, 1) as [engine], ephemeral(valkey_url, 0.05) as lost:
            await engine.put("app", "key", b"1", None, D, FREE)
            # On its way to the ephemeral tier.
            turn = await lost.enter(a_wish("key"))
            assert await lost.change("app", turn, [("put", "key", "", "", b"22")])
            assert await engine.get("app", "key") == b"1"
            await asyncio.sleep(0.1)
            if how == "sweep":
                await engine.sweep()
            else:
                await engine.put("app", "other", b"1", None, D, FREE)
                await engine.delete("app", "other")
                await engine.sweep()
            assert in_valkey(valkey_url) == []
            assert await engine.usage("app") == Usage(1, 4)
            assert await engine.get("app", "key") == b"1"

    @pytest.mark.parametrize("write", ["put", "incr", "delete"])
    async def test_such_a_copy_never_outlives_a_write_to_its_key(
        self, make_durable: Callable[[], Durable], valkey_url: str, write: str
    ) -> None:
        async with workers(make_durable, valkey_url, 1) as [engine], ephemeral(valkey_url, 0.05) as lost:
            await engine.put("app", "key", b"1", None, D, FREE)
            turn = await lost.enter(a_wish("key"))
            await lost.change("app", turn, [("put", "key", "", "", b"22")])
            match write:
                case "put":
                    await engine.put("app", "key", b"3", None, D, FREE)
                case "incr":
                    assert await engine.incr("app", "key", 1, None, FREE) == 2
                case "delete":
                    assert await engine.delete("app", "key") == 1
                    assert await engine.get("app", "key") is None
            assert in_valkey(valkey_url) == []

    async def test_a_space_that_was_emptied_leaves_nothing_but_tracks_that_fade(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as engines:
            for turn in range(10):
                await asyncio.gather(
                    *(engine.put("app", f"k{n}", b"1", None, Tier((n + turn) % 2), FREE)
                      for n in range(4) for engine in engines)
                )  # fmt: skip
            await engines[0].flush("app")
            await engines[0].check()
        with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
            left = client.keys("*")
            assert all(client.pttl(name) > 0 for name in left), left


class TestCrashes:
    async def test_no_acknowledged_durable_write_is_lost_when_valkey_is_killed(
        self, make_durable: Callable[[], Durable], server: ValkeyServer
    ) -> None:
        chance = random.Random(7)
        acknowledged, refused = [0] * 8, [0] * 8
        moved: dict[str, int] = {}
        done = False

        async def caller(engine: TieredEngine, number: int) -> None:
            for turn in itertools.count(1):
                if done:
                    return
                try:
                    await engine.incr("app", f"n{number}", 1, None, FREE)
                    acknowledged[number] += 1
                    await engine.put("app", f"moving{number}", b"%d" % turn, None, Tier(turn % 2), FREE)
                    moved[f"moving{number}"] = turn
                    await engine.put("app", f"cache{number}", b"1", None, E, FREE)
                    await engine.delete("app", f"cache{number}")
                except StoreUnavailable:
                    refused[number] += 1
                    await asyncio.sleep(0.01)

        async with workers(make_durable, server.url, lease=1.0) as (one, two):
            callers = [asyncio.ensure_future(caller((one, two)[n % 2], n)) for n in range(8)]
            for _ in range(4):
                before = sum(acknowledged)
                while sum(acknowledged) < before + 40:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(chance.uniform(0, 0.05))
                server.stop(signal.SIGKILL)
                await asyncio.sleep(0.05)
                await asyncio.to_thread(server.start)
                await answering(one)
                await answering(two)
            done = True
            await asyncio.gather(*callers)
            assert sum(refused) > 0
            for number in range(8):
                counted = int(await two.get("app", f"n{number}") or b"0")
                assert acknowledged[number] <= counted <= acknowledged[number] + refused[number]
                value = await one.get("app", f"moving{number}")
                # A turn that was refused may have been made.
                assert value is not None
                assert int(value) >= moved[f"moving{number}"]
            await one.sweep()
            assert await one.usage("app") == await recount(two, "app")

    async def test_without_valkeys_memory_the_ephemeral_entries_are_gone_and_nothing_else(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url) as (one, two):
            for number in range(10):
                await one.put("app", f"key{number}", b"1", None, Tier(number % 2), FREE)
            with redis.Redis.from_url(valkey_url) as client:
                client.flushall()
                client.execute_command("FUNCTION", "FLUSH")
            assert await two.scan("app", "", 100, None) == ([f"key{number}" for number in range(0, 10, 2)], None)
            assert await two.usage("app") == Usage(5, 25)
            assert await two.incr("app", "key0", 1, None, FREE) == 2
            assert await one.incr("app", "key1", 5, None, FREE) == 5

    async def test_what_an_attempt_wrote_is_lost_together_with_its_answer_or_not_at_all(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url, 1) as [engine]:
            for _ in range(2):
                await engine.put("app", "cached", b"0", None, E, FREE)
                assert await engine.once("e").incr("app", "cached", 1, None, FREE) == 1
                assert await engine.get("app", "cached") == b"1"
                assert await engine.once("d").incr("app", "kept", 1, None, FREE) == 1
                assert await engine.get("app", "kept") == b"1"
                with redis.Redis.from_url(valkey_url) as client:
                    client.flushall()

    async def test_without_valkey_what_is_durable_can_be_read_and_nothing_written(
        self, make_durable: Callable[[], Durable], server: ValkeyServer
    ) -> None:
        async with workers(make_durable, server.url, 1) as [engine]:
            await engine.put("app", "key", b"1", 60, D, FREE)
            await engine.put("app", "cache", b"1", 60, E, FREE)
            server.stop()
            await asyncio.sleep(0.1)
            assert await engine.get("app", "key") == b"1"
            assert await engine.exists("app", "key") is True
            assert await engine.ttl("app", "key") == 60
            for refused in (
                engine.get("app", "cache"),
                engine.get("app", "none"),
                engine.scan("app", "", 10, None),
                engine.usage("app"),
                engine.put("app", "key", b"2", None, D, FREE),
                engine.put("app", "key", b"2", None, E, FREE),
                engine.delete("app", "key"),
                engine.flush("app"),
                engine.sweep(),
                engine.check(),
            ):
                with pytest.raises(StoreUnavailable):
                    await refused
            await asyncio.to_thread(server.start)
            await answering(engine)
            assert await engine.get("app", "key") == b"1"
            await engine.put("app", "key", b"2", None, E, FREE)

    async def test_postgres_may_crash_under_load(
        self, postgres_server: PostgresServer, postgres_url: str, valkey_url: str
    ) -> None:
        acknowledged, unknown, repeated = [0] * 6, [0] * 6, [0] * 6
        stopping = False

        async def caller(engine: TieredEngine, number: int) -> None:
            for turn in itertools.count():
                if stopping:
                    return
                try:
                    await engine.incr("app", f"n{number}", 1, None, FREE)
                    acknowledged[number] += 1
                    await engine.put("app", f"moving{number}", b"1" * (turn % 9), None, Tier(turn % 2), FREE)
                    await engine.delete("app", f"moving{number - 1}")
                except StoreUnavailable:
                    unknown[number] += 1
                    await asyncio.sleep(0.02)

        async def stubborn(engine: TieredEngine, number: int, tier: Tier) -> None:
            while not stopping:
                token = f"{number}:{repeated[number]}"
                while True:
                    try:
                        if repeated[number] == 0:
                            await engine.once(f"first{number}").put("app", f"once{number}", b"0", None, tier, FREE)
                        await engine.once(token).incr("app", f"once{number}", 1, None, FREE)
                        break
                    except StoreUnavailable:
                        await asyncio.sleep(0.02)
                repeated[number] += 1

        async with workers(lambda: DurablePostgres(postgres_url, time.time), valkey_url, lease=2.0) as engines:
            callers = [asyncio.ensure_future(caller(engines[n % 2], n)) for n in range(6)]
            callers += [asyncio.ensure_future(stubborn(engines[n % 2], n, Tier(n // 2 % 2))) for n in range(6)]
            for how in (signal.SIGQUIT, signal.SIGINT, None):
                before = sum(acknowledged)
                while sum(acknowledged) < before + 40:
                    await asyncio.sleep(0.01)
                if how is not None:
                    postgres_server.stop(how)
                    await asyncio.to_thread(postgres_server.start)
            stopping = True
            await asyncio.gather(*callers)
            assert sum(unknown) > 0
            for number in range(6):
                counted = int(await engines[0].get("app", f"n{number}") or b"0")
                assert acknowledged[number] <= counted <= acknowledged[number] + unknown[number]
                assert await engines[1].get("app", f"once{number}") == b"%d" % repeated[number]
            await engines[0].sweep()
            assert await engines[0].usage("app") == await recount(engines[1], "app")

    @pytest.mark.parametrize("rows", ["files", "postgres"])
    async def test_a_worker_that_is_killed_leaves_both_tiers_in_order(
        self, request: pytest.FixtureRequest, tmp_path: Path, valkey_url: str, rows: str
    ) -> None:
        at = request.getfixturevalue("postgres_url") if rows == "postgres" else str(tmp_path)
        child = subprocess.Popen([sys.executable, str(CHILD), at, valkey_url], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None
        lines = [await asyncio.to_thread(child.stdout.readline) for _ in range(100)]
        child.kill()
        lines += (await asyncio.to_thread(child.communicate))[0].splitlines(keepends=True)
        # The last one may be half a line.
        told = dict(line.split() for line in lines if line.endswith("\n"))
        on_postgres = rows == "postgres"
        durable = DurablePostgres(at, time.time) if on_postgres else DurableFiles(tmp_path, time.time)
        engine = TieredEngine(durable, valkey_url, time.time)
        await engine.open()
        for key, turn in told.items():
            assert 0 <= int(await engine.get("app", key) or b"0") - int(turn) <= 1, key
        # Whoever wants all of the space waits until those who were killed have had their turn.
        await engine.freeze("app")
        await engine.sweep()
        assert await engine.usage("app") == await recount(engine, "app")
        await engine.close()

    async def test_it_does_not_open_without_valkey_and_leaves_nothing_open(
        self, make_durable: Callable[[], Durable], server: ValkeyServer
    ) -> None:
        server.stop()
        durable = make_durable()
        with pytest.raises(StoreUnavailable):
            await TieredEngine(durable, server.url, time.time).open()
        with pytest.raises(StoreUnavailable):
            await durable.get("app", "key")

    async def test_close_finishes_what_it_had_accepted(
        self, make_durable: Callable[[], Durable], valkey_url: str
    ) -> None:
        async with workers(make_durable, valkey_url, 1) as [engine]:
            accepted = [asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE)) for _ in range(500)]
            await asyncio.sleep(0)
        assert sorted(await asyncio.gather(*accepted)) == list(range(1, 501))


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
