"""kill -9 and SIGSTOP of workers: each job is made in the end, and what it writes is written once."""

import asyncio
import random
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest
from sqlalchemy import select, update

from baobab.runtime.job_tables import jobs
from baobab.storage.databases import database_at
from tests.cli.server_process import PATIENCE, serving
from tests.crash.crew import OF_ONE_TENANT, Desk, crew, desk, frozen
from tests.crash.desk import Desk as Proposals
from tests.crash.machines import Installation, made_app, visitor
from tests.crash.rounds import rounds

TAKEN_OVER_SECONDS = 25
"""In which others have begun what a worker left: 15 on a machine that has nothing else to do."""
SEEDS = 10


async def asked_for(desk: Desk, dice: random.Random) -> Counter[str]:
    """Jobs of a round, by what they do; among them are transactions that are rolled back."""
    wanted: Counter[str] = Counter()
    for _ in range(12):
        await desk.ask("tally", 5, word="asked")
        await desk.ask("tally", 3, undone=True, word="undone")
        await desk.ask("raise_key", 5)
        wanted += Counter(asked=5, raised=5)
        if dice.random() < 0.5:
            await desk.ask("plant", 1, seeds=SEEDS)
            wanted += Counter(planted=SEEDS, plants=1)
    await desk.baobab.app()
    return wanted + Counter(apps=1)


async def verify(desk: Desk, wanted: Counter[str]) -> None:
    """Everything that was asked for was made, counts once, and nothing else was made."""
    rows = await desk.rows()
    assert [row.error for row in rows if row.error is not None] == []
    kinds = Counter(row.kind for row in rows)
    tallied = wanted["asked"] + wanted["planted"]
    assert (kinds["tally"], kinds["raise_key"], kinds["plant"]) == (tallied, wanted["raised"], wanted["plants"])
    for word in ("asked", "planted", "undone"):
        assert len(await desk.marks(word)) == wanted[word], word
    assert await desk.tallied() == tallied
    assert await desk.counted("raised") == wanted["raised"]
    assert await desk.counted("apps") == wanted["apps"]
    greeted = await desk.marks("greeted")
    assert {mark.job_id for mark in greeted} == {f"greet:{mark.event_id}" for mark in greeted}
    assert len({mark.job_id for mark in greeted}) == wanted["apps"]


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    return Installation.of_the_column(tmp_path)


async def test_every_job_is_made_and_counts_once_whichever_workers_are_killed(here: Installation) -> None:
    dice, wanted = random.Random(30), Counter[str]()
    async with desk(here) as asking:
        with crew(here) as working:
            for _ in rounds(2):
                await working.hire(3 - len(working.workers))
                before = await asking.ended()
                wanted += await asked_for(asking, dice)
                await asking.until_ended(before + dice.randrange(20, 80))
                for worker in dice.sample(working.workers, dice.choice([1, 1, 2, 3])):
                    working.lose(worker)
            await working.hire(1)
            await asking.settled()
        await verify(asking, wanted)


async def test_what_a_killed_or_a_frozen_worker_left_is_made_elsewhere_and_the_frozen_one_writes_nothing_when_it_wakes(
    here: Installation,
) -> None:
    async with desk(here) as asking:
        with crew(here) as working:
            for _ in rounds(1):
                await working.hire(2)
                [dripping] = await asking.ask("drip", 1)
                # So many that both have their hands full, and that none of them ends.
                asked = set(await asking.ask("linger", 2 * OF_ONE_TENANT - 1))
                await begun(asking, {dripping, *asked})
                [drip] = [mark for mark in await asking.marks("begun") if mark.job_id == dripping]
                doomed, sleeper = sorted(working.workers[-2:], key=lambda worker: worker.pid == drip.process)
                await working.hire(1)
                diligent = working.workers[-1]
                working.lose(doomed)
                with frozen(sleeper, here):
                    by_the_other = {job_id: [diligent.pid] for job_id in asked}
                    async with asyncio.timeout(TAKEN_OVER_SECONDS):
                        while await made(asking, asked) != by_the_other:
                            await asyncio.sleep(0.1)
                await sleeper.ready("taken over by another attempt")
                # What it does elsewhere ends too: it is told that the job is lost.
                await still(asking, "drops")
                working.lose(sleeper)
                assert await made(asking, asked) == by_the_other
                working.lose(diligent)


async def test_a_server_that_makes_no_jobs_leaves_them_to_workers_that_may_be_killed(tmp_path: Path) -> None:
    here, dice = Installation.of_the_column(tmp_path), random.Random(31)
    idle = {**here.environment, "BAOBAB_JOBS": "0"}
    with serving(here.data(0), "--workers", 2, settings=idle) as server:
        async with visitor() as session:
            proposals = await Proposals.begun(session, server)
            app = await made_app(session, server, "doomed")
            await proposals.propose(server, 10)
            await asyncio.gather(*(proposals.approve(server, approval) for approval in proposals.all))
            assert {await proposals.status(server, approval) for approval in proposals.all} == {"approved"}
            async with session.delete(f"{server.address}/apps/{app}") as deleted:
                assert deleted.status == 200
            with crew(here, program=("-m", "baobab", "worker"), word="Baobab worker is running.") as working:
                await working.hire(2)
                for _ in rounds(1):
                    await proposals.propose(server, 15)
                    loss = dice.choice(proposals.undecided)
                    for approval in proposals.undecided:
                        await proposals.approve(server, approval)
                        if approval == loss:
                            working.lose(dice.choice(working.workers))
                    await working.hire(1)
                await proposals.settle(server)
                assert await purged(here)


async def begun(asking: Desk, asked: set[str]) -> None:
    async with asyncio.timeout(PATIENCE):
        while not asked <= {mark.job_id for mark in await asking.marks("begun")}:
            await asyncio.sleep(0.05)


async def still(asking: Desk, key: str) -> None:
    """Wait until a key that somebody counted up is counted no further."""
    before = -1
    async with asyncio.timeout(PATIENCE):
        while (now := await asking.counted(key)) != before:
            before = now
            await asyncio.sleep(1)


async def made(asking: Desk, asked: set[str]) -> dict[str, list[int]]:
    """The processes that each job says it was ended by."""
    found: dict[str, list[int]] = {}
    for mark in await asking.marks("ended"):
        if mark.job_id in asked:
            found.setdefault(mark.job_id, []).append(mark.process)
    return found


async def purged(here: Installation) -> bool:
    """Whether what is left to do a minute after an app was deleted is done, when it is due at once."""
    database = database_at(here.rows_url)
    await database.open()
    try:
        async with database.writing() as connection:
            purges = update(jobs).where(jobs.c.kind == "apps_purge").values(due_at=datetime.now(UTC))
            assert (await connection.execute(purges)).rowcount == 1
        async with asyncio.timeout(PATIENCE):
            while True:
                async with database.reading() as connection:
                    row = (await connection.execute(select(jobs).where(jobs.c.kind == "apps_purge"))).one()
                if row.finished_at is not None:
                    return row.error is None
                await asyncio.sleep(0.05)
    finally:
        await database.close()
