"""Clients that leave at any moment: those who stay are answered, and nothing of what was left half done stays."""

import asyncio
import random
from dataclasses import replace
from pathlib import Path

from tests.cli.server_process import PATIENCE
from tests.crash.leavers import KINDS, Crowd, Wish
from tests.crash.machines import Installation, visitor
from tests.crash.rounds import rounds
from tests.runtime.gateway.upstream import upstream

LEAVERS = 400
"""Who come and go in a round."""
_AT_ONCE = 8
_STAYING = 4
_UNDER_WAY = ("queued", "running", "cancelling")
_UNWANTED = ("failed", "timed_out")


async def go(crowd: Crowd, leavers: int, dice: random.Random) -> None:
    """So many come and go, while others stay."""
    left = iter(range(leavers))

    async def leaving() -> None:
        for _ in left:
            await crowd.leave(dice.choice(list(KINDS)))

    gone = [asyncio.create_task(leaving()) for _ in range(_AT_ONCE)]

    async def staying() -> None:
        while not all(task.done() for task in gone):
            await crowd.stay(dice.choice(list(KINDS)))
            await crowd.look()

    async with asyncio.timeout(PATIENCE * 5):
        await asyncio.gather(*gone, *(staying() for _ in range(_STAYING)))


async def nothing_is_left(crowd: Crowd) -> None:
    """Whatever can be asked is answered, nothing is set aside, and each run has ended or waits for a person."""
    async with asyncio.timeout(PATIENCE):
        assert (await crowd.ask(Wish("GET", "/health")))["status"] == "ok"
        for kind in KINDS:
            await crowd.stay(kind)
        while (await crowd.ask(Wish("GET", "/dashboard/billing")))["credits"]["reserved_usd"]:
            await asyncio.sleep(0.05)
        while any([await crowd.standing(status) for status in _UNDER_WAY]):
            await asyncio.sleep(0.05)
    for status in _UNWANTED:
        assert await crowd.standing(status) == []
    waiting = await crowd.standing("paused")
    assert all(run.startswith("asker ") for run in waiting), waiting


async def test_clients_that_leave_at_any_moment_leave_nothing_behind(tmp_path: Path) -> None:
    dice = random.Random(44)
    async with upstream(keep=0) as models, visitor() as session:
        reached = {"OPENAI_API_KEY": "sk-crowd", "OPENAI_BASE_URL": f"{models.url}/v1"}
        here = Installation.of_the_column(tmp_path)
        here = replace(here, settings={**here.settings, **reached})
        with here.machine() as server:
            crowd = await Crowd.gathered(session, server, dice)
            for _ in rounds(1, long=20):
                await go(crowd, LEAVERS, dice)
                await nothing_is_left(crowd)
            assert server.terminate() == 0
        assert "Traceback" not in server.told, server.told
