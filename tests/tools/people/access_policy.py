"""The callers that may call the tools of people, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from sqlalchemy import update

from baobab.tools.people.lookups import digest_token
from baobab.tools.people.tables import lookups
from tests.tools.access import ADMINS, PUBLIC, RUNNERS, Caller, World

POLICY = {
    "people_search_person": RUNNERS,
    "people_search_company": RUNNERS,
    "people_profile": RUNNERS,
    "people_email_queue": RUNNERS,
    "people_email_lookup": RUNNERS,
    "people_email_lookups": RUNNERS,
    # Who knows the secret in its path; everybody else is told that there is no such lookup.
    "people_email_callback": PUBLIC,
    "people_usage": RUNNERS,
    "people_erase": ADMINS,
}
ADDRESS = "https://network.example/in/ada-adeyemi-0"


async def queue_lookup(world: World) -> str:
    path = f"/v1/{world.app}/people/profile/email"
    answer = await world.request("POST", path, world.owner.headers, networkProfileUrl=ADDRESS)
    lookup_id: str = answer["lookupId"]
    return lookup_id


async def for_people_email_lookup(world: World, caller: Caller) -> dict[str, Any]:
    return {"app_id": world.app, "lookup_id": await queue_lookup(world)}


async def for_people_email_callback(world: World, caller: Caller) -> dict[str, Any]:
    lookup_id = await queue_lookup(world)
    async with world.baobab.application.services.database.writing() as connection:
        is_lookup = lookups.c.id == lookup_id
        await connection.execute(update(lookups).where(is_lookup).values(token_digest=digest_token("secret")))
    return {"app_id": world.app, "lookup_id": lookup_id, "token": "secret", "result": {"email": "ada@mail.example"}}
