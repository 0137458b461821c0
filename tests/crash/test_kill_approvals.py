"""kill -9 around decisions and executions, with two servers that are one installation."""

import asyncio
import contextlib
import random
from pathlib import Path

from tests.cli.server_process import ServerProcess
from tests.crash.approvals_load import ApprovalsLoad
from tests.crash.machines import Installation, open_session
from tests.crash.rounds import list_rounds

CALLS_OF_A_ROUND = 10
LONGEST_LIFE = 1.0
"""Seconds from the first decision of a round to the kill."""


async def run_round(load: ApprovalsLoad, servers: list[ServerProcess], dice: random.Random) -> None:
    """Propose, decide everything several times from both servers at once, and kill one of them, or both, meanwhile."""
    await load.propose_calls(servers[0], CALLS_OF_A_ROUND)
    decisions = [(server, approval_id) for approval_id in load.undecided_ids for server in (*servers, servers[0])]
    dice.shuffle(decisions)
    tasks = [asyncio.create_task(load.approve(server, approval_id)) for server, approval_id in decisions]
    await asyncio.sleep(dice.random() * LONGEST_LIFE)
    for server in dice.choice([servers[:1], servers[1:], servers[:1], servers]):
        server.kill()
    await asyncio.gather(*tasks)


async def test_what_was_approved_is_done_exactly_once_through_every_kill(tmp_path: Path) -> None:
    here, dice, load = Installation.on_backend(tmp_path), random.Random(9), None
    async with open_session() as session:
        with contextlib.ExitStack() as running:
            servers: list[ServerProcess] = []
            for _ in list_rounds(2):
                # Whoever was killed is replaced; whoever was not goes on meanwhile.
                servers = [server for server in servers if server.process.poll() is None]
                while len(servers) < 2:
                    servers.append(running.enter_context(here.start_machine(len(servers))))
                load = load or await ApprovalsLoad.create(session, servers[0])
                await load.verify_decisions(servers[0])
                await run_round(load, servers, dice)
        assert load is not None
        with here.start_machine() as server:
            await load.settle(server)
            # The results are there too: each is told once.
            name = next(iter(load.names.values()))
            status, answer_json = await load.ask(server, "POST", "/api-keys", {"name": name}, load.agent)
            assert (status, answer_json["name"]) == (201, name)
            again, _ = await load.ask(server, "POST", "/api-keys", {"name": name}, load.agent)
            assert again == 428
