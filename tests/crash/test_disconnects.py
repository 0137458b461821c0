"""Clients that leave at any moment: those who stay are answered, and nothing of what was left half done stays."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.crash.disconnecting_clients import KINDS, ClientCrowd, HttpRequest
from tests.crash.machines import Installation, open_session
from tests.crash.rounds import list_rounds
from tests.runtime.gateway.upstream import start_upstream

LEAVERS = 400
"""Who come and go in a round."""
_AT_ONCE = 8
_STAYING = 4
_UNDER_WAY = ("queued", "running", "cancelling")
_UNWANTED = ("failed", "timed_out")


async def run_clients(clients: ClientCrowd, leavers: int, dice: random.Random) -> None:
    """So many come and go, while others stay."""
    remaining_turns = iter(range(leavers))

    async def leaving() -> None:
        for _ in remaining_turns:
            await clients.request_and_leave(dice.choice(list(KINDS)))

    tasks = [asyncio.create_task(leaving()) for _ in range(_AT_ONCE)]

    async def staying() -> None:
        while not all(task.done() for task in tasks):
            await clients.request_and_wait(dice.choice(list(KINDS)))
            await clients.read_questions()

    async with asyncio.timeout(TIMEOUT_SECONDS * 5):
        await asyncio.gather(*tasks, *(staying() for _ in range(_STAYING)))


async def check_nothing_left(clients: ClientCrowd) -> None:
    """Whatever can be asked is answered, nothing is set aside, and each run has ended or waits for a person."""
    async with asyncio.timeout(TIMEOUT_SECONDS):
        assert (await clients.ask(HttpRequest("GET", "/health")))["status"] == "ok"
        for kind in KINDS:
            await clients.request_and_wait(kind)
        while (await clients.ask(HttpRequest("GET", "/dashboard/billing")))["credits"]["reserved_usd"]:
            await asyncio.sleep(0.05)
        while any([await clients.list_runs(status) for status in _UNDER_WAY]):
            await asyncio.sleep(0.05)
    for status in _UNWANTED:
        assert await clients.list_runs(status) == []
    waiting = await clients.list_runs("paused")
    assert all(run.startswith("asker ") for run in waiting), waiting


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(tmp_path: Path) -> None:
    dice = random.Random(44)
    async with start_upstream(keep=0) as models, open_session() as session:
        model_settings = {"OPENAI_API_KEY": "sk-crowd", "OPENAI_BASE_URL": f"{models.url}/v1"}
        here = Installation.on_backend(tmp_path)
        here = replace(here, settings={**here.settings, **model_settings})
        with here.start_machine() as server:
            clients = await ClientCrowd.create(session, server, dice)
            for _ in list_rounds(1, long=20):
                await run_clients(clients, LEAVERS, dice)
                await check_nothing_left(clients)
            assert server.terminate() == 0
        assert "Traceback" not in server.log_text, server.log_text
