"""Postgres goes away under load, politely or not, and comes back; nobody restarts the machines that use it."""

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.desk import Desk
from tests.crash.ledger import Ledger
from tests.crash.load import under_load
from tests.crash.machines import Installation, children, made_app, readiness, ready, standing_still, visitor
from tests.crash.rounds import rounds
from tests.servers import PostgresServer, postgres


@pytest.fixture(scope="module")
def rows() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
async def test_no_acknowledged_write_is_lost_when_postgres_restarts(
    rows: PostgresServer, tmp_path: Path, how: signal.Signals
) -> None:
    url = rows.database(f"restart_{how.name.lower()}")
    here, ledger, dice = Installation(tmp_path, {"BAOBAB_DATABASE_URL": url}), Ledger(), random.Random(25)
    with here.machine(0) as one, here.machine(1) as other:
        async with visitor() as session:
            app = await made_app(session, one)
            async with under_load(session, [one, other], app, ledger, dice) as load:
                for _ in rounds(2):
                    await load.more(100)
                    await asyncio.to_thread(rows.stop, how)
                    await load.refusal()
                    assert (await ready(session, one, 503))["database"] == "failed"
                    rows.start()
                    for machine in (one, other):
                        await load.more(50, at=machine)
                        await ready(session, machine)
            await ledger.verify(session, one.address, app)
            await ledger.verify(session, other.address, app)


async def test_what_was_approved_is_done_once_though_postgres_crashed_meanwhile(
    rows: PostgresServer, tmp_path: Path
) -> None:
    url, dice = rows.database("restart_approvals"), random.Random(26)
    here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": url})
    with here.machine(0) as one, here.machine(1) as other:
        async with visitor() as session:
            desk = await Desk.begun(session, one)
            for _ in rounds(1):
                await desk.propose(one, 10)
                decisions = [(machine, approval) for approval in desk.undecided for machine in (one, other)]
                deciding = [asyncio.create_task(desk.approve(*decision)) for decision in decisions]
                await asyncio.sleep(dice.random() / 2)
                await asyncio.to_thread(rows.stop, signal.SIGQUIT)
                await asyncio.gather(*deciding)
                rows.start()
                for machine in (one, other):
                    await ready(session, machine)
                await desk.settle(other)


async def test_while_postgres_stands_still_requests_for_keys_are_refused_and_readiness_says_so(
    rows: PostgresServer, tmp_path: Path
) -> None:
    here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": rows.database("still")})
    with here.machine() as server:
        async with visitor() as session:
            key = f"{server.address}/v1/{await made_app(session, server)}/kv/a"
            async with session.put(key, json={"value": 1}) as written:
                assert written.status == 204
            assert rows.process is not None
            with standing_still(rows.process.pid, *children(rows.process.pid)):
                async with session.put(key, json={"value": 2}) as refused:
                    assert refused.status == 503
                status, told = await readiness(session, server)
                assert status == 503
                assert (told["checks"]["database"], told["checks"]["kv:local"]) == ("failed", "failed")
            await ready(session, server)
            async with session.put(key, json={"value": 3}) as written:
                assert written.status == 204
            async with session.get(key) as read:
                assert (await read.json())["value"] == 3
