"""Tools of invitations: /v1/organizations/{organization_id}/invitations and /v1/invitations."""

from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import func, insert, select

from baobab.tools.core import (
    EVERYBODY,
    AnyAccount,
    Audit,
    Call,
    Email,
    Guard,
    Mcp,
    PerAddress,
    Rest,
    Role,
    Secret,
    Uuid,
)
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import accounts, members
from baobab.tools.core.mail import Mail
from baobab.tools.organisations import invitations as invited
from baobab.tools.organisations.access import Member
from baobab.tools.organisations.errors import (
    AboveOwnRole,
    AlreadyMember,
    AppsNotOfOrganisation,
    InvitationNotFound,
    InvitationSpent,
    InvitedAnother,
    OrganisationFull,
    PersonalOrganisation,
)
from baobab.tools.organisations.membership_checks import check_app_ids, check_role_rank, load_organisation
from baobab.tools.organisations.schemas import (
    Deleted,
    Invitation,
    InvitationOffer,
    Invitations,
    Invited,
    Joined,
    render_organisation,
)
from baobab.tools.organisations.toolset import AppIds, OrganizationId, organisations

MOST_MEMBERS = 500
_LONGEST_NAME = 60
"""The most characters of a name in a mail to somebody who has not asked for it."""

InvitationId = Annotated[Uuid, Field(description="The invitation.")]
InvitationToken = Annotated[
    str, Secret(60, pattern=r"^inv_[A-Za-z0-9]+$"), Field(description="What the inviter passed on.")
]


@organisations.tool(
    "POST /organizations/{organization_id}/invitations",
    access=Member("admin"),
    effect="write",
    raises=(AboveOwnRole, AlreadyMember, OrganisationFull, PersonalOrganisation, AppsNotOfOrganisation),
    audit=Audit("organization.invitation.create", action="create", resource="invitation"),
    rest=Rest(
        status=201,
        examples={
            "organization_id": "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11",
            "email": "grace@example.com",
            "role": "member",
        },
    ),
    guard=Guard(grants=True),
)
async def organisations_invite(
    call: Call, organization_id: OrganizationId, email: Email, role: Role = "member", app_ids: AppIds | None = None
) -> Invited:
    """Invite the account of an e-mail address. The link in the answer is shown once.

    If the installation has a mail server, the link is mailed to the address (`mailed`); otherwise pass it on yourself.
    The account with that address, which may sign up first with the link, accepts on its page or with the token
    (op:organisations_accept_invitation) within seven days. An earlier invitation of the address becomes void.

    email: the address of the account that may accept.
    role: the role it will have; not above your own.
    app_ids: for an approver, the only apps about whose calls they decide; left out, all.
    """
    row = await load_organisation(call, organization_id, "admin")
    check_role_rank(row["role"], role)
    await check_app_ids(call, organization_id, role, app_ids)
    if row["personal"] and role == "owner":
        raise PersonalOrganisation("A personal organisation has one owner.")
    invitation, token = await invited.create(call, organization_id, email, role, app_ids)
    call.audit.resource_id = invitation["id"]
    call.audit.data |= {"email": email, "role": role}
    link, mailer = f"{call.services.options.base_url}/console/join?token={token}", call.services.mailer
    if mailer.delivers:
        inviter = select(accounts.c.name).where(accounts.c.id == call.account.account_id)
        names = {"inviter": (await call.execute(inviter)).scalar_one(), "organisation": row["name"]}
        values = {"link": link, **{name: text[:_LONGEST_NAME] for name, text in names.items()}}
        await mailer.send(call.unit, Mail(email, "invitation", values, expires_at=invitation["expires_at"]))
    return {"invitation": _invitation(invitation), "token": token, "link": link, "mailed": mailer.delivers}


@organisations.tool(
    "GET /invitations/{token}",
    access=EVERYBODY,
    effect="read",
    raises=(InvitationNotFound,),
    limit=PerAddress(60, 900),
    mcp=Mcp(offered=False),
)
async def organisations_read_invitation(call: Call, token: InvitationToken) -> InvitationOffer:
    """Read what an invitation offers, with its token and without a credential."""
    row = await invited.find_offer(call, token)
    is_over = row.expires_at <= call.now
    return {
        "status": "accepted" if row.accepted_at is not None else "expired" if is_over else "open",
        "organization_name": row.organisation,
        "email": row.email,
        "has_account": row.known_id is not None,
        "role": row.role,
        "app_ids": row.app_ids,
        "invited_by": row.inviter,
        "expires_at": row.expires_at,
    }


@organisations.tool(
    "GET /organizations/{organization_id}/invitations",
    access=Member("admin"),
    effect="read",
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
    guard=Guard(preview=_preview_withdraw),
)
async def organisations_withdraw_invitation(
    call: Call, organization_id: OrganizationId, invitation_id: InvitationId
) -> Deleted:
    """Withdraw an invitation; its token stops working at once."""
    await _get_withdrawable(call, organization_id, invitation_id)
    call.audit.resource_id = invitation_id
    await invited.withdraw(call, invitation_id)
    return {"deleted": True, "id": invitation_id}


@organisations.tool(
    "POST /invitations/{token}/accept",
    access=AnyAccount(APPROVER, keys=False),
    effect="write",
    raises=(InvitationNotFound, InvitationSpent, InvitedAnother, AlreadyMember, OrganisationFull),
    audit=Audit("organization.invitation.accept", action="create", resource="invitation"),
)
async def organisations_accept_invitation(call: Call, token: InvitationToken) -> Joined:
    """Accept an invitation and become a member; only the account whose address it names can, and only once."""
    invitation = await invited.accept(call, token)
    organization_id, account_id = invitation.organisation_id, call.account.account_id
    call.audit.resource_id, call.audit.organisation_id = invitation.id, organization_id
    if await load_role(call, organization_id, account_id) is not None:
        raise AlreadyMember
    await call.hold(organization_id)
    query = select(func.count()).where(members.c.organisation_id == organization_id)
    if ((await call.execute(query)).scalar() or 0) >= MOST_MEMBERS:
        raise OrganisationFull(f"The organisation has {MOST_MEMBERS} members.", details={"limit": MOST_MEMBERS})
    member = {
        "organisation_id": organization_id,
        "account_id": account_id,
        "role": invitation.role,
        "app_ids": invitation.app_ids,
        "created_at": call.now,
    }
    await call.execute(insert(members), member)
    await call.services.notices.publish(call.unit, "members", organization_id)
    row = await load_organisation(call, organization_id)
    return {"organization": render_organisation(row)}


def _invitation(row: Any) -> Invitation:
    return cast(Invitation, {key: row[key] for key in Invitation.__annotations__})
