"""The audit log says whose calls to models they were."""

import json

import pytest
from sqlalchemy import select

from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth.signing import PLATFORM
from tests.people import create_key, create_person, get_first_organisation
from tests.tools.ai.conftest import Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def count_calls(world: Installation, actor_id: str | None = None) -> dict[str, int]:
    """Calls to models that were counted, by organisation."""
    services = world.application.services
    await services.audit_log.flush()
    query = select(audit_logs).where(audit_logs.c.event_type == "ai.call")
    if actor_id is not None:
        query = query.where(audit_logs.c.actor_id == actor_id)
    async with services.database.reading() as connection:
        rows = (await connection.execute(query)).mappings().all()
    call_counts: dict[str, int] = {}
    for row in rows:
        event_data = row["event_data"] if isinstance(row["event_data"], dict) else json.loads(row["event_data"])
        call_counts[row["organisation_id"]] = call_counts.get(row["organisation_id"], 0) + event_data["count"]
    return call_counts


async def test_calls_of_one_account_are_counted_for_each_of_its_organisations(world: Installation) -> None:
    first = await get_first_organisation(world)
    member = await create_person(world, "member", role="member")
    claims = {"sub": member.id, "email": member.email, "org_id": first}
    there = {"authorization": f"Bearer {await world.application.services.signers.mint(PLATFORM, claims, 3600)}"}
    for by in (there, member.headers, there):
        assert (await world.chat("baobab/echo", by=by)).status_code == 200
    assert await count_calls(world, member.id) == {first: 2, member.organisation_id: 1}


async def test_a_call_with_a_key_for_the_gateway_is_in_its_organisations_trail(world: Installation) -> None:
    first = await get_first_organisation(world)
    before = (await count_calls(world)).get(first, 0)
    assert (await world.chat("baobab/echo", by=await create_key(world, scopes=["ai:gateway"]))).status_code == 200
    after = await count_calls(world)
    assert after[first] == before + 1
    assert None not in after
