"""SIGSTOP of a machine in the middle of its work, for longer than leases and sessions last, then SIGCONT."""

import asyncio
import random
from pathlib import Path

from tests.crash.approvals_load import ApprovalsLoad
from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import Installation, create_app, freeze_processes, open_session
from tests.crash.rounds import list_rounds

LONG = 12.0
"""Seconds: an approval's lease and a session of rows in the middle of a transaction last ten, one of keys five."""


async def test_a_machine_that_stood_still_loses_nothing_and_writes_nothing_twice_when_it_wakes(tmp_path: Path) -> None:
    here, ledger, dice = Installation.on_backend(tmp_path), Ledger(), random.Random(23)
    with here.start_machine(0) as sleeper, here.start_machine(1) as other:
        async with open_session() as session:
            app = await create_app(session, other)
            async with run_load(session, [sleeper, other], app, ledger, dice) as load:
                for seconds in [dice.random() for _ in list_rounds(3)] + [LONG for _ in list_rounds(1)]:
                    await load.wait_for_writes(30, at=sleeper)
                    with freeze_processes(sleeper.process.pid):
                        await asyncio.sleep(seconds)
                        if here.is_on_postgres:
                            # On files it may hold the lock; here nobody waits for long.
                            await load.wait_for_writes(30, at=other)
                    await load.wait_for_writes(30, at=other)
            await ledger.verify(session, sleeper.address, app)
            await ledger.verify(session, other.address, app)


async def test_what_was_approved_is_done_once_though_its_worker_stood_still_meanwhile(tmp_path: Path) -> None:
    here, dice = Installation.on_backend(tmp_path), random.Random(24)
    with here.start_machine(0) as sleeper, here.start_machine(1) as other:
        async with open_session() as session:
            client = await ApprovalsLoad.create(session, other)
            for _ in list_rounds(1):
                await client.propose_calls(other, 20)
                deciding = [asyncio.create_task(client.approve(sleeper, approval)) for approval in client.undecided_ids]
                await asyncio.sleep(dice.random() / 5)
                with freeze_processes(sleeper.process.pid):
                    # Meanwhile the other finds that leases have run out, and takes over.
                    await asyncio.sleep(LONG)
                await asyncio.gather(*deciding)
                await client.settle(other)
