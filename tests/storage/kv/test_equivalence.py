"""Whatever is asked of two engines, in whatever order and company, they answer the same."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.storage.kv.engine import Delete, Engine, Entry, Get, Quota, Set, Tier
from baobab.storage.kv.errors import KvError
from tests.storage.kv.memory_engine import MemoryEngine

# An operation still to be asked: of an engine, in a space.
Ask = Callable[[Engine, str], Awaitable[object]]

keys = st.sampled_from(["a", "b", "ab", "abc", "b/c"])
values = st.sampled_from(
    [b"0", b"1", b"1.0", b"99", b"-10", b"null", b'"__NULL__"', b'{"a":1,"b":2}', b'{"b":2,"a":1}']
)
ttls = st.sampled_from([None, None, 1, 2, 5, 60])
tiers = st.sampled_from(Tier)
quotas = st.sampled_from([Quota(), Quota(), Quota(max_keys=2), Quota(max_bytes=12), Quota(3, 20), Quota(0, 0)])
batches = st.lists(
    st.one_of(st.builds(Get, keys), st.builds(Set, keys, values, ttls), st.builds(Delete, keys)), max_size=6
).map(tuple)
# Never, expired long ago, or not for long. What never expires has no window either.
lifetimes = st.just((None, None)) | st.tuples(st.sampled_from([1_000, 10**15]), ttls)
entries = st.lists(
    st.builds(lambda key, value, tier, lifetime: Entry(key, value, tier, *lifetime), keys, values, tiers, lifetimes),
    max_size=4,
).map(tuple)


def build_ask(method: str, *arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Ask]:
    def make(drawn_arguments: tuple[Any, ...]) -> Ask:
        def ask(engine: Engine, space: str) -> Awaitable[object]:
            answer: Awaitable[object] = getattr(engine, method)(space, *drawn_arguments)
            return answer

        ask.__qualname__ = f"{method}{drawn_arguments}"
        return ask

    return st.tuples(*arguments).map(make)


def ask_for_spaces(after: str | None, limit: int) -> Ask:
    return lambda engine, _: engine.spaces(after, limit)


writes = st.one_of(
    build_ask("put", keys, values, ttls, tiers, quotas),
    build_ask("put", keys, values, ttls, tiers, quotas),
    build_ask("delete", keys),
    build_ask("incr", keys, st.integers(-200, 200), ttls, quotas),
    build_ask("setnx", keys, values, ttls, tiers, quotas),
    build_ask("cas", keys, values, values, ttls, quotas),
    build_ask("expire", keys, st.sampled_from([None, 0, 1, 3])),
    build_ask("batch", batches, quotas),
    build_ask("flush"),
    build_ask("load", entries),
    st.one_of(build_ask("freeze"), build_ask("thaw"), build_ask("thaw"), build_ask("erase")),
)
reads = st.one_of(
    build_ask("get", keys, st.booleans()),
    build_ask("ttl", keys),
    build_ask("exists", keys),
    build_ask("scan", st.sampled_from(["", "a", "b"]), st.integers(1, 4), st.none() | keys),
    build_ask("usage"),
    build_ask("export", st.none() | keys, st.integers(1, 4)),
    st.builds(ask_for_spaces, st.none() | st.sampled_from(["app1", "app2"]), st.integers(1, 4)),
)
# Either writes asked at once, which travel as one group, or one read, or a pause in seconds; and now and then a sweep.
steps = st.one_of(
    st.lists(writes, min_size=1, max_size=8),
    st.lists(reads, min_size=1, max_size=1),
    st.sampled_from([0.25, 1.0, 3.0]),
    st.just("sweep"),
)


def to_comparable(answer: object) -> object:
    if isinstance(answer, KvError):
        return type(answer), answer.args
    return [to_comparable(item) for item in answer] if isinstance(answer, list) else answer


async def collect_answers(engine: Engine, space: str, asks: list[Ask]) -> object:
    return to_comparable(list(await asyncio.gather(*(ask(engine, space) for ask in asks), return_exceptions=True)))


async def read_state(engine: Engine, space: str) -> object:
    found_keys, _ = await engine.scan(space, "", 100, None)
    values_held = [(key, await engine.get(space, key), await engine.ttl(space, key)) for key in found_keys]
    return values_held, await engine.export(space, None, 100), await engine.usage(space)


@pytest.mark.parametrize("name", ["sqlite", "postgres"])
def test_every_engine_answers_as_the_dictionaries_do(
    name: str, make_engine: Callable[[str], Engine], clock: Any
) -> None:
    engine, memory = make_engine(name), MemoryEngine(clock)
    spaces = (f"app{number}" for number in itertools.count())

    with asyncio.Runner() as runner:
        runner.run(engine.open())
        runner.run(memory.open())

        @settings(max_examples=250)
        @given(st.lists(steps, min_size=1, max_size=25), st.booleans())
        def alike(program: list[Any], once: bool) -> None:
            runner.run(compare(next(spaces), program, once))

        async def compare(space: str, program: list[Any], once: bool) -> None:
            for number, step in enumerate(program):
                if isinstance(step, float):
                    clock.advance(step)
                elif step == "sweep":
                    # How many are left to sweep is an engine's own affair.
                    await asyncio.gather(engine.sweep(2), memory.sweep(2))
                else:
                    # Each step as one attempt, made twice.
                    for _ in range(2 if once else 1):
                        tokens = f"{space}:{number}"
                        one, other = (
                            (engine.for_attempt(tokens), memory.for_attempt(tokens)) if once else (engine, memory)
                        )
                        assert await collect_answers(one, space, step) == await collect_answers(other, space, step)
                assert await read_state(engine, space) == await read_state(memory, space)

        alike()
        runner.run(engine.close())
