"""The cache of looked-up things."""

import asyncio

import pytest

from baobab.storage.cache import Cache
from tests.clock import FixedClock


async def test_callers_at_once_share_one_look_up() -> None:
    loaded_keys: list[str] = []

    async def load(key: str) -> str:
        loaded_keys.append(key)
        await asyncio.sleep(0)
        return key.upper()

    cache = Cache(load, FixedClock())
    assert await asyncio.gather(*(cache.get("a") for _ in range(20))) == ["A"] * 20
    assert loaded_keys == ["a"]


async def test_entries_and_absences_have_their_own_time() -> None:
    clock, there = FixedClock(), {"a": 1}
    loaded_keys: list[str] = []

    async def load(key: str) -> int | None:
        loaded_keys.append(key)
        return there.get(key)

    cache = Cache(load, clock, keep=30, keep_absent=2)
    assert (await cache.get("a"), await cache.get("b")) == (1, None)
    clock.advance(3)
    there["b"] = 2
    assert (await cache.get("a"), await cache.get("b")) == (1, 2)
    clock.advance(28)
    await cache.get("a")
    assert loaded_keys == ["a", "b", "b", "a"]


async def test_a_change_during_the_look_up_is_not_overwritten_by_its_older_answer() -> None:
    values = ["old", "new"]
    going = asyncio.Event()

    async def load(_: str) -> str:
        value = values.pop(0)
        await going.wait()
        return value

    cache = Cache(load, FixedClock())
    first = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    cache.forget("a")
    second = asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    going.set()
    assert (await first, await second, await cache.get("a")) == ("old", "new", "new")


async def test_a_caller_that_goes_away_does_not_take_the_others_answer_along() -> None:
    going = asyncio.Event()

    async def load(key: str) -> str:
        await going.wait()
        return key

    cache = Cache(load, FixedClock())
    leaving_task, staying_task = asyncio.create_task(cache.get("a")), asyncio.create_task(cache.get("a"))
    await asyncio.sleep(0)
    leaving_task.cancel()
    going.set()
    assert await staying_task == "a"


async def test_a_failed_look_up_is_tried_again() -> None:
    answers: list[str | Exception] = [OSError("down"), "up"]

    async def load(_: str) -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    cache = Cache(load, FixedClock())
    with pytest.raises(OSError, match="down"):
        await cache.get("a")
    assert await cache.get("a") == "up"


async def test_it_never_grows_past_its_size() -> None:
    async def load(key: int) -> int:
        return key

    cache = Cache(load, FixedClock(), size=10)
    for number in range(100):
        await cache.get(number)
    assert sum(cache.find_cached(number) is not None for number in range(100)) == 10
