"""Tools of the members of an organisation: /v1/organizations/{organization_id}/members."""

import json
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, select, update

from baobab.tools.core import Audit, Call, Guard, Role, Uuid
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.function_keys import void_function_keys_shown_to
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.roles import APPROVER, rank
from baobab.tools.core.auth.tables import accounts, api_keys, members
from baobab.tools.organisations import invitations as invited
from baobab.tools.organisations.access import Member
from baobab.tools.organisations.errors import (
    AboveOwnRole,
    AppsNotOfOrganisation,
    LastOwner,
    MemberNotFound,
    PersonalOrganisation,
)
from baobab.tools.organisations.membership_checks import (
    check_app_ids,
    check_other_owner,
    check_role_rank,
    load_organisation,
)
from baobab.tools.organisations.schemas import (
    Members,
    Removed,
    RoleSet,
)
from baobab.tools.organisations.toolset import AppIds, OrganizationId, organisations

AccountId = Annotated[Uuid, Field(description="The member's account.")]


@organisations.tool(
    "GET /organizations/{organization_id}/members",
    access=Member(),
    effect="read",
)
async def organisations_members(call: Call, organization_id: OrganizationId) -> Members:
    """List the members of an organisation and their roles."""
    query = (
        select(members, accounts.c.email, accounts.c.name, accounts.c.last_seen_at)
        .join(accounts, accounts.c.id == members.c.account_id)
        .where(members.c.organisation_id == organization_id)
        .order_by(members.c.created_at, members.c.account_id)
    )
    return {
        "members": [
            {
                "account_id": row.account_id,
                "email": row.email,
                "name": row.name,
                "role": row.role,
                "app_ids": row.app_ids,
                "joined_at": row.created_at,
                "last_seen_at": row.last_seen_at,
            }
            for row in await call.execute(query)
        ]
    }


@organisations.tool(
    "PATCH /organizations/{organization_id}/members/{account_id}",
    access=Member("admin"),
    effect="write",
    raises=(MemberNotFound, AboveOwnRole, LastOwner, PersonalOrganisation, AppsNotOfOrganisation),
    audit=Audit("organization.member.update", action="update", resource="account"),
    guard=Guard(grants=True),
)
async def organisations_set_role(
    call: Call, organization_id: OrganizationId, account_id: AccountId, role: Role, app_ids: AppIds | None = None
) -> RoleSet:
    """Give a member another role; nobody can grant a role above their own, and one owner must remain.

    A member whose role becomes lower loses what the higher one gave: their open invitations are withdrawn. If they
    become a plain member, the app keys that they made are revoked, and the function keys that they were shown replaced.
    If they become an approver, all keys that they have in this organisation are revoked.

    role: `approver` only decides about calls of agents whose approvers are `member`, `member` uses the apps, `admin`
      runs them and invites, `owner` may do everything.
    app_ids: for an approver, the only apps about whose calls they decide; left out, all.
    """
    await check_app_ids(call, organization_id, role, app_ids)
    row = await load_organisation(call, organization_id, "admin")
    before = await _role_of(call, organization_id, account_id)
    check_role_rank(row["role"], before, role)
    if row["personal"] and "owner" in (before, role) and before != role:
        raise PersonalOrganisation("A personal organisation has one owner.")
    if before == "owner" != role:
        await check_other_owner(call, organization_id)
    is_member = (members.c.organisation_id == organization_id, members.c.account_id == account_id)
    await call.execute(update(members).where(*is_member).values(role=role, app_ids=app_ids))
    revoked_count = 0
    if rank(role) < rank(before):
        await invited.withdraw_those_of(call, organization_id, account_id)
    if rank(role) <= rank("member"):
        of_member = _keys_of(organization_id, account_id)
        of_apps = () if role == APPROVER else (api_keys.c.app_id.is_not(None),)
        revoked_count = await keys.revoke(call, *of_member, *of_apps)
        await void_function_keys_shown_to(call, organization_id, account_id)
    await call.services.notices.publish(call.unit, "members", organization_id)
    call.audit.data |= {"from": before, "to": role, "app_ids": app_ids, "keys_revoked": revoked_count}
    return {"account_id": account_id, "role": role, "app_ids": app_ids, "keys_revoked": revoked_count}


async def _get_removable(call: Call, organization_id: str, account_id: str) -> tuple[Any, Role]:
    leaving = account_id == call.account.account_id
    row = await load_organisation(call, organization_id, APPROVER if leaving else "admin")
    role = await _role_of(call, organization_id, account_id)
    check_role_rank(row["role"], role)
    if role == "owner":
        if row["personal"]:
            raise PersonalOrganisation("The owner of a personal organisation cannot leave it.")
        await check_other_owner(call, organization_id)
    return row, role


async def _preview_remove(call: Call, organization_id: OrganizationId, account_id: AccountId) -> str:
    row, role = await _get_removable(call, organization_id, account_id)
    email = (await call.execute(select(accounts.c.email).where(accounts.c.id == account_id))).scalar_one()
    live = await keys.count_live(call, *_keys_of(organization_id, account_id))
    place = json.dumps(row["name"])
    return f"It would remove {email} ({role}) from the organisation {place} and revoke {live} of their API keys."


@organisations.tool(
    "DELETE /organizations/{organization_id}/members/{account_id}",
    access=Member(APPROVER),
    effect="destructive",
    raises=(MemberNotFound, AboveOwnRole, LastOwner, PersonalOrganisation),
    audit=Audit("organization.member.delete", action="delete", resource="account"),
    guard=Guard(preview=_preview_remove),
)
async def organisations_remove_member(call: Call, organization_id: OrganizationId, account_id: AccountId) -> Removed:
    """Remove a member, or leave with your own account id. Everything that the account handed out stops working.

    That is: its keys in this organisation, its invitations that nobody has accepted, and the function keys of apps that
    it was shown. Functions get the new key by themselves; if you copied the old one, copy the new one.

    Admins remove members and admins, owners everybody. The last owner cannot be removed, nor the owner of a personal
    organisation.
    """
    _, role = await _get_removable(call, organization_id, account_id)
    is_member = (members.c.organisation_id == organization_id, members.c.account_id == account_id)
    await call.execute(delete(members).where(*is_member))
    revoked_count = await keys.revoke(call, *_keys_of(organization_id, account_id))
    await invited.withdraw_those_of(call, organization_id, account_id)
    await void_function_keys_shown_to(call, organization_id, account_id)
    await call.services.notices.publish(call.unit, "members", organization_id)
    call.audit.data |= {"role": role, "keys_revoked": revoked_count}
    return {"removed": True, "account_id": account_id, "keys_revoked": revoked_count}


async def _role_of(call: Call, organization_id: str, account_id: str) -> Role:
    call.audit.resource_id = account_id
    role = await load_role(call, organization_id, account_id)
    if role is None:
        raise MemberNotFound
    return role


def _keys_of(organization_id: str, account_id: str) -> tuple[Any, Any]:
    return api_keys.c.organisation_id == organization_id, api_keys.c.account_id == account_id
