"""What the Valkey engine owes to its server: other processes, crashes, a server that forgets or is full."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import time
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import redis
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.kv.engine import Engine, Quota, Tier, Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.valkey.engine import ValkeyEngine
from tests.clock import FixedClock
from tests.servers import TIMEOUT_SECONDS, ValkeyServer, start_valkey
from tests.storage.kv.memory_engine import MemoryEngine
from tests.storage.kv.test_equivalence import collect_answers, read_state, steps
from tests.storage.valkey import children

FREE = Quota()


@pytest.fixture
def server() -> Iterator[ValkeyServer]:
    """One that a test may kill."""
    with start_valkey() as running:
        yield running


@pytest.fixture
async def engine(valkey_url: str, clock: Any) -> AsyncIterator[ValkeyEngine]:
    valkey_engine = ValkeyEngine(valkey_url, clock)
    await valkey_engine.open()
    yield valkey_engine
    await valkey_engine.close()


async def recount_usage(engine: Engine, space: str) -> Usage:
    keys, cursor = await engine.scan(space, "", 1_000_000, None)
    assert cursor is None
    values = await asyncio.gather(*(engine.get(space, key) for key in keys))
    assert None not in values
    return Usage(len(keys), sum(len(key) + len(value or b"") for key, value in zip(keys, values, strict=True)))


async def wait_until_answering(engine: Engine) -> None:
    """Returns when it is served again, all by itself."""
    for _ in range(1000):
        try:
            return await engine.check()
        except StoreUnavailable:
            await asyncio.sleep(0.02)
    pytest.fail("the engine did not recover")


def test_it_answers_as_the_engine_in_memory_does(valkey_url: str, clock: Any) -> None:
    engine, memory = ValkeyEngine(valkey_url, clock), MemoryEngine(clock)
    spaces = (f"app{number}" for number in itertools.count())

    with asyncio.Runner() as runner:
        runner.run(engine.open())
        runner.run(memory.open())

        @settings(max_examples=150)
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
                    # A swap may have to look first, and then comes after what was asked at the same time.
                    groups = [[ask] for ask in step] if any("cas" in ask.__qualname__ for ask in step) else [step]
                    # Each step as one attempt, made twice.
                    for _ in range(2 if once else 1):
                        tokens = f"{space}:{number}"
                        one, other = (
                            (engine.for_attempt(tokens), memory.for_attempt(tokens)) if once else (engine, memory)
                        )
                        for group in groups:
                            assert await collect_answers(one, space, group) == await collect_answers(
                                other, space, group
                            )
                assert await read_state(engine, space) == await read_state(memory, space)

        alike()
        runner.run(engine.close())


class TestCounting:
    @pytest.mark.parametrize(
        ("stored_number", "by", "total"),
        [
            (2**53, 1, 2**53 + 1),
            (10**15 - 1, 10**15 - 1, 2 * 10**15 - 2),
            (-(10**14), -(10**14), -2 * 10**14),
            (2**62, 2**62 - 1, 2**63 - 1),
            (-(2**62), -(2**62), -(2**63)),
            (-(2**63), 2**63 - 1, -1),
            (-5, 5, 0),
        ],
    )
    async def test_it_is_exact_beyond_the_numbers_of_lua(
        self, engine: ValkeyEngine, stored_number: int, by: int, total: int
    ) -> None:
        await engine.put("app", "n", b"%d" % stored_number, None, Tier.DURABLE, FREE)
        assert await engine.incr("app", "n", by, None, FREE) == total
        assert await engine.get("app", "n") == b"%d" % total

    @pytest.mark.parametrize(("stored_value", "by"), [(b"-0", 0), (b"-0", 2**60), (b"0", -(2**60))])
    async def test_minus_zero_is_a_number_too(self, engine: ValkeyEngine, stored_value: bytes, by: int) -> None:
        await engine.put("app", "n", stored_value, None, Tier.DURABLE, FREE)
        assert await engine.incr("app", "n", by, None, FREE) == by

    @pytest.mark.parametrize("stored_value", [b"01", b"-", b"+1", b" 1", b"1 ", b"-01", b"0x10", b"1\n"])
    async def test_what_is_no_integer_literal_is_none_here_either(
        self, engine: ValkeyEngine, stored_value: bytes
    ) -> None:
        memory = MemoryEngine()
        await memory.open()
        refusals = []
        for each in (engine, memory):
            await each.put("app", "n", stored_value, None, Tier.DURABLE, FREE)
            refusals.append((await asyncio.gather(each.incr("app", "n", 1, None, FREE), return_exceptions=True))[0])
        assert type(refusals[0]) is type(refusals[1])


class TestProcesses:
    async def test_counters_and_accounts_that_they_share_stay_exact(self, valkey_url: str) -> None:
        counted_children = await children.run_children(*[("count", valkey_url)] * 3)
        clock = FixedClock(time.time())
        engine = ValkeyEngine(valkey_url, clock.time)
        await engine.open()
        assert await engine.get("app", "hits") == b"%d" % sum(counted_children)
        assert await engine.get("app", "large") == b"%d" % (sum(counted_children) * 2**49)
        assert await engine.usage("app") == await recount_usage(engine, "app")
        # What they gave one second.
        clock.advance(2)
        assert await engine.usage("app") == await recount_usage(engine, "app")
        await engine.close()

    @pytest.mark.parametrize(("keys", "size", "fit"), [(100, 0, 100), (0, 801, 100)])
    async def test_a_quota_that_they_share_is_filled_exactly(
        self, engine: ValkeyEngine, valkey_url: str, keys: int, size: int, fit: int
    ) -> None:
        found_children = await children.run_children(*(("fill", valkey_url, keys, size, name) for name in "abc"))
        assert sum(found_children) == fit
        assert await engine.usage("app") == Usage(fit, fit * 8)


class TestCrashes:
    async def test_no_acknowledged_write_is_lost_when_the_server_is_killed(self, server: ValkeyServer) -> None:
        chance = random.Random(7)
        engine = ValkeyEngine(server.url)
        await engine.open()
        acknowledged_values: dict[str, int] = {}
        refusal_count = 0
        is_done = False

        async def caller(number: int) -> None:
            nonlocal refusal_count
            turn = 0
            while not is_done:
                turn += 1
                try:
                    key = f"count{number}"
                    acknowledged_values[key] = await engine.incr("app", key, 1, None, FREE)
                    key = f"key{number}:{turn}"
                    await engine.put("app", key, b"%d" % turn, 3600, Tier.DURABLE, FREE)
                    acknowledged_values[key] = turn
                    await engine.put("app", f"moving{number}", b"%d" % turn, 3600, Tier(turn % 2), FREE)
                    await engine.delete("app", f"moving{number - 1}")
                except StoreUnavailable:
                    refusal_count += 1
                    await asyncio.sleep(0.01)

        sync_always(server)
        callers = [asyncio.ensure_future(caller(number)) for number in range(16)]
        for _ in range(8):
            enough = len(acknowledged_values) + 64
            while len(acknowledged_values) < enough:
                await asyncio.sleep(chance.uniform(0.02, 0.1))
            server.stop(signal.SIGKILL)
            await asyncio.to_thread(server.start)
            await wait_until_answering(engine)
            sync_always(server)
            expected_items = list(acknowledged_values.items())
            stored_values = await asyncio.gather(*(engine.get("app", key) for key, _ in expected_items))
            # A later write of the same key may have been made as well.
            for (key, value), stored_value in zip(expected_items, stored_values, strict=True):
                assert int(stored_value or b"-1") >= value, key
        is_done = True
        await asyncio.gather(*callers)
        assert await engine.usage("app") == await recount_usage(engine, "app")
        assert refusal_count > 0
        await engine.close()

    async def test_an_attempt_whose_reply_was_lost_is_made_again_to_no_effect(self, server: ValkeyServer) -> None:
        engine = ValkeyEngine(server.url)
        await engine.open()
        sync_always(server)
        for turn in range(1, 11):
            attempt = asyncio.ensure_future(engine.for_attempt(f"t{turn}").incr("app", "n", 1, None, FREE))
            await asyncio.sleep(0.001 * (turn % 3))
            server.stop(signal.SIGKILL)
            await asyncio.to_thread(server.start)
            sync_always(server)
            await wait_until_answering(engine)
            await asyncio.gather(attempt, return_exceptions=True)
            assert await engine.for_attempt(f"t{turn}").incr("app", "n", 1, None, FREE) == turn
        await engine.close()

    async def test_it_refuses_at_once_while_the_server_is_gone(self, server: ValkeyServer) -> None:
        engine = ValkeyEngine(server.url)
        await engine.open()
        server.stop()
        await asyncio.sleep(0.1)
        # Each of them would wait for two seconds.
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for _ in range(100):
                with pytest.raises(StoreUnavailable):
                    await engine.get("app", "key")
        await engine.close()

    async def test_it_does_not_open_without_a_server(self, server: ValkeyServer) -> None:
        engine = ValkeyEngine(server.url)
        server.stop()
        with pytest.raises(StoreUnavailable):
            await engine.open()


def sync_always(server: ValkeyServer) -> None:
    with redis.Redis.from_url(server.url) as client:
        client.config_set("appendfsync", "always")


class TestServer:
    async def test_functions_that_it_lost_are_loaded_again(self, engine: ValkeyEngine, valkey_url: str) -> None:
        await engine.incr("app", "n", 1, None, FREE)
        with redis.Redis.from_url(valkey_url) as client:
            client.execute_command("FUNCTION", "FLUSH")
        assert sorted(await asyncio.gather(*(engine.incr("app", "n", 1, None, FREE) for _ in range(20)))) == list(
            range(2, 22)
        )

    async def test_an_emptied_server_is_an_empty_store(self, engine: ValkeyEngine, valkey_url: str) -> None:
        await engine.incr("app", "n", 1, None, FREE)
        with redis.Redis.from_url(valkey_url) as client:
            client.flushall()
        assert await engine.usage("app") == Usage(0, 0)
        assert await engine.incr("app", "n", 1, None, FREE) == 1

    async def test_a_space_that_was_emptied_leaves_nothing(
        self, engine: ValkeyEngine, valkey_url: str, clock: Any
    ) -> None:
        for number in range(20):
            await engine.put("app", f"key{number}", b"1", 10 if number % 2 else None, Tier(number % 2), FREE)
            if number % 2 == 0:
                await engine.delete("app", f"key{number}")
        await engine.incr("app", "n", 2**60, 10, FREE)
        clock.advance(10)
        assert await engine.sweep() == 11
        with redis.Redis.from_url(valkey_url) as client:
            assert client.keys("*") == []

    async def test_a_server_that_is_full_refuses_writes_and_still_reads(
        self, engine: ValkeyEngine, valkey_url: str
    ) -> None:
        await engine.put("app", "key", b"1", None, Tier.DURABLE, FREE)
        with redis.Redis.from_url(valkey_url) as client:
            client.config_set("maxmemory", 1)
            try:
                with pytest.raises(StoreUnavailable):
                    await engine.put("app", "other", b"1", None, Tier.DURABLE, FREE)
                with pytest.raises(StoreUnavailable):
                    await engine.check()
                assert await engine.get("app", "key") == b"1"
            finally:
                client.config_set("maxmemory", 0)
        assert await engine.usage("app") == Usage(1, 4)


@pytest.mark.parametrize(
    ("options", "warnings"),
    [
        (("--appendonly", "no", "--save", ""), ["stores nothing on disk"]),
        (("--appendonly", "no", "--save", "60 1"), []),
        (("--appendonly", "yes", "--save", ""), []),
        (("--maxmemory-policy", "allkeys-lru"), ["noeviction"]),
    ],
)
async def test_a_server_that_would_lose_entries_is_warned_of(
    options: tuple[str, ...], warnings: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with start_valkey(*options) as server:
        engine = ValkeyEngine(server.url)
        await engine.open()
        await engine.warn_of_loss()
        await engine.close()
    assert len(caplog.messages) == len(warnings)
    assert all(part in message for part, message in zip(warnings, caplog.messages, strict=True))


async def test_close_finishes_what_it_had_accepted(engine: ValkeyEngine) -> None:
    accepted_tasks = [asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE)) for _ in range(500)]
    await asyncio.sleep(0)
    await engine.close()
    assert sorted(await asyncio.gather(*accepted_tasks)) == list(range(1, 501))


async def test_a_swap_compares_again_what_others_changed_meanwhile(engine: ValkeyEngine) -> None:
    """Equal in meaning but not in bytes, so that every swap has to look first."""
    wins = 0

    async def caller(number: int) -> None:
        nonlocal wins
        for _ in range(20):
            seen_value = await engine.get("app", "sum") or b"null"
            following = b"%d.0" % (1 if seen_value == b"null" else int(float(seen_value)) + 1)
            expected_value = seen_value if seen_value == b"null" else b"%d" % int(float(seen_value))
            has_swapped = await engine.cas("app", "sum", expected_value, following, None, FREE)
            wins += has_swapped

    await asyncio.gather(*(caller(number) for number in range(16)))
    assert await engine.get("app", "sum") == b"%d.0" % wins
