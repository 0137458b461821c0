"""What each user of an app may fill of its room, and an organisation in all its apps."""

import asyncio
from dataclasses import replace

import pytest
from sqlalchemy import update

from baobab.tools.core.limits.plans import PLANS
from baobab.tools.files.tables import file_usage
from tests.jobs import run_job
from tests.tools.files.conftest import ANN, BEN, FilesApp

_PLAN_REMEMBERED = 31
pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_a_user_fills_no_more_than_their_share(app: FilesApp) -> None:
    await app.set_storage(storageLimitBytes=1000, userLimitBytes=300)
    answers = await asyncio.gather(*(app.announce(90, ANN) for _ in range(5)))
    uploads = [answer.json() for answer in answers if answer.status_code == 200]
    assert len(uploads) == 3
    error = next(answer for answer in answers if answer.status_code != 200).json()["error"]
    assert (error["code"], error["details"]) == (
        "QUOTA_STORAGE_EXCEEDED",
        {"current_usage_bytes": 270, "limit_bytes": 300},
    )
    for each in uploads:
        assert (await app.send(each["uploadUrl"], b"x" * 90)).status_code == 200
    usage = (await app.request("GET", "/usage", ANN)).json()
    assert (usage["user_used_bytes"], usage["user_limit_bytes"], usage["storage_used_bytes"]) == (270, 300, 270)
    assert (await app.announce(31, ANN)).status_code == 402
    assert [(await app.announce(90, caller)).status_code for caller in (BEN, None)] == [200, 200]
    assert (await app.request("DELETE", f"/{uploads[0]['objectId']}", ANN)).status_code == 204
    assert (await app.announce(120, ANN)).status_code == 200


async def test_a_tenth_of_the_room_is_a_users_share_unless_the_app_says_otherwise(app: FilesApp) -> None:
    await app.set_storage(storageLimitBytes=30 * 2**20, maxFileSizeMb=1)
    limits = [(await app.request("GET", "/usage", ANN)).json()["user_limit_bytes"]]
    await app.set_storage(maxFileSizeMb=20)
    limits.append((await app.request("GET", "/usage", ANN)).json()["user_limit_bytes"])
    assert limits == [3 * 2**20, 20 * 2**20]
    assert "user_limit_bytes" not in (await app.request("GET", "/usage")).json()


async def test_the_apps_of_an_organisation_fill_no_more_than_its_plan_gives(
    app: FilesApp, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = FilesApp(app.baobab, app.clock, await app.baobab.create_app())
    async with app.database.writing_unit(lock=None) as unit:
        # Apps of other tests are of the same organisation.
        await unit.execute(update(file_usage).values(organisation_id="another"))
    monkeypatch.setitem(PLANS, "enterprise", replace(PLANS["enterprise"], file_bytes=1000))
    app.clock.advance(_PLAN_REMEMBERED)
    try:
        answers = await asyncio.gather(*((app, other)[number % 2].announce(90) for number in range(20)))
        assert [answer.status_code for answer in answers].count(200) == 11
        error = next(answer for answer in answers if answer.status_code != 200).json()["error"]
        assert error["details"] == {"current_usage_bytes": 990, "limit_bytes": 1000}
        assert "larger plan" in error["remediation"]
        by_user = (await app.announce(11, ANN)).json()["error"]
        assert (by_user["code"], "details" in by_user) == ("QUOTA_STORAGE_EXCEEDED", False)
        assert "990" not in str(by_user)
        for number, answer in enumerate(answers):
            if answer.status_code == 200:
                assert (await app.send(answer.json()["uploadUrl"], b"x" * 90)).status_code == 200, number
        assert (await app.announce(11)).status_code == (await other.announce(11)).status_code == 402
        async with app.database.writing_unit(lock=None) as unit:
            await unit.execute(update(file_usage).where(file_usage.c.app_id == app.id).values(organisation_id=None))
        await run_job(app.baobab.application, "files_sweep")
        assert (await other.announce(11)).status_code == 402
    finally:
        monkeypatch.undo()
        app.clock.advance(_PLAN_REMEMBERED)


async def test_no_storage_setting_goes_beyond_the_plan(app: FilesApp, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"/v1/{app.id}/config/storage"
    # Set under a larger plan, it stays: what holds is the plan's.
    await app.set_storage(storageLimitBytes=5 * 2**20)
    monkeypatch.setitem(PLANS, "enterprise", replace(PLANS["enterprise"], file_bytes=3 * 2**20))
    app.clock.advance(_PLAN_REMEMBERED)
    try:
        for name, most, more in (
            ("storageLimitBytes", 3 * 2**20, 3 * 2**20 + 1),
            ("userLimitBytes", 3 * 2**20, 3 * 2**20 + 1),
            ("maxFileSizeMb", 3, 4),
        ):
            refusal = await app.baobab.client.patch(path, json={name: more}, headers=app.baobab.owner)
            error = refusal.json()["error"]
            assert (refusal.status_code, error["code"]) == (400, "VALIDATION_INVALID_INPUT")
            assert error["details"] == {"plan": "enterprise", "limit_bytes": 3 * 2**20, "settings": [name]}
            usage = (await app.request("GET", "/usage")).json()
            assert usage["storage_limit_bytes"] == 3 * 2**20
            await app.set_storage(**{name: most})
    finally:
        monkeypatch.undo()
        app.clock.advance(_PLAN_REMEMBERED)
