"""Whichever transaction of a run it is at which its worker is killed, is overtaken, or hears of a decision."""

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.crash.crash_points import ABOVE, ManualWorker, SimulatedCrash, open_manual_worker
from tests.crash.rounds import LONG
from tests.crash.runs import AGENT, AT_ONCE, Run, verify_events

LEAST = 5
"""Transactions that a run has at the least: before its calls, at each of three pauses, and at its end."""
# A run above another has twice as many moments, which takes four times as long.
OTHERS = ABOVE if LONG else AGENT


@pytest.fixture
async def manual_worker(tmp_path: Path) -> AsyncIterator[ManualWorker]:
    async with open_manual_worker(tmp_path / "data") as created_manual_worker:
        yield created_manual_worker


async def run_at_every_point(manual_worker: ManualWorker, agent: str, happens: Callable[[Run], None]) -> int:
    """Make one run after the other until one ends with nothing having happened; how many there were before."""
    while True:
        run = await manual_worker.start_run(agent)
        happens(run)
        await manual_worker.finish_run(run)
        if agent == ABOVE:
            verify_events(run, AT_ONCE, 2)
            run = run.child_run
            await manual_worker.read_run(run)
        verify_events(run, AT_ONCE, AT_ONCE + 1)
        if manual_worker.crash_points.is_planned:
            return manual_worker.runs - 1


async def verify(manual_worker: ManualWorker) -> None:
    for number in range(1, manual_worker.runs + 1):
        for index in range(AT_ONCE):
            assert (await manual_worker.get(f"/kv/key {number} {index}"))["value"] == 1
    # What is to be done when a run has ended may be asked for in its last transaction.
    await manual_worker.attempt_jobs(await manual_worker.list_unfinished())
    assert await manual_worker.list_unfinished() == []


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_run_whose_worker_is_killed_at_any_moment_ends_as_if_it_were_not(
    manual_worker: ManualWorker, *, after: bool
) -> None:
    async def kill() -> None:
        raise SimulatedCrash

    def happens(run: Run) -> None:
        manual_worker.crash_points.schedule(manual_worker.runs - 1, kill, after=after)

    assert await run_at_every_point(manual_worker, OTHERS if after else ABOVE, happens) >= LEAST
    await verify(manual_worker)


async def test_a_decision_may_come_at_any_moment(manual_worker: ManualWorker) -> None:
    async def decide() -> None:
        await manual_worker.approve_pending()
        unmade = await manual_worker.list_unfinished()
        await manual_worker.attempt_jobs([job_id for job_id in unmade if job_id.startswith("approval:")])
        # And what follows from it finds that the run is still being made.
        await manual_worker.attempt_jobs(
            [job_id for job_id in await manual_worker.list_unfinished() if job_id.startswith("agents_decided:")]
        )

    def happens(run: Run) -> None:
        manual_worker.crash_points.schedule(manual_worker.runs - 1, decide, after=False)

    assert await run_at_every_point(manual_worker, OTHERS, happens) >= LEAST
    await verify(manual_worker)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
async def test_a_worker_that_was_overtaken_at_any_moment_writes_nothing_when_it_goes_on(
    manual_worker: ManualWorker, *, after: bool
) -> None:
    overtaken: dict[str, Run] = {}

    def happens(run: Run) -> None:
        async def overtake() -> None:
            await manual_worker.finish_run(run)
            overtaken[run.id] = replace(run)

        manual_worker.crash_points.schedule(manual_worker.runs - 1, overtake, after=after)

    assert await run_at_every_point(manual_worker, OTHERS, happens) >= LEAST
    assert len(manual_worker.lost_job_ids) >= LEAST - AT_ONCE
    for before in overtaken.values():
        now = Run(before.id, before.keys, before.agent)
        await manual_worker.read_run(now)
        assert now == before
    await verify(manual_worker)
