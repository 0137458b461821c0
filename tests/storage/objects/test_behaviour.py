"""The behaviour of every store of objects, wherever it keeps them."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
from collections.abc import AsyncIterator

import pytest

from baobab.storage.objects.errors import InvalidContentType, InvalidKey, ObjectDamaged, TooLarge
from baobab.storage.objects.store import ObjectInfo, ObjectStore
from tests.storage.objects.streams import put_object, read_content, read_whole, split_chunks

# More than goes to S3 in one request.
LARGE = random.Random(1).randbytes(9_000_000)


class TestPutAndGet:
    async def test_an_absent_object_is_none(self, store: ObjectStore) -> None:
        assert await store.get("app_1/a") is None
        assert await store.get("app_1/a", start=1, end=2) is None
        assert await store.head("app_1/a") is None
        assert await store.delete("app_1/a") is False

    @pytest.mark.parametrize("size", [0, 1, 700_000, len(LARGE)])
    async def test_what_was_put_is_read_back(self, store: ObjectStore, size: int) -> None:
        data = LARGE[:size]
        object_info = await put_object(store, "app_1/a", data, "image/png")
        assert object_info == ObjectInfo(size, hashlib.sha256(data).hexdigest(), "image/png")
        assert await store.head("app_1/a") == object_info
        reader = await store.get("app_1/a")
        assert reader is not None
        assert reader.info == object_info
        assert await read_whole(reader) == data

    async def test_put_replaces_the_earlier_object(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", b"a longer one", "text/plain; charset=utf-8")
        object_info = await put_object(store, "app_1/a", b"short", "application/x-other")
        assert await read_content(store, "app_1/a") == b"short"
        assert await store.head("app_1/a") == object_info

    @pytest.mark.parametrize(
        ("start", "end", "expected_bytes"),
        [
            (0, 4, b"0123"),
            (3, 5, b"34"),
            (3, None, b"3456789"),
            (8, 99, b"89"),
            (9, 10, b"9"),
            (10, None, b""),
            (99, 100, b""),
            (4, 4, b""),
            (5, 2, b""),
        ],
    )
    async def test_a_part_is_what_there_is_of_it(
        self, store: ObjectStore, start: int, end: int | None, expected_bytes: bytes
    ) -> None:
        object_info = await put_object(store, "app_1/a", b"0123456789")
        reader = await store.get("app_1/a", start=start, end=end)
        assert reader is not None
        assert reader.info == object_info
        assert await read_whole(reader) == expected_bytes

    async def test_a_part_of_an_empty_object_is_empty(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", b"")
        assert await read_content(store, "app_1/a", 0, 10) == b""

    async def test_a_part_of_a_large_object_crosses_its_seams(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", LARGE)
        assert await read_content(store, "app_1/a", 8_300_000, 8_500_000) == LARGE[8_300_000:8_500_000]

    async def test_a_part_cannot_start_before_the_start(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", b"123")
        with pytest.raises(ValueError, match="0 or later"):
            await store.get("app_1/a", start=-1)

    async def test_a_reader_stays_with_the_object_it_was_opened_on(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", b"first" * 1000)
        reader = await store.get("app_1/a")
        assert reader is not None
        await put_object(store, "app_1/a", b"second")
        await store.delete("app_1/a")
        assert await read_whole(reader) == b"first" * 1000

    async def test_a_reader_may_be_closed_early(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", LARGE)
        reader = await store.get("app_1/a")
        assert reader is not None
        assert LARGE.startswith(await anext(reader))
        await reader.aclose()
        await reader.aclose()

    async def test_of_two_writers_one_wins_whole(self, store: ObjectStore) -> None:
        versions = [bytes([number]) * 300_000 for number in range(8)]
        await asyncio.gather(*(put_object(store, "app_1/a", data, f"text/{data[0]}") for data in versions))
        content = await read_content(store, "app_1/a")
        assert content in versions
        head = await store.head("app_1/a")
        assert head == ObjectInfo(300_000, hashlib.sha256(content).hexdigest(), f"text/{content[0]}")


class TestRefusals:
    async def test_more_than_the_limit_is_refused_while_it_comes(self, store: ObjectStore) -> None:
        chunk_count = 0

        async def endless() -> AsyncIterator[bytes]:
            nonlocal chunk_count
            while True:
                chunk_count += 1
                yield bytes(1000)

        await put_object(store, "app_1/a", b"before")
        with pytest.raises(TooLarge):
            await store.put("app_1/a", endless(), content_type="text/plain", max_bytes=10_000)
        assert chunk_count == 11
        assert await read_content(store, "app_1/a") == b"before"

    async def test_exactly_the_limit_is_stored(self, store: ObjectStore) -> None:
        await store.put("app_1/a", split_chunks(b"12345", 2), content_type="text/plain", max_bytes=5)
        assert await read_content(store, "app_1/a") == b"12345"

    async def test_an_upload_that_breaks_off_leaves_what_was_there(self, store: ObjectStore) -> None:
        async def break_off() -> AsyncIterator[bytes]:
            yield LARGE
            raise ConnectionResetError

        await put_object(store, "app_1/a", b"before")
        for key in ("app_1/a", "app_1/b"):
            with pytest.raises(ConnectionResetError):
                await store.put(key, break_off(), content_type="text/plain", max_bytes=10_000_000)
        assert await read_content(store, "app_1/a") == b"before"
        assert await store.list("", "", 10) == ["app_1/a"]

    async def test_a_cancelled_upload_leaves_what_was_there(self, store: ObjectStore) -> None:
        waiting = asyncio.Event()

        async def hang_after_chunk() -> AsyncIterator[bytes]:
            yield LARGE
            waiting.set()
            await asyncio.Event().wait()

        await put_object(store, "app_1/a", b"before")
        upload = asyncio.ensure_future(
            store.put("app_1/a", hang_after_chunk(), content_type="text/plain", max_bytes=10_000_000)
        )
        await waiting.wait()
        upload.cancel()
        with pytest.raises(asyncio.CancelledError):
            await upload
        assert await read_content(store, "app_1/a") == b"before"

    @pytest.mark.parametrize("turns", range(12))
    async def test_wherever_a_put_is_cancelled_the_object_is_whole(self, store: ObjectStore, turns: int) -> None:
        await put_object(store, "app_1/a", b"before")
        upload = asyncio.ensure_future(put_object(store, "app_1/a", b"after" * 200_000))
        for _ in range(turns):
            await asyncio.sleep(0)
        await asyncio.sleep(0.0005 * turns)
        upload.cancel()
        await asyncio.gather(upload, return_exceptions=True)
        content = None
        while content is None:
            # The server of these tests shows an object for a moment before it has stored what its headers say.
            with contextlib.suppress(ObjectDamaged):
                content = await read_content(store, "app_1/a")
        assert content in (b"before", b"after" * 200_000)

    @pytest.mark.parametrize(
        "content_type", ["", "text/plain\r\nx: y", "tex\u0074/pl\u00e4in", " text/plain", "x" * 256]
    )
    async def test_a_content_type_that_no_header_holds_is_refused(self, store: ObjectStore, content_type: str) -> None:
        with pytest.raises(InvalidContentType):
            await put_object(store, "app_1/a", b"1", content_type)
        assert await store.head("app_1/a") is None

    @pytest.mark.parametrize(
        "key",
        [
            "",
            "a",
            "app_1",
            "app_1/",
            "/app_1/a",
            "//a",
            "app_1//a",
            "app_1/..",
            "app_1/../app_2/a",
            "../a",
            "./a",
            "app_1/./a",
            "app_1/a\x00",
            "app_1/a\nb",
            "app_1\\..\\a",
            "app_1/\ud800",
            "app_1/\uffff",
            "app_1/" + "a" * 895,
            "app_1/" + "ä" * 448,
        ],
    )
    async def test_what_could_lead_elsewhere_is_no_key(self, store: ObjectStore, key: str) -> None:
        with pytest.raises(InvalidKey):
            await put_object(store, key, b"1")
        for ask in (store.get, store.head, store.delete):
            with pytest.raises(InvalidKey):
                await ask(key)
        if key:
            with pytest.raises(InvalidKey):
                await store.list("", key, 1)
        assert await store.list("", "", 1) == []

    @pytest.mark.parametrize("prefix", ["app_1", "../", "app_1/../", "/", "app_1//", "\x00/"])
    async def test_a_prefix_is_whole_segments(self, store: ObjectStore, prefix: str) -> None:
        with pytest.raises(InvalidKey):
            await store.list(prefix, "", 1)
        with pytest.raises(InvalidKey):
            await store.delete_all(prefix)

    async def test_everything_is_not_deleted_at_once(self, store: ObjectStore) -> None:
        with pytest.raises(InvalidKey):
            await store.delete_all("")


class TestKeys:
    # Names that file systems, URLs or XML know better than to leave alone.
    ODD = (
        "app_1/Grüße & Küsse.txt",
        "app_1/a b+c%20d%2e%2e",
        "app_1/<\"'>#?[]{}^`~|*()!@=$,;:",
        "app_1/日本語/🌳",
        "app_1/...",
        "app_1/-rf",
        "app_1/ ",
        "app_1/con",
        "app_1/.drafts",
        ".drafts/a",
    )

    @pytest.mark.parametrize("key", ODD)
    async def test_any_text_names_an_object(self, store: ObjectStore, key: str) -> None:
        await put_object(store, key, b"1")
        assert await read_content(store, key) == b"1"
        assert await store.list("", "", 10) == [key]
        assert await store.delete(key) is True
        assert await store.list("", "", 10) == []

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("app_1/a", "app_1/A"),
            ("app_1/\u00e9", "app_1/e\u0301"),
            ("app_1/a", "app_1/a/b"),
            ("app_1/a", "app_1/a "),
            ("app_1/a%2fb", "app_1/a/b"),
            ("app_1/" + "x" * 400, "app_1/" + "x" * 401),
        ],
    )
    async def test_keys_that_look_alike_are_two_objects(self, store: ObjectStore, one: str, other: str) -> None:
        await put_object(store, one, b"1")
        assert await store.head(other) is None
        await put_object(store, other, b"2")
        assert await store.delete(one) is True
        assert await read_content(store, other) == b"2"

    async def test_the_longest_key_is_a_key(self, store: ObjectStore) -> None:
        key = "app_1/" + "🌳" * 223 + "ab"
        assert len(key.encode()) == 900
        await put_object(store, key, b"1")
        assert await store.list("app_1/", "", 2) == [key]


class TestListAndDelete:
    async def test_pages_follow_each_other_in_order(self, store: ObjectStore) -> None:
        keys = ["a/b", "a/b-c", "a/b.c", "a/b/c", "a/b/c/d", "a/b0", "a/Z", "a/é", "a-b/c", "b/a", "a/b/d"]
        for key in keys:
            await put_object(store, key, key.encode())
        found_keys: list[str] = []
        while page := await store.list("", found_keys[-1] if found_keys else "", 3):
            found_keys += page
        assert found_keys == sorted(keys)

    async def test_a_list_has_what_is_below_its_prefix(self, store: ObjectStore) -> None:
        for key in ("app_1/a", "app_1/b/c", "app_10/a", "app_1-x/a"):
            await put_object(store, key, b"1")
        assert await store.list("app_1/", "", 10) == ["app_1/a", "app_1/b/c"]
        assert await store.list("app_1/", "app_1/a", 10) == ["app_1/b/c"]
        assert await store.list("app_1/b/", "", 10) == ["app_1/b/c"]
        assert await store.list("app_1/a/", "", 10) == []
        assert await store.list("app_2/", "", 10) == []
        assert await store.list("app_1/", "app_2/a", 10) == []
        assert await store.list("app_1/", "aaa/a", 1) == ["app_1/a"]

    async def test_delete_says_whether_there_was_something(self, store: ObjectStore) -> None:
        await put_object(store, "app_1/a", b"1")
        assert await store.delete("app_1/a") is True
        assert await store.delete("app_1/a") is False
        assert await read_content(store, "app_1/a") is None

    async def test_all_of_one_app_is_deleted_and_nothing_of_another(self, store: ObjectStore) -> None:
        for key in ("app_1/a", "app_1/b/c", "app_1/b/d", "app_10/a", "app_1-x/a"):
            await put_object(store, key, b"1")
        assert await store.delete_all("app_1/") == 3
        assert await store.delete_all("app_1/") == 0
        assert await store.list("", "", 10) == ["app_1-x/a", "app_10/a"]
        await put_object(store, "app_1/a", b"2")
        assert await read_content(store, "app_1/a") == b"2"

    async def test_puts_and_deletions_at_once_lose_nothing(self, store: ObjectStore) -> None:
        async def come_and_go(number: int) -> None:
            for turn in range(6):
                await put_object(store, f"app_1/folder/{number}", b"%d" % turn)
                if turn < 5:
                    assert await store.delete(f"app_1/folder/{number}") is True

        await asyncio.gather(*(come_and_go(number) for number in range(8)))
        assert await store.list("app_1/", "", 10) == [f"app_1/folder/{number}" for number in range(8)]


async def test_an_empty_store_is_ready_and_needs_no_sweeping(store: ObjectStore) -> None:
    await store.check()
    assert await store.sweep() == 0
    assert await store.list("", "", 10) == []
