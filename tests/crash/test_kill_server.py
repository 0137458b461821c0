"""kill -9 of a server under load, over and over on one installation."""

import random
from pathlib import Path

from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds

WRITES_OF_A_LIFE = 150


async def test_no_acknowledged_write_is_lost_when_the_server_is_killed(tmp_path: Path) -> None:
    here, ledger, dice, app = Installation.on_backend(tmp_path), Ledger(), random.Random(20), ""
    for _ in list_rounds(5):
        with here.start_machine() as server:
            async with open_session() as session:
                app = app or await create_app(session, server)
                await ledger.verify(session, server.address, app)
                async with run_load(session, [server], app, ledger, dice) as load:
                    await load.wait_for_writes(WRITES_OF_A_LIFE + dice.randrange(WRITES_OF_A_LIFE))
                    server.kill()
    with here.start_machine() as server:
        async with open_session() as session:
            await ledger.verify(session, server.address, app)
    assert ledger.rules, "the load was no load"
