"""Spaces on their way from one engine to another: what is listed, taken out, put in and removed."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.kv.engine import Engine, Entry, Quota, Tier, Usage
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.sqlite import SqliteEngine
from tests.storage.kv.accounts import recount_usage
from tests.storage.kv.test_files import other_connection

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
# As the clock of these tests begins.
NOW = 1_700_000_000_100


async def export_all(engine: Engine, space: str = "app", limit: int = 1000) -> list[Entry]:
    """All of a space, page by page."""
    entries: list[Entry] = []
    while page := await engine.export(space, entries[-1].key if entries else None, limit):
        assert len(page) <= limit
        entries += page
    return entries


class TestExport:
    async def test_entries_of_both_tiers_come_as_they_are_kept_in_the_order_of_their_keys(
        self, engine: Engine, clock: Any
    ) -> None:
        await engine.put("app", "c", b"3", None, D, FREE)
        await engine.put("app", "a", b"1", 30, D, FREE)
        await engine.put("app", "b", b"2:2", 60, E, FREE)
        await engine.put("other", "a", b"1", None, D, FREE)
        clock.advance(10)
        assert await engine.incr("app", "a", 1, 1, FREE) == 2
        assert await export_all(engine) == [
            Entry("a", b"2", D, NOW + 30_000, 30),
            Entry("b", b"2:2", E, NOW + 60_000, 60),
            Entry("c", b"3", D, None, None),
        ]

    @pytest.mark.parametrize("limit", [1, 2, 3, 10])
    async def test_pages_join_without_gaps(self, engine: Engine, limit: int) -> None:
        for number in range(9):
            await engine.put("app", f"key{number}", b"%d" % number, None, Tier(number % 2), FREE)
        assert await export_all(engine, limit=limit) == [
            Entry(f"key{number}", b"%d" % number, Tier(number % 2)) for number in range(9)
        ]

    async def test_expired_entries_are_left_out(self, engine: Engine, clock: Any) -> None:
        for number in range(6):
            await engine.put("app", f"key{number}", b"1", 10 if number % 3 else None, Tier(number % 2), FREE)
        clock.advance(10)
        assert [entry.key for entry in await export_all(engine, limit=1)] == ["key0", "key3"]

    async def test_a_space_without_entries_has_nothing_to_take_out(self, engine: Engine) -> None:
        assert await engine.export("app", None, 10) == []
        assert await engine.export("app", "key", 10) == []

    async def test_what_is_there_throughout_comes_once_however_much_is_written(self, engine: Engine) -> None:
        steady = [f"key{number:02}" for number in range(0, 40, 2)]
        for key in steady:
            await engine.put("app", key, b"0", None, D, FREE)
        is_done = False

        async def move() -> None:
            for turn in itertools.count():
                if is_done:
                    return
                await asyncio.gather(
                    *(engine.put("app", key, b"%d" % turn, None, Tier((turn + at) % 2), FREE)
                      for at, key in enumerate(steady)),
                    engine.put("app", f"key{turn % 20 * 2 + 1:02}", b"1", None, Tier(turn % 2), FREE),
                    engine.delete("app", f"key{(turn + 7) % 20 * 2 + 1:02}"),
                )  # fmt: skip
                # The engine in memory never waits.
                await asyncio.sleep(0)

        moving = asyncio.ensure_future(move())
        for _ in range(20):
            found_keys = [entry.key for entry in await export_all(engine, limit=7)]
            assert [key for key in found_keys if key in steady] == steady
            assert len(set(found_keys)) == len(found_keys)
            await asyncio.sleep(0)
        is_done = True
        await moving


class TestSpaces:
    async def test_those_with_live_entries_come_in_order_and_in_pages(self, engine: Engine, clock: Any) -> None:
        for number in range(7):
            await engine.put(f"app{number}", "key", b"1", 10 if number == 3 else None, Tier(number % 2), FREE)
        await engine.put("app4", "other", b"1", None, D, FREE)
        await engine.put("empty", "key", b"1", None, D, FREE)
        await engine.delete("empty", "key")
        await engine.freeze("frozen")
        # Tokens are kept in a space that is nobody's.
        await engine.for_attempt("t").put("app0", "other", b"1", None, D, FREE)
        clock.advance(10)
        assert await engine.spaces(None, 3) == ["app0", "app1", "app2"]
        assert await engine.spaces("app2", 3) == ["app4", "app5", "app6"]
        assert await engine.spaces("app6", 3) == []
        assert await engine.spaces("app45", 1) == ["app5"]


class TestLoad:
    async def test_entries_are_put_as_they_are(self, engine: Engine, clock: Any) -> None:
        entries = [
            Entry("a", b"1", D, NOW + 30_000, 60),
            Entry("b", b"2", E, NOW + 30_000, 60),
            Entry("c", b"3", D, None, 60),
            Entry("d", b"4", E, None, None),
        ]
        await engine.load("app", entries)
        assert await export_all(engine) == entries
        assert await engine.usage("app") == await recount_usage(engine, "app") == Usage(4, 8)
        clock.advance(10)
        # From its window and not from what was left of it.
        assert await engine.get("app", "a", touch=True) == b"1"
        assert await engine.ttl("app", "a") == 60
        clock.advance(20)
        assert await engine.get("app", "b") is None

    async def test_they_replace_what_is_there_and_may_come_twice(self, engine: Engine) -> None:
        await engine.put("app", "a", b"before", 10, D, FREE)
        await engine.put("app", "b", b"before", None, E, FREE)
        await engine.put("app", "z", b"other", None, E, FREE)
        entries = [Entry("a", b"1", E), Entry("b", b"2", D, NOW + 9_000, 9)]
        for _ in range(2):
            await engine.load("app", entries)
            assert await export_all(engine) == [*entries, Entry("z", b"other", E)]
            assert await engine.usage("app") == await recount_usage(engine, "app") == Usage(3, 10)

    async def test_the_last_of_one_key_counts(self, engine: Engine) -> None:
        await engine.load("app", [Entry("a", b"1", D), Entry("a", b"22", E)])
        assert await export_all(engine) == [Entry("a", b"22", E)]
        assert await engine.usage("app") == Usage(1, 3)

    async def test_what_expired_on_the_way_is_absent(self, engine: Engine) -> None:
        await engine.put("app", "a", b"1", None, D, FREE)
        await engine.load("app", [Entry("a", b"2", E, NOW, 10), Entry("b", b"2", D, NOW - 1, 10)])
        assert await export_all(engine) == []
        assert await engine.usage("app") == Usage(0, 0)

    async def test_nothing_and_very_much_can_be_put(self, engine: Engine) -> None:
        await engine.load("app", [])
        many = [Entry(f"key{number:04}", b"%d" % number, Tier(number % 2)) for number in range(3000)]
        await engine.load("app", many)
        assert await export_all(engine) == many
        assert (await engine.usage("app")).keys == 3000


class TestErase:
    async def test_nothing_is_left_of_a_space_and_all_of_the_others(self, engine: Engine, clock: Any) -> None:
        for space in ("app", "other"):
            await engine.put(space, "a", b"1", None, D, FREE)
            await engine.put(space, "b", b"1", 10, E, FREE)
            await engine.freeze(space)
        clock.advance(10)
        for _ in range(2):
            await engine.erase("app")
            assert await export_all(engine) == []
            assert await engine.usage("app") == Usage(0, 0)
            assert await engine.spaces(None, 10) == ["other"]
        assert await engine.incr("app", "a", 1, None, FREE) == 1
        await engine.thaw("other")
        assert await engine.flush("other") == 1

    async def test_it_takes_its_place_among_other_writes(self, engine: Engine) -> None:
        await engine.freeze("app")
        results = await asyncio.gather(
            engine.load("app", [Entry("a", b"1", D), Entry("b", b"1", E)]),
            engine.erase("app"),
            engine.put("app", "c", b"22", None, D, FREE),
            engine.freeze("app"),
            engine.put("app", "d", b"22", None, E, FREE),
            engine.thaw("app"),
            engine.put("app", "e", b"22", None, E, FREE),
            return_exceptions=True,
        )
        assert [type(result).__name__ for result in results] == [*["NoneType"] * 4, "SpaceFrozen", *["NoneType"] * 2]
        assert await export_all(engine) == [Entry("c", b"22", D), Entry("e", b"22", E)]
        assert await engine.usage("app") == Usage(2, 6)


async def test_a_closed_engine_carries_nothing(engine: Engine) -> None:
    await engine.close()
    for refused_call in (
        engine.spaces(None, 1),
        engine.export("app", None, 1),
        engine.load("app", [Entry("a", b"1", D)]),
        engine.freeze("app"),
        engine.thaw("app"),
        engine.erase("app"),
    ):
        with pytest.raises(StoreUnavailable):
            await refused_call


keys = st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=12)
# Some much larger than what a server sends in one piece.
values = st.binary(max_size=40) | st.builds(bytes.__mul__, st.binary(min_size=1, max_size=9), st.integers(1, 29_000))
windows = st.none() | st.integers(1, 10**10)
deadlines = st.none() | st.integers(-5_000, 30_000).map(lambda milliseconds: NOW + milliseconds)
contents = st.lists(
    st.builds(Entry, keys, values, st.sampled_from(Tier), deadlines, windows), max_size=12, unique_by=lambda e: e.key
)


def test_what_goes_through_all_engines_comes_out_the_same(make_engine: Callable[[str], Engine], clock: Any) -> None:
    way = [make_engine(name) for name in ("memory", "sqlite", "valkey", "postgres")]
    spaces = (f"app{number}" for number in itertools.count())

    with asyncio.Runner() as runner:
        for engine in way:
            runner.run(engine.open())

        @settings(max_examples=100)
        @given(contents, st.integers(1, 5), st.permutations(way))
        def carry(entries: list[Entry], limit: int, along: list[Engine]) -> None:
            clock.now = NOW / 1000
            runner.run(check(next(spaces), entries, limit, along))

        async def check(space: str, entries: list[Entry], limit: int, along: list[Engine]) -> None:
            live = sorted(entry for entry in entries if entry.expires is None or entry.expires > NOW)
            await along[0].load(space, entries)
            for source, target in itertools.pairwise(along):
                await source.freeze(space)
                await target.freeze(space)
                after = None
                while page := await source.export(space, after, limit):
                    await target.load(space, page)
                    after = page[-1].key
            total = Usage(len(live), sum(len(entry.key) + len(entry.value) for entry in live))
            for engine in along:
                assert await export_all(engine, space, limit) == live
                assert await engine.usage(space) == total
            # Later, too, they are alike.
            clock.advance(10)
            exports = []
            for engine in along:
                await engine.thaw(space)
                for entry in live:
                    await engine.get(space, entry.key, touch=True)
                exports.append(await export_all(engine, space))
                await engine.erase(space)
            assert exports == exports[:1] * len(along)

        carry()
        for engine in way:
            runner.run(engine.close())


async def test_a_copy_that_a_crash_left_in_the_other_tier_is_not_carried(sqlite: SqliteEngine, tmp_path: Any) -> None:
    """Whatever has become of the copy that counts."""
    await sqlite.put("app", "key", b"new", None, D, FREE)
    await sqlite.put("app", "gone", b"new", 10, D, FREE)
    with other_connection(tmp_path / "kv-ephemeral.db") as connection:
        for key in ("gone", "key"):
            connection.execute("INSERT INTO entry VALUES ('app', ?, ?, NULL, NULL)", (key, b"old"))
    assert await export_all(sqlite, limit=1) == [Entry("gone", b"new", D, NOW + 10_000, 10), Entry("key", b"new", D)]
