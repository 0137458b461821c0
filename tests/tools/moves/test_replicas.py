"""Deleting the copy that a move has left behind, when the app is to come back: what is live is never deleted."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation

HOME, EU = "local", "eu-west-1"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
def variables(tmp_path: Path) -> dict[str, str]:
    regions = tmp_path / "regions.toml"
    regions.write_text(f"[{EU}]\n")
    return {"BAOBAB_REGIONS": str(regions)}


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock, variables: dict[str, str]) -> AsyncIterator[Baobab]:
    async with open_installation(tmp_path / "data", variables, clock=clock) as installation:
        yield installation


async def ask(baobab: Baobab, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    answer = await baobab.client.request(method, path, json=body, headers=baobab.owner)
    return answer.status_code, answer.json()


async def move_app(baobab: Baobab, clock: FixedClock, app: str, to: str) -> str:
    status, answer_json = await ask(baobab, "POST", f"/v1/apps/{app}/move", {"dest_region": to})
    assert status == 202, answer_json
    move: str = answer_json["migration_id"]
    for _ in range(20):
        await jobs.run_due_jobs(baobab.application)
        if (await ask(baobab, "GET", f"/v1/apps/{app}/migrations/{move}"))[1]["current_step"] == "completed":
            return move
        clock.advance(5)
    raise AssertionError(move)


async def test_an_app_comes_back_only_when_the_old_copy_there_has_gone(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app(region=EU)
    await ask(baobab, "POST", f"/v1/{app}/kv/n/incr", {"by": 7})
    move = await move_app(baobab, clock, app, HOME)
    far = baobab.application.services.regions[EU].kv
    await far.close()
    assert await ask(baobab, "DELETE", f"/v1/source-replicas/{move}") == (200, {"status": "torn_down"})
    await jobs.run_due_jobs(baobab.application)
    await far.open()
    # It answers again, but what is to be deleted there has not been tried anew.
    status, refusal = await ask(baobab, "POST", f"/v1/apps/{app}/move", {"dest_region": EU})
    assert (status, refusal["error"]) == (409, "ineligible")
    assert "still being deleted" in refusal["reason"]
    clock.advance(5)
    await jobs.run_due_jobs(baobab.application)
    assert await far.usage(app) == (0, 0)
    await move_app(baobab, clock, app, EU)
    for _ in range(10):
        clock.advance(60)
        await jobs.run_due_jobs(baobab.application)
    assert (await ask(baobab, "GET", f"/v1/{app}/kv/n"))[1] == {"value": 7}


async def test_a_copy_to_which_the_app_is_on_its_way_back_cannot_be_deleted(
    tmp_path: Path, clock: Any, variables: Any
) -> None:
    idle = {**variables, "BAOBAB_JOBS": "0"}
    async with open_installation(tmp_path / "data", idle, clock=clock) as asking:
        app = await asking.create_app(region=EU)
        async with open_installation(tmp_path / "data", variables, clock=clock) as working:
            move = await move_app(working, clock, app, HOME)
        status, back = await ask(asking, "POST", f"/v1/apps/{app}/migrations/{move}/reverse")
        assert status == 202, back
        status, refusal = await ask(asking, "DELETE", f"/v1/source-replicas/{move}")
        assert (status, refusal["error"]) == (409, "no_source_replica")
