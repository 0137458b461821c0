"""The callers that may call the tools of organisations, and the arguments for it (tests/tools/access.py)."""

from typing import Any

from tests.people import create_person
from tests.tools.access import ACCOUNTS, ADMINS_OF_IT, MEMBERS_OF_IT, OWNERS_OF_IT, PUBLIC, TOKENS, Caller, World

POLICY = {
    "organisations_list": ACCOUNTS,
    "organisations_create": TOKENS,
    "organisations_get": MEMBERS_OF_IT,
    "organisations_update": ADMINS_OF_IT,
    "organisations_delete": OWNERS_OF_IT,
    "organisations_members": MEMBERS_OF_IT,
    "organisations_set_role": ADMINS_OF_IT,
    "organisations_remove_member": ADMINS_OF_IT,
    "organisations_invite": ADMINS_OF_IT,
    "organisations_invitations": ADMINS_OF_IT,
    "organisations_withdraw_invitation": ADMINS_OF_IT,
    "organisations_accept_invitation": TOKENS,
    "organisations_read_invitation": PUBLIC,
}


async def for_organisations_set_role(world: World, caller: Caller) -> dict[str, Any]:
    return {"organization_id": world.org, "account_id": world.other_member.id, "role": "member"}


async def for_organisations_remove_member(world: World, caller: Caller) -> dict[str, Any]:
    leaving = await create_person(world.baobab, world.new_name("leaving"), role="member", of=world.org)
    return {"organization_id": world.org, "account_id": leaving.id}


async def for_organisations_withdraw_invitation(world: World, caller: Caller) -> dict[str, Any]:
    path, email = f"/v1/organizations/{world.org}/invitations", f"{world.new_name('invited')}@example.com"
    response = await world.request("POST", path, world.owner.headers, email=email)
    return {"organization_id": world.org, "invitation_id": response["invitation"]["id"]}


async def for_organisations_accept_invitation(world: World, caller: Caller) -> dict[str, Any]:
    path = f"/v1/organizations/{world.host_org}/invitations"
    return {"token": (await world.request("POST", path, world.host.headers, email=caller.email))["token"]}


async def for_organisations_read_invitation(world: World, caller: Caller) -> dict[str, Any]:
    path, email = f"/v1/organizations/{world.org}/invitations", f"{world.new_name('invited')}@example.com"
    return {"token": (await world.request("POST", path, world.owner.headers, email=email))["token"]}
