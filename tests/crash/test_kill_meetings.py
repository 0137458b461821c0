"""kill -9 of a server with bots in calls: each bot is sent once, tells its events, and is charged exactly once."""

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import func, select

from baobab.storage.clock import SystemClock
from baobab.storage.sql.databases import database_at
from baobab.tools.ai.meetings.tables import meeting_usage
from baobab.tools.billing.tables import credit_accounts, credit_usage
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds
from tests.tools.ai.meetings.fake_provider import KEY
from tests.tools.ai.meetings.fake_recall import SECRET, FakeRecall, sign_webhook, start_recall

BOTS, SECONDS = 4, 1234
RECORDING, TRANSCRIPTION = 171_388_889, 51_416_667
MEETING = "https://meet.google.com/abc-defg-hij"
CODES = ("joining_call", "in_call_not_recording", "in_call_recording", "call_ended", "done")


async def start_bots(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> None:
    for _ in range(BOTS):
        path = f"{server.address}/v1/{app}/ai/meetings"
        async with session.post(path, json={"meetingUrl": MEETING}) as response:
            assert response.status == 200, await response.text()


async def tell(session: aiohttp.ClientSession, server: ServerProcess, event: dict[str, Any]) -> None:
    """Sends a webhook of the provider, which may find no server."""
    request = sign_webhook(event, SystemClock().now())
    hook = f"{server.address}/v1/ai/meetings/_hooks/recall"
    try:
        async with session.post(hook, data=request["content"], headers=request["headers"]) as response:
            await response.read()
    except aiohttp.ClientError:
        return


def advance(fake: FakeRecall, dice: random.Random) -> list[dict[str, Any]]:
    """Brings some bots further, and returns the webhooks of it."""
    told_events = []
    for bot_id, bot in fake.bots.items():
        steps = len(bot["status_changes"])
        if steps < len(CODES) and dice.random() < 0.7:
            told_events.append(fake.move(bot_id, CODES[steps]))
            for recording in bot["recordings"]:
                # As long as every other one, however long the machine takes.
                recording["started_at"], recording["completed_at"] = "2027-01-15T08:00:00Z", "2027-01-15T08:20:34Z"
            if CODES[steps] == "done":
                told_events.append(fake.finish(bot_id, "transcript"))
    return told_events


async def list_bots(session: aiohttp.ClientSession, server: ServerProcess, app: str) -> Any:
    async with session.get(f"{server.address}/v1/{app}/ai/meetings?limit=100") as response:
        assert response.status == 200, await response.text()
        return (await response.json())["bots"]


@pytest.mark.timeout(1800)
async def test_each_bot_is_sent_and_charged_once_however_often_the_server_is_killed(tmp_path: Path) -> None:
    dice = random.Random(7)
    async with start_recall(SystemClock()) as fake, open_session() as session:
        here = Installation.on_backend(
            tmp_path,
            settings={
                "BAOBAB_MEETINGS_PROVIDER": "recall",
                "BAOBAB_MEETINGS_KEY": KEY,
                "BAOBAB_MEETINGS_URL": fake.url,
                "BAOBAB_MEETINGS_WEBHOOK_SECRET": SECRET,
                "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32",
            },
        )
        app = ""
        for _ in list_rounds(2):
            with here.start_machine() as server:
                app = app or await create_app(session, server)
                await start_bots(session, server, app)
                await asyncio.sleep(dice.random())
                for event in advance(fake, dice):
                    await tell(session, server, event)
                server.kill()
        with here.start_machine() as server:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                while True:
                    for event in advance(fake, dice):
                        await tell(session, server, event)
                    bots = await list_bots(session, server, app)
                    if all(bot["chargedUsd"] is not None for bot in bots):
                        break
                    await asyncio.sleep(0.5)
        assert {bot["status"] for bot in bots} == {"done"}
        assert {bot["metadata"]["bb_bot_id"] for bot in fake.bots.values()} == {bot["id"] for bot in bots}
        assert len(fake.bots) == len(bots), "a bot was sent twice"
        await verify(here.database_url, len(bots))


async def verify(url: str, bots: int) -> None:
    """Each bot has one row for each dimension, and the ledger has the same sum, with nothing left reserved."""
    database = database_at(url)
    await database.open()
    try:
        async with database.reading() as connection:
            columns = meeting_usage.c
            counts = select(columns.dimension, func.count(), func.sum(columns.charged)).group_by(columns.dimension)
            rows = {row[0]: (row[1], int(row[2])) for row in (await connection.execute(counts)).all()}
            assert rows == {"recording": (bots, bots * RECORDING), "transcription": (bots, bots * TRANSCRIPTION)}
            cost = select(func.sum(credit_usage.c.cost)).where(credit_usage.c.model.startswith("meetings/"))
            assert int((await connection.execute(cost)).scalar_one()) == bots * (RECORDING + TRANSCRIPTION)
            assert int((await connection.execute(select(func.sum(credit_accounts.c.reserved)))).scalar_one()) == 0
    finally:
        await database.close()
