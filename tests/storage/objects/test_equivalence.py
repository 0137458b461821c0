"""Whatever is done to a store, it answers as a dictionary would."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.objects.store import ObjectInfo, ObjectStore
from tests.storage.objects.streams import put_object, read_content

# Long enough to be cut in several places where names of files are short, and alike up to there.
long_segments = st.builds(
    lambda character, count, rest: character * count + rest,
    st.sampled_from(["x", "X", "é", "🌳"]),
    st.sampled_from([18, 19, 37, 38, 75, 76, 113, 114, 115]),
    st.sampled_from(["", "a", "-", "Z", "é", "🌳"]),
)
segments = st.one_of(
    st.sampled_from(["a", "b", "a-", "a.b", "a0", "A", "é", "~", " "]),
    st.sampled_from(["a", "b"]),
    st.text(st.characters(codec="utf-8", exclude_categories=["Cc"], exclude_characters="/\\\ufffe\uffff"), max_size=6),
    long_segments,
).filter(lambda segment: segment not in ("", ".", ".."))
apps = st.sampled_from(["app_1", "app_10"])
keys = st.builds(lambda app, below: "/".join([app, *below]), apps, st.lists(segments, min_size=1, max_size=3)).filter(
    lambda key: len(key.encode()) <= 900
)
prefixes = st.sampled_from(["app_1/", "app_10/", "app_1/a/", "app_1/a/b/"])
contents = st.binary(max_size=40)
types = st.sampled_from(["text/plain", "image/png", "application/json; charset=utf-8"])
bounds = st.integers(0, 45)


class Oracle:
    def __init__(self) -> None:
        self.objects: dict[str, tuple[bytes, ObjectInfo]] = {}

    def put(self, key: str, data: bytes, content_type: str) -> ObjectInfo:
        object_info = ObjectInfo(len(data), hashlib.sha256(data).hexdigest(), content_type)
        self.objects[key] = data, object_info
        return object_info

    def head(self, key: str) -> ObjectInfo | None:
        return self.objects[key][1] if key in self.objects else None

    def content(self, key: str, start: int, end: int | None) -> bytes | None:
        return self.objects[key][0][start:end] if key in self.objects else None

    def delete(self, key: str) -> bool:
        return self.objects.pop(key, None) is not None

    def delete_all(self, prefix: str) -> int:
        deleted_keys = [key for key in self.objects if key.startswith(prefix)]
        return sum(self.delete(key) for key in deleted_keys)

    def list(self, prefix: str, after: str, limit: int) -> object:
        return sorted(key for key in self.objects if key.startswith(prefix) and key > after)[:limit]


def build_program(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Any]:
    return st.lists(
        st.one_of(
            st.tuples(st.just("put"), keys, contents, types),
            st.tuples(st.just("put"), keys, contents, types),
            st.tuples(st.just("content"), keys, bounds, st.none() | bounds),
            st.tuples(st.just("head"), keys),
            st.tuples(st.just("delete"), keys),
            st.tuples(st.just("delete_all"), prefixes),
            st.tuples(st.just("list"), st.just("") | prefixes, st.just("") | keys, st.integers(1, 5)),
        ),
        max_size=25,
    )


# A few keys for each program, so that its steps meet.
programs = st.lists(keys, min_size=1, max_size=8).flatmap(lambda few: build_program(st.sampled_from(few)))


async def follow_steps(store: ObjectStore, steps: list[Any]) -> None:
    oracle = Oracle()
    for name, *arguments in steps:
        ask: Any = {"put": put_object, "content": read_content}.get(name)
        answer = await (ask(store, *arguments) if ask is not None else getattr(store, name)(*arguments))
        assert answer == getattr(oracle, name)(*arguments), (name, arguments)
    assert await store.list("", "", 1000) == sorted(oracle.objects)
    for key, (data, object_info) in oracle.objects.items():
        assert await read_content(store, key) == data
        assert await store.head(key) == object_info


@pytest.mark.parametrize(("engine", "examples"), [("local", 60), ("s3", 25)])
def test_a_store_answers_as_a_dictionary_would(
    make_store: Callable[[str], ObjectStore], engine: str, examples: int
) -> None:
    @settings(max_examples=examples)
    @given(programs)
    def holds(steps: list[Any]) -> None:
        asyncio.run(follow_steps(make_store(engine), steps))

    holds()


@settings(max_examples=30)
@given(st.sets(keys, min_size=1, max_size=25), st.integers(1, 7))
def test_pages_of_files_are_the_keys_in_order(
    make_store: Callable[[str], ObjectStore], chosen_keys: set[str], limit: int
) -> None:
    async def hold() -> None:
        store = make_store("local")
        for key in chosen_keys:
            await put_object(store, key, b"")
        found_keys: list[str] = []
        while page := await store.list("", found_keys[-1] if found_keys else "", limit):
            found_keys += page
        assert found_keys == sorted(chosen_keys)

    asyncio.run(hold())
