"""People: accounts with a token, made without the half second that signing up takes for a password."""

from dataclasses import dataclass

from sqlalchemy import insert

from baobab.tools.core.auth.membership import create_organisation_row
from baobab.tools.core.auth.signing import PLATFORM
from baobab.tools.core.auth.tables import accounts, members
from tests.conftest import Baobab


@dataclass(frozen=True)
class Person:
    id: str
    email: str
    organisation_id: str
    headers: dict[str, str]


async def create_person(
    baobab: Baobab, name: str, *, role: str | None = None, of: str | None = None, app_ids: list[str] | None = None
) -> Person:
    """An account with a personal organisation of its own; with a role, a member of `of` (the first account's) too."""
    services = baobab.application.services
    account_id, now = services.ids.uuid(), services.clock.now()
    email = f"{name}-{account_id[:8]}@example.com"
    home = await get_first_organisation(baobab) if role and of is None else of
    async with services.database.writing() as connection:
        await connection.execute(insert(accounts), {"id": account_id, "email": email, "name": name, "created_at": now})
        own = await create_organisation_row(connection.execute, services, name, account_id, personal=True)
        if role:
            member = {
                "organisation_id": home,
                "account_id": account_id,
                "role": role,
                "created_at": now,
                "app_ids": app_ids,
            }
            await connection.execute(insert(members), member)
    claims = {"sub": account_id, "email": email, "org_id": own["id"]}
    token = await services.signers.mint(PLATFORM, claims, 3600)
    return Person(account_id, email, own["id"], {"authorization": f"Bearer {token}"})


async def get_first_organisation(baobab: Baobab) -> str:
    """The organisation of the first account, which owns the apps that `baobab.app` makes."""
    me = await baobab.client.get("/platform/me", headers=baobab.owner)
    organisation_id: str = me.json()["organizations"][0]["id"]
    return organisation_id


async def create_key(baobab: Baobab, headers: dict[str, str] | None = None, **fields: object) -> dict[str, str]:
    """Headers with a new API key."""
    response = await baobab.client.post("/api-keys", json={"name": "test", **fields}, headers=headers or baobab.owner)
    assert response.status_code == 201, response.text
    return {"authorization": f"Bearer {response.json()['key']}"}
