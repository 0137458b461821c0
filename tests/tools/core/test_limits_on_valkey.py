"""Rate limits that all workers share, and what they are while their server is away."""

import asyncio
import dataclasses
import itertools
import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typing_extensions import TypedDict

from baobab.storage.clock import SystemClock
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.windows import SlidingWindows
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.call import Call
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import RateLimited
from baobab.tools.core.limits.limits import PerAddress
from baobab.tools.core.limits.rate_limits import Limiter, RateLimits, SharedRateLimits, resolve_answer
from baobab.tools.core.registry import Registry
from baobab.tools.core.toolset import Toolset
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.servers import TIMEOUT_SECONDS, ValkeyServer, start_valkey
from tests.storage.valkey import children

_SUBJECTS = (f"subject{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def server() -> Iterator[ValkeyServer]:
    with start_valkey() as running:
        yield running


@pytest.fixture
async def pipeline(server: ValkeyServer) -> AsyncIterator[Pipeline]:
    created_pipeline = Pipeline(server.url)
    await created_pipeline.open()
    yield created_pipeline
    await created_pipeline.close()


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def limits(pipeline: Pipeline, clock: FixedClock) -> SharedRateLimits:
    return SharedRateLimits(SlidingWindows(pipeline, clock.time), clock)


@pytest.fixture
def subject() -> str:
    return next(_SUBJECTS)


async def count_passed(limits: Limiter, subject: str, turns: int, amount: int = 10, window: int = 60) -> int:
    """How many of so many at once."""
    spends = (resolve_answer(limits.spend("test", subject, amount, window)) for _ in range(turns))
    results = await asyncio.gather(*spends, return_exceptions=True)
    return sum(not isinstance(result, RateLimited) for result in results)


async def test_ten_of_a_hundred_at_once_from_two_processes_pass(server: ValkeyServer, pipeline: Pipeline) -> None:
    await pipeline.send("FLUSHALL")
    assert sum(await children.run_children(*[("spend", server.url)] * 2)) == 10


async def test_a_window_moves_on_with_each_that_it_holds(
    limits: SharedRateLimits, clock: FixedClock, subject: str
) -> None:
    for remaining in (2, 1, 0):
        allowance = await limits.spend("test", subject, 3, 60)
        assert (allowance.remaining, allowance.limit, allowance.window) == (remaining, 3, 60)
        clock.advance(10)
    with pytest.raises(RateLimited) as refusal:
        await limits.spend("test", subject, 3, 60)
    assert refusal.value.retry_after == 30
    clock.advance(29.75)
    assert await count_passed(limits, subject, 5, amount=3) == 0
    clock.advance(0.25)
    assert await count_passed(limits, subject, 5, amount=3) == 1
    clock.advance(10)
    assert await count_passed(limits, subject, 5, amount=3) == 1
    assert await limits.count_used("test", subject, 3, 60) == 3


async def test_subjects_policies_and_windows_are_counted_apart(limits: SharedRateLimits, subject: str) -> None:
    for policy, amount, window in itertools.product(("one", "two"), (1, 2), (60, 61)):
        for each in (subject, subject + ":"):
            await limits.spend(policy, each, amount, window)
            assert await limits.count_used(policy, each, amount, window) == 1


async def test_the_server_s_own_time_counts_where_no_clock_is_given(pipeline: Pipeline, subject: str) -> None:
    limits = SharedRateLimits(SlidingWindows(pipeline), SystemClock())
    assert await count_passed(limits, subject, 8, amount=5, window=1) == 5
    await asyncio.sleep(1.01)
    assert await count_passed(limits, subject, 8, amount=5, window=1) == 5


async def test_a_clock_that_is_set_back_neither_shuts_a_window_nor_opens_it(
    limits: SharedRateLimits, clock: FixedClock, subject: str
) -> None:
    assert await count_passed(limits, subject, 20) == 10
    clock.advance(-30)
    assert await count_passed(limits, subject, 20) == 0
    clock.advance(-3600)
    assert await count_passed(limits, subject, 20) == 10
    clock.advance(60)
    assert await count_passed(limits, subject, 20) == 10


async def test_while_the_server_is_gone_each_worker_counts_for_itself(
    server: ValkeyServer, clock: FixedClock, subject: str, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline = Pipeline(server.url)
    await pipeline.open()
    limits = SharedRateLimits(SlidingWindows(pipeline, clock.time), clock)
    assert await count_passed(limits, subject, 20) == 10
    server.stop()
    await asyncio.sleep(0.05)
    with caplog.at_level(logging.WARNING, "baobab.tools.core.limits.limits"):
        assert await count_passed(limits, subject, 50) == 10
        assert await count_passed(limits, subject, 50) == 0
        assert await limits.count_used("test", subject, 10, 60) == 10
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        server.start()
        other = Pipeline(server.url)
        await other.open()
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while not await is_answering(pipeline):
                await asyncio.sleep(0.02)
        # The counts of before are there: the server kept them.
        assert await limits.count_used("test", subject, 10, 60) == 10
        clock.advance(60)
        assert await count_passed(limits, subject, 20) == 10
        assert await count_passed(SharedRateLimits(SlidingWindows(other, clock.time), clock), subject, 20) == 0
        assert len(caplog.records) == 2
    await other.close()
    await pipeline.close()


async def is_answering(pipeline: Pipeline) -> bool:
    try:
        return bool(await pipeline.send("PING"))
    except ValkeyUnavailable:
        return False


class Done(TypedDict):
    word: str


async def test_a_tool_is_limited_over_all_workers(baobab: Baobab, server: ValkeyServer, subject: str) -> None:
    """Through the registry, as two workers of one installation would."""
    shelf = Toolset("shelf", "Of this test.", base="/v1/shelf")

    @shelf.tool("GET /rare", access=EVERYBODY, effect="read", limit=PerAddress(3, 60))
    async def shelf_rare(call: Call) -> Done:
        """Answer three times a minute."""
        return {"word": "rare"}

    pipelines = [Pipeline(server.url) for _ in range(2)]
    workers = []
    for pipeline in pipelines:
        await pipeline.open()
        limits = SharedRateLimits(SlidingWindows(pipeline), SystemClock())
        workers.append(Registry([shelf]).bind(dataclasses.replace(baobab.application.services, limits=limits)))
    context = RequestContext("test", "req-1", ip=subject)
    calls = (worker.run(worker.find("shelf_rare"), {}, ANONYMOUS, context) for worker in workers * 3)
    results = await asyncio.gather(*calls, return_exceptions=True)
    refusals = [result for result in results if isinstance(result, RateLimited)]
    allowances = [result[1].allowance for result in results if not isinstance(result, BaseException)]
    remainings = [allowance.remaining for allowance in allowances if allowance is not None]
    assert (len(refusals), sorted(remainings)) == (3, [0, 1, 2])
    for pipeline in pipelines:
        await pipeline.close()


# Spendings of some amount, window and cost, and pauses; quarters of seconds are exact in floats.
spendings = st.tuples(st.sampled_from(["a", "b"]), st.integers(1, 5), st.integers(1, 4), st.integers(1, 6))
programs = st.lists(spendings | st.sampled_from([0.25, 0.5, 1.0, 2.0, 5.0]), min_size=1, max_size=40)


def test_it_answers_as_counting_in_this_process_does(server: ValkeyServer) -> None:
    with asyncio.Runner() as runner:
        pipeline = Pipeline(server.url)
        runner.run(pipeline.open())

        @settings(max_examples=200)
        @given(programs)
        def alike(program: list[tuple[str, int, int, int] | float]) -> None:
            runner.run(compare(program))

        async def compare(program: list[tuple[str, int, int, int] | float]) -> None:
            clock, prefix = FixedClock(), next(_SUBJECTS)
            both: tuple[Limiter, Limiter] = (
                SharedRateLimits(SlidingWindows(pipeline, clock.time), clock),
                RateLimits(clock),
            )
            for step in program:
                if isinstance(step, float):
                    clock.advance(step)
                    continue
                subject, amount, window, cost = step
                shared_outcome, own_outcome = [
                    await observe_spend(each, prefix + subject, amount, window, cost) for each in both
                ]
                assert shared_outcome == own_outcome

        alike()
        runner.run(pipeline.close())


async def observe_spend(limits: Limiter, subject: str, amount: int, window: int, cost: int) -> object:
    """What it answers, and what is taken then."""
    try:
        answer: object = await resolve_answer(limits.spend("test", subject, amount, window, cost))
    except RateLimited as refused:
        answer = refused.details
    return answer, await resolve_answer(limits.count_used("test", subject, amount, window))
