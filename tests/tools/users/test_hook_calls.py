"""What a post-auth hook is told is written down by a job; and how many users an app may have in a month."""

from typing import Any

import pytest
from sqlalchemy import func, insert, select

from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.events import AUTHENTICATED
from baobab.tools.users.tables import users
from tests.jobs import run_due_jobs, run_job
from tests.tools.users.conftest import EMAIL, UsersHarness


async def list_calls(people: UsersHarness) -> list[Any]:
    await run_due_jobs(people.tools)
    calls: list[Any] = (await people.call("users_hook_calls", people.owner))["calls"]
    return calls


async def test_every_sign_in_is_written_down_once_as_the_hook_is_told(people: UsersHarness) -> None:
    user = await people.sign_up()
    await people.log_in()
    calls = await list_calls(people)
    assert [(call["event"], call["status"]) for call in calls] == [("login", "recorded"), ("signup", "recorded")]
    who = {"id": user["id"], "email": EMAIL, "provider": "email", "display_name": "", "avatar_url": None}
    assert calls[0]["payload"] == {"event": "login", "user": who, "isNewUser": False, "provider": "email"}
    assert await list_calls(people) == calls
    assert AUTHENTICATED == "user.authenticated"


async def test_what_hooks_were_told_is_kept_for_a_week(people: UsersHarness) -> None:
    await people.sign_up()
    assert await list_calls(people)
    people.tools.clock.advance(6 * 86400)
    await run_job(people.tools, "auth_prune")
    assert await list_calls(people)
    people.tools.clock.advance(2 * 86400)
    await run_job(people.tools, "auth_prune")
    assert await list_calls(people) == []


async def fill(people: UsersHarness, count: int, days_ago: int = 0) -> None:
    """Inserts users who joined so many days ago and have not come back."""
    database, now = people.tools.services.regions["local"].database, people.tools.clock.now()
    ids = people.tools.services.ids
    rows = [
        {"app_id": people.app_id, "id": (one := ids.uuid()), "email": f"{one}@example.com", "provider": "email"}
        | {"created_at": now.fromtimestamp(now.timestamp() - days_ago * 86400, now.tzinfo)}
        for _ in range(count)
    ]
    async with database.writing(lock=people.app_id) as connection:
        for start in range(0, count, 1000):
            await connection.execute(insert(users), rows[start : start + 1000])


async def test_a_plan_has_room_for_so_many_users_in_a_month(people: UsersHarness) -> None:
    await people.call("users_settings_update", people.owner, anonymous=True)
    await fill(people, 9_998)
    await fill(people, 500, days_ago=40)
    await people.sign_up()
    await people.sign_up("ben@example.com")
    with pytest.raises(PlanLimitReached):
        await people.sign_up("eve@example.com")
    with pytest.raises(PlanLimitReached):
        await people.call("auth_anonymous")
    # No mail, and no user, for an address that would be new.
    await people.call("auth_magic_link", email="eve@example.com")
    assert await people.list_mails("eve@example.com") == []
    new_users = [{"email": "eve@example.com"}]
    with pytest.raises(PlanLimitReached):
        await people.call("users_import", people.owner, users=new_users)
    async with people.tools.services.regions["local"].database.reading() as connection:
        assert await connection.scalar(select(func.count()).select_from(users)) == 10_500
    # Who is there already signs in as before.
    assert "access_token" in await people.log_in()
    people.tools.clock.advance(32 * 86400)
    await people.sign_up("eve@example.com")
