"""kill -9 and SIGSTOP of servers that make runs of agents: each run ends, and what it does is done once."""

import asyncio
import contextlib
import random
from pathlib import Path

from tests.crash.machines import Installation, standing_still, visitor
from tests.crash.rounds import LONG, rounds
from tests.crash.runs import Runs, seen_through

RUNS = 60 if LONG else 6
"""Begun in each round, half of them before servers are killed, half before one stands still."""
LONGEST_LIFE = 3.0
"""Seconds from the start of runs to what happens to the servers that make them."""
LAPSED = 12.0
"""Seconds: a job's lease is ten."""


async def test_every_run_ends_and_writes_once_whichever_servers_are_killed_or_stand_still(tmp_path: Path) -> None:
    here, dice = Installation.of_the_column(tmp_path), random.Random(60)
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(here.machine(number)) for number in range(2)]
        async with visitor() as session:
            runs, asked = await Runs.begun(session, servers[0]), list(servers)

            def lose(numbers: list[int]) -> None:
                for number in numbers:
                    servers[number].kill()
                for number in numbers:
                    servers[number] = running.enter_context(here.machine(number))
                asked[:] = servers

            for _ in rounds(1, long=20):
                async with seen_through(runs, asked, dice):
                    await runs.start(dice.choice(servers), RUNS // 2)
                    await asyncio.sleep(dice.random() * LONGEST_LIFE)
                    lose(dice.choice([[0], [1], [0, 1]]))
                    await runs.start(dice.choice(servers), RUNS // 2)
                    await asyncio.sleep(dice.random() * LONGEST_LIFE)
                    still, awake = dice.sample([0, 1], 2)
                    asked[:] = [servers[awake]]
                    with standing_still(servers[still].process.pid):
                        # Meanwhile the other finds that leases have run out, and takes over.
                        await asyncio.sleep(LAPSED)
                    asked[:] = servers
                    # What it goes on with when it wakes is not its own any more, nor is it always given the time.
                    lose(dice.choice([[], [still], [awake]]))
            for server in servers:
                await runs.verify(server, here)
                assert "Traceback" not in server.told, server.told
