"""Draining a cell: its apps move to others of the geography, and it takes no new ones."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from baobab.cli.work.cells import admit_to_cell, drain_cell, show_cells
from baobab.tools.moves.errors import CellUnknown, NotDrainable
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.servers import TIMEOUT_SECONDS
from tests.tools.moves.test_moves import ask, create_filled_app, read_contents, wait_for_end

CELLS = """
[eu-1]
geography = "eu"
[eu-2]
geography = "eu"
[eu-3]
geography = "eu"
max_apps = 1
[us-1]
"""


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Baobab]:
    regions = tmp_path / "regions.toml"
    regions.write_text(CELLS)
    async with open_installation(tmp_path / "data", {"BAOBAB_REGIONS": str(regions)}, clock=clock) as installation:
        yield installation


async def read_line(baobab: Baobab, cell: str) -> str:
    """Returns the line about a cell that the operator reads."""
    (line,) = [line for line in await show_cells(baobab.application.services) if line.startswith(f"{cell}: ")]
    return line


async def find_regions(baobab: Baobab, apps: list[str]) -> set[str]:
    return {(await ask(baobab, "GET", f"/v1/{app}/config")).json()["region"] for app in apps}


async def drain_until(baobab: Baobab, clock: FixedClock, cell: str, words: str) -> str:
    """Let jobs run until the operator is told these words of a cell; the line."""
    for _ in range(40):
        await jobs.run_due_jobs(baobab.application)
        if words in (line := await read_line(baobab, cell)):
            return line
        clock.advance(3)
    raise AssertionError(line)


async def test_the_apps_of_a_drained_cell_move_to_another_with_all_that_they_have(
    baobab: Baobab, clock: FixedClock
) -> None:
    apps = [await create_filled_app(baobab, region="eu-1") for _ in range(6)]
    before = await read_contents(baobab, apps[0])
    lines = await drain_cell(baobab.application.services, "eu-1")
    # Some may be on their way already.
    assert any(line.startswith("eu-1: geography eu, apps ") and ", drained since " in line for line in lines)
    line = await drain_until(baobab, clock, "eu-1", "empty since")
    assert line.startswith("eu-1: geography eu, apps 0, copies that moves left behind 6, drained since")
    assert await find_regions(baobab, apps) == {"eu-2", "eu-3"}
    assert (await read_line(baobab, "eu-3")).startswith("eu-3: geography eu, apps 1 of 1")
    after = await read_contents(baobab, apps[0])
    assert {key: value for key, (value, _) in after.items()} == {key: value for key, (value, _) in before.items()}
    for app in apps:
        assert (await ask(baobab, "POST", f"/v1/{app}/kv/n/incr")).json() == {"value": 8}
    # Its owner can see who has moved it.
    logs = (await ask(baobab, "GET", f"/v1/{apps[0]}/audit-logs?event_type=app.move")).json()
    assert {(row["actor_type"], row["event_data"]["from"]) for row in logs["logs"]} == {("operator", "eu-1")}
    # The job ends once no call can have chosen the cell before.
    clock.advance(60)
    await jobs.run_due_jobs(baobab.application)
    assert not [row for row in await jobs.list_unfinished_jobs(baobab.application) if row.kind == "moves_drain"]


async def test_only_so_many_moves_are_under_way_at_once(baobab: Baobab, clock: FixedClock) -> None:
    for _ in range(20):
        await baobab.create_app(region="eu-1")
    await drain_cell(baobab.application.services, "eu-1")
    await jobs.run_due_jobs(baobab.application)
    assert "moves out of it 16" in await read_line(baobab, "eu-1")
    await drain_until(baobab, clock, "eu-1", "empty since")


async def test_a_drained_cell_takes_no_apps_until_the_operator_admits_them(baobab: Baobab) -> None:
    services = baobab.application.services
    elsewhere = await baobab.create_app(region="us-1")
    await drain_cell(services, "eu-1")
    refusal = await ask(baobab, "POST", "/init", {"name": "named", "region": "eu-1"})
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (503, "region_full")
    move = await ask(baobab, "POST", f"/v1/apps/{elsewhere}/move", {"dest_region": "eu-1"})
    assert (move.status_code, move.json()["error"]) == (409, "ineligible")
    apps = [await baobab.create_app(region="eu") for _ in range(3)]
    assert await find_regions(baobab, apps) == {"eu-2", "eu-3"}
    assert "drained" not in "".join(await admit_to_cell(services, "eu-1"))
    await baobab.create_app(region="eu-1")
    assert await find_regions(baobab, [await baobab.create_app(region="eu")]) == {"eu-1"}


async def test_a_drain_that_is_stopped_moves_no_more_apps(baobab: Baobab, clock: FixedClock) -> None:
    services = baobab.application.services
    apps = [await baobab.create_app(region="eu-1") for _ in range(18)]
    await drain_cell(services, "eu-1")
    await jobs.run_due_jobs(baobab.application)
    await admit_to_cell(services, "eu-1")
    for _ in range(5):
        clock.advance(5)
        await jobs.run_due_jobs(baobab.application)
    assert (await read_line(baobab, "eu-1")).startswith("eu-1: geography eu, apps 2, ")
    assert await find_regions(baobab, apps) == {"eu-1", "eu-2", "eu-3"}
    # The next drain is another one, and takes the rest.
    await drain_cell(services, "eu-1")
    assert "apps 0" in await drain_until(baobab, clock, "eu-1", "empty since")


async def test_an_app_that_is_on_its_way_when_the_drain_begins_is_waited_for(baobab: Baobab, clock: FixedClock) -> None:
    app = await create_filled_app(baobab, region="us-1")
    move = (await ask(baobab, "POST", f"/v1/apps/{app}/move", {"dest_region": "eu-1"})).json()["migration_id"]
    await drain_cell(baobab.application.services, "eu-1")
    await wait_for_end(baobab, clock, app, move)
    await drain_until(baobab, clock, "eu-1", "empty since")
    assert await find_regions(baobab, [app]) <= {"eu-2", "eu-3"}
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n")).json() == {"value": 7}


async def test_a_drain_without_room_elsewhere_says_so_and_goes_on_when_there_is(
    baobab: Baobab, clock: FixedClock
) -> None:
    services = baobab.application.services
    apps = [await baobab.create_app(region="eu-1") for _ in range(2)]
    # This one first, for the jobs of a drain begin at once: the apps of eu-1 would already be on their way to it.
    await drain_cell(services, "eu-2")
    await drain_cell(services, "eu-1")
    line = await drain_until(baobab, clock, "eu-1", "stuck: ")
    assert "eu-3" in line
    await admit_to_cell(services, "eu-2")
    assert "stuck" not in await drain_until(baobab, clock, "eu-1", "empty since")
    assert await find_regions(baobab, apps) == {"eu-2", "eu-3"}


async def test_what_cannot_be_drained_is_refused_in_words(baobab: Baobab) -> None:
    services = baobab.application.services
    with pytest.raises(CellUnknown, match="eu-1, eu-2, eu-3, us-1"):
        await drain_cell(services, "mars")
    with pytest.raises(CellUnknown):
        await admit_to_cell(services, "mars")
    for alone in ("us-1", "local"):
        with pytest.raises(NotDrainable, match="the only cell of the geography"):
            await drain_cell(services, alone)
    for cell in ("eu-1", "eu-1", "eu-2"):
        await drain_cell(services, cell)
    with pytest.raises(NotDrainable, match="Every other cell"):
        await drain_cell(services, "eu-3")


async def test_a_cell_that_does_not_answer_is_drained_when_it_does_but_for_what_an_owner_has_called_back(
    tmp_path: Path, clock: FixedClock
) -> None:
    (tmp_path / "regions.toml").write_text(CELLS)
    variables = {"BAOBAB_REGIONS": str(tmp_path / "regions.toml")}
    # A region without an address of its own has its rows in a file.
    file, aside = tmp_path / "data" / "regions" / "eu-1.db", tmp_path / "aside.db"
    async with open_installation(tmp_path / "data", variables, clock=clock) as baobab:
        app, called_back = [await create_filled_app(baobab, region="eu-1") for _ in range(2)]
    file.rename(aside)
    file.write_bytes(b"this is no database" * 1000)
    async with open_installation(tmp_path / "data", variables, clock=clock) as baobab:
        await drain_cell(baobab.application.services, "eu-1")
        assert "A store does not answer." in await drain_until(baobab, clock, "eu-1", "stuck: ")
        active = (await ask(baobab, "GET", f"/v1/apps/{called_back}/migrations/active")).json()["migration"]
        path = f"/v1/apps/{called_back}/migrations/{active['migration_id']}/abort"
        assert (await ask(baobab, "POST", path)).status_code == 200
        aside.replace(file)
        async with asyncio.timeout(TIMEOUT_SECONDS):
            while "eu-1" not in baobab.application.services.regions:
                await asyncio.sleep(0.05)
        clock.advance(60)
        line = await drain_until(baobab, clock, "eu-1", "called back by its owner")
        assert "apps 1" in line
        assert await find_regions(baobab, [app]) <= {"eu-2", "eu-3"}
        assert await find_regions(baobab, [called_back]) == {"eu-1"}
        # It can be written while it is left alone.
        assert (await ask(baobab, "POST", f"/v1/{called_back}/kv/n/incr")).json() == {"value": 8}
        clock.advance(300)
        await drain_until(baobab, clock, "eu-1", "empty since")
        assert (await ask(baobab, "POST", f"/v1/{app}/kv/n/incr")).json() == {"value": 8}
        assert (await ask(baobab, "POST", f"/v1/{called_back}/kv/n/incr")).json() == {"value": 9}


async def test_the_apps_of_each_cell_are_counted_for_the_operator(baobab: Baobab) -> None:
    for region in ("eu-1", "eu-2", "eu-2"):
        await baobab.create_app(region=region)
    lines = (await baobab.fetch_metrics()).splitlines()
    numbers = {line for line in lines if line.startswith("baobab_cell_apps{")}
    assert numbers == {
        'baobab_cell_apps{cell="eu-1"} 1.0',
        'baobab_cell_apps{cell="eu-2"} 2.0',
        'baobab_cell_apps{cell="eu-3"} 0.0',
        'baobab_cell_apps{cell="local"} 0.0',
        'baobab_cell_apps{cell="us-1"} 0.0',
    }
