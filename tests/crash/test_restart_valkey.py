"""Valkey goes away under load, politely or not, and comes back; nobody restarts the machines that use it."""

import asyncio
import random
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.server_process import ServerProcess
from tests.crash.approvals_load import ApprovalsLoad
from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import (
    Installation,
    create_app,
    fetch_readiness,
    freeze_processes,
    open_session,
    wait_for_readiness,
)
from tests.crash.rounds import list_rounds
from tests.servers import ValkeyServer, start_valkey

DURABLE = ("--appendfsync", "always")


@pytest.fixture
def store() -> Iterator[ValkeyServer]:
    with start_valkey(*DURABLE) as running:
        yield running


@pytest.fixture
def here(store: ValkeyServer, tmp_path: Path) -> Installation:
    """With its key-value store in Valkey."""
    return Installation.on_backend(tmp_path, settings={"BAOBAB_VALKEY_URL": store.url, "BAOBAB_KV": "valkey"})


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL], ids=["shutdown", "crash"])
async def test_no_acknowledged_write_is_lost_when_valkey_restarts(
    store: ValkeyServer, here: Installation, how: signal.Signals
) -> None:
    ledger, dice = Ledger(), random.Random(28)
    with here.start_machine(0) as one, here.start_machine(1) as other:
        async with open_session() as session:
            app = await create_app(session, one)
            async with run_load(session, [one, other], app, ledger, dice) as load:
                for _ in list_rounds(2):
                    await load.wait_for_writes(100)
                    await asyncio.to_thread(store.stop, how)
                    await load.wait_for_refusal()
                    checks = await wait_for_readiness(session, one, 503)
                    assert (checks["kv:local"], checks["database"]) == ("failed", "ok")
                    await asyncio.to_thread(store.start)
                    for machine in (one, other):
                        await load.wait_for_writes(50, at=machine)
                        await wait_for_readiness(session, machine)
            await ledger.verify(session, one.address, app)
            await ledger.verify(session, other.address, app)


async def test_while_valkey_is_away_rows_are_written_and_limits_still_hold(
    store: ValkeyServer, here: Installation
) -> None:
    with here.start_machine(0) as one, here.start_machine(1) as other:
        async with open_session() as session:
            await asyncio.to_thread(store.stop)
            approvals_load = await ApprovalsLoad.create(session, one)
            # Refused before it is made, and counted all the same.
            body = {"email": "nobody@example.com", "password": "short", "name": "Nobody"}

            async def refused_after(machine: ServerProcess) -> int:
                for attempts in range(100):
                    status, _ = await approvals_load.ask(machine, "POST", "/platform/signup", body)
                    if status == 429:
                        return attempts
                raise AssertionError("nobody counts")

            alone = [await refused_after(machine) for machine in (one, other)]
            assert alone[0] == alone[1] > 0
            await asyncio.to_thread(store.start)
            await wait_for_readiness(session, one)
            await wait_for_readiness(session, other)
            together = await refused_after(one)
            assert together == alone[0]
            assert (await approvals_load.ask(other, "POST", "/platform/signup", body))[0] == 429


async def test_what_was_approved_is_done_once_though_valkey_crashed_meanwhile(
    store: ValkeyServer, here: Installation
) -> None:
    dice = random.Random(29)
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
                await asyncio.to_thread(store.stop, signal.SIGKILL)
                await asyncio.gather(*deciding)
                await asyncio.to_thread(store.start)
                for machine in (one, other):
                    await wait_for_readiness(session, machine)
                await approvals_load.settle(other)


async def test_while_valkey_stands_still_requests_are_refused_and_do_not_hang(
    store: ValkeyServer, here: Installation
) -> None:
    ledger, dice = Ledger(), random.Random(30)
    with here.start_machine() as server:
        async with open_session() as session:
            app = await create_app(session, server)
            async with run_load(session, [server], app, ledger, dice) as load:
                for _ in list_rounds(1):
                    await load.wait_for_writes(50)
                    assert store.process is not None
                    with freeze_processes(store.process.pid):
                        await load.wait_for_refusal()
                        status, answer_json = await fetch_readiness(session, server)
                        assert (status, answer_json["checks"]["kv:local"]) == (503, "failed")
                    await load.wait_for_writes(50)
                    await wait_for_readiness(session, server)
            await ledger.verify(session, server.address, app)


@pytest.mark.parametrize("how", ["crash", "standstill"])
async def test_with_the_keys_in_the_database_no_write_is_refused_while_valkey_is_away(
    store: ValkeyServer, tmp_path: Path, how: str
) -> None:
    here = Installation.on_backend(tmp_path, settings={"BAOBAB_VALKEY_URL": store.url})
    ledger, dice = Ledger(), random.Random(31)
    with here.start_machine(0) as one, here.start_machine(1) as other:
        async with open_session() as session:
            app = await create_app(session, one)
            async with run_load(session, [one, other], app, ledger, dice) as load:
                for _ in list_rounds(1):
                    await load.wait_for_writes(50)
                    assert store.process is not None
                    if how == "standstill":
                        with freeze_processes(store.process.pid):
                            await load.wait_for_writes(50)
                            await wait_for_readiness(session, one)
                    else:
                        await asyncio.to_thread(store.stop, signal.SIGKILL)
                        await load.wait_for_writes(50)
                        await wait_for_readiness(session, one)
                        await asyncio.to_thread(store.start)
            assert ledger.refusal_counts.total() == ledger.unanswered_counts.total() == 0
            await ledger.verify(session, other.address, app)
