"""A geography may have several cells: a new app goes to the one that has the least of them."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab.settings import SettingsError, load_settings
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation

CELLS = """
[eu-1]
geography = "eu"
[eu-2]
geography = "eu"
[us-1]
geography = "us"
max_apps = 2
[us-2]
geography = "us"
max_apps = 4
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


async def init_app(baobab: Baobab, name: str, region: str | None = None) -> Any:
    body = {"name": name} if region is None else {"name": name, "region": region}
    return await baobab.client.post("/init", json=body, headers=baobab.owner)


async def create_apps(baobab: Baobab, region: str, number: int, prefix: str = "app") -> Counter[str]:
    """How many of some new apps each cell got."""
    answers = [await init_app(baobab, f"{prefix}-{region}-{turn}", region) for turn in range(number)]
    return Counter(answer.json()["region"] for answer in answers)


async def test_apps_of_a_geography_are_spread_over_its_cells(baobab: Baobab) -> None:
    assert await create_apps(baobab, "eu", 6) == {"eu-1": 3, "eu-2": 3}
    apps = (await baobab.client.get("/apps", headers=baobab.owner)).json()["apps"]
    assert Counter(app["region"] for app in apps) == {"eu-1": 3, "eu-2": 3}


async def test_a_cell_can_still_be_named_and_counts_with_what_it_has(baobab: Baobab, clock: FixedClock) -> None:
    assert await create_apps(baobab, "eu-1", 3) == {"eu-1": 3}
    assert await create_apps(baobab, "eu", 2) == {"eu-2": 2}
    apps = (await baobab.client.get("/apps", headers=baobab.owner)).json()["apps"]
    for app in (app for app in apps if app["region"] == "eu-1"):
        await baobab.client.delete(f"/apps/{app['id']}", headers=baobab.owner)
    # The counts are read again after some seconds.
    clock.advance(11)
    assert await create_apps(baobab, "eu", 2, "later") == {"eu-1": 2}


async def test_apps_that_are_made_at_once_are_spread_too(baobab: Baobab) -> None:
    answers = await asyncio.gather(*(init_app(baobab, f"at-once-{turn}", "eu") for turn in range(10)))
    assert Counter(answer.json()["region"] for answer in answers) == {"eu-1": 5, "eu-2": 5}


async def test_an_app_stays_where_it_is_when_it_is_asked_for_again(baobab: Baobab) -> None:
    first = (await init_app(baobab, "shop", "eu")).json()
    for region in ("eu", "us", None):
        again = await init_app(baobab, "shop", region)
        assert again.status_code == 200
        assert (again.json()["app_id"], again.json()["region"]) == (first["app_id"], first["region"])
    # Nor does it count again.
    assert await create_apps(baobab, "eu", 1) == {"eu-2" if first["region"] == "eu-1" else "eu-1": 1}


async def test_cells_fill_by_their_share_and_take_no_more_than_they_hold(baobab: Baobab) -> None:
    assert await create_apps(baobab, "us", 3) == {"us-1": 1, "us-2": 2}
    assert await create_apps(baobab, "us", 3, "more") == {"us-1": 1, "us-2": 2}
    for region in ("us", "us-1"):
        refusal = await init_app(baobab, "too-many", region)
        assert (refusal.status_code, refusal.headers["retry-after"]) == (503, "60")
        error = refusal.json()["error"]
        assert error["code"] == "region_full"
        assert "us-1" in error["message"]
    assert (await init_app(baobab, "elsewhere", "eu")).status_code == 201


async def test_what_callers_may_name_is_listed(baobab: Baobab) -> None:
    regions = (await baobab.client.get("/v1/regions")).json()["regions"]
    assert regions == ["local", "eu-1", "eu-2", "us-1", "us-2", "eu", "us"]
    refusal = await init_app(baobab, "lost", "mars")
    assert refusal.json()["error"]["details"]["regions"] == regions


async def test_an_installation_that_grows_a_second_cell_spreads_apps_that_name_no_region(tmp_path: Path) -> None:
    regions = tmp_path / "regions.toml"
    regions.write_text('[local-2]\ngeography = "local"\n')
    async with open_installation(tmp_path / "data", {"BAOBAB_REGIONS": str(regions)}) as baobab:
        created_regions = [(await init_app(baobab, f"unnamed-{turn}")).json()["region"] for turn in range(4)]
        assert Counter(created_regions) == {"local": 2, "local-2": 2}
        assert await create_apps(baobab, "local", 2) == {"local": 1, "local-2": 1}
        assert (await baobab.client.get("/v1/regions")).json() == {"regions": ["local", "local-2"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[eu-1]\ngeography = "Europe"', "eu-1.geography"),
        ("[eu-1]\nmax_apps = -1", "eu-1.max_apps"),
        ('[eu]\n[eu-1]\ngeography = "eu"\n[eu-2]\ngeography = "eu-1"', "eu-2 has the geography eu-1"),
    ],
)
def test_a_geography_that_is_wrong_is_refused_at_the_start(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "regions.toml"
    file.write_text(text)
    with pytest.raises(SettingsError, match=words):
        load_settings({"BAOBAB_REGIONS": str(file)}, data=tmp_path)
