"""Tools of organisations, members and invitations: /v1/organizations and /v1/invitations."""

import json
from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update

from baobab.tools.core.auth import keys
from baobab.tools.core.auth.access import AnyAccount
from baobab.tools.core.auth.function_keys import void_function_keys_shown_to
from baobab.tools.core.auth.membership import create_organisation_row, load_role, select_memberships
from baobab.tools.core.auth.roles import Role, rank
from baobab.tools.core.auth.tables import accounts, api_keys, apps, members
from baobab.tools.core.auth.tables import organisations as rows
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.secret import Secret
from baobab.tools.core.toolset import Guard, Mcp, Rest, Toolset
from baobab.tools.core.types import Email, NameText, Uuid
from baobab.tools.organisations import invitations as invited
from baobab.tools.organisations.access import Member
from baobab.tools.organisations.errors import (
    AboveOwnRole,
    AlreadyMember,
    InvitationNotFound,
    InvitationSpent,
    InvitedAnother,
    LastOwner,
    MemberNotFound,
    OrganisationFull,
    OrganisationHasApps,
    PersonalOrganisation,
)
from baobab.tools.organisations.membership_checks import check_other_owner, check_role_rank, load_organisation
from baobab.tools.organisations.schemas import (
    Deleted,
    Invitation,
    Invitations,
    Invited,
    Joined,
    Members,
    Organization,
    Organizations,
    Removed,
    RoleSet,
)

organisations = Toolset("organisations", "Organisations, their members and invitations.", base="/v1")

MOST_OWNED = 100
MOST_MEMBERS = 500

OrganizationName = Annotated[str, NameText(200, min_length=1)]
OrganizationId = Annotated[Uuid, Field(description="The organisation.")]
AccountId = Annotated[Uuid, Field(description="The member's account.")]
InvitationId = Annotated[Uuid, Field(description="The invitation.")]
InvitationToken = Annotated[
    str, Secret(60, pattern=r"^inv_[A-Za-z0-9]+$"), Field(description="What the inviter passed on.")
]


@organisations.tool(
    "GET /organizations",
    access=AnyAccount(),
    effect="read",
    mcp=Mcp(
        keywords=(
            "my teams, workspaces, companies, which organisations; "
            "meine Organisationen, Teams; "
            "mis organizaciones, equipos"
        )
    ),
)
async def organisations_list(call: Call) -> Organizations:
    """List the organisations that the account belongs to; an API key sees its own only."""
    caller = call.account
    memberships = (await call.execute(select_memberships(caller.account_id))).mappings()
    return {
        "organizations": [
            _organization(row) for row in memberships if caller.key_id is None or row["id"] == caller.organisation_id
        ]
    }


@organisations.tool(
    "POST /organizations",
    access=AnyAccount(keys=False),
    effect="write",
    raises=(OrganisationFull,),
    audit=Audit("organization.create", action="create", resource="organization"),
    rest=Rest(status=201, examples={"name": "Analytical Engines"}),
    mcp=Mcp(
        keywords=(
            "new team, workspace, company, set up an organisation; "
            "Organisation anlegen, neues Team, Firma; "
            "crear organización, nuevo equipo, empresa"
        )
    ),
)
async def organisations_create(call: Call, name: OrganizationName) -> Organization:
    """Make an organisation and be its owner. Send its id as `X-Organization-Id` to work in it.

    name: the name that its members see.
    """
    owner_id = call.account.account_id
    await call.hold(owner_id)
    owned = select(func.count()).where(members.c.account_id == owner_id, members.c.role == "owner")
    if ((await call.execute(owned)).scalar() or 0) >= MOST_OWNED:
        raise OrganisationFull(f"This account owns {MOST_OWNED} organisations.", details={"limit": MOST_OWNED})
    row = await create_organisation_row(call.execute, call.services, name, owner_id, personal=False)
    call.audit.resource_id = call.audit.organisation_id = row["id"]
    return _organization({**row, "role": "owner"})


@organisations.tool(
    "GET /organizations/{organization_id}",
    access=Member(),
    effect="read",
    mcp=Mcp(keywords="details of a team, workspace, company; Organisation ansehen; ver organización"),
)
async def organisations_get(call: Call, organization_id: OrganizationId) -> Organization:
    """Read one organisation."""
    row = await load_organisation(call, organization_id)
    return _organization(row)


@organisations.tool(
    "PATCH /organizations/{organization_id}",
    access=Member("admin"),
    effect="write",
    audit=Audit("organization.update", action="update", resource="organization"),
    rest=Rest(examples={"organization_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11", "name": "Difference Engines"}),
    mcp=Mcp(
        keywords="rename a team, workspace, company; Organisation umbenennen; cambiar el nombre de la organización"
    ),
)
async def organisations_update(call: Call, organization_id: OrganizationId, name: OrganizationName) -> Organization:
    """Rename an organisation.

    name: the new name.
    """
    row = await load_organisation(call, organization_id, "admin")
    call.audit.resource_id = organization_id
    await call.execute(update(rows).where(rows.c.id == organization_id).values(name=name))
    await call.services.notices.publish(call.unit, "organisation", organization_id)
    return _organization({**row, "name": name})


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
    here = members.c.organisation_id == organization_id
    who = (await call.execute(select(func.count()).where(here))).scalar_one()
    live = await _live_keys(call, api_keys.c.organisation_id == organization_id)
    return f"It would delete the organisation {json.dumps(row['name'])} with {who} members and {live} live API keys."


@organisations.tool(
    "DELETE /organizations/{organization_id}",
    access=Member("owner"),
    effect="destructive",
    raises=(PersonalOrganisation, OrganisationHasApps),
    audit=Audit("organization.delete", action="delete", resource="organization"),
    mcp=Mcp(keywords="remove, close, dissolve a team, workspace, company; Organisation löschen; eliminar organización"),
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


@organisations.tool(
    "GET /organizations/{organization_id}/members",
    access=Member(),
    effect="read",
    mcp=Mcp(
        keywords=(
            "who is in the team, people, users, colleagues, staff, admins, roles; "
            "Mitglieder, wer gehört dazu; "
            "miembros, quién está en el equipo"
        )
    ),
)
async def organisations_members(call: Call, organization_id: OrganizationId) -> Members:
    """List the members of an organisation and their roles."""
    query = (
        select(members.c.account_id, accounts.c.email, accounts.c.name, members.c.role, members.c.created_at)
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
                "joined_at": row.created_at,
            }
            for row in await call.execute(query)
        ]
    }


@organisations.tool(
    "PATCH /organizations/{organization_id}/members/{account_id}",
    access=Member("admin"),
    effect="write",
    raises=(MemberNotFound, AboveOwnRole, LastOwner, PersonalOrganisation),
    audit=Audit("organization.member.update", action="update", resource="account"),
    mcp=Mcp(
        keywords=(
            "make somebody admin, owner, promote, demote, permissions of a person, administrator; "
            "Rolle ändern, zum Admin machen, Rechte; "
            "cambiar rol, hacer administrador, permisos"
        )
    ),
    guard=Guard(grants=True),
)
async def organisations_set_role(
    call: Call, organization_id: OrganizationId, account_id: AccountId, role: Role
) -> RoleSet:
    """Give a member another role; nobody grants a role above their own, and one owner stays.

    A member whose role becomes lower loses what the higher one gave: their open invitations are withdrawn. If they
    become a plain member, the app keys that they made are revoked, and the function keys that they were shown replaced.

    role: `member` uses the apps, `admin` runs them and invites, `owner` may do everything.
    """
    row = await load_organisation(call, organization_id, "admin")
    before = await _role_of(call, organization_id, account_id)
    check_role_rank(row["role"], before, role)
    if row["personal"] and "owner" in (before, role) and before != role:
        raise PersonalOrganisation("A personal organisation has one owner.")
    if before == "owner" != role:
        await check_other_owner(call, organization_id)
    who = (members.c.organisation_id == organization_id, members.c.account_id == account_id)
    await call.execute(update(members).where(*who).values(role=role))
    revoked = 0
    if rank(role) < rank(before):
        await invited.withdraw_those_of(call, organization_id, account_id)
    if role == "member":
        revoked = await keys.revoke(call, *_keys_of(organization_id, account_id), api_keys.c.app_id.is_not(None))
        await void_function_keys_shown_to(call, organization_id, account_id)
    await call.services.notices.publish(call.unit, "members", organization_id)
    call.audit.data |= {"from": before, "to": role, "keys_revoked": revoked}
    return {"account_id": account_id, "role": role, "keys_revoked": revoked}


async def _get_removable(call: Call, organization_id: str, account_id: str) -> tuple[Any, Role]:
    leaving = account_id == call.account.account_id
    row = await load_organisation(call, organization_id, "member" if leaving else "admin")
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
    live = await _live_keys(call, *_keys_of(organization_id, account_id))
    place = json.dumps(row["name"])
    return f"It would remove {email} ({role}) from the organisation {place} and revoke {live} of their API keys."


@organisations.tool(
    "DELETE /organizations/{organization_id}/members/{account_id}",
    access=Member(),
    effect="destructive",
    raises=(MemberNotFound, AboveOwnRole, LastOwner, PersonalOrganisation),
    audit=Audit("organization.member.delete", action="delete", resource="account"),
    mcp=Mcp(
        keywords=(
            "kick, remove a person, colleague or user from the team, offboard, somebody left the company, leave "
            "the organisation; "
            "Mitglied entfernen, austreten; "
            "quitar miembro, expulsar, salir"
        )
    ),
    guard=Guard(preview=_preview_remove),
)
async def organisations_remove_member(call: Call, organization_id: OrganizationId, account_id: AccountId) -> Removed:
    """Remove a member, or leave with your own account id. What the account had handed out is void from then on.

    That is: its keys in this organisation, its invitations that nobody has accepted, and the function keys of apps that
    it was shown. Functions get the new key by themselves; if you copied the old one, copy the new one.

    Admins remove members and admins, owners everybody. The last owner stays, and so does that of a personal
    organisation.
    """
    _, role = await _get_removable(call, organization_id, account_id)
    who = (members.c.organisation_id == organization_id, members.c.account_id == account_id)
    await call.execute(delete(members).where(*who))
    revoked = await keys.revoke(call, *_keys_of(organization_id, account_id))
    await invited.withdraw_those_of(call, organization_id, account_id)
    await void_function_keys_shown_to(call, organization_id, account_id)
    await call.services.notices.publish(call.unit, "members", organization_id)
    call.audit.data |= {"role": role, "keys_revoked": revoked}
    return {"removed": True, "account_id": account_id, "keys_revoked": revoked}


@organisations.tool(
    "POST /organizations/{organization_id}/invitations",
    access=Member("admin"),
    effect="write",
    raises=(AboveOwnRole, AlreadyMember, OrganisationFull, PersonalOrganisation),
    audit=Audit("organization.invitation.create", action="create", resource="invitation"),
    rest=Rest(
        status=201,
        examples={
            "organization_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11",
            "email": "grace@example.com",
            "role": "member",
        },
    ),
    mcp=Mcp(
        keywords=(
            "add a person, colleague, teammate, user by e-mail, onboard, give somebody access, share with the "
            "team; "
            "einladen, Kollegen hinzufügen; "
            "invitar, añadir compañero"
        )
    ),
    guard=Guard(grants=True),
)
async def organisations_invite(
    call: Call, organization_id: OrganizationId, email: Email, role: Role = "member"
) -> Invited:
    """Invite the account of an e-mail address. The token in the answer is shown once: pass it on yourself.

    This installation sends no mail. The account with that address, which may sign up first, accepts with the token
    (op:organisations_accept_invitation) within seven days. An earlier invitation of the address becomes void.

    email: the address of the account that may accept.
    role: the role it will have; not above your own.
    """
    row = await load_organisation(call, organization_id, "admin")
    check_role_rank(row["role"], role)
    if row["personal"] and role == "owner":
        raise PersonalOrganisation("A personal organisation has one owner.")
    invitation, token = await invited.create(call, organization_id, email, role)
    call.audit.resource_id = invitation["id"]
    call.audit.data |= {"email": email, "role": role}
    return {"invitation": _invitation(invitation), "token": token}


@organisations.tool(
    "GET /organizations/{organization_id}/invitations",
    access=Member("admin"),
    effect="read",
    mcp=Mcp(
        keywords="pending invites, who has been invited and not joined; offene Einladungen; invitaciones pendientes"
    ),
)
async def organisations_invitations(call: Call, organization_id: OrganizationId) -> Invitations:
    """List the invitations that can still be accepted."""
    return {"invitations": [_invitation(row) for row in await invited.list_pending(call, organization_id)]}


async def _get_withdrawable(call: Call, organization_id: str, invitation_id: str) -> Any:
    row = await load_organisation(call, organization_id, "admin")
    invitation = await invited.find(call, organization_id, invitation_id)
    check_role_rank(row["role"], invitation.role)
    return invitation


async def _preview_withdraw(call: Call, organization_id: OrganizationId, invitation_id: InvitationId) -> str:
    invitation = await _get_withdrawable(call, organization_id, invitation_id)
    return f"It would withdraw the invitation of {invitation.email} as {invitation.role}."


@organisations.tool(
    "DELETE /organizations/{organization_id}/invitations/{invitation_id}",
    access=Member("admin"),
    effect="destructive",
    raises=(InvitationNotFound, AboveOwnRole),
    audit=Audit("organization.invitation.delete", action="delete", resource="invitation"),
    mcp=Mcp(keywords="cancel, revoke, take back an invite; Einladung zurückziehen; cancelar invitación"),
    guard=Guard(preview=_preview_withdraw),
)
async def organisations_withdraw_invitation(
    call: Call, organization_id: OrganizationId, invitation_id: InvitationId
) -> Deleted:
    """Withdraw an invitation; its token is void at once."""
    await _get_withdrawable(call, organization_id, invitation_id)
    call.audit.resource_id = invitation_id
    await invited.withdraw(call, invitation_id)
    return {"deleted": True, "id": invitation_id}


@organisations.tool(
    "POST /invitations/{token}/accept",
    access=AnyAccount(keys=False),
    effect="write",
    raises=(InvitationNotFound, InvitationSpent, InvitedAnother, AlreadyMember, OrganisationFull),
    audit=Audit("organization.invitation.accept", action="create", resource="invitation"),
    mcp=Mcp(
        keywords=(
            "join a team with an invite token, accept an invite; "
            "Einladung annehmen, beitreten; "
            "aceptar invitación, unirse"
        )
    ),
)
async def organisations_accept_invitation(call: Call, token: InvitationToken) -> Joined:
    """Accept an invitation and become a member; only the account whose address it names can, and only once."""
    invitation = await invited.accept(call, token)
    organization_id, account_id = invitation.organisation_id, call.account.account_id
    call.audit.resource_id, call.audit.organisation_id = invitation.id, organization_id
    if await load_role(call, organization_id, account_id) is not None:
        raise AlreadyMember
    await call.hold(organization_id)
    here = select(func.count()).where(members.c.organisation_id == organization_id)
    if ((await call.execute(here)).scalar() or 0) >= MOST_MEMBERS:
        raise OrganisationFull(f"The organisation has {MOST_MEMBERS} members.", details={"limit": MOST_MEMBERS})
    member = {
        "organisation_id": organization_id,
        "account_id": account_id,
        "role": invitation.role,
        "created_at": call.now,
    }
    await call.execute(insert(members), member)
    await call.services.notices.publish(call.unit, "members", organization_id)
    row = await load_organisation(call, organization_id)
    return {"organization": _organization(row)}


async def _role_of(call: Call, organization_id: str, account_id: str) -> Role:
    call.audit.resource_id = account_id
    role = await load_role(call, organization_id, account_id)
    if role is None:
        raise MemberNotFound
    return role


async def _live_keys(call: Call, *which: Any) -> int:
    counted = select(func.count()).select_from(api_keys).where(*which, api_keys.c.revoked_at.is_(None))
    live: int = (await call.execute(counted)).scalar_one()
    return live


def _keys_of(organization_id: str, account_id: str) -> tuple[Any, Any]:
    return api_keys.c.organisation_id == organization_id, api_keys.c.account_id == account_id


def _organization(row: Any) -> Organization:
    return cast(Organization, {key: row[key] for key in Organization.__annotations__})


def _invitation(row: Any) -> Invitation:
    return cast(Invitation, {key: row[key] for key in Invitation.__annotations__})
