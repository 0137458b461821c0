"""kill -9 of a real server under load, over and over on one data folder: what was acknowledged is there."""

import asyncio
import contextlib
import itertools
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from tests.cli.server_process import ServerProcess, serving
from tests.columns import begin

ROUNDS = 20
LOAD_SECONDS = 0.5
WRITERS = 8
KEYS_OF_A_WRITER = 40
KEY = "bb_sk_" + "K" * 40
SETTINGS = {"BAOBAB_PLAN": "enterprise", "BAOBAB_BOOTSTRAP_KEY": KEY}
ABSENT = object()


@dataclass
class Ledger:
    """What the client knows: values whose write was acknowledged, and those whose answer never came."""

    values: dict[str, Any] = field(default_factory=dict)
    unanswered: dict[str, Any] = field(default_factory=dict)
    raised: int = 0
    """Acknowledged raises of the counter that all writers share."""
    raising: int = 0
    rules: set[str] = field(default_factory=set)
    acknowledged: int = 0

    def possible(self, key: str) -> list[Any]:
        held = [self.values.get(key, ABSENT)]
        return [*held, self.unanswered[key]] if key in self.unanswered else held


class Client:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def ask(self, method: str, path: str, body: Any = None) -> Any:
        async with self._session.request(method, self._base + path, json=body) as answer:
            assert answer.status < 300, f"{method} {path}: {answer.status} {await answer.text()}"
            return await answer.json() if answer.status != 204 else None

    async def every_value(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        cursor: str | None = ""
        while cursor is not None:
            page = await self.ask("GET", "/_scan?limit=100" + (f"&cursor={cursor}" if cursor else ""))
            keys, cursor = page["keys"], page["cursor"]
            ops = [{"op": "get", "key": key} for key in keys]
            results = (await self.ask("POST", "/_batch", {"ops": ops}))["results"]
            found |= {key: result["value"] for key, result in zip(keys, results, strict=True)}
        return found


async def write(client: Client, ledger: Ledger, writer: int, dice: random.Random) -> None:
    """Durable puts and deletes of the writer's own keys, raises of everybody's counter; until the server is gone."""
    for number in itertools.count():
        key = f"w{writer}:{dice.randrange(KEYS_OF_A_WRITER)}"
        kind = dice.random()
        if kind < 0.6:
            value = {"by": writer, "at": number, "pad": "x" * dice.randrange(400)}
            ledger.unanswered[key] = value
            await client.ask("PUT", f"/{key}", {"value": value, "ttl": None})
            ledger.values[key] = ledger.unanswered.pop(key)
        elif kind < 0.7:
            ledger.unanswered[key] = ABSENT
            await client.ask("DELETE", f"/{key}")
            ledger.values.pop(key, None)
            del ledger.unanswered[key]
        elif kind < 0.8:
            # Its loss would be no fault; that it is counted wrongly would be one.
            await client.ask("PUT", f"/e{key}", {"value": number, "ephemeral": True})
        else:
            ledger.raising += 1
            await client.ask("POST", "/counter/incr")
            ledger.raised += 1
        ledger.acknowledged += 1


async def expose(client: Client, ledger: Ledger, round_: int) -> None:
    """Rows, beside the keys: rules of the app."""
    for number in range(20):
        pattern = f"r{round_}:{number}:**"
        await client.ask("PUT", f"/_expose/{pattern}", {"read": "public", "write": "deny"})
        ledger.rules.add(pattern)


async def load(server: ServerProcess, client: Client, ledger: Ledger, round_: int, dice: random.Random) -> None:
    work = [write(client, ledger, writer, random.Random(dice.random())) for writer in range(WRITERS)]
    tasks = [asyncio.create_task(job) for job in (*work, expose(client, ledger, round_))]
    await asyncio.sleep(LOAD_SECONDS + dice.random() / 10)
    server.kill()
    for task in tasks:
        with contextlib.suppress(aiohttp.ClientError):
            await task


async def verify(client: Client, ledger: Ledger) -> None:
    stats = await client.ask("GET", "/_stats")
    found = await client.every_value()
    recount = sum(len(key) + len(compact(value)) for key, value in found.items())
    assert (stats["keys_total"], stats["bytes_used"]) == (len(found), recount)
    for key in {*ledger.values, *ledger.unanswered}:
        assert found.get(key, ABSENT) in ledger.possible(key), key
    strangers = {key for key in found if key.startswith("w")} - {*ledger.values, *ledger.unanswered}
    assert not strangers, "deleted keys are back"
    counter = found.get("counter", 0)
    assert ledger.raised <= counter <= ledger.raising
    rules = {rule["pattern"] for rule in (await client.ask("GET", "/_expose"))["rules"]}
    assert ledger.rules <= rules
    # From here on the server's word counts for what was never answered.
    ledger.values = {key: value for key, value in found.items() if key.startswith("w")}
    ledger.unanswered.clear()
    ledger.raised = ledger.raising = counter


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


async def test_what_was_acknowledged_survives_every_kill(tmp_path: Path) -> None:
    ledger, dice, app = Ledger(), random.Random(20), ""
    data = tmp_path / "data"
    settings = {**SETTINGS, **begin(data)}
    for round_ in range(ROUNDS + 1):
        with serving(data, settings=settings) as server:
            async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {KEY}"}) as session:
                if not app:
                    async with session.post(f"{server.address}/init", json={"name": "crash"}) as made:
                        app = (await made.json())["app_id"]
                client = Client(session, f"{server.address}/v1/{app}/kv")
                await verify(client, ledger)
                if round_ < ROUNDS:
                    await load(server, client, ledger, round_, dice)
    assert ledger.acknowledged > ROUNDS * 20, "the load was no load"
    assert len(ledger.rules) >= ROUNDS
