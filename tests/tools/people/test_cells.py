"""Paid calls of an app whose rows are in another database than the credits: the charge and its row come together."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.clock import FixedClock
from tests.installation import open_installation
from tests.jobs import run_job
from tests.tools.people.conftest import CENT, LIVE, Directory
from tests.tools.people.fakes import NETWORK, Fake

FAR = "eu-west-1"


class KilledError(Exception):
    """The process has ended here."""


@pytest.fixture
async def far(tmp_path: Path, fake: Fake) -> AsyncIterator[Directory]:
    """An app that looks up people, in a region with a database of its own."""
    regions, clock = tmp_path / "regions.toml", FixedClock()
    regions.write_text(f'[{FAR}]\ndatabase_url = "sqlite:///{tmp_path / "far.db"}"\n')
    addresses = {"BAOBAB_PEOPLE_PRIMARY_URL": f"{fake.url}/api/v2", "BAOBAB_PEOPLE_SECONDARY_URL": fake.url}
    variables = {**LIVE, **addresses, "BAOBAB_REGIONS": str(regions), "BAOBAB_PLAN": "playground"}
    async with open_installation(tmp_path / "data", variables, clock=clock) as baobab:
        directory = Directory(baobab, await baobab.create_app(region=FAR), clock)
        await directory.give(100 * CENT)
        yield directory


def kill_before_the_charge(patch: pytest.MonkeyPatch, services: Any) -> None:
    def settle(*_: Any, **__: Any) -> Any:
        raise KilledError

    patch.setattr(services.credits, "settle", settle)


def kill_after_the_charge(patch: pytest.MonkeyPatch, services: Any) -> None:
    database, settle = services.stores_of(FAR).database, services.credits.settle

    async def settle_and_stop(*arguments: Any, **options: Any) -> int:
        def write(**_: Any) -> Any:
            raise KilledError

        charge: int = await settle(*arguments, **options)
        patch.setattr(database, "writing_unit", write)
        return charge

    patch.setattr(services.credits, "settle", settle_and_stop)


@pytest.mark.parametrize("kill", [kill_before_the_charge, kill_after_the_charge])
async def test_a_crash_leaves_no_charge_without_its_row(
    far: Directory, kill: Callable[[pytest.MonkeyPatch, Any], None]
) -> None:
    person = {"networkProfileUrl": f"{NETWORK}/in/person-1"}
    calls: dict[str, dict[str, Any]] = {"/search/person": {"query": "engineers"}, "/profile": person}
    for path, body in calls.items():
        with pytest.MonkeyPatch.context() as patch:
            kill(patch, far.baobab.application.services)
            assert (await far.ask(path, **body)).status_code == 500
    for _ in range(2):
        far.clock.advance(300)
        await far.sweep()
        assert sorted(await far.read_usage()) == [("profile", 2, "0.04"), ("search_person", 7, "0.0084")]
        assert await far.read_balance() == 100 * CENT - 48_400_000


async def test_the_rows_of_calls_that_end_well_have_their_charge_at_once(far: Directory) -> None:
    answer = (await far.ask("/search/person", query="engineers")).json()
    assert answer["usage"] == {"creditsConsumed": 7, "usdCharged": 0.0084}
    assert await far.read_usage() == [("search_person", 7, "0.0084")]
    await run_job(far.baobab.application, "people_sweep")
    assert await far.read_balance() == 100 * CENT - 8_400_000
