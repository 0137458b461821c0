"""Postgres goes away under runs of agents, and comes back; no server is started anew."""

import asyncio
import random
import signal
from pathlib import Path

from tests.crash.machines import Installation, open_session
from tests.crash.rounds import list_rounds
from tests.crash.runs import RunsLoad, drive_in_background
from tests.servers import start_postgres

RUNS = 6


async def test_every_run_ends_and_writes_once_though_postgres_restarts(tmp_path: Path) -> None:
    dice = random.Random(62)
    with start_postgres() as rows:
        here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": rows.create_database("runs")})
        with here.start_machine(0) as one, here.start_machine(1) as other:
            async with open_session() as session:
                runs = await RunsLoad.create(session, one)
                for number in list_rounds(1):
                    await runs.start_runs(one, RUNS)
                    async with drive_in_background(runs, [one, other], dice):
                        await asyncio.sleep(dice.random() * 2)
                        await asyncio.to_thread(rows.stop, (signal.SIGQUIT, signal.SIGINT)[number % 2])
                        await asyncio.sleep(dice.random() * 2)
                        await asyncio.to_thread(rows.start)
                await runs.verify(other, here)
                assert "a run failed" not in one.log_text + other.log_text
