"""One machine's clock is an hour ahead of the other's, or an hour behind."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import aiohttp
import pytest

from tests.cli.server_process import ServerProcess
from tests.crash.approvals_load import ApprovalsLoad
from tests.crash.ledger import Ledger
from tests.crash.load import run_load
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds

HOUR = 3600


@dataclass(frozen=True)
class Pair:
    right: ServerProcess
    wrong: ServerProcess

    @property
    def servers(self) -> list[ServerProcess]:
        return [self.right, self.wrong]

    @property
    def directions(self) -> list[tuple[ServerProcess, ServerProcess]]:
        return [(self.right, self.wrong), (self.wrong, self.right)]


@pytest.fixture(scope="module", params=[HOUR, -HOUR], ids=["ahead", "behind"])
def pair(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Pair]:
    here = Installation.on_backend(tmp_path_factory.mktemp("clocks"))
    with here.start_machine(0) as right, here.start_machine(1, clock_offset=request.param) as wrong:
        yield Pair(right, wrong)


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with open_session() as client_session:
        yield client_session


async def test_whatever_the_clocks_say_nothing_is_lost_and_nothing_is_done_twice(
    pair: Pair, session: aiohttp.ClientSession
) -> None:
    ledger, dice = Ledger(), random.Random(32)
    approvals_load = await ApprovalsLoad.create(session, pair.right)
    app = await create_app(session, pair.wrong)
    async with run_load(session, pair.servers, app, ledger, dice, writers=2) as load:
        for _ in list_rounds(1):
            for machine in pair.servers:
                await load.wait_for_writes(50, at=machine)
                await approvals_load.propose_calls(machine, 10)
            decisions = [(machine, approval) for approval in approvals_load.undecided_ids for machine in pair.servers]
            dice.shuffle(decisions)
            await asyncio.gather(*(approvals_load.approve(*decision) for decision in decisions))
    for machine in pair.servers:
        await approvals_load.settle(machine)
        await ledger.verify(session, machine.address, app)


async def test_what_lives_longer_than_the_clocks_differ_is_there_on_both_machines(
    pair: Pair, session: aiohttp.ClientSession
) -> None:
    app = await create_app(session, pair.right, "lasting")
    for writer, reader in pair.directions:
        path = f"/v1/{app}/kv/written-at-{writer.address.rpartition(':')[2]}"
        async with session.put(writer.address + path, json={"value": 1, "ttl": 2 * HOUR}) as put_response:
            assert put_response.status == 204
        async with session.get(f"{reader.address}{path}/ttl") as response:
            ttl = (await response.json())["ttl"]
        assert 0 < ttl <= 3 * HOUR


async def test_a_session_begun_on_one_machine_goes_on_at_the_other(pair: Pair, session: aiohttp.ClientSession) -> None:
    for first, second in pair.directions:
        person = {"email": f"{first.address.rpartition(':')[2]}@example.com", "password": "correct Horse 7!"}
        async with session.post(f"{first.address}/platform/signup", json={**person, "name": "Ada"}) as response:
            assert response.status == 201, await response.text()
        async with session.post(f"{first.address}/platform/login", json=person) as login:
            refresh = {"refresh_token": (await login.json())["refresh_token"]}
        # A token may count as expired there; what renews it lives longer than any clock is wrong.
        async with session.post(f"{second.address}/platform/refresh", json=refresh) as renewed_response:
            assert renewed_response.status == 200, await renewed_response.text()
            bearer = {"Authorization": f"Bearer {(await renewed_response.json())['token']}"}
        async with session.get(f"{second.address}/platform/me", headers=bearer) as me:
            assert (await me.json())["user"]["email"] == person["email"]
