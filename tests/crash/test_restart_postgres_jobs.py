"""Postgres goes away while jobs are made, and comes back; no worker is started anew."""

import asyncio
import random
import signal
from collections import Counter
from pathlib import Path

from tests.crash.machines import Installation
from tests.crash.rounds import list_rounds
from tests.crash.test_jobs import enqueue_round, verify
from tests.crash.worker_pool import open_job_client, open_workers
from tests.servers import start_postgres


async def test_every_job_is_made_and_counts_once_though_postgres_restarts(tmp_path: Path) -> None:
    dice, expected_counts = random.Random(33), Counter[str]()
    with start_postgres() as rows:
        here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": rows.create_database("jobs")})
        async with open_job_client(here) as asking:
            with open_workers(here) as working:
                await working.start_workers(2)
                for number in list_rounds(2):
                    before = await asking.count_ended()
                    expected_counts += await enqueue_round(asking, dice)
                    await asking.wait_for_ended(before + dice.randrange(20, 80))
                    await asyncio.to_thread(rows.stop, (signal.SIGQUIT, signal.SIGINT)[number % 2])
                    await asyncio.sleep(dice.random() * 2)
                    await asyncio.to_thread(rows.start)
                    await asking.wait_for_database()
                await asking.wait_until_idle()
                assert all(worker.is_running for worker in working.workers)
            await verify(asking, expected_counts)
