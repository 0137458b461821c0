"""kill -9 of a server under load, over and over on one installation."""

import random
from pathlib import Path

from tests.crash.ledger import Ledger
from tests.crash.load import under_load
from tests.crash.machines import Installation, made_app, visitor
from tests.crash.rounds import rounds

WRITES_OF_A_LIFE = 150


async def test_no_acknowledged_write_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    here, ledger, dice, app = Installation.of_the_column(tmp_path), Ledger(), random.Random(20), ""
    for _ in rounds(5):
        with here.machine() as server:
            async with visitor() as session:
                app = app or await made_app(session, server)
                await ledger.verify(session, server.address, app)
                async with under_load(session, [server], app, ledger, dice) as load:
                    await load.more(WRITES_OF_A_LIFE + dice.randrange(WRITES_OF_A_LIFE))
                    server.kill()
    with here.machine() as server:
        async with visitor() as session:
            await ledger.verify(session, server.address, app)
    assert ledger.rules, "the load was no load"
