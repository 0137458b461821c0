"""Postgres goes away under runs of agents, and comes back; no server is started anew."""

import asyncio
import random
import signal
from pathlib import Path

from tests.crash.machines import Installation, visitor
from tests.crash.rounds import rounds
from tests.crash.runs import Runs, seen_through
from tests.servers import postgres

RUNS = 6


async def test_every_run_ends_and_writes_once_though_postgres_restarts(tmp_path: Path) -> None:
    dice = random.Random(62)
    with postgres() as rows:
        here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": rows.database("runs")})
        with here.machine(0) as one, here.machine(1) as other:
            async with visitor() as session:
                runs = await Runs.begun(session, one)
                for number in rounds(1):
                    await runs.start(one, RUNS)
                    async with seen_through(runs, [one, other], dice):
                        await asyncio.sleep(dice.random() * 2)
                        await asyncio.to_thread(rows.stop, (signal.SIGQUIT, signal.SIGINT)[number % 2])
                        await asyncio.sleep(dice.random() * 2)
                        await asyncio.to_thread(rows.start)
                await runs.verify(other, here)
                assert "a run failed" not in one.told + other.told
