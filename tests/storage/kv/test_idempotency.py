"""Writes that are made once for each token, however often a call is made again after a crash."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from baobab.storage.kv.engine import Delete, Engine, Get, Op, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import KeysExhausted, NotAnInteger, StorageFull
from baobab.storage.kv.sqlite import SqliteEngine

FREE = Quota()
WEEK = 7 * 24 * 3600


async def test_a_later_attempt_changes_nothing_and_is_answered_as_the_first_was(engine: Engine) -> None:
    assert await engine.for_attempt("t").incr("app", "n", 5, None, FREE) == 5
    await engine.incr("app", "n", 1, None, FREE)
    assert await engine.for_attempt("t").incr("app", "n", 5, None, FREE) == 5
    assert await engine.get("app", "n") == b"6"


async def test_each_write_of_an_attempt_is_made_once(engine: Engine) -> None:
    for _ in range(2):
        attempt = engine.for_attempt("t")
        assert [await attempt.incr("app", "n", 1, None, FREE) for _ in range(3)] == [1, 2, 3]


async def test_an_attempt_goes_on_where_an_earlier_one_broke_off(engine: Engine) -> None:
    await engine.for_attempt("t").incr("app", "a", 1, None, FREE)
    attempt = engine.for_attempt("t")
    await attempt.incr("app", "a", 1, None, FREE)
    await attempt.incr("app", "b", 1, None, FREE)
    assert (await engine.get("app", "a"), await engine.get("app", "b")) == (b"1", b"1")


async def test_whether_an_attempt_has_written_is_known_also_of_a_frozen_space(engine: Engine) -> None:
    await engine.put("app", "text", b'"x"', None, Tier.DURABLE, FREE)
    with pytest.raises(NotAnInteger):
        await engine.for_attempt("refused").incr("app", "text", 1, None, FREE)
    for number, tier in enumerate(Tier):
        assert not await engine.has_written("app", f"t{number}")
        await engine.for_attempt(f"t{number}").put("app", f"k{number}", b"1", None, tier, FREE)
    await engine.freeze("app")
    have_written = [await engine.has_written("app", token) for token in ("t0", "t1", "refused", "none")]
    assert have_written == [True, True, False, False]
    await engine.thaw("app")


async def test_tokens_do_not_know_each_other(engine: Engine) -> None:
    for token in ("one", "two"):
        await engine.for_attempt(token).incr("app", "n", 1, None, FREE)
    assert await engine.get("app", "n") == b"2"


async def test_attempts_at_the_same_time_make_one_write(engine: Engine) -> None:
    attempts = (engine.for_attempt("t").incr("app", "n", 1, None, FREE) for _ in range(10))
    assert set(await asyncio.gather(*attempts)) == {1}
    assert await engine.get("app", "n") == b"1"


async def test_a_refused_write_keeps_no_token(engine: Engine) -> None:
    await engine.put("app", "n", b'"text"', None, Tier.DURABLE, FREE)
    with pytest.raises(NotAnInteger):
        await engine.for_attempt("t").incr("app", "n", 1, None, FREE)
    with pytest.raises(KeysExhausted):
        await engine.for_attempt("t").put("app", "m", b"1", None, Tier.DURABLE, Quota(1, None))
    await engine.put("app", "n", b"1", None, Tier.DURABLE, FREE)
    assert await engine.for_attempt("t").incr("app", "n", 1, None, FREE) == 2


@pytest.mark.parametrize(
    ("write", "answer"),
    [
        (lambda e: e.put("app", "a", b"2", None, Tier.EPHEMERAL, FREE), None),
        (lambda e: e.delete("app", "a"), 1),
        (lambda e: e.setnx("app", "b", b"2", None, Tier.DURABLE, FREE), True),
        (lambda e: e.setnx("app", "a", b"2", None, Tier.DURABLE, FREE), False),
        (lambda e: e.cas("app", "a", b"1", b"2", None, FREE), True),
        (lambda e: e.expire("app", "a", 0), True),
        (lambda e: e.flush("app"), 1),
    ],
)
async def test_every_write_answers_the_same_again(engine: Engine, write: Any, answer: Any) -> None:
    await engine.put("app", "a", b"1", None, Tier.DURABLE, FREE)
    first = await write(engine.for_attempt("t"))
    assert (first, type(first)) == (answer, type(answer))
    await engine.put("app", "a", b"3", None, Tier.DURABLE, FREE)
    again = await write(engine.for_attempt("t"))
    assert (again, type(again)) == (answer, type(answer))
    assert await engine.get("app", "a") == b"3"


async def test_a_batch_answers_the_same_values_counts_and_refusals_again(engine: Engine) -> None:
    await engine.put("app", "a", '"ä\n"'.encode(), None, Tier.DURABLE, FREE)
    ops: list[Op] = [
        Get("a"),
        Get("none"),
        Delete("a"),
        Set("b", b"1", None),
        Set("c", b"2", None),
        Set("b", b"x" * 99, None),
    ]
    quota = Quota(1, 50)
    first = await engine.for_attempt("t").batch("app", ops, quota)
    again = await engine.for_attempt("t").batch("app", ops, quota)
    assert again[:4] == first[:4] == ['"ä\n"'.encode(), None, 1, None]
    for results in (first, again):
        full, large = results[4], results[5]
        assert isinstance(full, KeysExhausted)
        assert (full.keys, full.cap) == (1, 1)
        assert isinstance(large, StorageFull)
        assert (large.used_bytes, large.cap) == (2, 50)


async def test_tokens_count_for_no_space_and_are_swept_after_a_week(engine: Engine, clock: Any) -> None:
    await engine.for_attempt("t").incr("app", "n", 1, None, FREE)
    assert await engine.usage("app") == Usage(1, 2)
    clock.advance(WEEK)
    await engine.sweep()
    assert await engine.usage("~once") == Usage(0, 0)


async def test_a_token_outlives_whoever_wrote_it(tmp_path: Path, clock: Any) -> None:
    for _ in range(3):
        engine = SqliteEngine(tmp_path, clock)
        await engine.open()
        assert await engine.for_attempt("t").incr("app", "n", 7, None, FREE) == 7
        await engine.close()


async def test_two_processes_at_once_make_one_write(tmp_path: Path, clock: Any) -> None:
    one, two = SqliteEngine(tmp_path, clock), SqliteEngine(tmp_path, clock)
    for engine in (one, two):
        await engine.open()
    for number in range(20):
        attempts = [engine.for_attempt(f"t{number}").incr("app", "n", 1, None, FREE) for engine in (one, two)]
        assert await asyncio.gather(*attempts) == [number + 1, number + 1]
    for engine in (one, two):
        await engine.close()
