"""SIGSTOP of a machine in the middle of its work, for longer than leases and sessions last, then SIGCONT."""

import asyncio
import random
from pathlib import Path

from tests.crash.desk import Desk
from tests.crash.ledger import Ledger
from tests.crash.load import under_load
from tests.crash.machines import Installation, made_app, standing_still, visitor
from tests.crash.rounds import rounds

LONG = 12.0
"""Seconds: an approval's lease and a session of rows in the middle of a transaction last ten, one of keys five."""


async def test_a_machine_that_stood_still_loses_nothing_and_writes_nothing_twice_when_it_wakes(tmp_path: Path) -> None:
    here, ledger, dice = Installation.of_the_column(tmp_path), Ledger(), random.Random(23)
    with here.machine(0) as sleeper, here.machine(1) as other:
        async with visitor() as session:
            app = await made_app(session, other)
            async with under_load(session, [sleeper, other], app, ledger, dice) as load:
                for seconds in [dice.random() for _ in rounds(3)] + [LONG for _ in rounds(1)]:
                    await load.more(30, at=sleeper)
                    with standing_still(sleeper.process.pid):
                        await asyncio.sleep(seconds)
                        if here.grown:
                            # On files it may hold the lock; here nobody waits for long.
                            await load.more(30, at=other)
                    await load.more(30, at=other)
            await ledger.verify(session, sleeper.address, app)
            await ledger.verify(session, other.address, app)


async def test_what_was_approved_is_done_once_though_its_worker_stood_still_meanwhile(tmp_path: Path) -> None:
    here, dice = Installation.of_the_column(tmp_path), random.Random(24)
    with here.machine(0) as sleeper, here.machine(1) as other:
        async with visitor() as session:
            desk = await Desk.begun(session, other)
            for _ in rounds(1):
                await desk.propose(other, 20)
                deciding = [asyncio.create_task(desk.approve(sleeper, approval)) for approval in desk.undecided]
                await asyncio.sleep(dice.random() / 5)
                with standing_still(sleeper.process.pid):
                    # Meanwhile the other finds that leases have run out, and takes over.
                    await asyncio.sleep(LONG)
                await asyncio.gather(*deciding)
                await desk.settle(other)
