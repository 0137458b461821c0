"""A moved app keeps its jobs and their files; what is under way when it moves is made where it has gone to."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.clock import FixedClock
from tests.tools.ai.media.conftest import VIDEO, MediaBaobab, open_media
from tests.tools.ai.media.studio import Studio

EU = "eu-west-1"


@pytest.fixture
async def baobab(
    tmp_path: Path, clock: FixedClock, fake: Studio, settings: dict[str, str]
) -> AsyncIterator[MediaBaobab]:
    (tmp_path / "regions.toml").write_text(f"[{EU}]\n")
    further = {"BAOBAB_REGIONS": str(tmp_path / "regions.toml"), "BAOBAB_PLAN": "enterprise"}
    async with open_media(tmp_path / "data", fake, clock, {**settings, **further}) as opened_baobab:
        yield opened_baobab


async def start_move(baobab: MediaBaobab, app: str, to: str) -> str:
    response = await baobab.client.post(f"/v1/apps/{app}/move", json={"dest_region": to}, headers=baobab.owner)
    assert response.status_code == 202, response.text
    await baobab.run_due_jobs()
    return f"/v1/apps/{app}/migrations/{response.json()['migration_id']}"


async def finish_move(baobab: MediaBaobab, move: str) -> None:
    for _ in range(20):
        await baobab.run_due_jobs(5)
        move_state: Any = (await baobab.get(move)).json()
        if move_state["completed_at"] is not None:
            assert move_state["current_step"] == "completed", move_state
            return
    raise AssertionError(move_state)


async def test_jobs_and_files_are_there_after_the_move_and_none_is_made_twice(baobab: MediaBaobab) -> None:
    app = await baobab.create_app()
    image_path = await baobab.submit_job(app, "image")
    before = await baobab.poll_at_end(image_path)
    image = (await baobab.get(before["content_urls"][0])).content
    baobab.fake.videos = "in_progress"
    path = await baobab.submit_job(app, "video", model=VIDEO, duration=4)
    await baobab.run_due_jobs()
    unpaid = await baobab.submit_job(app, "image")
    for _ in range(3):
        await baobab.run_due_jobs(1)
    move = await start_move(baobab, app, EU)
    # While it moves, it can be looked at; nothing is begun, and nothing is charged.
    assert (await baobab.poll(path))["status"] == "in_progress"
    assert (await baobab.get(unpaid)).status_code == 503
    assert (await baobab.get(before["content_urls"][0])).content == image
    refusal = await baobab.submit(app, "image")
    assert (refusal.status_code, refusal.json()["code"]) == (503, "app_migrating")
    assert (await baobab.get_balance()).reserved_nanos == 4 * 120_000_000
    await finish_move(baobab, move)
    assert await baobab.poll(image_path) == before
    assert (await baobab.get(before["content_urls"][0])).content == image
    assert (await baobab.poll(unpaid))["settled_at"] is not None
    baobab.fake.videos = "completed"
    await baobab.run_sweep(60)
    job = await baobab.poll_at_end(path)
    assert (job["status"], job["charged_credits_usd"]) == ("completed", 0.48)
    assert (await baobab.get(job["content_urls"][0])).content == baobab.fake.file
    assert len(baobab.fake.submissions) == 1
    # And back again: what is new comes along.
    await finish_move(baobab, await start_move(baobab, app, "local"))
    assert await baobab.poll(path) == job
    assert (await baobab.get(job["content_urls"][0])).content == baobab.fake.file
    assert (await baobab.submit(app, "image")).status_code == 202


async def test_what_has_ended_before_a_move_is_told_and_handed_out_after_it_and_charged_once(
    baobab: MediaBaobab,
) -> None:
    app = await baobab.create_app()
    path = await baobab.submit_job(app, "video", model=VIDEO, duration=4)
    await baobab.wait_for_end(path)
    assert (await baobab.get_row(path)).status == "completed"
    move = await start_move(baobab, app, EU)
    for place in (path, f"{path}/content"):
        refusal = await baobab.get(place)
        assert (refusal.status_code, refusal.json()["code"], refusal.headers["retry-after"]) == (
            503,
            "app_migrating",
            "5",
        )
    assert await baobab.list_usage() == []
    await finish_move(baobab, move)
    assert (await baobab.get(f"{path}/content")).content == baobab.fake.file
    assert (await baobab.poll(path))["charged_credits_usd"] == 0.48
    (usage,) = await baobab.list_usage()
    assert (usage.requests, usage.cost) == (1, 480_000_000)
    assert (await baobab.get_balance()).reserved_nanos == 0


async def test_an_app_of_another_region_has_its_jobs_and_files_there_only(baobab: MediaBaobab) -> None:
    app = await baobab.create_app(region=EU)
    job = await baobab.generate(app, "image")
    assert (await baobab.get(job["content_urls"][0])).status_code == 200
    regions = baobab.application.services.regions
    assert await regions["local"].objects.list(f"{app}/", "", 10) == []
    assert len(await regions[EU].objects.list(f"{app}/", "", 10)) == 1
    assert (await baobab.client.delete(f"/apps/{app}", headers=baobab.owner)).status_code == 200
    assert await regions[EU].objects.list(f"{app}/", "", 10) == []
    await baobab.run_due_jobs(61)
    assert await baobab.get_row(f"/v1/{app}/images/completions/{job['job_id']}") is None
