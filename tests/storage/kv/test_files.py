"""What the SQLite engine owes to its files: processes, crashes, full disks, locks."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from baobab.storage.kv.engine import Quota, Tier, Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.sqlite import SqliteEngine
from tests.storage.kv.accounts import recount_usage

FREE = Quota()
CHILD = Path(__file__).with_name("child_process.py")


def start_child(*arguments: object) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, str(CHILD), *map(str, arguments)], stdout=subprocess.PIPE)


@contextmanager
def other_connection(path: Path) -> Iterator[apsw.Connection]:
    connection = apsw.Connection(str(path))
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """The nearest thing to a full disk that a test can have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_both_tiers_outlive_the_engine(tmp_path: Path, clock: Any) -> None:
    for turn in range(2):
        engine = SqliteEngine(tmp_path, clock)
        await engine.open()
        assert await engine.incr("app", "durable", 1, None, FREE) == turn + 1
        await engine.put("app", f"ephemeral{turn}", b"1", None, Tier.EPHEMERAL, FREE)
        assert await engine.usage("app") == await recount_usage(engine, "app") == Usage(turn + 2, 8 + 11 * (turn + 1))
        await engine.close()


async def test_only_the_durable_tier_outlives_the_machine(tmp_path: Path, clock: Any) -> None:
    for boot in ("first", "second"):
        engine = SqliteEngine(tmp_path, clock, boot_id=boot)
        await engine.open()
        if boot == "first":
            await engine.put("app", "durable", b"1", None, Tier.DURABLE, FREE)
            await engine.put("app", "ephemeral", b"1", None, Tier.EPHEMERAL, FREE)
        else:
            assert await engine.get("app", "durable") == b"1"
            assert await engine.get("app", "ephemeral") is None
            assert await engine.usage("app") == Usage(1, 8)
        await engine.close()


async def test_a_damaged_ephemeral_file_is_dropped(tmp_path: Path, clock: Any) -> None:
    (tmp_path / "kv-ephemeral.db").write_bytes(b"no database at all" * 1000)
    engine = SqliteEngine(tmp_path, clock)
    await engine.open()
    await engine.put("app", "key", b"1", None, Tier.EPHEMERAL, FREE)
    assert await engine.get("app", "key") == b"1"
    await engine.close()


async def test_a_damaged_durable_file_is_not_dropped(tmp_path: Path, clock: Any) -> None:
    (tmp_path / "kv.db").write_bytes(b"no database at all" * 1000)
    with pytest.raises(StoreUnavailable):
        await SqliteEngine(tmp_path, clock).open()
    assert (tmp_path / "kv.db").read_bytes().startswith(b"no database")


def insert_copy(folder: Path, key: str) -> None:
    """Inserts the copy that a crash between the two commits of a group leaves behind."""
    with other_connection(folder / "kv-ephemeral.db") as connection:
        connection.execute("INSERT INTO entry VALUES ('app', ?, ?, NULL, NULL)", (key, b"22"))
        connection.execute(
            "INSERT INTO usage VALUES ('app', 1, ?1) ON CONFLICT DO UPDATE SET keys = keys + 1, bytes = bytes + ?1",
            (len(key) + 2,),
        )


async def test_the_durable_copy_hides_and_outlives_one_that_a_crash_left(sqlite: SqliteEngine, tmp_path: Path) -> None:
    for key in ("counted", "deleted", "expired"):
        await sqlite.put("app", key, b"1", None, Tier.DURABLE, FREE)
        insert_copy(tmp_path, key)
        assert await sqlite.get("app", key) == b"1"
    assert await sqlite.scan("app", "", 10, None) == (["counted", "deleted", "expired"], None)
    assert await sqlite.incr("app", "counted", 1, None, FREE) == 2
    assert await sqlite.delete("app", "deleted") == 1
    assert await sqlite.expire("app", "expired", 0) is True
    assert await sqlite.usage("app") == await recount_usage(sqlite, "app") == Usage(1, 8)


async def test_open_removes_the_copies_that_a_crash_left(sqlite: SqliteEngine, tmp_path: Path) -> None:
    await sqlite.put("app", "ephemeral", b"1", None, Tier.EPHEMERAL, FREE)
    for key in ("one", "two"):
        await sqlite.put("app", key, b"1", None, Tier.DURABLE, FREE)
        insert_copy(tmp_path, key)
    await sqlite.close()
    await sqlite.open()
    assert await sqlite.usage("app") == await recount_usage(sqlite, "app") == Usage(3, 18)
    assert await sqlite.flush("app") == 3


async def test_a_lock_held_elsewhere_refuses_the_group_and_no_more(sqlite: SqliteEngine, tmp_path: Path) -> None:
    await sqlite.put("app", "kept", b"1", None, Tier.DURABLE, FREE)
    with other_connection(tmp_path / "kv.db") as connection:
        connection.execute("BEGIN IMMEDIATE")
        results = await asyncio.gather(
            *(sqlite.put("app", f"k{n}", b"1", None, Tier(n % 2), FREE) for n in range(10)), return_exceptions=True
        )
        assert all(isinstance(result, StoreUnavailable) for result in results)
        with pytest.raises(StoreUnavailable):
            await sqlite.check()
        assert await sqlite.get("app", "kept") == b"1"
    assert await sqlite.usage("app") == Usage(1, 5)
    await sqlite.put("app", "k0", b"1", None, Tier.DURABLE, FREE)
    await sqlite.check()


async def test_a_full_disk_refuses_the_group_and_no_more(sqlite: SqliteEngine) -> None:
    await sqlite.put("app", "kept", b"1", None, Tier.DURABLE, FREE)
    with files_no_larger_than(400_000):
        results = await asyncio.gather(
            *(sqlite.put("app", f"k{n}", b"%d" % n * 100_000, None, Tier.DURABLE, FREE) for n in range(10)),
            sqlite.put("app", "other", b"1", None, Tier.EPHEMERAL, FREE),
            return_exceptions=True,
        )
        refusals = [result for result in results if isinstance(result, StoreUnavailable)]
        assert refusals
        assert len(refusals) + results.count(None) == 11
        assert (await sqlite.usage("app")).keys == 1 + results.count(None)
        assert await sqlite.usage("app") == await recount_usage(sqlite, "app")
    assert await sqlite.incr("app", "kept", 1, None, FREE) == 2
    await sqlite.put("app", "k", b"1" * 1_000_000, None, Tier.DURABLE, FREE)
    assert await sqlite.usage("app") == await recount_usage(sqlite, "app")


async def test_a_failing_ephemeral_file_does_not_refuse_durable_writes(sqlite: SqliteEngine) -> None:
    with files_no_larger_than(400_000):
        small_answer, large_answer, moved_answer = await asyncio.gather(
            sqlite.put("app", "small", b"1", None, Tier.DURABLE, FREE),
            sqlite.put("app", "large", b"1" * 1_000_000, None, Tier.EPHEMERAL, FREE),
            sqlite.put("app", "small", b"2", None, Tier.EPHEMERAL, FREE),
            return_exceptions=True,
        )
        assert small_answer is None
        assert isinstance(large_answer, StoreUnavailable)
        assert isinstance(moved_answer, StoreUnavailable) or await sqlite.get("app", "small") == b"2"
        assert await sqlite.get("app", "large") is None
        assert await sqlite.usage("app") == await recount_usage(sqlite, "app")
    await sqlite.put("app", "large", b"1" * 1_000_000, None, Tier.EPHEMERAL, FREE)
    assert await sqlite.usage("app") == await recount_usage(sqlite, "app")


async def test_a_flush_that_did_not_reach_the_ephemeral_file_is_not_acknowledged(sqlite: SqliteEngine) -> None:
    await sqlite.put("app", "light", b"1", None, Tier.EPHEMERAL, FREE)
    with files_no_larger_than(400_000):
        # The first write keeps the thread busy, so that the others are one group.
        _, flush_answer, large_answer = await asyncio.gather(
            sqlite.put("other", "small", b"1", None, Tier.DURABLE, FREE),
            sqlite.flush("app"),
            sqlite.put("other", "large", b"1" * 1_000_000, None, Tier.EPHEMERAL, FREE),
            return_exceptions=True,
        )
    assert isinstance(large_answer, StoreUnavailable)
    assert isinstance(flush_answer, StoreUnavailable) == (await sqlite.get("app", "light") == b"1")
    assert await sqlite.usage("app") == await recount_usage(sqlite, "app")


async def test_one_callers_mistake_stays_with_that_caller(sqlite: SqliteEngine) -> None:
    mistake, other = await asyncio.gather(
        sqlite.put("app", "\ud800", b"1", None, Tier.DURABLE, FREE),
        sqlite.put("app", "key", b"1", None, Tier.DURABLE, FREE),
        return_exceptions=True,
    )
    assert isinstance(mistake, UnicodeEncodeError)
    assert other is None


async def test_a_full_queue_refuses_at_once(tmp_path: Path, clock: Any) -> None:
    engine = SqliteEngine(tmp_path, clock, busy_timeout=5, queue_limit=10)
    await engine.open()
    with other_connection(tmp_path / "kv.db") as connection:
        connection.execute("BEGIN IMMEDIATE")
        first = asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE))
        await asyncio.sleep(0.05)
        results = asyncio.gather(
            *(engine.incr("app", "hits", 1, None, FREE) for _ in range(30)), return_exceptions=True
        )
        await asyncio.sleep(0.05)
        connection.execute("ROLLBACK")
        outcomes = [await first, *await results]
    refusal_count = sum(isinstance(result, StoreUnavailable) for result in outcomes)
    # The first has left the queue when its writing has begun, which a busy machine may do late.
    assert refusal_count in (20, 21)
    assert await engine.get("app", "hits") == b"%d" % (31 - refusal_count)
    await engine.close()


async def test_close_finishes_what_it_had_accepted(tmp_path: Path, clock: Any) -> None:
    engine = SqliteEngine(tmp_path, clock)
    await engine.open()
    accepted_tasks = [asyncio.ensure_future(engine.incr("app", "hits", 1, None, FREE)) for _ in range(500)]
    await asyncio.sleep(0)
    await engine.close()
    assert sorted(await asyncio.gather(*accepted_tasks)) == list(range(1, 501))


async def test_keys_moving_between_the_tiers_are_never_missing(sqlite: SqliteEngine) -> None:
    seen_values: dict[str, list[bytes | None]] = {"odd": [], "even": []}
    for key in seen_values:
        await sqlite.put("app", key, b"0", None, Tier.DURABLE, FREE)

    async def move() -> None:
        for turn in range(1, 300):
            # Two keys in one group, alike at times and crossing at others.
            await asyncio.gather(
                sqlite.put("app", "odd", b"%d" % turn, None, Tier(turn % 2), FREE),
                sqlite.put("app", "even", b"%d" % turn, None, Tier(turn // 2 % 2), FREE),
            )

    moving = asyncio.ensure_future(move())
    while not moving.done():
        for key, values in seen_values.items():
            values.append(await sqlite.get("app", key))
        await asyncio.sleep(0)
    for values in seen_values.values():
        assert None not in values
        numbers = [int(value or b"-1") for value in values]
        assert numbers == sorted(numbers)
    assert await sqlite.usage("app") == await recount_usage(sqlite, "app") == Usage(2, 13)


async def test_processes_that_share_the_files_stay_exact(tmp_path: Path) -> None:
    # They also race to create the files.
    children = [start_child("count", tmp_path, 8, 100) for _ in range(3)]
    for process in children:
        assert (await asyncio.to_thread(process.communicate))[0] == b""
        assert process.returncode == 0
    engine = SqliteEngine(tmp_path)
    await engine.open()
    assert await engine.get("app", "hits") == b"2400"
    assert await engine.get("app", "misses") == b"2400"
    assert (await engine.usage("app")).keys == 52
    assert await engine.usage("app") == await recount_usage(engine, "app")
    await engine.close()


async def test_no_acknowledged_write_is_lost_when_the_process_is_killed(tmp_path: Path) -> None:
    chance = random.Random(7)
    acknowledged_values: dict[str, bytes] = {}
    for turn in range(20):
        process = start_child("load", tmp_path, 16, turn)
        assert process.stdout is not None
        lines = [process.stdout.readline()]
        await asyncio.sleep(chance.uniform(0.01, 0.12))
        os.kill(process.pid, signal.SIGKILL)
        lines += process.communicate()[0].splitlines(keepends=True)
        for line in lines:
            if line.endswith(b"\n"):
                name, number = line.split()
                acknowledged_values[name.decode()] = number
        engine = SqliteEngine(tmp_path)
        await engine.open()
        for key, value in acknowledged_values.items():
            stored_value = await engine.get("app", key)
            # A later write of the same key may have been applied but not yet acknowledged.
            assert int(stored_value or b"-1") >= int(value), key
        assert await engine.usage("app") == await recount_usage(engine, "app")
        await engine.close()
    assert len(acknowledged_values) > 500
