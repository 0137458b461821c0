"""kill -9 under actions, merging, forgetting, imports, ticks of rules and deliveries: the ledger stays consistent."""

import asyncio
import random
from pathlib import Path

from baobab.storage.sql.databases import database_at
from tests.crash.machines import Installation, open_session
from tests.crash.rounds import list_rounds
from tests.crash.substrate_load import Receiver, SubstrateLoad
from tests.tools.ai.conftest import serve_app

ACTIONS_OF_A_LIFE = 40


async def test_a_killed_server_leaves_a_consistent_ledger_and_loses_nothing_acknowledged(
    tmp_path: Path,
) -> None:
    egress_settings = {"BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}
    here, dice, load = Installation.on_backend(tmp_path, settings=egress_settings), random.Random(31), None
    receiver = Receiver()
    async with serve_app(receiver) as address, open_session() as session:
        for number in list_rounds(4):
            with here.start_machine() as server:
                load = load or await SubstrateLoad.create(session, server, f"{address}/told", dice)
                database = database_at(here.database_url)
                await database.open()
                try:
                    await load.make_rules_due(database)
                    async with load.run(server):
                        await load.wait_for_actions(ACTIONS_OF_A_LIFE + dice.randrange(ACTIONS_OF_A_LIFE))
                        # Rules tick every five seconds.
                        await asyncio.sleep(dice.random() * (5 if number % 2 else 1))
                        server.kill()
                    await load.verify(database)
                finally:
                    await database.close()
        assert load is not None
        with here.start_machine():
            database = database_at(here.database_url)
            await database.open()
            try:
                deliveries = await load.wait_for_deliveries(database)
                await load.verify(database)
                assert await load.count_firings(database) > 0
            finally:
                await database.close()
    assert load.approval_counts["forget"], "nothing was forgotten"
    assert load.approval_counts["merge_entities"], "nothing was merged"
    decisions = {each for each, capability in load.acknowledged_actions.items() if capability == "record_decision"}
    assert decisions <= set(deliveries.values()), "an executed action was not told"
    assert len(set(deliveries.values())) == len(deliveries), "an action was told as two"
    assert deliveries.keys() <= receiver.bodies.keys(), "what is noted as delivered was never taken"
