"""Strangers who write at the same time: what belongs to all of them is right, and none waits for another."""

import asyncio

from sqlalchemy import insert

from baobab.runtime.jobs.job_tables import events
from tests.servers import TIMEOUT_SECONDS
from tests.tools.conftest import ToolHarness


async def test_strangers_who_want_one_subdomain_at_once_each_get_their_own(harness: ToolHarness) -> None:
    people = [await harness.sign_up(f"stranger{number}@example.com") for number in range(8)]
    results = await asyncio.gather(*(harness.call("apps_init", who, name="shop") for who in people))
    assert {app["created"] for app in results} == {True}
    assert len({app["subdomain"] for app in results}) == len(people)


async def test_members_of_one_organisation_make_one_app_of_a_name_wherever_each_is_at_home(
    harness: ToolHarness,
) -> None:
    owner = await harness.sign_up("owner@example.com")
    organisation = await harness.create_organisation(owner)
    people = [owner, *[await harness.join(organisation, owner, f"member{n}@example.com", "admin") for n in range(5)]]
    results = await asyncio.gather(
        *(harness.call("apps_init", who, name="shop", organization_id=organisation) for who in people for _ in range(2))
    )
    assert len({app["app_id"] for app in results}) == 1
    assert [app["created"] for app in results].count(True) == 1


async def test_a_transaction_of_one_app_that_stands_still_delays_no_other_app(harness: ToolHarness) -> None:
    """On files all writers exclude each other: there the other call is made when the first has ended."""
    alone, other = [await harness.sign_up(f"{name}@example.com") for name in ("alone", "other")]
    stuck = await harness.call("apps_init", alone, name="stuck")
    free = await harness.call("apps_init", other, name="free")
    database = harness.services.database
    event = {"id": "stuck", "type": "test", "at": harness.services.clock.now(), "data": {}}
    async with database.writing_unit(lock=stuck["app_id"]) as unit:
        await unit.execute(insert(events), event)
        same = asyncio.create_task(harness.call("apps_update", alone, app_id=stuck["app_id"], name="renamed"))
        calls = [
            asyncio.create_task(harness.call("apps_update", other, app_id=free["app_id"], name="faster")),
            asyncio.create_task(
                harness.call("organisations_update", other, organization_id=other.organisation_id, name="Others")
            ),
        ]
        if database.dialect == "postgresql":
            async with asyncio.timeout(TIMEOUT_SECONDS):
                await asyncio.gather(*calls)
        assert not same.done()
    await asyncio.gather(same, *calls)
    assert (await same)["name"] == "renamed"
