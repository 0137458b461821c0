"""kill -9 around decisions and executions, with two servers on one data folder: what was approved is done once."""

import asyncio
import contextlib
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.cli.server_process import ServerProcess, serving
from tests.columns import begin

ROUNDS = 4
CALLS_OF_A_ROUND = 10
LONGEST_LIFE = 1.0
"""Seconds from the first decision of a round to the kill."""
PATIENCE = 60
KEY = "bb_sk_" + "K" * 40
SETTINGS = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY}
OWNER, GONE = {"Authorization": f"Bearer {KEY}"}, (aiohttp.ClientError, TimeoutError)


@dataclass
class Ledger:
    """What was proposed, and which decisions were acknowledged."""

    raises: dict[str, int] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)
    number: int = 0

    @property
    def all(self) -> list[str]:
        return [*self.raises, *self.names]


class Desk:
    def __init__(self, session: aiohttp.ClientSession, app: str, agent: dict[str, str]) -> None:
        self._session = session
        self.app = app
        self.agent = agent

    async def ask(
        self, server: ServerProcess, method: str, path: str, body: Any = None, by: dict[str, str] = OWNER
    ) -> tuple[int, Any]:
        async with self._session.request(method, server.address + path, json=body, headers=by) as answer:
            return answer.status, await answer.json()

    async def propose(self, server: ServerProcess, ledger: Ledger) -> None:
        for _ in range(CALLS_OF_A_ROUND):
            ledger.number += 1
            by, name = ledger.number, f"key {ledger.number}"
            if ledger.number % 5:
                status, told = await self.ask(server, "POST", f"/v1/{self.app}/kv/n/incr", {"by": by}, self.agent)
                ledger.raises[told["approval_id"]] = by
            else:
                status, told = await self.ask(server, "POST", "/api-keys", {"name": name}, self.agent)
                ledger.names[told["error"]["details"]["approval_id"]] = name
            assert status == 428, told

    async def approve(self, server: ServerProcess, ledger: Ledger, approval_id: str) -> None:
        with contextlib.suppress(*GONE):
            status, told = await self.ask(server, "POST", f"/v1/approvals/{approval_id}/approve", {})
            assert status in (200, 409), told
            ledger.acknowledged.add(approval_id)

    async def status(self, server: ServerProcess, approval_id: str) -> str:
        status, told = await self.ask(server, "GET", f"/v1/approvals/{approval_id}")
        assert status == 200, told
        found: str = told["approval"]["status"]
        return found

    async def settle(self, server: ServerProcess, ledger: Ledger) -> None:
        """Approve what is still undecided, and wait until everything is done."""
        async with asyncio.timeout(PATIENCE):
            for approval_id in ledger.all:
                await self.approve(server, ledger, approval_id)
                while await self.status(server, approval_id) == "approved":
                    await asyncio.sleep(0.2)


async def life(desk: Desk, servers: list[ServerProcess], ledger: Ledger, dice: random.Random) -> None:
    """Propose, decide everything several times from both servers at once, and kill one of them, or both, meanwhile."""
    await desk.propose(servers[0], ledger)
    waiting = [approval_id for approval_id in ledger.all if approval_id not in ledger.acknowledged]
    decisions = [(server, approval_id) for approval_id in waiting for server in (*servers, servers[0])]
    dice.shuffle(decisions)
    tasks = [asyncio.create_task(desk.approve(server, ledger, approval_id)) for server, approval_id in decisions]
    await asyncio.sleep(dice.random() * LONGEST_LIFE)
    for server in dice.choice([servers[:1], servers[1:], servers[:1], servers]):
        server.kill()
    await asyncio.gather(*tasks)


async def begun(session: aiohttp.ClientSession, server: ServerProcess) -> Desk:
    desk = Desk(session, "", {})
    desk.app = (await desk.ask(server, "POST", "/init", {"name": "crash"}))[1]["app_id"]
    key = (await desk.ask(server, "POST", "/api-keys", {"name": "agent", "approval": "write"}))[1]["key"]
    desk.agent = {"Authorization": f"Bearer {key}"}
    return desk


async def test_what_was_approved_is_done_exactly_once_through_every_kill(tmp_path: Path) -> None:
    ledger, dice, desk = Ledger(), random.Random(9), None
    data = tmp_path / "data"
    settings = {**SETTINGS, **begin(data)}
    timeout = aiohttp.ClientTimeout(total=20)
    async with aiohttp.ClientSession(timeout=timeout) as session:
        with contextlib.ExitStack() as running:
            servers: list[ServerProcess] = []
            for _ in range(ROUNDS):
                # Whoever was killed is replaced; whoever was not goes on meanwhile.
                servers = [server for server in servers if server.process.poll() is None]
                while len(servers) < 2:
                    servers.append(running.enter_context(serving(data, settings=settings)))
                desk = desk or await begun(session, servers[0])
                for approval_id in ledger.acknowledged:
                    assert await desk.status(servers[0], approval_id) != "pending", "an acknowledged decision is lost"
                await life(desk, servers, ledger, dice)
        assert desk is not None
        with serving(data, settings=settings) as server:
            await desk.settle(server, ledger)
            assert {await desk.status(server, approval_id) for approval_id in ledger.all} == {"executed"}
            _, counter = await desk.ask(server, "GET", f"/v1/{desk.app}/kv/n")
            assert counter["value"] == sum(ledger.raises.values())
            _, listed = await desk.ask(server, "GET", "/api-keys")
            made = sorted(key["name"] for key in listed["keys"] if key["name"].startswith("key "))
            assert made == sorted(ledger.names.values())
            # The results are there too: each is told once.
            for name in list(ledger.names.values())[:5]:
                status, told = await desk.ask(server, "POST", "/api-keys", {"name": name}, desk.agent)
                assert (status, told["name"]) == (201, name)
            again, _ = await desk.ask(server, "POST", "/api-keys", {"name": name}, desk.agent)
            assert again == 428
    assert ledger.number == ROUNDS * CALLS_OF_A_ROUND
