"""What leaves the audit log of an organisation that has more rows than its plan has room for."""

import dataclasses
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert, select

from baobab.tools.core.audit import audit_logs
from baobab.tools.core.limits.plans import PLANS
from tests.conftest import Baobab
from tests.jobs import run_job
from tests.people import Person, create_person

CAP = 20


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "playground"}


@pytest.fixture
async def owner(baobab: Baobab, monkeypatch: pytest.MonkeyPatch) -> Person:
    monkeypatch.setitem(PLANS, "playground", dataclasses.replace(PLANS["playground"], audit_rows=CAP))
    return await create_person(baobab, "owner")


async def write_rows(baobab: Baobab, organisation: str, count: int, days: float, **differing: Any) -> None:
    """Rows as calls of that many days ago have left them, a second apart."""
    ids, last = baobab.application.services.ids, baobab.application.services.clock.now() - timedelta(days=days)
    row: dict[str, Any] = {
        "organisation_id": organisation,
        "category": "admin",
        "event_type": f"{days} days",
        "action": "update",
    }
    row |= {"actor_type": "api_key", "event_data": {}, "success": True, **differing}
    when = [last - timedelta(seconds=count - number) for number in range(count)]
    rows = [{**row, "id": ids.uuid(), "created_at": moment} for moment in when]
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(insert(audit_logs), rows)


async def count_rows(baobab: Baobab, organisation: str) -> Counter[str]:
    """How many rows are left of each event."""
    rows = select(audit_logs.c.event_type).where(audit_logs.c.organisation_id == organisation)
    async with baobab.application.services.database.reading() as connection:
        return Counter((await connection.execute(rows)).scalars())


async def test_the_oldest_rows_leave_first_and_never_more_than_the_plan_has_no_room_for(
    baobab: Baobab, owner: Person
) -> None:
    for days in (400, 300, 200):
        await write_rows(baobab, owner.organisation_id, 10, days)
    await run_job(baobab.application, "audit_logs_trim")
    assert await count_rows(baobab, owner.organisation_id) == {"300 days": 10, "200 days": 10}


async def test_a_flood_by_visitors_does_not_wash_away_what_people_have_changed(baobab: Baobab, owner: Person) -> None:
    await write_rows(baobab, owner.organisation_id, 5, 30, event_type="app.config.cors")
    await write_rows(baobab, owner.organisation_id, 50, 2, category="agents", actor_type="anonymous", event_type="run")
    await write_rows(baobab, owner.organisation_id, 50, 1, actor_type="app_user", event_type="suggestion")
    await run_job(baobab.application, "audit_logs_trim")
    assert await count_rows(baobab, owner.organisation_id) == {"app.config.cors": 5, "suggestion": CAP - 5}


async def test_changes_of_the_last_days_stay_beyond_the_cap_but_not_without_end(baobab: Baobab, owner: Person) -> None:
    await write_rows(baobab, owner.organisation_id, 3 * CAP, 60, event_type="earlier")
    await write_rows(baobab, owner.organisation_id, 3 * CAP, 1, event_type="later")
    await run_job(baobab.application, "audit_logs_trim")
    assert await count_rows(baobab, owner.organisation_id) == {"earlier": 3 * CAP, "later": 3 * CAP}
    await write_rows(baobab, owner.organisation_id, 9 * CAP, 0.5, event_type="flood")
    await run_job(baobab.application, "audit_logs_trim")
    assert await count_rows(baobab, owner.organisation_id) == {"later": CAP, "flood": 9 * CAP}


async def test_one_organisations_rows_take_no_room_from_anothers(baobab: Baobab, owner: Person) -> None:
    other = await create_person(baobab, "other")
    await write_rows(baobab, other.organisation_id, CAP, 500)
    await write_rows(baobab, owner.organisation_id, 2 * CAP, 100)
    await run_job(baobab.application, "audit_logs_trim")
    assert await count_rows(baobab, other.organisation_id) == {"500 days": CAP}
    assert await count_rows(baobab, owner.organisation_id) == {"100 days": CAP}
