"""kill -9 of one of several workers, and of the process that started them."""

import asyncio
import os
import random
import signal
from pathlib import Path

from tests.cli.server_process import PATIENCE
from tests.crash.ledger import Ledger
from tests.crash.load import under_load
from tests.crash.machines import Installation, made_app, runs, visitor, workers
from tests.crash.rounds import rounds


async def test_when_one_worker_is_killed_the_others_go_on_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    here, ledger, dice = Installation.of_the_column(tmp_path), Ledger(), random.Random(21)
    with here.machine(workers=2) as server:
        async with visitor() as session:
            app = await made_app(session, server)
            async with under_load(session, [server], app, ledger, dice) as load:
                for _ in rounds(2):
                    await load.more(100)
                    before = workers(server)
                    os.kill(dice.choice(before), signal.SIGKILL)
                    await load.more(100)
                    async with asyncio.timeout(PATIENCE):
                        while len(workers(server)) < 2 or workers(server) == before:
                            await asyncio.sleep(0.05)
            await ledger.verify(session, server.address, app)


async def test_when_the_process_that_started_the_workers_is_killed_all_of_them_end_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    here, ledger, dice, app = Installation.of_the_column(tmp_path), Ledger(), random.Random(22), ""
    for _ in rounds(1):
        with here.machine(workers=2) as server:
            async with visitor() as session:
                app = app or await made_app(session, server)
                orphans = workers(server)
                async with under_load(session, [server], app, ledger, dice) as load:
                    await load.more(200)
                    server.kill()
            async with asyncio.timeout(PATIENCE):
                while any(runs(orphan) for orphan in orphans):
                    await asyncio.sleep(0.05)
        with here.machine(workers=2) as server:
            async with visitor() as session:
                await ledger.verify(session, server.address, app)
