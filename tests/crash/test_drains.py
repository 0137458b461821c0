"""kill -9 in the middle of a drain, under load: every app is in one cell afterwards, with all that was acknowledged."""

import asyncio
import random
from pathlib import Path

import aiohttp
import pytest

from baobab.composition import Application, open_application
from baobab.settings import load_settings
from baobab.storage.kv.engine import Quota
from baobab.storage.kv.errors import SpaceFrozen
from tests.backends import prepare_data
from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_baobab
from tests.crash.machines import Installation, create_app, open_session
from tests.crash.rounds import list_rounds
from tests.crash.test_moves import LONGEST_LIFE, MoveClient, MovingApp

CELLS = ("local", "local-2", "local-3")
APPS = 9


@pytest.fixture
def here(tmp_path: Path) -> Installation:
    """Three cells of one geography: with files of their own, or a Postgres each."""
    tables = []
    for cell in CELLS[1:]:
        url = prepare_data(tmp_path / cell).get("BAOBAB_DATABASE_URL", "")
        tables.append(f'[{cell}]\ngeography = "local"\ndatabase_url = "{url}"\n')
    file = tmp_path / "regions.toml"
    file.write_text("".join(tables))
    return Installation(tmp_path, {**prepare_data(tmp_path / "data"), "BAOBAB_REGIONS": str(file)})


async def run_cells(here: Installation, *arguments: str) -> str:
    """Does what the operator does while servers run, and returns what is printed."""
    process = await asyncio.to_thread(
        run_baobab, "cells", *arguments, "--data", here.data(0), settings={**here.environment, "BAOBAB_JOBS": "0"}
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


async def wait_until_empty(here: Installation, cell: str) -> None:
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while True:
            lines = (await run_cells(here, "list")).splitlines()
            (line,) = [line for line in lines if line.startswith(f"{cell}: ")]
            if "empty since" in line:
                assert "apps 0" in line
                return


async def write_until(
    session: aiohttp.ClientSession, server: ServerProcess, flats: list[MovingApp], event_task: asyncio.Task[None]
) -> None:
    """Clients write into every app until something has happened."""
    client = MoveClient(session, server)
    writing = [
        asyncio.create_task(client.write(flat, writer, random.Random(writer))) for flat in flats for writer in range(2)
    ]
    try:
        await event_task
    finally:
        client.stopping = True
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*writing)


async def verify_places(application: Application, flats: list[MovingApp], drained_cell: str) -> None:
    """Every app is in a cell that is not drained; what another one has of it is a copy that takes no writes."""
    services = application.services
    for flat in flats:
        region = (await services.directory.app(flat.app)).region
        assert region != drained_cell
        await services.regions[region].kv.incr(flat.app, "probe", 1, None, Quota())
        await services.regions[region].kv.delete(flat.app, "probe")
        for other in set(CELLS) - {region}:
            copy = services.regions[other].kv
            if (await copy.usage(flat.app)).keys:
                with pytest.raises(SpaceFrozen):
                    await copy.incr(flat.app, "probe", 1, None, Quota())


async def test_every_app_is_in_one_cell_with_all_its_keys_when_the_server_is_killed_in_the_middle_of_a_drain(
    here: Installation,
) -> None:
    dice, flats = random.Random(33), list[MovingApp]()
    async with open_session() as session:
        for number in list_rounds(1):
            drained_cell = CELLS[(number + 1) % len(CELLS)]
            with here.start_machine() as server:
                while len(flats) < APPS:
                    flats.append(MovingApp(await create_app(session, server, f"flat-{len(flats)}")))

                async def kill_after_drain(server: ServerProcess = server, drained_cell: str = drained_cell) -> None:
                    await run_cells(here, "drain", drained_cell)
                    await asyncio.sleep(dice.random() * LONGEST_LIFE)
                    server.kill()

                await write_until(session, server, flats, asyncio.create_task(kill_after_drain()))
            with here.start_machine() as server:
                task = asyncio.create_task(wait_until_empty(here, drained_cell))
                await write_until(session, server, flats, task)
                for flat in flats:
                    await flat.ledger.verify(session, server.address, flat.app)
                server.terminate()
            settings = load_settings({**here.environment, "BAOBAB_JOBS": "0"}, data=here.data(0))
            async with open_application(settings) as application:
                await verify_places(application, flats, drained_cell)
            await run_cells(here, "admit", drained_cell)
