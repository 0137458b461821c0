"""kill -9 around decisions and executions, with two servers that are one installation."""

import asyncio
import contextlib
import random
from pathlib import Path

from tests.cli.server_process import ServerProcess
from tests.crash.desk import Desk
from tests.crash.machines import Installation, visitor
from tests.crash.rounds import rounds

CALLS_OF_A_ROUND = 10
LONGEST_LIFE = 1.0
"""Seconds from the first decision of a round to the kill."""


async def life(desk: Desk, servers: list[ServerProcess], dice: random.Random) -> None:
    """Propose, decide everything several times from both servers at once, and kill one of them, or both, meanwhile."""
    await desk.propose(servers[0], CALLS_OF_A_ROUND)
    decisions = [(server, approval_id) for approval_id in desk.undecided for server in (*servers, servers[0])]
    dice.shuffle(decisions)
    tasks = [asyncio.create_task(desk.approve(server, approval_id)) for server, approval_id in decisions]
    await asyncio.sleep(dice.random() * LONGEST_LIFE)
    for server in dice.choice([servers[:1], servers[1:], servers[:1], servers]):
        server.kill()
    await asyncio.gather(*tasks)


async def test_what_was_approved_is_done_exactly_once_through_every_kill(tmp_path: Path) -> None:
    here, dice, desk = Installation.of_the_column(tmp_path), random.Random(9), None
    async with visitor() as session:
        with contextlib.ExitStack() as running:
            servers: list[ServerProcess] = []
            for _ in rounds(2):
                # Whoever was killed is replaced; whoever was not goes on meanwhile.
                servers = [server for server in servers if server.process.poll() is None]
                while len(servers) < 2:
                    servers.append(running.enter_context(here.machine(len(servers))))
                desk = desk or await Desk.begun(session, servers[0])
                await desk.verify_decisions(servers[0])
                await life(desk, servers, dice)
        assert desk is not None
        with here.machine() as server:
            await desk.settle(server)
            # The results are there too: each is told once.
            name = next(iter(desk.names.values()))
            status, told = await desk.ask(server, "POST", "/api-keys", {"name": name}, desk.agent)
            assert (status, told["name"]) == (201, name)
            again, _ = await desk.ask(server, "POST", "/api-keys", {"name": name}, desk.agent)
            assert again == 428
