"""What the Postgres engine owes to its server: processes, restarts, broken lines, locks."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from baobab.storage.kv.engine import Delete, Engine, Get, Op, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import QueueFull, StoreUnavailable
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.postgres.statements import lock_id
from tests.servers import PostgresServer
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.postgres_proxy import open_proxy

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
CHILD = Path(__file__).with_name("postgres_child.py")


@asynccontextmanager
async def open_engine(url: str, clock: Any = time.time, **options: Any) -> AsyncIterator[PostgresEngine]:
    engine = PostgresEngine(url, clock, **options)
    await engine.open()
    try:
        yield engine
    finally:
        await engine.close()


@contextmanager
def hold_space(url: str, space: str) -> Iterator[psycopg.Connection[Any]]:
    """By somebody who is in the middle of a write to it."""
    with psycopg.connect(url) as connection:
        connection.execute("SELECT pg_advisory_xact_lock(%s)", (lock_id(space),))
        yield connection


def restart(server: PostgresServer) -> None:
    server.stop(signal.SIGINT)
    server.start()


def crash(server: PostgresServer) -> None:
    server.stop(signal.SIGQUIT)
    server.start()


def kill_a_backend(server: PostgresServer) -> None:
    """After which Postgres ends all the others too, and recovers from its log."""
    with psycopg.connect(server.url()) as connection:
        rows = connection.execute("SELECT pid FROM pg_stat_activity WHERE application_name = 'baobab kv'").fetchall()
    os.kill(rows[0][0], signal.SIGKILL)


class TestProcesses:
    async def test_processes_that_share_a_database_stay_exact(self, postgres_server: PostgresServer) -> None:
        url = postgres_server.create_database("shared")
        children = [
            subprocess.Popen([sys.executable, str(CHILD), url, name, "8", "25", "60", "100"], stdout=subprocess.PIPE)
            for name in ("one", "two", "three")
        ]
        stored_counts = [int((await asyncio.to_thread(process.communicate))[0]) for process in children]
        assert sum(stored_counts) == 100
        async with open_engine(url) as engine:
            assert (await engine.usage("full")).keys == 100
            assert await engine.get("app", "hits") == b"600"
            assert [await engine.get("app", f"hits{number}") for number in range(8)] == [b"75"] * 8
            for space in ("app", "full"):
                assert await engine.usage(space) == await recount_usage(engine, space)

    async def test_engines_that_open_an_empty_database_together_make_its_tables_once(
        self, postgres_server: PostgresServer
    ) -> None:
        url = postgres_server.create_database("empty")
        engines = [PostgresEngine(url) for _ in range(6)]
        await asyncio.gather(*(engine.open() for engine in engines))
        counts = await asyncio.gather(*(engine.incr("app", "n", 1, None, FREE) for engine in engines))
        assert sorted(counts) == [1, 2, 3, 4, 5, 6]
        await asyncio.gather(*(engine.close() for engine in engines))

    async def test_two_engines_fill_a_quota_of_bytes_exactly(self, postgres_url: str) -> None:
        quota = Quota(max_bytes=100)
        async with open_engine(postgres_url) as one, open_engine(postgres_url) as two:
            for turn in range(10):
                results = await asyncio.gather(
                    *(
                        engine.put(f"app{turn}", f"{name}{n:02}", b"1234567", None, D, quota)
                        for n in range(20)
                        for name, engine in (("a", one), ("b", two))
                    ),
                    return_exceptions=True,
                )
                assert results.count(None) == 10
                assert await one.usage(f"app{turn}") == await recount_usage(two, f"app{turn}") == Usage(10, 100)

    async def test_two_engines_in_many_spaces_never_wait_in_a_circle(self, postgres_url: str) -> None:
        chance = random.Random(3)
        spaces, keys = [f"app{n}" for n in range(4)], [f"key{n}" for n in range(6)]

        def write(engine: Engine) -> Any:
            space, key = chance.choice(spaces), chance.choice(keys)
            ops: list[Op] = [Set(chance.choice(keys), b"1"), Get(key), Delete(chance.choice(keys))]
            asks: list[Callable[[], Any]] = [
                lambda: engine.put(space, key, b"1" * chance.randint(1, 3), None, chance.choice([D, E]), FREE),
                lambda: engine.incr(space, key, 1, 60, FREE),
                lambda: engine.incr(space, key, 1, 60, FREE),
                lambda: engine.incr(space, key, 1, 60, FREE),
                lambda: engine.expire(space, key, chance.choice([None, 60])),
                lambda: engine.get(space, key, touch=True),
                lambda: engine.cas(space, key, b"1", b"11", None, FREE),
                lambda: engine.delete(space, key),
                lambda: engine.batch(space, ops, FREE),
                lambda: engine.for_attempt(f"{chance.randint(1, 50)}").put(space, key, b"1", None, D, FREE),
                lambda: engine.flush(space) if chance.random() < 0.2 else engine.sweep(5),
            ]
            return chance.choice(asks)()

        async with open_engine(postgres_url) as one, open_engine(postgres_url) as two:

            async def caller(engine: PostgresEngine) -> None:
                for _ in range(30):
                    # Counters grow to texts that are none; everything else would be the store's fault.
                    results = await asyncio.gather(*(write(engine) for _ in range(6)), return_exceptions=True)
                    refusals = [result for result in results if isinstance(result, BaseException)]
                    assert refusals == []

            await asyncio.gather(*(caller(engine) for engine in (one, two) for _ in range(4)))
            for space in spaces:
                assert await one.usage(space) == await recount_usage(one, space)

    async def test_two_attempts_in_two_processes_make_one_write(self, postgres_url: str) -> None:
        async with open_engine(postgres_url) as one, open_engine(postgres_url) as two:
            for number in range(20):
                attempts = [engine.for_attempt(f"t{number}").incr("app", "n", 1, None, FREE) for engine in (one, two)]
                assert await asyncio.gather(*attempts) == [number + 1, number + 1]


class TestRestarts:
    @pytest.mark.parametrize("interrupt", [restart, crash, kill_a_backend])
    async def test_acknowledged_writes_are_there_and_others_made_at_most_once(
        self, postgres_server: PostgresServer, postgres_url: str, interrupt: Callable[[PostgresServer], None]
    ) -> None:
        acknowledged_counts, unknown_counts = [0] * 8, [0] * 8
        repeated_counts = [0] * 8
        stopping = False

        async def caller(engine: PostgresEngine, number: int) -> None:
            while not stopping:
                try:
                    await engine.incr("app", f"n{number}", 1, None, FREE)
                    acknowledged_counts[number] += 1
                    value, tier = b"1" * (acknowledged_counts[number] % 9), Tier(acknowledged_counts[number] % 2)
                    await engine.put("app", f"moving{number}", value, None, tier, FREE)
                    await engine.delete("app", f"moving{number - 1}")
                except StoreUnavailable:
                    unknown_counts[number] += 1
                    await asyncio.sleep(0.02)

        async def stubborn(engine: PostgresEngine, number: int) -> None:
            while not stopping:
                token = f"{number}:{repeated_counts[number]}"
                while True:
                    try:
                        await engine.for_attempt(token).incr("app", f"once{number}", 1, None, FREE)
                        break
                    except StoreUnavailable:
                        await asyncio.sleep(0.02)
                repeated_counts[number] += 1

        async with open_engine(postgres_url) as engine:
            callers = [asyncio.ensure_future(caller(engine, number)) for number in range(8)]
            callers += [asyncio.ensure_future(stubborn(engine, number)) for number in range(8)]
            for _ in range(3):
                before = sum(acknowledged_counts)
                while sum(acknowledged_counts) < before + 100:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(interrupt, postgres_server)
            before = sum(acknowledged_counts)
            while sum(acknowledged_counts) < before + 100:
                await asyncio.sleep(0.01)
            stopping = True
            await asyncio.gather(*callers)
            # A pooler may let them wait until the server is back.
            assert sum(unknown_counts) > 0 or postgres_server.pooler is not None
            for number in range(8):
                stored_count = int(await engine.get("app", f"n{number}") or b"0")
                assert (
                    acknowledged_counts[number] <= stored_count <= acknowledged_counts[number] + unknown_counts[number]
                )
                assert await engine.get("app", f"once{number}") == b"%d" % repeated_counts[number]
            assert await engine.usage("app") == await recount_usage(engine, "app")

    async def test_an_engine_finds_its_server_again(self, postgres_server: PostgresServer, postgres_url: str) -> None:
        async with open_engine(postgres_url) as engine:
            await engine.put("app", "key", b"1", None, D, FREE)
            await engine.check()
            postgres_server.stop()
            for refused_call in (
                engine.get("app", "key"),
                engine.usage("app"),
                engine.put("app", "key", b"2", None, D, FREE),
                engine.sweep(),
                engine.check(),
            ):
                with pytest.raises(StoreUnavailable):
                    await refused_call
            postgres_server.start()
            assert await engine.get("app", "key") == b"1"
            await engine.check()
            postgres_server.stop()
            postgres_server.start()
            # Nobody asked in between, so nobody needs to know.
            assert await engine.incr("app", "key", 1, None, FREE) == 2
            assert await engine.get("app", "key") == b"2"

    async def test_without_a_server_open_is_unavailable(self, tmp_path: Path) -> None:
        engine = PostgresEngine("postgresql://baobab@127.0.0.1:1/kv")
        with pytest.raises(StoreUnavailable):
            await engine.open()
        with pytest.raises(StoreUnavailable):
            await engine.get("app", "key")

    async def test_tables_of_a_later_release_are_left_alone(self, postgres_server: PostgresServer) -> None:
        url = postgres_server.create_database("later")
        async with open_engine(url):
            pass
        with psycopg.connect(url) as connection:
            connection.execute("UPDATE kv.version SET version = 99")
        with pytest.raises(StoreUnavailable, match="version 99"):
            await PostgresEngine(url).open()


class TestLines:
    async def test_a_write_whose_answer_was_lost_is_safe_to_repeat(self, postgres_url: str) -> None:
        async with open_proxy(postgres_url) as (wire, url), open_engine(url) as engine:
            wire.last_words = b"COMMIT"
            with pytest.raises(StoreUnavailable):
                await engine.for_attempt("t").incr("app", "n", 1, None, FREE)
            wire.last_words = None
            async with open_engine(postgres_url) as other:
                assert await other.get("app", "n") == b"1"
            assert await engine.for_attempt("t").incr("app", "n", 1, None, FREE) == 1
            assert await engine.get("app", "n") == b"1"

    async def test_nothing_waits_for_ever_for_a_silent_server(self, postgres_url: str) -> None:
        async with open_proxy(postgres_url) as (wire, url), open_engine(url, timeout=0.2) as engine:
            await engine.put("app", "key", b"1", None, D, FREE)
            await engine.get("app", "key")
            wire.open.clear()
            started_at = time.monotonic()
            results = await asyncio.gather(
                engine.get("app", "key"), engine.put("app", "key", b"2", None, D, FREE), return_exceptions=True
            )
            assert all(isinstance(result, StoreUnavailable) for result in results)
            assert time.monotonic() - started_at < 30
            wire.open.set()
            assert await engine.incr("app", "key", 1, None, FREE) == 2


class TestLocks:
    async def test_a_space_held_elsewhere_refuses_its_writes_and_no_more(self, postgres_url: str) -> None:
        async with open_engine(postgres_url, timeout=0.2, writers=1) as engine:
            await engine.put("app", "kept", b"1", None, D, FREE)
            with hold_space(postgres_url, "app"):
                results = await asyncio.gather(
                    *(engine.put("app", f"k{n}", b"1", None, Tier(n % 2), FREE) for n in range(10)),
                    return_exceptions=True,
                )
                assert all(isinstance(result, StoreUnavailable) for result in results)
                assert await engine.get("app", "kept") == b"1"
                await engine.put("other", "key", b"1", None, D, FREE)
            assert await engine.usage("app") == Usage(1, 5)
            await engine.put("app", "k0", b"1", None, D, FREE)

    async def test_a_counter_waits_for_its_own_row_only(self, postgres_url: str) -> None:
        async with open_engine(postgres_url, timeout=0.2) as engine:
            for key in ("a", "b"):
                await engine.put("app", key, b"1", None, D, FREE)
            with psycopg.connect(postgres_url) as connection:
                connection.execute("SELECT pg_advisory_xact_lock_shared(%s)", (lock_id("app"),))
                connection.execute("SELECT FROM kv.entries WHERE key = 'a' FOR UPDATE")
                assert await engine.incr("app", "b", 1, None, FREE) == 2
                assert await engine.expire("app", "b", 10) is True
                with pytest.raises(StoreUnavailable):
                    await engine.incr("app", "a", 1, None, FREE)
            # One digit more changes the bytes of the space.
            assert await engine.incr("app", "a", 9, None, FREE) == 10
            assert await engine.usage("app") == Usage(2, 5)

    async def test_a_full_queue_refuses_at_once(self, postgres_url: str) -> None:
        async with open_engine(postgres_url, queue_limit=10) as engine:
            with hold_space(postgres_url, "app"):
                first = asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE))
                await asyncio.sleep(0.05)
                results = asyncio.gather(
                    *(engine.incr("app", "hits", 1, None, FREE) for _ in range(30)), return_exceptions=True
                )
                await asyncio.sleep(0.05)
            outcomes = [await first, *await results]
            refusal_count = sum(isinstance(result, QueueFull) for result in outcomes)
            # The first has left the queue when its writing has begun, which a busy machine may do late.
            assert refusal_count in (20, 21)
            assert await engine.get("app", "hits") == b"%d" % (31 - refusal_count)

    async def test_close_finishes_what_it_had_accepted(self, postgres_url: str) -> None:
        async with open_engine(postgres_url) as engine:
            accepted_tasks = [asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE)) for _ in range(500)]
            await asyncio.sleep(0)
        assert sorted(await asyncio.gather(*accepted_tasks)) == list(range(1, 501))

    async def test_a_view_of_a_closed_engine_is_closed_too(self, postgres_url: str) -> None:
        async with open_engine(postgres_url) as engine:
            view = engine.for_attempt("t")
        for refused_call in (view.get("app", "key"), view.incr("app", "key", 1, None, FREE)):
            with pytest.raises(StoreUnavailable):
                await refused_call

    @pytest.mark.parametrize("key", ["\ud800", "a\0b"])
    async def test_one_callers_mistake_stays_with_that_caller(self, postgres_url: str, key: str) -> None:
        async with open_engine(postgres_url) as engine:
            mistake, misread, other = await asyncio.gather(
                engine.put("app", key, b"1", None, D, FREE),
                engine.get("app", key),
                engine.put("app", "key", b"1", None, D, FREE),
                return_exceptions=True,
            )
            assert isinstance(mistake, ValueError)
            assert isinstance(misread, ValueError)
            assert other is None


class TestGroups:
    async def test_durable_writes_are_on_disk_when_acknowledged_and_ephemeral_ones_soon_after(
        self, postgres_server: PostgresServer
    ) -> None:
        url = postgres_server.create_database("careless")
        postgres_server.execute("ALTER DATABASE careless SET synchronous_commit = off")
        async with open_engine(url) as engine:
            with psycopg.connect(url, autocommit=True) as connection:

                async def is_flushed(key: str, tier: Tier) -> bool:
                    [[before]] = connection.execute("SELECT pg_current_wal_insert_lsn()::text").fetchall()
                    await engine.put("app", key, b"1", None, tier, FREE)
                    [[is_on_disk]] = connection.execute("SELECT pg_current_wal_flush_lsn() > %s", (before,)).fetchall()
                    return bool(is_on_disk)

                assert all([await is_flushed("key", D) for _ in range(20)])
                assert not all([await is_flushed("cached", E) for _ in range(20)])
                # These leave the durable tier, or come to it.
                assert all([await is_flushed("key", Tier((n + 1) % 2)) for n in range(20)])

    async def test_a_read_sees_every_write_acknowledged_before_it(self, postgres_url: str) -> None:
        async with open_engine(postgres_url, readers=3) as engine:

            async def caller(number: int) -> None:
                for turn in range(30):
                    await engine.put("app", f"key{number}", b"%d" % turn, None, Tier(turn % 2), FREE)
                    assert await engine.get("app", f"key{number}") == b"%d" % turn

            await asyncio.gather(*(caller(number) for number in range(16)))
