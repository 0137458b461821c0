"""Writers that go on whatever happens, and keep a ledger: the load under which things are broken."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Sequence
from typing import Any

import aiohttp

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.ledger import ABSENT, Ledger

_KEYS_OF_A_WRITER = 40
_MOST_RULES = 400
"""An app takes a hundred more."""
_PAUSE_SECONDS = 0.05
"""After a refusal or a broken connection, so that clients do not take what the servers need to recover."""
_INTERNALS = ("Traceback", "psycopg", "sqlite", "apsw", "OperationalError", "Errno", "disk")


class Load:
    def __init__(self, session: aiohttp.ClientSession, app: str, ledger: Ledger) -> None:
        self._session = session
        self._app = app
        self._ledger = ledger
        self._stopping = False
        self.writers: list[asyncio.Task[None]] = []

    async def wait_for_writes(self, count: int, at: ServerProcess | None = None) -> None:
        """Wait until so many more writes were acknowledged, by one server or by any."""
        target_count = self._count_acknowledged(at) + count
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self._count_acknowledged(at) < target_count:
                self._require_honest_answers()
                await asyncio.sleep(0.02)

    async def wait_for_refusal(self) -> None:
        """Wait until one more write was refused."""
        target_count = self._ledger.refusal_counts.total() + 1
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while self._ledger.refusal_counts.total() < target_count:
                self._require_honest_answers()
                await asyncio.sleep(0.02)

    async def stop(self) -> None:
        """Let every writer hear its last answer."""
        self._stopping = True
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*self.writers)

    async def write(self, server: ServerProcess, writer: str, dice: random.Random) -> None:
        """Puts and deletes of the writer's own keys, raises of everybody's counter, rules of the app."""
        base = f"{server.address}/v1/{self._app}/kv"
        while not self._stopping:
            kind, key = dice.random(), f"w{writer}:{dice.randrange(_KEYS_OF_A_WRITER)}"
            if kind < 0.55:
                value = {"by": writer, "at": self._ledger.next_number(), "pad": "x" * dice.randrange(400)}
                self._ledger.record_possible(key, value)
                if await self._ask(server, "PUT", f"{base}/{key}", {"value": value, "ttl": None}):
                    self._ledger.record_acknowledged(key, value)
            elif kind < 0.65:
                self._ledger.record_possible(key, ABSENT)
                if await self._ask(server, "DELETE", f"{base}/{key}"):
                    self._ledger.record_acknowledged(key, ABSENT)
            elif kind < 0.75:
                # Its loss would be no fault; that it is counted wrongly would be one.
                await self._ask(server, "PUT", f"{base}/e{key}", {"value": 1, "ephemeral": True})
            elif kind < 0.97 or len(self._ledger.wanted_rules) >= _MOST_RULES:
                self._ledger.requested_raises += 1
                if await self._ask(server, "POST", f"{base}/counter/incr"):
                    self._ledger.acknowledged_raises += 1
            else:
                pattern = f"r{self._ledger.next_number()}:**"
                self._ledger.wanted_rules.add(pattern)
                if await self._ask(server, "PUT", f"{base}/_expose/{pattern}", {"read": "public", "write": "deny"}):
                    self._ledger.rules.add(pattern)

    async def _ask(self, server: ServerProcess, method: str, url: str, body: Any = None) -> bool:
        """Whether it was acknowledged; a refusal must be one that a client can understand and act on."""
        try:
            async with self._session.request(method, url, json=body) as answer:
                if answer.status < 300 or (method == "DELETE" and answer.status == 404):
                    self._ledger.acknowledged_counts[server.address] += 1
                    return True
                text = await answer.text()
                assert answer.status == 503, f"{method} {url}: {answer.status} {text}\n{server.log_text[-4000:]}"
                assert answer.headers["Retry-After"]
                answer_json = await answer.json()
                assert answer_json["error"] == "store_error"
                assert answer_json["message"]
                assert answer_json["remediation"]
                assert not any(word in text for word in _INTERNALS), text
                self._ledger.refusal_counts[server.address] += 1
        except aiohttp.ClientError:
            self._ledger.unanswered_counts[server.address] += 1
        await asyncio.sleep(_PAUSE_SECONDS)
        return False

    def _count_acknowledged(self, at: ServerProcess | None) -> int:
        return self._ledger.acknowledged_counts.total() if at is None else self._ledger.acknowledged_counts[at.address]

    def _require_honest_answers(self) -> None:
        for writer in self.writers:
            if writer.done():
                writer.result()


@contextlib.asynccontextmanager
async def run_load(
    session: aiohttp.ClientSession,
    servers: Sequence[ServerProcess],
    app: str,
    ledger: Ledger,
    dice: random.Random,
    *,
    writers: int = 8,
) -> AsyncIterator[Load]:
    """So many writers on each server until the block ends; then each has heard its last answer."""
    load = Load(session, app, ledger)
    for place, server in enumerate(servers):
        load.writers += [
            asyncio.create_task(load.write(server, f"{place}.{number}", random.Random(dice.random())))
            for number in range(writers)
        ]
    try:
        yield load
        await load.stop()
    finally:
        for writer in load.writers:
            writer.cancel()
        await asyncio.gather(*load.writers, return_exceptions=True)
