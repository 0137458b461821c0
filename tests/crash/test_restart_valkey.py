"""Valkey goes away under load, politely or not, and comes back; nobody restarts the machines that use it."""

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.server_process import ServerProcess
from tests.crash.desk import Desk
from tests.crash.ledger import Ledger
from tests.crash.load import under_load
from tests.crash.machines import Installation, made_app, readiness, ready, standing_still, visitor
from tests.crash.rounds import rounds
from tests.servers import PostgresServer, ValkeyServer, postgres, valkey

DURABLE = ("--appendfsync", "always")


@pytest.fixture(scope="module")
def rows() -> Iterator[PostgresServer]:
    with postgres() as running:
        yield running


@pytest.fixture
def store() -> Iterator[ValkeyServer]:
    with valkey(*DURABLE) as running:
        yield running


@pytest.fixture
def here(rows: PostgresServer, store: ValkeyServer, tmp_path: Path, request: pytest.FixtureRequest) -> Installation:
    url = rows.database(f"valkey_{abs(hash(request.node.name)):x}")
    return Installation(tmp_path, {"BAOBAB_DATABASE_URL": url, "BAOBAB_VALKEY_URL": store.url})


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["shutdown", "crash"])
async def test_no_acknowledged_write_is_lost_when_valkey_restarts(
    store: ValkeyServer, here: Installation, how: signal.Signals
) -> None:
    ledger, dice = Ledger(), random.Random(28)
    with here.machine(0) as one, here.machine(1) as other:
        async with visitor() as session:
            app = await made_app(session, one)
            async with under_load(session, [one, other], app, ledger, dice) as load:
                for _ in rounds(2):
                    await load.more(100)
                    await asyncio.to_thread(store.stop, how)
                    await load.refusal()
                    checks = await ready(session, one, 503)
                    assert (checks["kv:local"], checks["database"]) == ("failed", "ok")
                    await asyncio.to_thread(store.start)
                    for machine in (one, other):
                        await load.more(50, at=machine)
                        await ready(session, machine)
            await ledger.verify(session, one.address, app)
            await ledger.verify(session, other.address, app)


async def test_while_valkey_is_away_rows_are_written_and_limits_still_hold(
    store: ValkeyServer, here: Installation
) -> None:
    with here.machine(0) as one, here.machine(1) as other:
        async with visitor() as session:
            await asyncio.to_thread(store.stop)
            desk = await Desk.begun(session, one)
            # Refused before it is made, and counted all the same.
            body = {"email": "nobody@example.com", "password": "short", "name": "Nobody"}

            async def refused_after(machine: ServerProcess) -> int:
                for attempts in range(100):
                    status, _ = await desk.ask(machine, "POST", "/platform/signup", body)
                    if status == 429:
                        return attempts
                raise AssertionError("nobody counts")

            alone = [await refused_after(machine) for machine in (one, other)]
            assert alone[0] == alone[1] > 0
            await asyncio.to_thread(store.start)
            await ready(session, one)
            await ready(session, other)
            together = await refused_after(one)
            assert together == alone[0]
            assert (await desk.ask(other, "POST", "/platform/signup", body))[0] == 429


async def test_what_was_approved_is_done_once_though_valkey_crashed_meanwhile(
    store: ValkeyServer, here: Installation
) -> None:
    dice = random.Random(29)
    with here.machine(0) as one, here.machine(1) as other:
        async with visitor() as session:
            desk = await Desk.begun(session, one)
            for _ in rounds(1):
                await desk.propose(one, 10)
                decisions = [(machine, approval) for approval in desk.undecided for machine in (one, other)]
                deciding = [asyncio.create_task(desk.approve(*decision)) for decision in decisions]
                await asyncio.sleep(dice.random() / 2)
                await asyncio.to_thread(store.stop, signal.SIGKILL)
                await asyncio.gather(*deciding)
                await asyncio.to_thread(store.start)
                for machine in (one, other):
                    await ready(session, machine)
                await desk.settle(other)


async def test_while_valkey_stands_still_requests_are_refused_and_do_not_hang(
    store: ValkeyServer, here: Installation
) -> None:
    ledger, dice = Ledger(), random.Random(30)
    with here.machine() as server:
        async with visitor() as session:
            app = await made_app(session, server)
            async with under_load(session, [server], app, ledger, dice) as load:
                for _ in rounds(1):
                    await load.more(50)
                    assert store.process is not None
                    with standing_still(store.process.pid):
                        await load.refusal()
                        status, told = await readiness(session, server)
                        assert (status, told["checks"]["kv:local"]) == (503, "failed")
                    await load.more(50)
                    await ready(session, server)
            await ledger.verify(session, server.address, app)
