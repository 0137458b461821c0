"""What many images and videos of one organisation cost the others: nothing."""

import asyncio

import pytest
from sqlalchemy import select, update

from baobab.tools.ai.media import jobs as media_jobs
from baobab.tools.ai.media.tables import generation_jobs
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.limits.money import USD
from tests.jobs import TIMEOUT_SECONDS, jobs
from tests.people import Person, create_person
from tests.tools.ai.media.conftest import IMAGE, VIDEO, MediaBaobab

WAITING = 8
"""How many images of one organisation a process has made at once."""


async def create_tenant(baobab: MediaBaobab, name: str) -> tuple[Person, str]:
    """An organisation with an app, and credits for whatever it asks for."""
    who = await create_person(baobab, name)
    await baobab.application.services.part(Credits).top_up(who.organisation_id, 100 * USD, f"for {name}")
    response = await baobab.client.post("/init", json={"name": name}, headers=who.headers)
    assert response.status_code == 201, response.text
    return who, response.json()["app_id"]


async def test_a_provider_that_is_slow_for_one_organisation_holds_up_no_other(baobab: MediaBaobab) -> None:
    greedy, theirs = await create_tenant(baobab, "greedy")
    other, mine = await create_tenant(baobab, "other")
    baobab.fake.going.clear()
    for _ in range(WAITING + 4):
        await baobab.submit_job(theirs, "image", greedy.headers, model=IMAGE)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        while len(baobab.fake.submissions) < WAITING:
            await asyncio.sleep(0.005)
        path = await baobab.submit_job(mine, "image", other.headers)
        while (await baobab.get_row(path)).ended_at is None:
            baobab.clock.advance(1)
            baobab.application.services.jobs.wake()
            await asyncio.sleep(0.005)
    assert (await baobab.poll(path, other.headers))["status"] == "completed"
    baobab.fake.going.set()


async def test_organisations_take_turns_when_what_nobody_looks_at_is_put_in_order(
    baobab: MediaBaobab, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_jobs, "_ROUND", 2)
    baobab.fake.videos = "in_progress"
    greedy, theirs = await create_tenant(baobab, "greedy")
    other, mine = await create_tenant(baobab, "other")
    for _ in range(5):
        await baobab.submit_job(theirs, "video", greedy.headers, model=VIDEO, duration=4)
    baobab.clock.advance(1)
    path = await baobab.submit_job(mine, "video", other.headers, model=VIDEO, duration=4)
    await baobab.run_sweep(301)
    assert (await baobab.get_row(path)).released_at is not None
    credits_ = baobab.application.services.part(Credits)
    assert (await credits_.balance(other.organisation_id)).reserved_nanos == 0
    assert (await credits_.balance(greedy.organisation_id)).reserved_nanos > 0


async def test_what_goes_on_after_a_move_is_still_its_organisations(baobab: MediaBaobab) -> None:
    baobab.fake.videos = "in_progress"
    who, app = await create_tenant(baobab, "moved")
    path = await baobab.submit_job(app, "video", who.headers, model=VIDEO, duration=4)
    await baobab.run_due_jobs()
    # As a move leaves it: the durable jobs stay behind.
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(update(generation_jobs).values(worker=None))
    # Whoever called last is not whose job it is.
    await create_tenant(baobab, "bystander")
    await baobab.run_sweep(60)
    row = await baobab.get_row(path)
    async with baobab.application.services.database.reading() as connection:
        tenant = (await connection.execute(select(jobs.c.tenant).where(jobs.c.id == row.worker))).scalar_one()
    assert tenant == who.organisation_id
