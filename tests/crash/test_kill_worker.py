"""kill -9 of one of several workers, and of the process that started them."""

import asyncio
import os
import random
import signal
from pathlib import Path

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import Installation, create_app, is_running, list_workers, open_session
from tests.crash.rounds import list_rounds


async def test_when_one_worker_is_killed_the_others_go_on_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    here, ledger, dice = Installation.on_backend(tmp_path), Ledger(), random.Random(21)
    with here.start_machine(workers=2) as server:
        async with open_session() as session:
            app = await create_app(session, server)
            async with run_load(session, [server], app, ledger, dice) as load:
                for _ in list_rounds(2):
                    await load.wait_for_writes(100)
                    before = list_workers(server)
                    os.kill(dice.choice(before), signal.SIGKILL)
                    await load.wait_for_writes(100)
                    async with asyncio.timeout(TIMEOUT_SECONDS):
                        while len(list_workers(server)) < 2 or list_workers(server) == before:
                            await asyncio.sleep(0.05)
            await ledger.verify(session, server.address, app)


async def test_when_the_process_that_started_the_workers_is_killed_all_of_them_end_and_nothing_is_lost(
    tmp_path: Path,
) -> None:
    here, ledger, dice, app = Installation.on_backend(tmp_path), Ledger(), random.Random(22), ""
    for _ in list_rounds(1):
        with here.start_machine(workers=2) as server:
            async with open_session() as session:
                app = app or await create_app(session, server)
                orphans = list_workers(server)
                async with run_load(session, [server], app, ledger, dice) as load:
                    await load.wait_for_writes(200)
                    server.kill()
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while any(is_running(orphan) for orphan in orphans):
                    await asyncio.sleep(0.05)
        with here.start_machine(workers=2) as server:
            async with open_session() as session:
                await ledger.verify(session, server.address, app)
