"""Postgres goes away while jobs are made, and comes back; no worker is started anew."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

from tests.crash.crew import crew, desk
from tests.crash.machines import Installation
from tests.crash.rounds import rounds
from tests.crash.test_jobs import asked_for, verify
from tests.servers import postgres


async def test_every_job_is_made_and_counts_once_though_postgres_restarts(tmp_path: Path) -> None:
    dice, wanted = random.Random(33), Counter[str]()
    with postgres() as rows:
        here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": rows.database("jobs")})
        async with desk(here) as asking:
            with crew(here) as working:
                await working.hire(2)
                for number in rounds(2):
                    before = await asking.ended()
                    wanted += await asked_for(asking, dice)
                    await asking.until_ended(before + dice.randrange(20, 80))
                    await asyncio.to_thread(rows.stop, (signal.SIGQUIT, signal.SIGINT)[number % 2])
                    await asyncio.sleep(dice.random() * 2)
                    await asyncio.to_thread(rows.start)
                    await asking.answers()
                await asking.settled()
                assert all(worker.runs for worker in working.workers)
            await verify(asking, wanted)
