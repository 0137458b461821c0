"""Checks that a change of members must pass, read in the transaction that makes the change."""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import func, select

from baobab.tools.core import Call, Role, require_role
from baobab.tools.core.auth.membership import select_memberships
from baobab.tools.core.auth.roles import APPROVER, rank
from baobab.tools.core.auth.tables import apps, members, organisations
from baobab.tools.organisations.errors import AboveOwnRole, AppsNotOfOrganisation, LastOwner, OrganisationNotFound


async def load_organisation(call: Call, organization_id: str, least_role: Role = APPROVER) -> Any:
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


async def check_app_ids(call: Call, organization_id: str, role: Role, app_ids: Sequence[str] | None) -> None:
    """Raises AppsNotOfOrganisation unless these are apps of the organisation, chosen for an approver."""
    if app_ids is None:
        return
    query = select(func.count()).where(apps.c.organisation_id == organization_id, apps.c.id.in_(app_ids))
    if role != APPROVER or (await call.execute(query)).scalar() != len(set(app_ids)):
        raise AppsNotOfOrganisation


async def check_other_owner(call: Call, organization_id: str) -> None:
    """Raises LastOwner unless there are at least two owners."""
    query = select(func.count()).where(members.c.organisation_id == organization_id, members.c.role == "owner")
    if (await call.execute(query)).scalar() == 1:
        raise LastOwner
