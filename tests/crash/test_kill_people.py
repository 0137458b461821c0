"""kill -9 between a provider's answer and the charge: each answer is charged exactly once, or not at all."""

import asyncio
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from sqlalchemy import func, select

from baobab.storage.sql.databases import database_at
from baobab.tools.billing.tables import credit_usage
from baobab.tools.people.tables import usage
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds
from tests.tools.people.fakes import ENRICH_KEY, NETWORK, Fake, start_fake

AT_ONCE = 6


async def ask(session: aiohttp.ClientSession, address: str, body: dict[str, Any]) -> str | None:
    """The lookup that an answer names, or an empty text; None for no answer."""
    try:
        async with session.post(address, json=body) as response:
            content = await response.json()
            return str(content.get("lookupId", "")) if response.status == 200 else None
    except aiohttp.ClientError:
        return None


async def tell(session: aiohttp.ClientSession, server: ServerProcess, callback: str) -> int:
    """Sends a result to where the provider was told, as often as it takes; the status of the answer."""
    path = callback.partition("/v1/")[2]
    try:
        async with session.post(f"{server.address}/v1/{path}", json={"email": "ada@acme.example"}) as response:
            return response.status
    except aiohttp.ClientError:
        return 0


async def ask_until_killed(
    session: aiohttp.ClientSession, server: ServerProcess, fake: Fake, app: str, number: int
) -> list[str | None]:
    """Asks for profiles and addresses, and kills the server at a moment at which the provider has answered some."""
    people, dice = f"{server.address}/v1/{app}/people", random.Random(number)
    requests = [
        asyncio.create_task(
            ask(
                session,
                f"{people}/profile{'/email' if each % 2 else ''}",
                {"networkProfileUrl": f"{NETWORK}/in/{each}"},
            )
        )
        for each in range(number * AT_ONCE, (number + 1) * AT_ONCE)
    ]
    fake.arrival.clear()
    await fake.arrival.wait()
    await asyncio.sleep(dice.random() / 4)
    await asyncio.gather(*(tell(session, server, callback) for callback in fake.callbacks))
    server.kill()
    return await asyncio.gather(*requests)


@pytest.mark.timeout(1800)
async def test_what_a_provider_has_answered_is_charged_once_or_not_at_all(tmp_path: Path) -> None:
    async with start_fake() as fake, open_session() as session:
        here = Installation.on_backend(
            tmp_path,
            settings={
                "BAOBAB_PEOPLE_LIVE": "true",
                "BAOBAB_PEOPLE_PRIMARY": "enrich_layer",
                "BAOBAB_PEOPLE_PRIMARY_KEY": ENRICH_KEY,
                "BAOBAB_PEOPLE_PRIMARY_URL": f"{fake.url}/api/v2",
                "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32",
                "BAOBAB_BASE_URL": "https://people.example",
            },
        )
        app, answers = "", list[str | None]()
        for number in list_rounds(3):
            with here.start_machine() as server:
                app = app or await create_app(session, server)
                answers += await ask_until_killed(session, server, fake, app, number)
        with here.start_machine() as server:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                for callback in [*fake.callbacks, *fake.callbacks]:
                    assert await tell(session, server, callback) in (200, 404)
                async with session.get(f"{server.address}/v1/{app}/people/email-lookups") as response:
                    lookups = (await response.json())["lookups"]
        known_ids = {row["lookupId"] for row in lookups}
        assert {answer for answer in answers if answer} <= known_ids, "a lookup was answered and is lost"
        assert {row["status"] for row in lookups if row["lookupId"] in set(answers)} <= {"resolved"}
        await verify(here.database_url, sum(answer is not None for answer in answers), len(fake.requests))


async def verify(url: str, answers: int, requests: int) -> None:
    """Every row of usage has its price, and the ledger has their sums."""
    database = database_at(url)
    await database.open()
    try:
        async with database.reading() as connection:
            counts = select(usage.c.action, func.count(), func.sum(usage.c.charged)).group_by(usage.c.action)
            rows = {row[0]: (row[1], int(row[2])) for row in (await connection.execute(counts)).all()}
            kind = credit_usage.c.model
            sums = select(kind, func.sum(credit_usage.c.cost)).where(kind.startswith("people/")).group_by(kind)
            ledger = {row[0]: int(row[1]) for row in (await connection.execute(sums)).all()}
    finally:
        await database.close()
    prices = {"profile": 40_000_000, "profile_email_queue": 60_000_000, "profile_email_resolved": 20_000_000}
    assert rows == {action: (count, count * prices[action]) for action, (count, _) in rows.items()}
    assert {f"people/{action}": cost for action, (_, cost) in rows.items()} == ledger
    charge_count = sum(rows[action][0] for action in ("profile", "profile_email_queue") if action in rows)
    assert answers <= charge_count <= requests
