"""Workers of the engine on two servers that stop in the middle of their turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import redis

from baobab.storage.kv import (
    Delete,
    Engine,
    Set,
    StoreUnavailable,
    Tier,
    Usage,
)
from baobab.storage.kv.tiered.durable import DurableEngine
from baobab.storage.kv.tiered.engine import TieredEngine
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.tiered_workers import (
    FREE,
    D,
    E,
    expire_locks,
    list_ephemeral_keys,
    lock_request,
    open_ephemeral,
    open_workers,
)

LASTING = 60.0
"""Seconds of a lease that no test comes to the end of."""


class TestTurns:
    """Workers that stop in the middle."""

    async def test_a_worker_that_never_comes_back_is_waited_for_no_longer_than_its_lease(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url, 1) as [engine], open_ephemeral(valkey_url, 0.3) as lost:
            await engine.put("app", "other", b"1", None, E, FREE)
            await lost.acquire_lock(lock_request("key"))
            await engine.put("app", "key", b"1", None, D, FREE)
            assert await engine.get("app", "key") == b"1"

    async def test_who_came_first_is_served_first(self, valkey_url: str) -> None:
        async with open_ephemeral(valkey_url) as each:
            for _ in range(10):
                order: list[int] = []

                async def have(number: int, *keys: str, order: list[int] = order) -> None:
                    turn = await each.acquire_lock(lock_request(*keys))
                    order.append(number)
                    await asyncio.sleep(0.002)
                    each.release_lock(lock_request(*keys), turn, done=True)

                holding = await each.acquire_lock(lock_request("a", "b"))
                waiting = []
                for number, keys in enumerate(["a", "ab", "b", "c", "abc"]):
                    waiting.append(asyncio.ensure_future(have(number, *keys)))
                    await asyncio.sleep(0.005)
                each.release_lock(lock_request("a", "b"), holding, done=True)
                await asyncio.gather(*waiting)
                assert order == [0, 1, 2, 3, 4]

    async def test_where_it_is_too_long_the_store_is_unavailable(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        waiting, impatient = (
            open_workers(make_durable, valkey_url, 1),
            open_workers(make_durable, valkey_url, 1, lease=0.1),
        )
        async with waiting as [engine], impatient as [hasty], open_ephemeral(valkey_url) as slow:
            turn = await slow.acquire_lock(lock_request("key"))
            with pytest.raises(StoreUnavailable):
                await hasty.put("app", "key", b"1", None, D, FREE)
            assert await engine.get("app", "key") is None
            await engine.put("app", "other", b"1", None, D, FREE)
            slow.release_lock(lock_request("key"), turn, done=False)
            await engine.put("app", "key", b"1", None, E, FREE)

    async def test_who_comes_back_after_it_changes_nothing_in_valkey(self, valkey_url: str) -> None:
        async with open_ephemeral(valkey_url, 0.05) as late:
            turn = await late.acquire_lock(lock_request("key"))
            await asyncio.sleep(0.1)
            assert await late.apply_changes("app", turn, [("put", "key", "", "", b"2")]) is False
            assert list_ephemeral_keys(valkey_url) == []

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
        async with open_workers(make_around, valkey_url, 1) as [engine]:
            durable = make_around()
            late = TieredEngine(durable, valkey_url, time.time, lease=0.2)
            await late.open()

            async def overtake() -> None:
                if meanwhile == "delete and put":
                    await engine.delete("app", "key")
                await engine.put("app", "key", b"10", None, E if meanwhile == "move" else D, FREE)
                # Once is enough, however slow the machine is: its next turn lasts.
                late._ephemeral._lease = LASTING

            await engine.put("app", "key", b"1", None, source, FREE)
            durable.before = overtake
            assert await write(late) == answer
            assert await engine.get("app", "key") == after
            assert await engine.usage("app") == await recount_usage(engine, "app")
            await late.close()

    @pytest.mark.parametrize("how", ["sweep", "write"])
    async def test_a_copy_that_it_left_behind_is_found_and_removed(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str, how: str
    ) -> None:
        async with open_workers(make_durable, valkey_url, 1) as [engine], open_ephemeral(valkey_url) as lost:
            await engine.put("app", "key", b"1", None, D, FREE)
            # On its way to the ephemeral tier.
            turn = await lost.acquire_lock(lock_request("key"))
            assert await lost.apply_changes("app", turn, [("put", "key", "", "", b"22")])
            assert await engine.get("app", "key") == b"1"
            expire_locks(valkey_url)
            if how == "sweep":
                await engine.sweep()
            else:
                await engine.put("app", "other", b"1", None, D, FREE)
                await engine.delete("app", "other")
                await engine.sweep()
            assert list_ephemeral_keys(valkey_url) == []
            assert await engine.usage("app") == Usage(1, 4)
            assert await engine.get("app", "key") == b"1"

    @pytest.mark.parametrize("write", ["put", "incr", "delete"])
    async def test_such_a_copy_never_outlives_a_write_to_its_key(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str, write: str
    ) -> None:
        async with open_workers(make_durable, valkey_url, 1) as [engine], open_ephemeral(valkey_url) as lost:
            await engine.put("app", "key", b"1", None, D, FREE)
            turn = await lost.acquire_lock(lock_request("key"))
            assert await lost.apply_changes("app", turn, [("put", "key", "", "", b"22")])
            expire_locks(valkey_url)
            match write:
                case "put":
                    await engine.put("app", "key", b"3", None, D, FREE)
                case "incr":
                    assert await engine.incr("app", "key", 1, None, FREE) == 2
                case "delete":
                    assert await engine.delete("app", "key") == 1
                    assert await engine.get("app", "key") is None
            assert list_ephemeral_keys(valkey_url) == []

    async def test_a_space_that_was_emptied_leaves_nothing_but_tracks_that_fade(
        self, make_durable: Callable[[], DurableEngine], valkey_url: str
    ) -> None:
        async with open_workers(make_durable, valkey_url) as engines:
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
