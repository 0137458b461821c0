"""kill -9 and SIGSTOP of servers that make runs of agents: each run ends, and what it does is done once."""

import asyncio
import contextlib
import random
from pathlib import Path

from tests.crash.machines import Installation, freeze_processes, open_session
from tests.crash.rounds import LONG, list_rounds
from tests.crash.runs import RunsLoad, drive_in_background

RUNS = 60 if LONG else 6
"""Begun in each round, half of them before servers are killed, half before one stands still."""
LONGEST_LIFE = 3.0
"""Seconds from the start of runs to what happens to the servers that make them."""
LAPSED = 12.0
"""Seconds: a job's lease is ten."""


async def test_every_run_ends_and_writes_once_whichever_servers_are_killed_or_stand_still(tmp_path: Path) -> None:
    here, dice = Installation.on_backend(tmp_path), random.Random(60)
    with contextlib.ExitStack() as running:
        servers = [running.enter_context(here.start_machine(number)) for number in range(2)]
        async with open_session() as session:
            runs, reachable_servers = await RunsLoad.create(session, servers[0]), list(servers)

            def lose(numbers: list[int]) -> None:
                for number in numbers:
                    servers[number].kill()
                for number in numbers:
                    servers[number] = running.enter_context(here.start_machine(number))
                reachable_servers[:] = servers

            for _ in list_rounds(1, long=20):
                async with drive_in_background(runs, reachable_servers, dice):
                    await runs.start_runs(dice.choice(servers), RUNS // 2)
                    await asyncio.sleep(dice.random() * LONGEST_LIFE)
                    lose(dice.choice([[0], [1], [0, 1]]))
                    await runs.start_runs(dice.choice(servers), RUNS // 2)
                    await asyncio.sleep(dice.random() * LONGEST_LIFE)
                    still, awake = dice.sample([0, 1], 2)
                    reachable_servers[:] = [servers[awake]]
                    with freeze_processes(servers[still].process.pid):
                        # Meanwhile the other finds that leases have run out, and takes over.
                        await asyncio.sleep(LAPSED)
                    reachable_servers[:] = servers
                    # What it goes on with when it wakes is not its own any more, nor is it always given the time.
                    lose(dice.choice([[], [still], [awake]]))
            for server in servers:
                await runs.verify(server, here)
                assert "Traceback" not in server.log_text, server.log_text
