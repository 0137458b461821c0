"""Crashes of each of the two servers, and of workers."""

from __future__ import annotations

import asyncio
import itertools
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest
import redis

from baobab.storage.kv import (
    StoreUnavailable,
    Tier,
    Usage,
)
from baobab.storage.kv.tiered.durable import DurableEngine
from baobab.storage.kv.tiered.engine import TieredEngine
from baobab.storage.kv.tiered.postgres import PostgresDurableEngine
from baobab.storage.kv.tiered.sqlite import SqliteDurableEngine
from tests.servers import PostgresServer, ValkeyServer
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.tiered_workers import CHILD, FREE, D, E, open_workers, wait_until_answering

TIMEOUT_SECONDS = 30


async def wait_for_locks(engines: Sequence[TieredEngine]) -> None:
    """Returns when every turn in the space is over, and what became of each is known.

    Whoever wants all of the space waits until those who had no answer, or were killed, have had their turn.
    """
    for engine in engines:
        for ask in (engine.freeze, engine.thaw):
            await retry_until_served(ask)


async def retry_until_served(ask: Callable[[str], Awaitable[None]]) -> None:
    """Asks until it is served: a worker refuses everything while it does not know what became of a turn of its own."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            try:
                return await ask("app")
            except StoreUnavailable:
                await asyncio.sleep(0.02)


class TestCrashes:
    async def test_no_acknowledged_durable_write_is_lost_when_valkey_is_killed(
        self, make_durable: Callable[[], DurableEngine], server: ValkeyServer
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

        async with open_workers(make_durable, server.url, lease=1.0) as (one, two):
            callers = [asyncio.ensure_future(caller((one, two)[n % 2], n)) for n in range(8)]
            for _ in range(4):
                before = sum(acknowledged)
                while sum(acknowledged) < before + 40:
                    await asyncio.sleep(0.01)
                await asyncio.sleep(chance.uniform(0, 0.05))
                server.stop(signal.SIGKILL)
                await asyncio.sleep(0.05)
                await asyncio.to_thread(server.start)
                await wait_until_answering(one)
                await wait_until_answering(two)
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
            await wait_for_locks([one, two])
            await one.sweep()
            assert await one.usage("app") == await recount_usage(two, "app")

    async def test_without_valkeys_memory_the_ephemeral_entries_are_gone_and_nothing_else(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as (one, two):
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
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url, 1) as [engine]:
            for _ in range(2):
                await engine.put("app", "cached", b"0", None, E, FREE)
                assert await engine.for_attempt("e").incr("app", "cached", 1, None, FREE) == 1
                assert await engine.get("app", "cached") == b"1"
                assert await engine.for_attempt("d").incr("app", "kept", 1, None, FREE) == 1
                assert await engine.get("app", "kept") == b"1"
                with redis.Redis.from_url(valkey_url) as client:
                    client.flushall()

    async def test_without_valkey_what_is_durable_can_be_read_and_nothing_written(
        self, make_durable: Callable[[], DurableEngine], server: ValkeyServer
    ) -> None:
        async with open_workers(make_durable, server.url, 1) as [engine]:
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
            await wait_until_answering(engine)
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
                            await engine.for_attempt(f"first{number}").put(
                                "app", f"once{number}", b"0", None, tier, FREE
                            )
                        await engine.for_attempt(token).incr("app", f"once{number}", 1, None, FREE)
                        break
                    except StoreUnavailable:
                        await asyncio.sleep(0.02)
                repeated[number] += 1

        async with open_workers(
            lambda: PostgresDurableEngine(postgres_url, time.time), valkey_url, lease=2.0
        ) as engines:
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
            await wait_for_locks(engines)
            await engines[0].sweep()
            assert await engines[0].usage("app") == await recount_usage(engines[1], "app")

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
        durable = PostgresDurableEngine(at, time.time) if on_postgres else SqliteDurableEngine(tmp_path, time.time)
        engine = TieredEngine(durable, valkey_url, time.time)
        await engine.open()
        for key, turn in told.items():
            assert 0 <= int(await engine.get("app", key) or b"0") - int(turn) <= 1, key
        await wait_for_locks([engine])
        await engine.sweep()
        assert await engine.usage("app") == await recount_usage(engine, "app")
        await engine.close()

    async def test_it_does_not_open_without_valkey_and_leaves_nothing_open(
        self, make_durable: Callable[[], DurableEngine], server: ValkeyServer
    ) -> None:
        server.stop()
        durable = make_durable()
        with pytest.raises(StoreUnavailable):
            await TieredEngine(durable, server.url, time.time).open()
        with pytest.raises(StoreUnavailable):
            await durable.get("app", "key")

    async def test_close_finishes_what_it_had_accepted(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url, 1) as [engine]:
            accepted = [asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE)) for _ in range(500)]
            await asyncio.sleep(0)
        assert sorted(await asyncio.gather(*accepted)) == list(range(1, 501))
