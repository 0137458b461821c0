"""Checks that a change of members must pass, read in the transaction that makes the change."""

from typing import Any

from sqlalchemy import func, select

from baobab.tools.core.auth.membership import select_memberships
from baobab.tools.core.auth.roles import Role, rank, require_role
from baobab.tools.core.auth.tables import members, organisations
from baobab.tools.core.call import Call
from baobab.tools.organisations.errors import AboveOwnRole, LastOwner, OrganisationNotFound


async def load_organisation(call: Call, organization_id: str, least_role: Role = "member") -> Any:
    """Returns the organisation's row with the caller's present `role`, which may have changed since the call began."""
    query = select_memberships(call.account.account_id).where(organisations.c.id == organization_id)
    row = (await call.execute(query)).mappings().first()
    if row is None:
        raise OrganisationNotFound
    require_role(row["role"], least_role)
    call.audit.organisation_id = organization_id
    return row


def check_role_rank(own_role: Role, *roles: Role) -> None:
    """Raises AboveOwnRole if one of the roles is above the caller's own."""
    if any(rank(role) > rank(own_role) for role in roles):
        raise AboveOwnRole


async def check_other_owner(call: Call, organization_id: str) -> None:
    """Raises LastOwner unless there are at least two owners."""
    query = select(func.count()).where(members.c.organisation_id == organization_id, members.c.role == "owner")
    if (await call.execute(query)).scalar() == 1:
        raise LastOwner
