"""Whichever transaction of a run it is at which its worker is killed, is overtaken, or hears of a decision."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.moments import ABOVE, Hand, Killed, hand
from tests.crash.rounds import LONG
from tests.crash.runs import AGENT, AT_ONCE, Run, verify_told

LEAST = 8
"""Transactions that a run has at the least: it begins and pauses, three times, and goes on and ends."""
# A run above another has twice as many moments, which takes four times as long.
OTHERS = ABOVE if LONG else AGENT


@pytest.fixture
async def at_hand(tmp_path: Path) -> AsyncIterator[Hand]:
    async with hand(tmp_path / "data") as made:
        yield made


async def at_every_moment(at_hand: Hand, agent: str, happens: Callable[[Run], None]) -> int:
    """Make one run after the other until one ends with nothing having happened; how many there were before."""
    while True:
        run = await at_hand.start(agent)
        happens(run)
        await at_hand.finish(run)
        if agent == ABOVE:
            verify_told(run, AT_ONCE, 2)
            run = run.below
            await at_hand.read(run)
        verify_told(run, AT_ONCE, AT_ONCE + 1)
        if at_hand.moments.planned:
            return at_hand.runs - 1


async def verify(at_hand: Hand) -> None:
    for number in range(1, at_hand.runs + 1):
        for index in range(AT_ONCE):
            assert (await at_hand.get(f"/kv/key {number} {index}"))["value"] == 1
    # What is to be done when a run has ended may be asked for in its last transaction.
    await at_hand.make(await at_hand.unmade())
    assert await at_hand.unmade() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_run_whose_worker_is_killed_at_any_moment_ends_as_if_it_were_not(at_hand: Hand, *, after: bool) -> None:
    async def kill() -> None:
        raise Killed

    def happens(run: Run) -> None:
        at_hand.moments.plan(at_hand.runs - 1, kill, after=after)

    assert await at_every_moment(at_hand, OTHERS if after else ABOVE, happens) >= LEAST
    await verify(at_hand)


async def test_a_decision_may_come_at_any_moment(at_hand: Hand) -> None:
    async def decide() -> None:
        await at_hand.approve_whatever_waits()
        unmade = await at_hand.unmade()
        await at_hand.make([job_id for job_id in unmade if job_id.startswith("approval:")])
        # And what follows from it finds that the run is still being made.
        await at_hand.make([job_id for job_id in await at_hand.unmade() if job_id.startswith("agents_decided:")])

    def happens(run: Run) -> None:
        at_hand.moments.plan(at_hand.runs - 1, decide, after=False)

    assert await at_every_moment(at_hand, OTHERS, happens) >= LEAST
    await verify(at_hand)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_worker_that_was_overtaken_at_any_moment_writes_nothing_when_it_goes_on(
    at_hand: Hand, *, after: bool
) -> None:
    overtaken: dict[str, Run] = {}

    def happens(run: Run) -> None:
        async def overtake() -> None:
            await at_hand.finish(run)
            overtaken[run.id] = replace(run)

        at_hand.moments.plan(at_hand.runs - 1, overtake, after=after)

    assert await at_every_moment(at_hand, OTHERS, happens) >= LEAST
    assert len(at_hand.lost) >= LEAST - AT_ONCE
    for before in overtaken.values():
        now = Run(before.id, before.keys)
        await at_hand.read(now)
        assert now == before
    await verify(at_hand)
