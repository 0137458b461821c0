"""kill -9 and SIGSTOP of workers: each job is made in the end, and what it writes is written once."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select, update

from baobab.runtime.jobs.job_tables import jobs
from baobab.storage.sql.databases import database_at
from tests.cli.server_process import TIMEOUT_SECONDS, run_server
from tests.crash.approvals_load import ApprovalsLoad as Proposals
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds
from tests.crash.worker_pool import OF_ONE_TENANT, JobClient, freeze_worker, open_job_client, open_workers

TAKEN_OVER_SECONDS = 25
"""In which others have begun what a worker left: 15 on a machine that has nothing else to do."""
SEEDS = 10


async def enqueue_round(client: JobClient, dice: random.Random) -> Counter[str]:
    """Jobs of a round, by what they do; among them are transactions that are rolled back."""
    expected_counts: Counter[str] = Counter()
    for _ in range(12):
        await client.enqueue("tally", 5, word="asked")
        await client.enqueue("tally", 3, roll_back=True, word="undone")
        await client.enqueue("raise_key", 5)
        expected_counts += Counter(asked=5, raised=5)
        if dice.random() < 0.5:
            await client.enqueue("plant", 1, seeds=SEEDS)
            expected_counts += Counter(planted=SEEDS, plants=1)
    await client.baobab.create_app()
    return expected_counts + Counter(apps=1)


async def verify(client: JobClient, expected_counts: Counter[str]) -> None:
    """Everything that was asked for was made, counts once, and nothing else was made."""
    rows = await client.list_jobs()
    assert [row.error for row in rows if row.error is not None] == []
    kinds = Counter(row.kind for row in rows)
    tally = expected_counts["asked"] + expected_counts["planted"]
    assert (kinds["tally"], kinds["raise_key"], kinds["plant"]) == (
        tally,
        expected_counts["raised"],
        expected_counts["plants"],
    )
    for word in ("asked", "planted", "undone"):
        assert len(await client.list_marks(word)) == expected_counts[word], word
    assert await client.read_tally() == tally
    assert await client.read_counter("raised") == expected_counts["raised"]
    assert await client.read_counter("apps") == expected_counts["apps"]
    marks = await client.list_marks("greeted")
    assert {mark.job_id for mark in marks} == {f"greet:{mark.event_id}" for mark in marks}
    assert len({mark.job_id for mark in marks}) == expected_counts["apps"]


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    return Installation.on_backend(tmp_path)


async def test_every_job_is_made_and_counts_once_whichever_workers_are_killed(here: Installation) -> None:
    dice, expected_counts = random.Random(30), Counter[str]()
    async with open_job_client(here) as asking:
        with open_workers(here) as working:
            for _ in list_rounds(2):
                await working.start_workers(3 - len(working.workers))
                before = await asking.count_ended()
                expected_counts += await enqueue_round(asking, dice)
                await asking.wait_for_ended(before + dice.randrange(20, 80))
                for worker in dice.sample(working.workers, dice.choice([1, 1, 2, 3])):
                    working.kill_worker(worker)
            await working.start_workers(1)
            await asking.wait_until_idle()
        await verify(asking, expected_counts)


async def test_what_a_killed_or_a_frozen_worker_left_is_made_elsewhere_and_the_frozen_one_writes_nothing_when_it_wakes(
    here: Installation,
) -> None:
    async with open_job_client(here) as asking:
        with open_workers(here) as working:
            for _ in list_rounds(1):
                await working.start_workers(2)
                [dripping] = await asking.enqueue("drip", 1)
                # So many that both have their hands full, and that none of them ends.
                job_ids = set(await asking.enqueue("linger", 2 * OF_ONE_TENANT - 1))
                await wait_for_start(asking, {dripping, *job_ids})
                [drip] = [mark for mark in await asking.list_marks("begun") if mark.job_id == dripping]
                doomed_worker, sleeper = sorted(working.workers[-2:], key=lambda worker: worker.pid == drip.process)
                await working.start_workers(1)
                diligent = working.workers[-1]
                working.kill_worker(doomed_worker)
                with freeze_worker(sleeper, here):
                    by_the_other = {job_id: [diligent.pid] for job_id in job_ids}
                    async with asyncio.timeout(TAKEN_OVER_SECONDS):
                        while await list_processes(asking, job_ids) != by_the_other:
                            await asyncio.sleep(0.1)
                await sleeper.wait_for_word("taken over by another attempt")
                # What it does elsewhere ends too: it is told that the job is lost.
                await wait_until_still(asking, "drops")
                working.kill_worker(sleeper)
                assert await list_processes(asking, job_ids) == by_the_other
                working.kill_worker(diligent)


async def test_a_server_that_makes_no_jobs_leaves_them_to_workers_that_may_be_killed(tmp_path: Path) -> None:
    here, dice = Installation.on_backend(tmp_path), random.Random(31)
    idle = {**here.environment, "BAOBAB_JOBS": "0"}
    with run_server(here.data(0), "--workers", 2, settings=idle) as server:
        async with open_session() as session:
            proposals = await Proposals.create(session, server)
            app = await create_app(session, server, "doomed")
            await proposals.propose_calls(server, 10)
            await asyncio.gather(*(proposals.approve(server, approval) for approval in proposals.approval_ids))
            assert {await proposals.fetch_status(server, approval) for approval in proposals.approval_ids} == {
                "approved"
            }
            async with session.delete(f"{server.address}/apps/{app}") as response:
                assert response.status == 200
            with open_workers(here, program=("-m", "baobab", "worker"), word="Baobab worker is running.") as working:
                await working.start_workers(2)
                for _ in list_rounds(1):
                    await proposals.propose_calls(server, 15)
                    loss = dice.choice(proposals.undecided_ids)
                    for approval in proposals.undecided_ids:
                        await proposals.approve(server, approval)
                        if approval == loss:
                            working.kill_worker(dice.choice(working.workers))
                    await working.start_workers(1)
                await proposals.settle(server)
                assert await is_purged(here)


async def wait_for_start(client: JobClient, job_ids: set[str]) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while not job_ids <= {mark.job_id for mark in await client.list_marks("begun")}:
            await asyncio.sleep(0.05)


async def wait_until_still(client: JobClient, key: str) -> None:
    """Wait until a key that somebody counted up is counted no further."""
    before = -1
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while (now := await client.read_counter(key)) != before:
            before = now
            await asyncio.sleep(1)


async def list_processes(client: JobClient, job_ids: set[str]) -> dict[str, list[int]]:
    """The processes that each job says it was ended by."""
    processes: dict[str, list[int]] = {}
    for mark in await client.list_marks("ended"):
        if mark.job_id in job_ids:
            processes.setdefault(mark.job_id, []).append(mark.process)
    return processes


async def is_purged(here: Installation) -> bool:
    """Whether what is left to do a minute after an app was deleted is done, when it is due at once."""
    database = database_at(here.database_url)
    await database.open()
    try:
        async with database.writing() as connection:
            purges = update(jobs).where(jobs.c.kind == "apps_purge").values(due_at=datetime.now(UTC))
            assert (await connection.execute(purges)).rowcount == 1
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while True:
                async with database.reading() as connection:
                    row = (await connection.execute(select(jobs).where(jobs.c.kind == "apps_purge"))).one()
                if row.finished_at is not None:
                    return row.error is None
                await asyncio.sleep(0.05)
    finally:
        await database.close()
