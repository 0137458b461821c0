"""What many images and videos of one organisation cost the others: nothing."""

import asyncio

import pytest
from sqlalchemy import select, update

from baobab.tools.ai.media import jobs as media_jobs
from baobab.tools.ai.media.tables import generation_jobs
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.money import USD
from tests.jobs import PATIENCE_SECONDS, jobs
from tests.people import Person, person
from tests.tools.ai.media.conftest import IMAGE, VIDEO, House

WAITING = 8
"""How many images of one organisation a process has made at once."""


async def tenant(baobab: House, name: str) -> tuple[Person, str]:
    """An organisation with an app, and credits for whatever it asks for."""
    who = await person(baobab, name)
    await baobab.house.services.part(Credits).top_up(who.organisation_id, 100 * USD, f"for {name}")
    made = await baobab.client.post("/init", json={"name": name}, headers=who.headers)
    assert made.status_code == 201, made.text
    return who, made.json()["app_id"]


async def test_a_provider_that_is_slow_for_one_organisation_holds_up_no_other(baobab: House) -> None:
    greedy, theirs = await tenant(baobab, "greedy")
    other, mine = await tenant(baobab, "other")
    baobab.fake.going.clear()
    for _ in range(WAITING + 4):
        await baobab.submitted(theirs, "image", greedy.headers, model=IMAGE)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(baobab.fake.begun) < WAITING:
            await asyncio.sleep(0.005)
        path = await baobab.submitted(mine, "image", other.headers)
        while (await baobab.row(path)).ended_at is None:
            baobab.clock.advance(1)
            baobab.house.services.jobs.wake()
            await asyncio.sleep(0.005)
    assert (await baobab.poll(path, other.headers))["status"] == "completed"
    baobab.fake.going.set()


async def test_organisations_take_turns_when_what_nobody_looks_at_is_put_in_order(
    baobab: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media_jobs, "_ROUND", 2)
    baobab.fake.videos = "in_progress"
    greedy, theirs = await tenant(baobab, "greedy")
    other, mine = await tenant(baobab, "other")
    for _ in range(5):
        await baobab.submitted(theirs, "video", greedy.headers, model=VIDEO, duration=4)
    baobab.clock.advance(1)
    path = await baobab.submitted(mine, "video", other.headers, model=VIDEO, duration=4)
    await baobab.swept(301)
    assert (await baobab.row(path)).released_at is not None
    credits_ = baobab.house.services.part(Credits)
    assert (await credits_.balance(other.organisation_id)).reserved == 0
    assert (await credits_.balance(greedy.organisation_id)).reserved > 0


async def test_what_goes_on_after_a_move_is_still_its_organisations(baobab: House) -> None:
    baobab.fake.videos = "in_progress"
    who, app = await tenant(baobab, "moved")
    path = await baobab.submitted(app, "video", who.headers, model=VIDEO, duration=4)
    await baobab.worked()
    # As a move leaves it: the durable jobs stay behind.
    async with baobab.house.services.database.writing() as connection:
        await connection.execute(update(generation_jobs).values(worker=None))
    # Whoever called last is not whose job it is.
    await tenant(baobab, "bystander")
    await baobab.swept(60)
    row = await baobab.row(path)
    async with baobab.house.services.database.reading() as connection:
        found = (await connection.execute(select(jobs.c.tenant).where(jobs.c.id == row.worker))).scalar_one()
    assert found == who.organisation_id
