"""Tools of organisations: /v1/organizations."""

import json
from typing import Annotated, Any

from sqlalchemy import delete, func, select, update

from baobab.tools.core import AnyAccount, Audit, Call, Guard, NameText, Rest
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.membership import create_organisation_row, select_memberships
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import accounts, api_keys, apps, members
from baobab.tools.core.auth.tables import organisations as rows
from baobab.tools.organisations.access import Member
from baobab.tools.organisations.errors import (
    OrganisationFull,
    OrganisationHasApps,
    PersonalOrganisation,
)
from baobab.tools.organisations.membership_checks import load_organisation
from baobab.tools.organisations.schemas import (
    Deleted,
    OneOrganization,
    Organization,
    Organizations,
    render_organisation,
)
from baobab.tools.organisations.toolset import OrganizationId, organisations

MOST_OWNED = 100
_MOST_ADMINS = 10

OrganizationName = Annotated[str, NameText(200, min_length=1)]


@organisations.tool(
    "GET /organizations",
    access=AnyAccount(APPROVER),
    effect="read",
)
async def organisations_list(call: Call) -> Organizations:
    """List the organisations that the account belongs to; an API key sees its own only."""
    caller = call.account
    memberships = (await call.execute(select_memberships(caller.account_id))).mappings()
    return {
        "organizations": [
            render_organisation(row)
            for row in memberships
            if caller.key_id is None or row["id"] == caller.organisation_id
        ]
    }


@organisations.tool(
    "POST /organizations",
    access=AnyAccount(keys=False),
    effect="write",
    raises=(OrganisationFull,),
    audit=Audit("organization.create", action="create", resource="organization"),
    rest=Rest(status=201, examples={"name": "Analytical Engines"}),
)
async def organisations_create(call: Call, name: OrganizationName) -> Organization:
    """Make an organisation and be its owner. Send its id as `X-Organization-Id` to work in it.

    name: the name that its members see.
    """
    owner_id = call.account.account_id
    await call.hold(owner_id)
    count_owned = select(func.count()).where(members.c.account_id == owner_id, members.c.role == "owner")
    if ((await call.execute(count_owned)).scalar() or 0) >= MOST_OWNED:
        raise OrganisationFull(f"This account owns {MOST_OWNED} organisations.", details={"limit": MOST_OWNED})
    row = await create_organisation_row(call.execute, call.services, name, owner_id, personal=False)
    call.audit.resource_id = call.audit.organisation_id = row["id"]
    return render_organisation({**row, "role": "owner"})


@organisations.tool(
    "GET /organizations/{organization_id}",
    access=Member(APPROVER),
    effect="read",
)
async def organisations_get(call: Call, organization_id: OrganizationId) -> OneOrganization:
    """Read one organisation."""
    row = await load_organisation(call, organization_id)
    is_admin = (members.c.organisation_id == organization_id, members.c.role.in_(("owner", "admin")))
    query = select(accounts.c.name).join(members, members.c.account_id == accounts.c.id).where(*is_admin)
    order = (members.c.role.desc(), members.c.created_at, members.c.account_id)
    names = (await call.execute(query.order_by(*order).limit(_MOST_ADMINS))).scalars().all()
    return {**render_organisation(row), "admins": list(names)}


@organisations.tool(
    "PATCH /organizations/{organization_id}",
    access=Member("admin"),
    effect="write",
    audit=Audit("organization.update", action="update", resource="organization"),
    rest=Rest(examples={"organization_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", "name": "Difference Engines"}),
)
async def organisations_update(call: Call, organization_id: OrganizationId, name: OrganizationName) -> Organization:
    """Rename an organisation.

    name: the new name.
    """
    row = await load_organisation(call, organization_id, "admin")
    call.audit.resource_id = organization_id
    await call.execute(update(rows).where(rows.c.id == organization_id).values(name=name))
    await call.services.notices.publish(call.unit, "organisation", organization_id)
    return render_organisation({**row, "name": name})


async def _get_deletable(call: Call, organization_id: str) -> Any:
    row = await load_organisation(call, organization_id, "owner")
    if row["personal"]:
        raise PersonalOrganisation("A personal organisation cannot be deleted.")
    app_count = (await call.execute(select(func.count()).where(apps.c.organisation_id == organization_id))).scalar()
    if app_count:
        raise OrganisationHasApps(details={"apps": app_count})
    return row


async def _preview_delete(call: Call, organization_id: OrganizationId) -> str:
    row = await _get_deletable(call, organization_id)
    query = select(func.count()).where(members.c.organisation_id == organization_id)
    member_count = (await call.execute(query)).scalar_one()
    key_count = await keys.count_live(call, api_keys.c.organisation_id == organization_id)
    name = json.dumps(row["name"])
    return f"It would delete the organisation {name} with {member_count} members and {key_count} live API keys."


@organisations.tool(
    "DELETE /organizations/{organization_id}",
    access=Member("owner"),
    effect="destructive",
    raises=(PersonalOrganisation, OrganisationHasApps),
    audit=Audit("organization.delete", action="delete", resource="organization"),
    guard=Guard(preview=_preview_delete),
)
async def organisations_delete(call: Call, organization_id: OrganizationId) -> Deleted:
    """Delete an organisation for good, with its API keys and invitations. Delete its apps first."""
    await _get_deletable(call, organization_id)
    call.audit.resource_id = organization_id
    await keys.revoke(call, api_keys.c.organisation_id == organization_id)
    await call.execute(delete(rows).where(rows.c.id == organization_id))
    await call.services.notices.publish(call.unit, "organisation", organization_id)
    await call.services.notices.publish(call.unit, "members", organization_id)
    return {"deleted": True, "id": organization_id}
