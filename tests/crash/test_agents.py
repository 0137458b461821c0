"""kill -9 and SIGSTOP of servers that make runs of agents: each run ends, and what it does is done once."""

import asyncio
import contextlib
import os
import random
import signal
from pathlib import Path

from tests.crash.machines import Installation, visitor
from tests.crash.rounds import rounds
from tests.crash.runs import Runs, seen_through

RUNS = 6
"""Begun in each round."""
LONGEST_LIFE = 3.0
"""Seconds from the start of the runs of a round to the kill."""
LONG = 12.0
"""Seconds: a job's lease is ten."""


async def test_every_run_ends_and_writes_once_whichever_servers_are_killed(tmp_path: Path) -> None:
    here, dice = Installation.of_the_column(tmp_path), random.Random(60)
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(here.machine(number)) for number in range(2)]
        async with visitor() as session:
            runs = await Runs.begun(session, servers[0])
            for _ in rounds(1):
                await runs.start(servers[0], RUNS)
                async with seen_through(runs, servers, dice):
                    await asyncio.sleep(dice.random() * LONGEST_LIFE)
                    doomed = dice.choice([[0], [1], [0, 1]])
                    for number in doomed:
                        servers[number].kill()
                    for number in doomed:
                        servers[number] = running.enter_context(here.machine(number))
            await runs.verify(servers[0], here)


async def test_every_run_ends_and_writes_once_though_a_server_stands_still_meanwhile(tmp_path: Path) -> None:
    here, dice = Installation.of_the_column(tmp_path), random.Random(61)
    with here.machine(0) as sleeper, here.machine(1) as other:
        async with visitor() as session:
            runs = await Runs.begun(session, other)
            for _ in rounds(1):
                await runs.start(sleeper, RUNS)
                async with seen_through(runs, [other], dice):
                    await asyncio.sleep(dice.random())
                    os.kill(sleeper.process.pid, signal.SIGSTOP)
                    try:
                        # Meanwhile the other finds that leases have run out, and takes over.
                        await asyncio.sleep(LONG)
                    finally:
                        os.kill(sleeper.process.pid, signal.SIGCONT)
            await runs.verify(other, here)
            await runs.verify(sleeper, here)
            assert "Traceback" not in sleeper.told, sleeper.told
