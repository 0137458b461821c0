"""A frozen space: what it refuses, what goes on, and that it is so everywhere from one moment to the next."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, Any

import psycopg
import pytest
import redis

from baobab.storage.kv.engine import Delete, Engine, Entry, Get, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import SpaceFrozen
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.postgres.statements import lock_id
from baobab.storage.kv.sqlite import SqliteEngine
from tests.servers import TIMEOUT_SECONDS, PostgresServer, ValkeyServer, start_postgres, start_valkey
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.test_carrying import export_all
from tests.storage.kv.test_files import other_connection
from tests.storage.kv.worker_child import LASTING, count, engine_at

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
CHILD = Path(__file__).with_name("worker_child.py")

# Each by itself would change something, or would not.
WRITES: dict[str, Callable[[Engine], Awaitable[object]]] = {
    "put": lambda engine: engine.put("app", "new", b"2", None, D, FREE),
    "put of a key that is there": lambda engine: engine.put("app", "n", b"2", 9, E, FREE),
    "put beyond the quota": lambda engine: engine.put("app", "new", b"2", None, E, Quota(0, 0)),
    "delete": lambda engine: engine.delete("app", "n"),
    "delete of an absent key": lambda engine: engine.delete("app", "none"),
    "incr": lambda engine: engine.incr("app", "n", 1, None, FREE),
    "incr of an absent key": lambda engine: engine.incr("app", "none", 1, None, FREE),
    "incr of a text": lambda engine: engine.incr("app", "text", 1, None, FREE),
    "setnx": lambda engine: engine.setnx("app", "none", b"1", None, D, FREE),
    "setnx of a key that is there": lambda engine: engine.setnx("app", "n", b"1", None, D, FREE),
    "cas": lambda engine: engine.cas("app", "n", b"1", b"2", None, FREE),
    "cas by meaning": lambda engine: engine.cas("app", "n", b"1.0", b"2", None, FREE),
    "cas of another value": lambda engine: engine.cas("app", "n", b"7", b"2", None, FREE),
    "cas of an absent key": lambda engine: engine.cas("app", "none", b"7", b"2", None, FREE),
    "cas of null": lambda engine: engine.cas("app", "none", b"null", b"2", None, FREE),
    "expire": lambda engine: engine.expire("app", "n", 9),
    "expire at once": lambda engine: engine.expire("app", "n", 0),
    "expire of an absent key": lambda engine: engine.expire("app", "none", 9),
    "batch": lambda engine: engine.batch("app", [Get("n"), Set("n", b"2"), Delete("text")], FREE),
    "batch that deletes": lambda engine: engine.batch("app", [Get("n"), Delete("n")], FREE),
    "flush": lambda engine: engine.flush("app"),
}


@pytest.fixture
async def frozen_engine(engine: Engine) -> Engine:
    """With an entry in each tier, both with half their time gone, and one that stays."""
    await engine.put("app", "n", b"1", 60, D, FREE)
    await engine.put("app", "text", b'"1"', 60, E, FREE)
    await engine.put("app", "stays", b"1", None, D, FREE)
    await engine.freeze("app")
    return engine


class TestRefusal:
    @pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
    async def test_every_write_is_refused_and_changes_nothing(
        self, frozen_engine: Engine, write: Callable[[Engine], Awaitable[object]]
    ) -> None:
        before = await export_all(frozen_engine)
        with pytest.raises(SpaceFrozen):
            await write(frozen_engine)
        assert await export_all(frozen_engine) == before
        assert await frozen_engine.usage("app") == await recount_usage(frozen_engine, "app") == Usage(3, 15)

    async def test_they_are_refused_in_company_too(self, frozen_engine: Engine) -> None:
        before = await export_all(frozen_engine)
        results = await asyncio.gather(*(write(frozen_engine) for write in WRITES.values()), return_exceptions=True)
        assert {type(result) for result in results} == {SpaceFrozen}
        assert await export_all(frozen_engine) == before

    async def test_other_spaces_are_not_frozen(self, frozen_engine: Engine) -> None:
        for name in ("other", "ap", "app2"):
            assert await frozen_engine.incr(name, "n", 1, None, FREE) == 1
            assert await frozen_engine.incr(name, "n", 1, None, FREE) == 2

    async def test_reads_go_on_and_restart_no_expiry(self, frozen_engine: Engine, clock: Any) -> None:
        clock.advance(30)
        assert await frozen_engine.get("app", "n") == b"1"
        assert await frozen_engine.get("app", "n", touch=True) == b"1"
        assert await frozen_engine.ttl("app", "n") == 30
        assert await frozen_engine.exists("app", "text") is True
        assert await frozen_engine.batch("app", [Get("n"), Get("none")], FREE) == [b"1", None]
        assert await frozen_engine.scan("app", "", 10, None) == (["n", "stays", "text"], None)

    async def test_entries_expire_and_are_swept(self, frozen_engine: Engine, clock: Any) -> None:
        clock.advance(60)
        assert await frozen_engine.sweep() == 2
        assert await frozen_engine.get("app", "n", touch=True) is None
        assert await frozen_engine.usage("app") == Usage(1, 6)
        with pytest.raises(SpaceFrozen):
            await frozen_engine.put("app", "n", b"1", None, D, FREE)

    async def test_thaw_lets_writes_in_again(self, frozen_engine: Engine, clock: Any) -> None:
        await frozen_engine.freeze("app")
        for _ in range(2):
            await frozen_engine.thaw("app")
            assert await frozen_engine.incr("app", "stays", 1, None, FREE) > 1
        clock.advance(30)
        assert await frozen_engine.get("app", "n", touch=True) == b"1"
        assert await frozen_engine.ttl("app", "n") == 60
        assert await frozen_engine.flush("app") == 3

    async def test_a_space_that_was_never_written_can_be_frozen(self, engine: Engine) -> None:
        await engine.thaw("app")
        await engine.freeze("app")
        with pytest.raises(SpaceFrozen):
            await engine.incr("app", "n", 1, None, FREE)
        assert await engine.usage("app") == Usage(0, 0)
        await engine.thaw("app")
        assert await engine.incr("app", "n", 1, None, FREE) == 1

    async def test_each_write_is_made_before_or_refused_in_the_order_in_which_they_came(self, engine: Engine) -> None:
        results = await asyncio.gather(
            engine.put("app", "a", b"1", None, E, FREE),
            engine.freeze("app"),
            engine.put("app", "b", b"1", None, D, FREE),
            engine.incr("app", "a", 1, None, FREE),
            engine.thaw("app"),
            engine.incr("app", "a", 1, None, FREE),
            return_exceptions=True,
        )
        assert [type(result) for result in results[2:4]] == [SpaceFrozen, SpaceFrozen]
        assert [*results[:2], *results[4:]] == [None, None, None, 2]
        assert await export_all(engine) == [Entry("a", b"2", E)]

    async def test_an_attempt_made_before_is_answered_and_a_refused_one_may_be_made_later(self, engine: Engine) -> None:
        assert await engine.for_attempt("before").incr("app", "n", 5, None, FREE) == 5
        await engine.freeze("app")
        assert await engine.for_attempt("before").incr("app", "n", 5, None, FREE) == 5
        for _ in range(2):
            with pytest.raises(SpaceFrozen):
                await engine.for_attempt("t").incr("app", "n", 1, None, FREE)
            with pytest.raises(SpaceFrozen):
                await engine.for_attempt("u").batch("app", [Set("m", b"1")], FREE)
        await engine.thaw("app")
        assert await engine.for_attempt("t").incr("app", "n", 1, None, FREE) == 6
        assert await engine.for_attempt("u").batch("app", [Set("m", b"1")], FREE) == [None]
        assert await engine.get("app", "m") == b"1"

    async def test_it_outlives_the_engine(self, frozen_engine: Engine) -> None:
        await frozen_engine.close()
        await frozen_engine.open()
        with pytest.raises(SpaceFrozen):
            await frozen_engine.incr("app", "n", 1, None, FREE)


@pytest.fixture(params=["sqlite", "postgres", "valkey"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty store that processes can share."""
    if request.param == "sqlite":
        return str(tmp_path)
    url: str = request.getfixturevalue(f"{request.param}_url")
    return url


@contextmanager
def start_child(*arguments: object) -> Iterator[tuple[subprocess.Popen[bytes], IO[bytes]]]:
    """The process, and what it says."""
    with subprocess.Popen([sys.executable, str(CHILD), *map(str, arguments)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout
        finally:
            process.kill()


@asynccontextmanager
async def open_engines(*addresses: str) -> AsyncIterator[list[Engine]]:
    async with AsyncExitStack() as stack:
        engines = []
        for address in addresses:
            engine = engine_at(address)
            await engine.open()
            stack.push_async_callback(engine.close)
            engines.append(engine)
        yield engines


class TestProcesses:
    async def test_nothing_changes_once_freeze_has_returned(self, address: str) -> None:
        async with open_engines(address, address) as (one, two):
            with start_child("write", address, "child", 32) as (process, output):
                assert await asyncio.to_thread(output.readline) == b"ready\n"
                counting = asyncio.gather(count(one, "one", 32), count(two, "two", 32))
                async with asyncio.timeout(TIMEOUT_SECONDS):
                    while int(await one.get("app", "hits") or 0) <= 100:
                        await asyncio.sleep(0.01)
                await two.freeze("app")
                entries = await export_all(one)
                count_total = sum(await counting) + int(await asyncio.to_thread(output.readline))
                assert await asyncio.to_thread(process.wait) == 0
            assert await export_all(two) == entries
            # What was refused was not made, and what was made is there.
            assert await one.get("app", "hits") == b"%d" % count_total
            assert (
                await one.usage("app") == await recount_usage(two, "app") == Usage(len(entries), count_bytes(entries))
            )

    async def test_it_is_so_for_an_engine_that_writes_in_the_next_moment(self, address: str) -> None:
        async with open_engines(address, address) as (one, two):
            for turn in range(1, 20):
                assert await two.incr("app", "n", 1, None, FREE) == turn
                await one.freeze("app")
                with pytest.raises(SpaceFrozen):
                    await two.incr("app", "n", 1, None, FREE)
                await one.thaw("app")

    async def test_it_waits_for_a_write_in_flight(self, postgres_url: str) -> None:
        async with open_engines(postgres_url) as [engine]:
            with psycopg.connect(postgres_url) as writer:
                # As writes that keep the size of a space do.
                writer.execute("SELECT pg_advisory_xact_lock_shared(%s)", (lock_id("app"),))
                freezing = asyncio.ensure_future(engine.freeze("app"))
                waiting = None
                with psycopg.connect(postgres_url, autocommit=True) as observer:
                    while waiting is None and not freezing.done():
                        await asyncio.sleep(0.01)
                        waiting = observer.execute("SELECT 1 FROM pg_locks WHERE NOT granted").fetchone()
                assert not freezing.done()
            await freezing
            with pytest.raises(SpaceFrozen):
                await engine.incr("app", "n", 1, None, FREE)


class TestCrashes:
    async def test_what_a_killed_process_was_told_of_its_files_holds(self, tmp_path: Path) -> None:
        chance = random.Random(7)
        for turn in range(6):
            folder = tmp_path / str(turn)
            with start_child("freeze", folder) as (process, output):
                lines = [output.readline() for _ in range(2 * LASTING)]
                await asyncio.sleep(chance.uniform(0.0, 0.05))
                os.kill(process.pid, signal.SIGKILL)
                lines += output.readlines()
            printed_lines = [line.split() for line in lines if line.endswith(b"\n")]
            thawed_spaces = [int(number) for word, number in printed_lines if word == b"thawed"]
            # The thaw that would have come next may have been made.
            frozen_spaces = [
                int(number) for word, number in printed_lines if word == b"frozen" and int(number) > len(thawed_spaces)
            ]
            assert thawed_spaces
            assert frozen_spaces
            async with open_engines(str(folder)) as [engine]:
                for number in thawed_spaces:
                    assert await engine.incr(f"app{number}", "n", 1, None, FREE) == 1
                for number in frozen_spaces:
                    with pytest.raises(SpaceFrozen):
                        await engine.incr(f"app{number}", "n", 1, None, FREE)

    async def test_postgres_keeps_it(self, own_postgres: PostgresServer) -> None:
        async with open_engines(own_postgres.create_database("kv")) as [engine]:
            # The last thing before it may still be on its way to the disk.
            await engine.put("app", "n", b"1", None, E, FREE)
            await engine.freeze("app")
            own_postgres.stop(signal.SIGQUIT)
            await asyncio.to_thread(own_postgres.start)
            with pytest.raises(SpaceFrozen):
                await engine.incr("app", "n", 1, None, FREE)
            assert await export_all(engine) == [Entry("n", b"1", E)]

    async def test_valkey_keeps_it_as_it_keeps_everything(self, own_valkey: ValkeyServer) -> None:
        with redis.Redis.from_url(own_valkey.url) as client:
            client.config_set("appendfsync", "always")
        async with open_engines(own_valkey.url) as [engine]:
            await engine.put("app", "n", b"1", None, E, FREE)
            await engine.freeze("app")
        own_valkey.stop(signal.SIGKILL)
        await asyncio.to_thread(own_valkey.start)
        async with open_engines(own_valkey.url) as [engine]:
            with pytest.raises(SpaceFrozen):
                await engine.incr("app", "n", 1, None, FREE)
            assert await export_all(engine) == [Entry("n", b"1", E)]


@pytest.fixture
def own_postgres() -> Iterator[PostgresServer]:
    """One that a test may stop."""
    with start_postgres() as server:
        yield server


@pytest.fixture
def own_valkey() -> Iterator[ValkeyServer]:
    with start_valkey() as server:
        yield server


class TestOlderStores:
    async def test_a_folder_of_an_earlier_release_opens(self, tmp_path: Path) -> None:
        async with open_engines(str(tmp_path)) as [engine]:
            await engine.incr("app", "n", 1, None, FREE)
        for name in ("kv.db", "kv-ephemeral.db"):
            with other_connection(tmp_path / name) as connection:
                connection.execute("DROP TABLE frozen")
        async with open_engines(str(tmp_path), str(tmp_path)) as (engine, other):
            assert await engine.incr("app", "n", 1, None, FREE) == 2
            await engine.freeze("app")
            with pytest.raises(SpaceFrozen):
                await other.incr("app", "n", 1, None, FREE)

    async def test_files_get_their_table_while_another_process_has_them_open(self, tmp_path: Path) -> None:
        engine, other = SqliteEngine(tmp_path), SqliteEngine(tmp_path)
        await engine.open()
        await engine.incr("app", "n", 1, None, FREE)
        with other_connection(tmp_path / "kv.db") as connection:
            connection.execute("DROP TABLE frozen")
        await other.open()
        await other.freeze("app")
        with pytest.raises(SpaceFrozen):
            await engine.incr("app", "n", 1, None, FREE)
        await engine.close()
        await other.close()

    async def test_tables_of_an_earlier_release_are_brought_on_by_whoever_comes_first(
        self, postgres_server: PostgresServer
    ) -> None:
        url = postgres_server.create_database("earlier")
        async with open_engines(url) as [engine]:
            await engine.incr("app", "n", 1, None, FREE)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE kv.usage DROP COLUMN frozen")
            connection.execute("UPDATE kv.version SET version = 1")
        engines = [PostgresEngine(url) for _ in range(4)]
        await asyncio.gather(*(engine.open() for engine in engines))
        assert await engines[0].incr("app", "n", 1, None, FREE) == 2
        await engines[1].freeze("app")
        with pytest.raises(SpaceFrozen):
            await engines[2].incr("app", "n", 1, None, FREE)
        assert await engines[3].usage("app") == Usage(1, 2)
        await asyncio.gather(*(engine.close() for engine in engines))


def count_bytes(entries: list[Entry]) -> int:
    return sum(len(entry.key) + len(entry.value) for entry in entries)
