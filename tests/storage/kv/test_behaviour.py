"""The behaviour of every engine, whatever it stores its entries in."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from baobab.storage.kv.engine import ABSENT, Delete, Engine, Get, Op, Quota, Set, Tier, Usage
from baobab.storage.kv.errors import IntegerOverflow, KeysExhausted, NotAnInteger, StorageFull, StoreUnavailable

FREE = Quota()
D, E = Tier.DURABLE, Tier.EPHEMERAL
both_tiers = pytest.mark.parametrize("tier", [D, E])


async def list_keys(engine: Engine, space: str = "app", prefix: str = "") -> list[str]:
    keys, cursor = await engine.scan(space, prefix, 1000, None)
    assert cursor is None
    return keys


class TestPutAndGet:
    async def test_an_absent_key_is_none(self, engine: Engine) -> None:
        assert await engine.get("app", "key") is None
        assert await engine.exists("app", "key") is False
        assert await engine.ttl("app", "key") is ABSENT

    @both_tiers
    async def test_put_replaces_the_earlier_value(self, engine: Engine, tier: Tier) -> None:
        await engine.put("app", "key", b"1", None, tier, FREE)
        await engine.put("app", "key", b'{"a":2}', None, tier, FREE)
        assert await engine.get("app", "key") == b'{"a":2}'
        assert await engine.exists("app", "key") is True

    async def test_spaces_do_not_see_each_other(self, engine: Engine) -> None:
        await engine.put("one", "key", b"1", None, D, FREE)
        assert await engine.get("two", "key") is None
        assert await list_keys(engine, "two") == []
        assert await engine.usage("two") == Usage(0, 0)

    @pytest.mark.parametrize(("first", "second"), [(D, E), (E, D)])
    async def test_a_write_to_one_tier_removes_the_key_from_the_other(
        self, engine: Engine, first: Tier, second: Tier
    ) -> None:
        await engine.put("app", "key", b"1", None, first, FREE)
        await engine.put("app", "key", b"22", None, second, FREE)
        assert await engine.get("app", "key") == b"22"
        assert await engine.usage("app") == Usage(1, 5)
        assert await engine.delete("app", "key") == 1
        assert await engine.get("app", "key") is None

    @both_tiers
    async def test_delete_answers_how_many_entries_went(self, engine: Engine, tier: Tier) -> None:
        await engine.put("app", "key", b"1", None, tier, FREE)
        assert await engine.delete("app", "key") == 1
        assert await engine.delete("app", "key") == 0
        assert await engine.usage("app") == Usage(0, 0)

    async def test_a_large_value_comes_back_whole(self, engine: Engine) -> None:
        value = b'"' + b"x" * 262_142 + b'"'
        await engine.put("app", "k" * 512, value, None, D, FREE)
        assert await engine.get("app", "k" * 512) == value


class TestExpiry:
    @both_tiers
    async def test_an_entry_is_absent_from_the_instant_it_expires(self, engine: Engine, clock: Any, tier: Tier) -> None:
        await engine.put("app", "key", b"1", 30, tier, FREE)
        clock.advance(29.99)
        assert await engine.get("app", "key") == b"1"
        clock.advance(0.01)
        assert await engine.get("app", "key") is None
        assert await engine.exists("app", "key") is False
        assert await engine.ttl("app", "key") is ABSENT
        assert await list_keys(engine) == []
        assert await engine.usage("app") == Usage(0, 0)
        assert await engine.delete("app", "key") == 0
        assert await engine.expire("app", "key", 10) is False

    async def test_ttl_is_the_remaining_time_rounded_up(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "key", b"1", 30, D, FREE)
        assert await engine.ttl("app", "key") == 30
        clock.advance(0.5)
        assert await engine.ttl("app", "key") == 30
        clock.advance(1)
        assert await engine.ttl("app", "key") == 29

    async def test_no_ttl_means_no_expiry(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "key", b"1", None, D, FREE)
        clock.advance(10**9)
        assert await engine.get("app", "key", touch=True) == b"1"
        assert await engine.ttl("app", "key") is None

    async def test_a_put_without_ttl_removes_the_expiry(self, engine: Engine) -> None:
        await engine.put("app", "key", b"1", 30, D, FREE)
        await engine.put("app", "key", b"1", None, D, FREE)
        assert await engine.ttl("app", "key") is None

    async def test_a_ttl_beyond_all_calendars_is_cut(self, engine: Engine) -> None:
        await engine.put("app", "key", b"1", 10**30, D, FREE)
        assert await engine.ttl("app", "key") == 10_000_000_000

    async def test_touch_restarts_the_expiry_of_a_durable_key(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "key", b"1", 30, D, FREE)
        clock.advance(20)
        assert await engine.get("app", "key") == b"1"
        assert await engine.ttl("app", "key") == 10
        assert await engine.get("app", "key", touch=True) == b"1"
        assert await engine.ttl("app", "key") == 30

    async def test_touch_leaves_an_ephemeral_key_alone(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "key", b"1", 30, E, FREE)
        clock.advance(20)
        assert await engine.get("app", "key", touch=True) == b"1"
        assert await engine.ttl("app", "key") == 10

    async def test_touch_does_not_revive_an_expired_key(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "key", b"1", 30, D, FREE)
        clock.advance(30)
        assert await engine.get("app", "key", touch=True) is None

    @both_tiers
    async def test_expire_sets_the_window_that_touch_restarts(self, engine: Engine, clock: Any, tier: Tier) -> None:
        await engine.put("app", "key", b"1", 30, tier, FREE)
        assert await engine.expire("app", "key", 100) is True
        assert await engine.ttl("app", "key") == 100
        clock.advance(60)
        await engine.get("app", "key", touch=True)
        assert await engine.ttl("app", "key") == (100 if tier is D else 40)

    @both_tiers
    async def test_expire_with_zero_deletes(self, engine: Engine, tier: Tier) -> None:
        await engine.put("app", "key", b"1", 30, tier, FREE)
        assert await engine.expire("app", "key", 0) is True
        assert await engine.get("app", "key") is None
        assert await engine.usage("app") == Usage(0, 0)

    async def test_expire_with_none_persists(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "key", b"1", 30, D, FREE)
        assert await engine.expire("app", "key", None) is True
        clock.advance(1000)
        assert await engine.get("app", "key", touch=True) == b"1"
        assert await engine.ttl("app", "key") is None

    @pytest.mark.parametrize("ttl", [0, 10, None])
    async def test_expire_of_an_absent_key_is_false(self, engine: Engine, ttl: int | None) -> None:
        assert await engine.expire("app", "key", ttl) is False

    async def test_sweep_removes_at_most_its_limit(self, engine: Engine, clock: Any) -> None:
        for number in range(5):
            await engine.put(f"app{number % 2}", f"key{number}", b"1", 10, Tier(number % 2), FREE)
        await engine.put("app0", "lasting", b"1", 20, D, FREE)
        assert await engine.sweep() == 0
        clock.advance(10)
        assert await engine.sweep(limit=3) == 3
        assert await engine.sweep(limit=3) == 2
        assert await engine.sweep(limit=3) == 0
        assert await engine.usage("app0") == Usage(1, 8)
        assert await engine.usage("app1") == Usage(0, 0)

    async def test_a_sweep_among_writes_to_expired_keys_keeps_the_accounts_exact(
        self, engine: Engine, clock: Any
    ) -> None:
        for number in range(20):
            await engine.put("app", f"key{number:02}", b"1", 10, Tier(number % 2), FREE)
        clock.advance(10)
        await asyncio.gather(
            *(engine.put("app", f"key{number:02}", b"22", None, D, FREE) for number in range(0, 20, 4)),
            *(engine.delete("app", f"key{number:02}") for number in range(1, 20, 4)),
            engine.sweep(limit=15),
            engine.put("app", "key19", b"22", None, E, FREE),
        )
        assert await engine.usage("app") == Usage(6, 42)
        assert len(await list_keys(engine)) == 6


class TestIncr:
    async def test_a_missing_counter_starts_at_zero_with_the_ttl(self, engine: Engine) -> None:
        assert await engine.incr("app", "hits", 5, 60, FREE) == 5
        assert await engine.get("app", "hits") == b"5"
        assert await engine.ttl("app", "hits") == 60

    @both_tiers
    async def test_an_existing_counter_keeps_expiry_and_tier(self, engine: Engine, clock: Any, tier: Tier) -> None:
        await engine.put("app", "hits", b"-3", 30, tier, FREE)
        clock.advance(10)
        assert await engine.incr("app", "hits", 4, 1000, FREE) == 1
        assert await engine.ttl("app", "hits") == 20
        await engine.get("app", "hits", touch=True)
        # Only the durable tier is touched, so this tells the tiers apart.
        assert await engine.ttl("app", "hits") == (30 if tier is D else 20)

    async def test_an_expired_counter_starts_again(self, engine: Engine, clock: Any) -> None:
        await engine.incr("app", "hits", 5, 10, FREE)
        clock.advance(10)
        assert await engine.incr("app", "hits", 1, None, FREE) == 1
        assert await engine.ttl("app", "hits") is None

    @pytest.mark.parametrize("stored_value", [b'"1"', b"1.0", b"1e3", b"true", b"null", b"[1]", b"{}"])
    async def test_only_an_integer_literal_can_be_added_to(self, engine: Engine, stored_value: bytes) -> None:
        await engine.put("app", "hits", stored_value, None, D, FREE)
        with pytest.raises(NotAnInteger):
            await engine.incr("app", "hits", 1, None, FREE)
        assert await engine.get("app", "hits") == stored_value

    @pytest.mark.parametrize(
        ("stored_value", "by"),
        [(str(2**63 - 1), 1), (str(-(2**63)), -1), ("9" * 5000, -1), ("0", 2**63)],
    )
    async def test_a_result_beyond_64_bit_is_refused(self, engine: Engine, stored_value: str, by: int) -> None:
        await engine.put("app", "hits", stored_value.encode(), None, D, FREE)
        with pytest.raises(IntegerOverflow):
            await engine.incr("app", "hits", by, None, FREE)
        assert await engine.get("app", "hits") == stored_value.encode()

    async def test_the_64_bit_limits_themselves_are_reached(self, engine: Engine) -> None:
        await engine.put("app", "hits", str(2**63 - 2).encode(), None, D, FREE)
        assert await engine.incr("app", "hits", 1, None, FREE) == 2**63 - 1


class TestSetnx:
    @both_tiers
    async def test_only_the_first_write_wins(self, engine: Engine, tier: Tier) -> None:
        assert await engine.setnx("app", "lock", b'"a"', 30, tier, FREE) is True
        assert await engine.setnx("app", "lock", b'"b"', 99, Tier(1 - tier), FREE) is False
        assert await engine.get("app", "lock") == b'"a"'
        assert await engine.ttl("app", "lock") == 30

    async def test_an_expired_key_can_be_taken(self, engine: Engine, clock: Any) -> None:
        await engine.setnx("app", "lock", b'"a"', 30, D, FREE)
        clock.advance(30)
        assert await engine.setnx("app", "lock", b'"b"', 30, E, FREE) is True
        assert await engine.get("app", "lock") == b'"b"'


class TestCas:
    @pytest.mark.parametrize(
        ("stored_value", "expected_value"),
        [
            (b'{"a":1,"b":[true,null]}', b'{"b":[true,null],"a":1}'),
            (b"1", b"1.0"),
            (b"100", b"1e2"),
            (b"9007199254740993", b"9007199254740993.0"),
            (b'"\xc3\xa9"', b'"\\u00e9"'),
            (b"0", b"-0"),
            (b"7" * 6000, b"7" * 6000 + b".0"),
            (b"[" * 5000 + b"]" * 5000, b"[" * 5000 + b"]" * 5000),
            (b"null", b'"__NULL__"'),
            (b'"__NULL__"', b"null"),
        ],
    )
    async def test_values_that_mean_the_same_are_swapped(
        self, engine: Engine, stored_value: bytes, expected_value: bytes
    ) -> None:
        await engine.put("app", "key", stored_value, None, D, FREE)
        assert await engine.cas("app", "key", expected_value, b'"next"', None, FREE) is True
        assert await engine.get("app", "key") == b'"next"'

    @pytest.mark.parametrize(
        ("stored_value", "expected_value"),
        [
            (b"1", b"true"),
            (b"0", b"false"),
            (b'"1"', b"1"),
            (b'"a"', b'"A"'),
            (b"[1,2]", b"[2,1]"),
            (b"[1]", b"[1,1]"),
            (b'{"a":1}', b'{"a":1,"b":1}'),
            (b'{"a":{"b":1}}', b'{"a":{"b":2}}'),
            (b"9007199254740993", b"9007199254740992.0"),
            (b"1e9999999999999999999", b"1e9999999999999999998"),
            (b"[" * 5000 + b"]" * 5000, b"[" * 5000 + b"1" + b"]" * 5000),
            (b"1", b"null"),
            (b"false", b"null"),
            (b"null", b"1"),
            (b'"__NULL__"', b'"null"'),
        ],
    )
    async def test_values_that_differ_are_not_swapped(
        self, engine: Engine, stored_value: bytes, expected_value: bytes
    ) -> None:
        await engine.put("app", "key", stored_value, None, D, FREE)
        assert await engine.cas("app", "key", expected_value, b'"next"', None, FREE) is False
        assert await engine.get("app", "key") == stored_value

    @pytest.mark.parametrize("expected_value", [b"null", b'"__NULL__"', b'"\\u005f_NULL__"'])
    async def test_null_matches_an_absent_key_which_gets_the_ttl(self, engine: Engine, expected_value: bytes) -> None:
        assert await engine.cas("app", "key", expected_value, b"1", 60, FREE) is True
        assert await engine.get("app", "key") == b"1"
        assert await engine.ttl("app", "key") == 60

    async def test_a_value_does_not_match_an_absent_key(self, engine: Engine) -> None:
        assert await engine.cas("app", "key", b"1", b"2", None, FREE) is False
        assert await engine.exists("app", "key") is False

    @both_tiers
    async def test_a_swap_keeps_expiry_and_tier(self, engine: Engine, clock: Any, tier: Tier) -> None:
        await engine.put("app", "key", b"1", 30, tier, FREE)
        clock.advance(10)
        assert await engine.cas("app", "key", b"1", b"2", 1000, FREE) is True
        assert await engine.ttl("app", "key") == 20
        await engine.get("app", "key", touch=True)
        assert await engine.ttl("app", "key") == (30 if tier is D else 20)


class TestBatch:
    async def test_results_come_in_order_and_see_earlier_ops(self, engine: Engine) -> None:
        ops: list[Op] = [Get("a"), Set("a", b"1"), Get("a"), Delete("a"), Delete("a"), Set("b", b"2", 30), Get("a")]
        assert await engine.batch("app", ops, FREE) == [None, None, b"1", 1, 0, None, None]
        assert await engine.ttl("app", "b") == 30

    async def test_a_refused_op_does_not_stop_the_rest(self, engine: Engine) -> None:
        results = await engine.batch(
            "app", [Set("a", b"1"), Set("b", b"2"), Delete("a"), Set("c", b"3")], Quota(max_keys=1)
        )
        refusal = results[1]
        assert isinstance(refusal, KeysExhausted)
        assert (refusal.keys, refusal.cap) == (1, 1)
        assert [results[0], *results[2:]] == [None, 1, None]
        assert await list_keys(engine) == ["c"]

    async def test_reads_alone_write_nothing(self, engine: Engine) -> None:
        await engine.put("app", "a", b"1", None, E, FREE)
        assert await engine.batch("app", [Get("a"), Get("b")], FREE) == [b"1", None]

    async def test_an_empty_batch_has_no_results(self, engine: Engine) -> None:
        assert await engine.batch("app", [], FREE) == []


class TestScan:
    async def test_keys_of_both_tiers_come_sorted_in_pages(self, engine: Engine, clock: Any) -> None:
        for number in range(9, -1, -1):
            await engine.put("app", f"user:{number}", b"1", None, Tier(number % 2), FREE)
        await engine.put("app", "user:4x", b"1", 5, D, FREE)
        await engine.put("app", "users", b"1", None, D, FREE)
        await engine.put("app", "use", b"1", None, D, FREE)
        clock.advance(5)
        pages, cursor = [], None
        while True:
            keys, cursor = await engine.scan("app", "user:", 4, cursor)
            pages.append(keys)
            if cursor is None:
                break
            assert cursor == keys[-1]
        assert pages == [[f"user:{n}" for n in span] for span in (range(4), range(4, 8), range(8, 10))]

    async def test_a_full_last_page_has_no_cursor(self, engine: Engine) -> None:
        for key in ("a", "b"):
            await engine.put("app", key, b"1", None, D, FREE)
        assert await engine.scan("app", "", 2, None) == (["a", "b"], None)

    async def test_a_prefix_is_not_a_pattern(self, engine: Engine) -> None:
        for key in ("a%b", "a_b", "axb", "a*b"):
            await engine.put("app", key, b"1", None, D, FREE)
        assert await list_keys(engine, prefix="a%") == ["a%b"]
        assert await list_keys(engine, prefix="a_") == ["a_b"]
        assert await list_keys(engine, prefix="a*") == ["a*b"]

    async def test_a_cursor_whose_key_is_gone_still_continues(self, engine: Engine) -> None:
        for key in "abcd":
            await engine.put("app", key, b"1", None, D, FREE)
        keys, cursor = await engine.scan("app", "", 2, None)
        await engine.delete("app", "b")
        assert (keys, cursor) == (["a", "b"], "b")
        assert await engine.scan("app", "", 2, cursor) == (["c", "d"], None)

    async def test_keys_present_throughout_are_returned_once_whatever_else_changes(self, engine: Engine) -> None:
        lasting = [f"key{number:04}" for number in range(0, 240, 2)]
        passing = [f"key{number:04}" for number in range(1, 240, 2)]
        await asyncio.gather(*(engine.put("app", key, b"1", None, D, FREE) for key in lasting))
        seen_keys: list[str] = []
        is_done = asyncio.Event()

        async def disturb() -> None:
            turn = 0
            while not is_done.is_set():
                turn += 1
                changes = [engine.put("app", key, b"1", None, Tier(turn % 2), FREE) for key in passing[turn % 3 :: 3]]
                # Moving between the tiers is not leaving either.
                changes += [engine.put("app", key, b"%d" % turn, None, Tier(turn % 2), FREE) for key in lasting[::5]]
                await asyncio.gather(*changes, *(engine.delete("app", key) for key in passing[::3]))
                await asyncio.sleep(0)

        async def walk() -> None:
            cursor = None
            while True:
                keys, cursor = await engine.scan("app", "key", 7, cursor)
                seen_keys.extend(keys)
                if cursor is None:
                    return is_done.set()
                await asyncio.sleep(0.001)

        await asyncio.gather(disturb(), walk())
        assert seen_keys == sorted(set(seen_keys))
        assert set(lasting) <= set(seen_keys)


class TestUsageAndQuota:
    async def test_usage_is_key_and_value_lengths_of_live_entries(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "ab", b"123", None, D, FREE)
        await engine.put("app", "cd", b"1", 10, E, FREE)
        await engine.put("app", "ef", b"1", 20, D, FREE)
        assert await engine.usage("app") == Usage(3, 11)
        clock.advance(10)
        assert await engine.usage("app") == Usage(2, 8)
        clock.advance(10)
        assert await engine.usage("app") == Usage(1, 5)

    async def test_a_key_too_many_is_refused_with_the_numbers(self, engine: Engine) -> None:
        quota = Quota(max_keys=2)
        await engine.put("app", "a", b"1", None, D, quota)
        await engine.incr("app", "b", 1, None, quota)
        for refused_call in (
            engine.put("app", "c", b"1", None, E, quota),
            engine.incr("app", "c", 1, None, quota),
            engine.setnx("app", "c", b"1", None, D, quota),
            engine.cas("app", "c", b"null", b"1", None, quota),
        ):
            with pytest.raises(KeysExhausted) as error_info:
                await refused_call
            assert (error_info.value.keys, error_info.value.cap) == (2, 2)
        assert await engine.usage("app") == Usage(2, 4)
        assert await list_keys(engine) == ["a", "b"]

    async def test_bytes_too_many_are_refused_with_the_numbers(self, engine: Engine) -> None:
        quota = Quota(max_bytes=4)
        await engine.put("app", "a", b"12", None, D, quota)
        for refused_call in (
            engine.put("app", "a", b"1234", None, E, quota),
            engine.put("app", "b", b"1", None, D, quota),
            engine.incr("app", "a", 9_999, None, quota),
            engine.cas("app", "a", b"12", b"1234", None, quota),
        ):
            with pytest.raises(StorageFull) as error_info:
                await refused_call
            assert (error_info.value.used_bytes, error_info.value.cap) == (3, 4)
        await engine.put("app", "a", b"123", None, D, quota)
        assert await engine.usage("app") == Usage(1, 4)

    async def test_expired_entries_make_room(self, engine: Engine, clock: Any) -> None:
        quota = Quota(max_keys=2, max_bytes=6)
        await engine.put("app", "a", b"11", 10, D, quota)
        await engine.put("app", "b", b"11", 10, E, quota)
        clock.advance(10)
        await engine.put("app", "c", b"11", None, D, quota)
        await engine.put("app", "d", b"11", None, E, quota)
        with pytest.raises(KeysExhausted) as error_info:
            await engine.put("app", "a", b"", None, D, quota)
        assert error_info.value.keys == 2
        assert await engine.usage("app") == Usage(2, 6)

    @both_tiers
    async def test_what_shrinks_or_keeps_the_size_is_allowed_over_the_cap(self, engine: Engine, tier: Tier) -> None:
        await engine.put("app", "a", b"123", None, D, FREE)
        await engine.put("app", "b", b"123", None, E, FREE)
        tight = Quota(max_keys=1, max_bytes=1)
        await engine.put("app", "a", b"321", None, tier, tight)
        await engine.put("app", "b", b"1", None, tier, tight)
        assert await engine.usage("app") == Usage(2, 6)
        with pytest.raises(StorageFull):
            await engine.put("app", "b", b"12", None, tier, tight)

    async def test_many_writes_at_once_fill_a_quota_exactly(self, engine: Engine) -> None:
        quota = Quota(max_keys=10)
        results = await asyncio.gather(
            *(engine.put("app", f"key{number}", b"1", None, Tier(number % 2), quota) for number in range(64)),
            return_exceptions=True,
        )
        assert results.count(None) == 10
        assert sum(isinstance(result, KeysExhausted) for result in results) == 54
        assert (await engine.usage("app")).keys == len(await list_keys(engine)) == 10


class TestFlush:
    async def test_flush_empties_one_space_and_counts_the_live(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "a", b"1", None, D, FREE)
        await engine.put("app", "b", b"1", None, E, FREE)
        await engine.put("app", "c", b"1", 10, D, FREE)
        await engine.put("other", "a", b"1", None, D, FREE)
        clock.advance(10)
        assert await engine.flush("app") == 2
        assert await engine.flush("app") == 0
        assert await list_keys(engine) == []
        assert await engine.usage("app") == Usage(0, 0)
        assert await engine.get("other", "a") == b"1"

    async def test_flush_among_other_writes_takes_its_place_in_their_order(self, engine: Engine, clock: Any) -> None:
        await engine.put("app", "old", b"1", 10, D, FREE)
        await engine.put("app", "kept", b"1", None, D, FREE)
        clock.advance(10)
        results = await asyncio.gather(
            engine.put("app", "a", b"1", None, E, FREE),
            engine.put("app", "old", b"1", None, D, FREE),
            engine.put("app", "kept", b"1", None, E, FREE),
            engine.flush("app"),
            engine.put("app", "b", b"22", None, D, FREE),
            engine.sweep(),
        )
        assert list(results) == [None, None, None, 3, None, 0]
        assert await list_keys(engine) == ["b"]
        assert await engine.usage("app") == Usage(1, 3)


class TestConcurrency:
    @both_tiers
    async def test_increments_of_64_callers_all_count(self, engine: Engine, tier: Tier) -> None:
        await engine.put("app", "hits", b"0", None, tier, FREE)

        async def caller() -> list[int]:
            return [await engine.incr("app", "hits", 1, None, FREE) for _ in range(50)]

        answers = await asyncio.gather(*(caller() for _ in range(64)))
        assert sorted(answer for answers_of_one in answers for answer in answers_of_one) == list(range(1, 3201))
        assert await engine.get("app", "hits") == b"3200"
        assert await engine.usage("app") == Usage(1, 8)

    async def test_setnx_has_one_winner(self, engine: Engine) -> None:
        for turn in range(20):
            wins = await asyncio.gather(
                *(engine.setnx("app", f"lock{turn}", b"%d" % caller, None, D, FREE) for caller in range(64))
            )
            assert wins.count(True) == 1
            assert await engine.get("app", f"lock{turn}") == b"%d" % wins.index(True)

    async def test_cas_chains_lose_nothing(self, engine: Engine) -> None:
        async def caller() -> None:
            additions = 0
            while additions < 10:
                value = await engine.get("app", "sum") or b"null"
                following = b"%d" % (1 if value == b"null" else int(value) + 1)
                additions += await engine.cas("app", "sum", value, following, None, FREE)

        await asyncio.gather(*(caller() for _ in range(16)))
        assert await engine.get("app", "sum") == b"160"

    async def test_a_caller_that_goes_away_leaves_the_others_alone(self, engine: Engine) -> None:
        tasks = [asyncio.ensure_future(engine.incr("app", f"k{n}", 1, None, FREE)) for n in range(30)]
        await asyncio.sleep(0)
        for task in tasks[::3]:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert [result for n, result in enumerate(results) if n % 3] == [1] * 20
        await engine.check()


class TestLifecycle:
    async def test_a_call_after_close_is_unavailable(self, engine: Engine) -> None:
        await engine.put("app", "key", b"1", None, D, FREE)
        await engine.check()
        await engine.close()
        await engine.close()
        for refused_call in (
            engine.get("app", "key"),
            engine.ttl("app", "key"),
            engine.put("app", "key", b"1", None, D, FREE),
            engine.batch("app", [Get("key")], FREE),
            engine.scan("app", "", 1, None),
            engine.usage("app"),
            engine.flush("app"),
            engine.sweep(),
            engine.check(),
        ):
            with pytest.raises(StoreUnavailable):
                await refused_call

    async def test_an_engine_can_be_opened_again(self, engine: Engine) -> None:
        await engine.put("app", "key", b"1", None, D, FREE)
        await engine.close()
        await engine.open()
        assert await engine.get("app", "key") == b"1"
