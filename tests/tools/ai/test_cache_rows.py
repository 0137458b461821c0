"""Kept answers as they lie in the database: sealed, bounded, for a time, and where their app is."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest
from sqlalchemy import func, insert, select, update

from baobab.tools.ai.tables import response_cache as rows
from tests import jobs
from tests.backends import read_database as kept_by_database
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import get_first_organisation
from tests.tools.ai.conftest import HELLO, TEXT, TIMEOUT_SECONDS, Installation
from tests.tools.ai.test_cache import build_question, cache_state, count_rows


async def test_nothing_of_it_can_be_read_in_the_database(baobab: Installation) -> None:
    secret = build_question("a secret of the caller's")
    assert cache_state(await baobab.chat(**secret)) == "miss"
    stored_bytes = kept_by_database(baobab.data)
    for word in (b"a secret of the", TEXT.encode()[:20], b"chatcmpl-upstream"):
        assert word not in stored_bytes
    assert cache_state(await baobab.chat(**secret)) == "hit"


async def test_an_answer_that_was_copied_to_another_request_is_not_told(baobab: Installation) -> None:
    one, other = build_question("one"), build_question("other")
    for question in (one, other):
        assert cache_state(await baobab.chat(**question)) == "miss"
    async with baobab.application.services.database.writing() as connection:
        answers = (await connection.execute(select(rows.c.digest, rows.c.answer).order_by(rows.c.kept_at))).all()
        await connection.execute(
            update(rows).where(rows.c.digest == answers[1].digest).values(answer=answers[0].answer)
        )
    assert cache_state(await baobab.chat(**other)) == "miss"
    assert cache_state(await baobab.chat(**other)) == "hit"


async def test_the_oldest_make_room_for_the_newest(baobab: Installation) -> None:
    services = baobab.application.services
    first, second = build_question("first"), build_question("second")
    assert cache_state(await baobab.chat(**first)) == "miss"

    async def fill(number: int, size: int, age: int) -> None:
        organisation_id, now = await get_first_organisation(baobab), services.clock.now()
        common = {"organisation_id": organisation_id, "size": size, "answer": "", "expires_at": now + timedelta(days=1)}
        cached_answers = [
            {**common, "digest": f"{age}-{n}", "kept_at": now - timedelta(seconds=age)} for n in range(number)
        ]
        async with services.database.writing() as connection:
            await connection.execute(insert(rows), cached_answers)

    await fill(9_999, 10, 100)
    assert cache_state(await baobab.chat(**second)) == "miss"
    assert await count_rows(baobab) == 10_000
    assert cache_state(await baobab.chat(**first)) == "hit"
    await fill(250, 2**20, 50)
    assert cache_state(await baobab.chat(**build_question("third"))) == "miss"
    assert cache_state(await baobab.chat(**second)) == "hit"
    async with services.database.reading() as connection:
        number, size = (await connection.execute(select(func.count(), func.sum(rows.c.size)))).one()
    assert number <= 10_000
    assert 250 * 2**20 < size <= 256 * 2**20


@pytest.fixture
def clock() -> FixedClock:
    return FixedClock()


@pytest.fixture
async def regional_baobab(tmp_path: Path, clock: FixedClock) -> AsyncIterator[Baobab]:
    """Two regions and a clock that stands still."""
    regions = tmp_path / "regions.toml"
    regions.write_text("[eu-west-1]\n")
    async with open_installation(tmp_path / "data", {"BAOBAB_REGIONS": str(regions)}, clock=clock) as installation:
        yield installation


async def ask_cached(regional_baobab: Baobab, path: str = "/v1", **cache: int) -> str | None:
    body = {"model": "baobab/echo", "messages": HELLO, "cache": cache}
    return cache_state(
        await regional_baobab.client.post(f"{path}/chat/completions", json=body, headers=regional_baobab.owner)
    )


async def test_an_answer_is_kept_for_as_long_as_was_said_and_then_swept(
    regional_baobab: Baobab, clock: FixedClock
) -> None:
    assert await ask_cached(regional_baobab, ttl=60) == "miss"
    clock.advance(59)
    assert await ask_cached(regional_baobab) == "hit"
    clock.advance(1)
    assert await ask_cached(regional_baobab) == "miss"
    clock.advance(3599)
    assert await ask_cached(regional_baobab) == "hit"
    clock.advance(1)
    await jobs.run_job(regional_baobab.application, "response_cache_sweep")
    assert await count_rows(regional_baobab) == 0


async def count_cached(regional_baobab: Baobab, region: str) -> int:
    async with regional_baobab.application.services.regions[region].database.reading() as connection:
        return int(await connection.scalar(select(func.count()).select_from(rows)) or 0)


async def test_an_apps_answers_are_in_its_region_and_go_with_it(regional_baobab: Baobab) -> None:
    here, far = await regional_baobab.create_app(), await regional_baobab.create_app(region="eu-west-1")
    for path in ("/v1", f"/v1/{here}", f"/v1/{far}"):
        assert await ask_cached(regional_baobab, path) == "miss"
    assert (await count_cached(regional_baobab, "local"), await count_cached(regional_baobab, "eu-west-1")) == (2, 1)
    for app_id in (here, far):
        assert (
            await regional_baobab.client.delete(f"/apps/{app_id}", headers=regional_baobab.owner)
        ).status_code == 200
    assert (await count_cached(regional_baobab, "local"), await count_cached(regional_baobab, "eu-west-1")) == (1, 0)
    assert await ask_cached(regional_baobab) == "hit"


async def test_they_are_not_moved_with_the_app_and_go_with_what_it_left(
    regional_baobab: Baobab, clock: FixedClock
) -> None:
    app_id = await regional_baobab.create_app()
    assert await ask_cached(regional_baobab, f"/v1/{app_id}") == "miss"
    body = {"dest_region": "eu-west-1"}
    move = await regional_baobab.client.post(f"/v1/apps/{app_id}/move", json=body, headers=regional_baobab.owner)
    assert move.status_code == 202
    move_id = move.json()["migration_id"]
    async with asyncio.timeout(TIMEOUT_SECONDS):
        path = f"/v1/apps/{app_id}/migrations/{move_id}"
        while (await regional_baobab.client.get(path, headers=regional_baobab.owner)).json()["completed_at"] is None:
            await jobs.run_due_jobs(regional_baobab.application)
            clock.advance(5)
    assert [await ask_cached(regional_baobab, f"/v1/{app_id}") for _ in range(2)] == ["miss", "hit"]
    assert (await count_cached(regional_baobab, "local"), await count_cached(regional_baobab, "eu-west-1")) == (1, 1)
    response = await regional_baobab.client.delete(f"/v1/source-replicas/{move_id}", headers=regional_baobab.owner)
    assert response.is_success
    await jobs.run_due_jobs(regional_baobab.application)
    assert (await count_cached(regional_baobab, "local"), await count_cached(regional_baobab, "eu-west-1")) == (0, 1)
