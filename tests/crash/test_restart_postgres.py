"""Postgres goes away under load, politely or not, and comes back; nobody restarts the machines that use it."""

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.approvals_load import ApprovalsLoad
from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import (
    Installation,
    create_app,
    fetch_readiness,
    freeze_processes,
    list_children,
    open_session,
    wait_for_readiness,
)
from tests.crash.rounds import list_rounds
from tests.servers import PostgresServer, start_postgres


@pytest.fixture(scope="module")
def rows() -> Iterator[PostgresServer]:
    with start_postgres() as running:
        yield running


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT], ids=["shutdown", "crash"])
async def test_no_acknowledged_write_is_lost_when_postgres_restarts(
    rows: PostgresServer, tmp_path: Path, how: signal.Signals
) -> None:
    url = rows.create_database(f"restart_{how.name.lower()}")
    here, ledger, dice = Installation(tmp_path, {"BAOBAB_DATABASE_URL": url}), Ledger(), random.Random(25)
    with here.start_machine(0) as one, here.start_machine(1) as other:
        async with open_session() as session:
            app = await create_app(session, one)
            async with run_load(session, [one, other], app, ledger, dice) as load:
                for _ in list_rounds(2):
                    await load.wait_for_writes(100)
                    await asyncio.to_thread(rows.stop, how)
                    await load.wait_for_refusal()
                    assert (await wait_for_readiness(session, one, 503))["database"] == "failed"
                    rows.start()
                    for machine in (one, other):
                        await load.wait_for_writes(50, at=machine)
                        await wait_for_readiness(session, machine)
            await ledger.verify(session, one.address, app)
            await ledger.verify(session, other.address, app)


async def test_what_was_approved_is_done_once_though_postgres_crashed_meanwhile(
    rows: PostgresServer, tmp_path: Path
) -> None:
    url, dice = rows.create_database("restart_approvals"), random.Random(26)
    here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": url})
    with here.start_machine(0) as one, here.start_machine(1) as other:
        async with open_session() as session:
            approvals_load = await ApprovalsLoad.create(session, one)
            for _ in list_rounds(1):
                await approvals_load.propose_calls(one, 10)
                decisions = [
                    (machine, approval) for approval in approvals_load.undecided_ids for machine in (one, other)
                ]
                deciding = [asyncio.create_task(approvals_load.approve(*decision)) for decision in decisions]
                await asyncio.sleep(dice.random() / 2)
                await asyncio.to_thread(rows.stop, signal.SIGQUIT)
                await asyncio.gather(*deciding)
                rows.start()
                for machine in (one, other):
                    await wait_for_readiness(session, machine)
                await approvals_load.settle(other)


async def test_while_postgres_stands_still_requests_for_keys_are_refused_and_readiness_says_so(
    rows: PostgresServer, tmp_path: Path
) -> None:
    here = Installation(tmp_path, {"BAOBAB_DATABASE_URL": rows.create_database("still")})
    with here.start_machine() as server:
        async with open_session() as session:
            key = f"{server.address}/v1/{await create_app(session, server)}/kv/a"
            async with session.put(key, json={"value": 1}) as response:
                assert response.status == 204
            assert rows.process is not None
            with freeze_processes(rows.process.pid, *list_children(rows.process.pid)):
                async with session.put(key, json={"value": 2}) as refusal:
                    assert refusal.status == 503
                status, answer_json = await fetch_readiness(session, server)
                assert status == 503
                assert (answer_json["checks"]["database"], answer_json["checks"]["kv:local"]) == ("failed", "failed")
            await wait_for_readiness(session, server)
            async with session.put(key, json={"value": 3}) as response:
                assert response.status == 204
            async with session.get(key) as read:
                assert (await read.json())["value"] == 3
