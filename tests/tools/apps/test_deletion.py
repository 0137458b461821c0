"""Deleting an app: nothing of it stays, whatever happens at the same moment."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from baobab.storage.kv.engine import Quota, Tier
from baobab.storage.sql.tables import metadata
from tests import jobs
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import create_key, create_person

USER = "11111111-1111-4111-8111-111111111111"


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def baobab(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Baobab]:
    async with open_installation(tmp_path / "data", clock=clock) as installation:
        yield installation


async def delete_app(baobab: Baobab, app: Any) -> Any:
    return await baobab.client.delete(f"/apps/{app}", headers=baobab.owner)


def get_kv(baobab: Baobab) -> Any:
    return baobab.application.services.regions["local"].kv


async def find_tables(baobab: Baobab, app: Any, *, besides: Any = ("audit_logs", "events", "notices")) -> Any:
    """The tables that still have rows which name the app."""
    row_counts = {}
    async with baobab.application.services.database.reading() as connection:
        for table in metadata.sorted_tables:
            naming = ("id",) if table.name == "apps" else ("app_id", "owner")
            for column in (column for column in table.columns if column.name in naming):
                count = await connection.scalar(select(func.count()).select_from(table).where(column == app))
                if count and table.name not in besides:
                    row_counts[table.name] = count
    return row_counts


async def test_a_deleted_app_is_gone_with_everything_that_it_owned(baobab: Baobab) -> None:
    app, stays = await baobab.create_app(name="shop"), await baobab.create_app(name="other")
    client, owner = baobab.client, baobab.owner
    anon = (await client.get(f"/v1/{app}/config", headers=owner)).json()["anon_key"]
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    function_key = (await client.post(f"/v1/{app}/kv/_rotate_key", headers=owner)).json()["function_key"]
    user = await baobab.user_headers(app, USER)
    rule = {"read": "public", "write": "authed"}
    assert (await client.put(f"/v1/{app}/kv/_expose/open:**", json=rule, headers=owner)).status_code == 204
    for name in ("open:a", "b", "c"):
        assert (await client.put(f"/v1/{app}/kv/{name}", json={"value": 1}, headers=owner)).status_code == 204
    assert (await client.put(f"/v1/{stays}/kv/b", json={"value": 2}, headers=owner)).status_code == 204
    assert (await client.get(f"/v1/{app}/kv/none", headers=app_key)).status_code == 404
    assert (await client.get(f"/v1/{app}/kv/_audit_recent", headers=app_key)).json()["entries"]
    assert (await client.get(f"/v1/{app}/kv/b", headers={"authorization": f"Bearer {function_key}"})).status_code == 200
    assert (await client.get(f"/v1/{app}/kv/open:a", headers=user)).status_code == 200
    assert (await client.get(f"/v1/{app}/kv/open:a", headers={"apikey": anon})).status_code == 200

    response = await delete_app(baobab, app)

    assert response.status_code == 200
    assert response.json() == {"message": "App shop was deleted.", "app_id": app}
    assert await find_tables(baobab, app) == {}
    assert await get_kv(baobab).usage(app) == (0, 0)
    for path in (f"/v1/{app}/config", f"/apps/{app}/status", f"/v1/{app}/kv/b"):
        assert (await client.get(path, headers=owner)).status_code == 404, path
    for headers in (app_key, {"authorization": f"Bearer {function_key}"}, user, {"apikey": anon}):
        assert (await client.get("/platform/me", headers=headers)).status_code == 401, headers
    assert (await client.get("/kv/b", headers={**owner, "host": "shop.localhost"})).status_code == 404
    assert (await client.get(f"/v1/{stays}/kv/b", headers=owner)).json() == {"value": 2}
    assert [row["id"] for row in (await client.get("/apps", headers=owner)).json()["apps"]] == [stays]


async def test_the_name_and_the_subdomain_of_a_deleted_app_are_free_again(baobab: Baobab) -> None:
    app = await baobab.create_app(name="shop")
    await delete_app(baobab, app)
    again = await baobab.client.post("/init", json={"name": "shop"}, headers=baobab.owner)
    assert again.status_code == 201
    assert again.json()["subdomain"] == "shop"
    assert again.json()["app_id"] != app


async def test_deleting_twice_answers_404_the_second_time(baobab: Baobab) -> None:
    app = await baobab.create_app()
    answers = await asyncio.gather(*(delete_app(baobab, app) for _ in range(5)))
    assert sorted(answer.status_code for answer in answers) == [200, 404, 404, 404, 404]


async def test_a_write_that_slips_in_during_the_deletion_is_purged_after_a_minute(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app()
    await delete_app(baobab, app)
    # A worker that still holds the app in memory lets this through.
    await get_kv(baobab).put(app, "late", b"1", None, Tier.DURABLE, Quota())
    await get_kv(baobab).put(app, "late too", b"1", None, Tier.EPHEMERAL, Quota())
    clock.advance(59)
    await jobs.run_due_jobs(baobab.application)
    assert (await get_kv(baobab).usage(app)).keys == 2
    clock.advance(2)
    await jobs.run_due_jobs(baobab.application)
    assert await get_kv(baobab).usage(app) == (0, 0)
    assert await find_tables(baobab, app, besides=("audit_logs", "events", "notices")) == {}


async def test_a_refusal_that_is_written_down_after_the_deletion_is_purged_too(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app()
    await baobab.client.get(f"/v1/{app}/kv/none", headers=baobab.owner)
    await delete_app(baobab, app)
    await baobab.application.services.failures.flush()
    clock.advance(61)
    await jobs.run_due_jobs(baobab.application)
    assert await find_tables(baobab, app) == {}


async def test_writes_that_race_with_the_deletion_leave_nothing_behind(baobab: Baobab, clock: Any) -> None:
    app = await baobab.create_app()

    async def write(number: Any) -> Any:
        return await baobab.client.put(f"/v1/{app}/kv/k{number}", json={"value": number}, headers=baobab.owner)

    before, after = [write(n) for n in range(20)], [write(n) for n in range(20, 40)]
    answers = await asyncio.gather(*before, delete_app(baobab, app), *after)
    assert {answer.status_code for answer in answers} <= {200, 204, 404}
    clock.advance(61)
    await jobs.run_due_jobs(baobab.application)
    assert await get_kv(baobab).usage(app) == (0, 0)


async def test_the_audit_log_remembers_who_deleted_the_app(baobab: Baobab) -> None:
    app = await baobab.create_app(name="shop")
    await delete_app(baobab, app)
    table = metadata.tables["audit_logs"]
    async with baobab.application.services.database.reading() as connection:
        row = (await connection.execute(select(table).where(table.c.event_type == "app.delete"))).one()
    assert (row.app_id, row.resource_id, row.success, row.action) == (app, app, True, "delete")
    assert row.event_data["name"] == "shop"
    assert row.actor_type == "api_key"


async def test_neither_a_member_nor_a_key_of_the_app_can_delete_it(baobab: Baobab) -> None:
    app = await baobab.create_app()
    member, admin = await create_person(baobab, "ada", role="member"), await create_person(baobab, "bob", role="admin")
    app_key = await create_key(baobab, key_scope="app", target_app_id=app)
    for headers in (member.headers, app_key):
        assert (await baobab.client.delete(f"/apps/{app}", headers=headers)).status_code == 403
    assert (await baobab.client.delete(f"/apps/{app}", headers=admin.headers)).status_code == 200


async def test_the_data_of_a_region_that_is_served_elsewhere_is_left_to_those_who_serve_it(
    tmp_path: Path, clock: Any
) -> None:
    regions = tmp_path / "regions.toml"
    regions.write_text("[abroad]\n")
    async with open_installation(tmp_path, {"BAOBAB_REGIONS": str(regions)}, clock=clock) as everywhere:
        await delete_app(everywhere, await everywhere.create_app(region="abroad"))
    async with open_installation(tmp_path, clock=clock) as here:
        clock.advance(61)
        await jobs.run_due_jobs(here.application)
        (unfinished_job,) = await jobs.list_unfinished_jobs(here.application)
        assert "abroad" in unfinished_job.error
