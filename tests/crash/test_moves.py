"""kill -9 in the middle of moves from one region to another, under load: nothing acknowledged is lost on the way."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from baobab.composition import Application, open_application
from baobab.settings import load_settings
from tests.backends import prepare_data
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess
from tests.crash.ledger import ABSENT, Ledger
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds

REGIONS = ("local", "eu-west-1")
APPS = 4
LONGEST_LIFE = 3.0
"""Seconds from the first move of a round to the kill: the last two of them are those in which servers hear of it."""
_PAUSE_SECONDS = 0.05


@dataclass
class MovingApp:
    """An app on the move, with a ledger of what its clients were told."""

    app: str
    ledger: Ledger = field(default_factory=Ledger)
    source: str = REGIONS[0]
    dest: str = REGIONS[1]
    move: str = ""
    """The move that is under way."""
    aborting: bool = False
    at_the_flip: Ledger | None = None
    """What was so when requests began to go to the destination, while nobody could write yet."""


@dataclass
class MoveClient:
    """Clients of one life of the server: they write, count, move and look how far the moves are."""

    session: aiohttp.ClientSession
    server: ServerProcess
    stopping: bool = False

    async def ask(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer; (0, None) where there was none."""
        try:
            async with self.session.request(method, self.server.address + path, json=body) as answer:
                return answer.status, await answer.json() if answer.status != 204 else None
        except aiohttp.ClientError:
            return 0, None

    async def write(self, moving_app: MovingApp, writer: int, dice: random.Random) -> None:
        ledger, base = moving_app.ledger, f"/v1/{moving_app.app}/kv"
        while not self.stopping:
            if dice.random() < 0.6:
                key = f"w{writer}:{dice.randrange(30)}"
                value = {"by": writer, "at": ledger.next_number(), "pad": "x" * dice.randrange(200)}
                ledger.record_possible(key, value)
                if await self._is_acknowledged("PUT", f"{base}/{key}", {"value": value, "ttl": None}):
                    ledger.record_acknowledged(key, value)
            else:
                ledger.requested_raises += 1
                if await self._is_acknowledged("POST", f"{base}/counter/incr"):
                    ledger.acknowledged_raises += 1

    async def _is_acknowledged(self, method: str, path: str, body: Any = None) -> bool:
        status, answer_json = await self.ask(method, path, body)
        if 200 <= status < 300:
            return True
        assert status in (0, 503), answer_json
        assert status == 0 or answer_json["error"] in ("kv_migrating", "store_error"), answer_json
        await asyncio.sleep(_PAUSE_SECONDS)
        return False

    async def begin_move(self, moving_app: MovingApp) -> None:
        """Ask for the move until a server has said that there is one."""
        while not self.stopping and not moving_app.move:
            status, answer_json = await self.ask(
                "POST", f"/v1/apps/{moving_app.app}/move", {"dest_region": moving_app.dest}
            )
            if status == 409:
                # An answer that never came has begun it.
                status, answer_json = await self.ask("GET", f"/v1/apps/{moving_app.app}/migrations/active")
                assert status == 0 or answer_json["migration"] is not None, answer_json
            else:
                assert status in (0, 202), answer_json
            if status:
                moving_app.move = answer_json.get("migration_id") or answer_json["migration"]["migration_id"]

    async def abort_move(self, moving_app: MovingApp) -> None:
        status, answer_json = await self.ask("POST", f"/v1/apps/{moving_app.app}/migrations/{moving_app.move}/abort")
        assert status in (0, 200, 409), answer_json
        moving_app.aborting = True

    async def follow_move(self, moving_app: MovingApp) -> dict[str, Any]:
        """Look at the move until it has ended; what it ended as. {} where the server ended first."""
        while True:
            status, move = await self.ask("GET", f"/v1/apps/{moving_app.app}/migrations/{moving_app.move}")
            if status == 0:
                return {}
            assert status == 200, move
            if move["current_step"] == "unblocking_writes" and moving_app.at_the_flip is None:
                moving_app.at_the_flip = copy_ledger(moving_app.ledger)
            if move["completed_at"] is not None:
                assert move["last_error"] is None, move
                return move  # type: ignore[no-any-return]
            await asyncio.sleep(_PAUSE_SECONDS)


async def run_round(
    session: aiohttp.ClientSession, server: ServerProcess, flats: list[MovingApp], dice: random.Random, *, kill: bool
) -> list[dict[str, Any]]:
    """Write into every app, move those that are to go, and kill the server meanwhile or see the moves end."""
    movers = MoveClient(session, server)
    writing = [
        asyncio.create_task(movers.write(moving_app, writer, random.Random(dice.random())))
        for moving_app in flats
        for writer in range(3)
    ]
    try:
        if kill:
            moving = [asyncio.create_task(move_app(movers, flat, dice.random() * LONGEST_LIFE / 2)) for flat in flats]
            await asyncio.sleep(dice.random() * LONGEST_LIFE)
            server.kill()
            movers.stopping = True
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*moving)
            finished_moves: list[dict[str, Any]] = []
        else:
            async with asyncio.timeout(TIMEOUT_SECONDS):
                finished_moves = await asyncio.gather(*(move_app(movers, flat, 0) for flat in flats))
            # Everybody writes in the new place for a moment.
            await asyncio.sleep(0.3)
            movers.stopping = True
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await asyncio.gather(*writing)
        return finished_moves
    finally:
        for task in writing:
            task.cancel()


async def move_app(movers: MoveClient, moving_app: MovingApp, after: float) -> dict[str, Any]:
    await asyncio.sleep(after)
    await movers.begin_move(moving_app)
    if moving_app.aborting:
        await movers.abort_move(moving_app)
    return await movers.follow_move(moving_app) if moving_app.move else {}


async def read_replica(application: Application, app: str, region: str) -> dict[str, Any]:
    """Every entry that a region has of an app."""
    store = application.services.regions[region].kv
    entries_by_key: dict[str, Any] = {}
    after: str | None = None
    while entries := await store.export(app, after, 500):
        entries_by_key |= {entry.key: json.loads(entry.value) for entry in entries}
        after = entries[-1].key
    return entries_by_key


def copy_ledger(ledger: Ledger) -> Ledger:
    possible = {key: list(values) for key, values in ledger.possible.items()}
    return Ledger(possible, ledger.acknowledged_raises, ledger.requested_raises)


def check_unchanged(entries: dict[str, Any], then: Ledger) -> None:
    for key, values in then.possible.items():
        assert entries.get(key, ABSENT) in values, key
    assert then.acknowledged_raises <= entries.get("counter", 0) <= then.requested_raises
    assert set(entries) - {"counter"} <= set(then.possible)


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    """With a further region: files of its own, or a Postgres."""
    far = prepare_data(tmp_path / "far").get("BAOBAB_DATABASE_URL", "")
    file = tmp_path / "regions.toml"
    file.write_text(f'[{REGIONS[1]}]\ndatabase_url = "{far}"\n')
    return Installation(tmp_path, {**prepare_data(tmp_path / "data"), "BAOBAB_REGIONS": str(file)})


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed_in_the_middle_of_moves(
    here: Installation,
) -> None:
    dice, flats = random.Random(32), list[MovingApp]()
    async with open_session() as session:
        for _ in list_rounds(1):
            with here.start_machine() as server:
                while len(flats) < APPS:
                    flats.append(MovingApp(await create_app(session, server, f"flat-{len(flats)}")))
                # One of them is called back, which may be too late.
                dice.choice(flats).aborting = True
                await run_round(session, server, flats, dice, kill=True)
            with here.start_machine() as server:
                finished_moves = await run_round(session, server, flats, dice, kill=False)
                for moving_app in flats:
                    await moving_app.ledger.verify(session, server.address, moving_app.app)
                server.terminate()
            async with open_application(
                load_settings({**here.environment, "BAOBAB_JOBS": "0"}, data=here.data(0))
            ) as application:
                for moving_app, move in zip(flats, finished_moves, strict=True):
                    await verify_places(application, moving_app, move)
            for moving_app, move in zip(flats, finished_moves, strict=True):
                prepare_next_round(moving_app, move)


async def verify_places(application: Application, moving_app: MovingApp, move: dict[str, Any]) -> None:
    """Where the app is, where it was, and that nobody else has it."""
    app = await application.services.directory.app(moving_app.app)
    if move["current_step"] == "aborted":
        assert app.region == moving_app.source
        assert await read_replica(application, moving_app.app, moving_app.dest) == {}
        return
    assert (move["current_step"], app.region) == ("completed", moving_app.dest)
    assert moving_app.at_the_flip is not None
    check_unchanged(await read_replica(application, moving_app.app, moving_app.source), moving_app.at_the_flip)


def prepare_next_round(moving_app: MovingApp, move: dict[str, Any]) -> None:
    """Ready for the next round, in which who has moved goes back."""
    if move["current_step"] == "completed":
        moving_app.source, moving_app.dest = moving_app.dest, moving_app.source
    moving_app.move, moving_app.aborting, moving_app.at_the_flip = "", False, None
