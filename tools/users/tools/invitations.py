"""Invitations: those who run an app ask people to join it, with a role."""

from datetime import timedelta
from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import delete, select, update

from baobab.runtime.passwords import hash_password
from baobab.storage.sql.tables import build_upsert
from baobab.tools.core import EVERYBODY, AppId, AppOwner, Audit, Call, Email, Guard, PerAddress, Rest, Uuid
from baobab.tools.core.auth.passwords import Password, WeakPassword, check_password
from baobab.tools.core.errors import MissingField
from baobab.tools.core.limits.limits import PerOrganisation
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.admission import find_invitation, require_user_room
from baobab.tools.users.codes import KINDS, use_code, use_link
from baobab.tools.users.errors import (
    CodeExpired,
    CodeUsed,
    InvitationNotFound,
    RedirectRefused,
    UserBanned,
    UserExists,
    WrongCode,
)
from baobab.tools.users.fields import DisplayName, Link, RoleName
from baobab.tools.users.jobs import send_code
from baobab.tools.users.redirects import RedirectTo, is_redirect_allowed
from baobab.tools.users.rows import build_user, find_user, insert_user
from baobab.tools.users.schemas import (
    Challenged,
    Invitation,
    Invitations,
    OneInvitation,
    RevokedInvitation,
    SignedIn,
)
from baobab.tools.users.sign_in import confirm_address, sign_in
from baobab.tools.users.tables import FREEZES, user_codes, user_invitations
from baobab.tools.users.tables import users as rows
from baobab.tools.users.tools.passwords import WINDOW, Code
from baobab.tools.users.toolset import auth, users

_ADMIN = AppOwner("admin")
_LIFETIME: timedelta = KINDS["app_invitation"].lifetime
_columns = user_invitations.c

InvitationId = Annotated[Uuid, Field(description="The invitation, by the `id` of op:users_invitations_list.")]


@users.tool(
    "POST /admin/auth/users/invite",
    access=_ADMIN,
    effect="write",
    raises=(UserExists, RedirectRefused),
    limit=PerOrganisation(200, 3600),
    audit=Audit("auth.user.invite", category="auth", action="create", resource="invitation"),
    rest=Rest(status=201, examples={"email": "grace@example.com", "role": "editor"}),
    guard=Guard(grants=True),
)
async def users_invite(
    call: Call, app_id: AppId, email: Email, role: RoleName = "user", redirect_to: RedirectTo | None = None
) -> OneInvitation:
    """Invite somebody to an app by a mail with a link and a code. Whoever accepts it within seven days has the role.

    Invited again, the same person gets a new mail, and the earlier one stops working.

    redirect_to: where the link leads in the end, with tokens, as in the sign-in by a provider.
    """
    if redirect_to is not None and not is_redirect_allowed(call, redirect_to):
        raise RedirectRefused
    row: dict[str, Any] = {"id": call.services.ids.uuid(), "role": role, "created_at": call.now}
    row |= {"expires_at": call.now + _LIFETIME, "accepted_at": None}
    async with FREEZES.writing(call) as unit:
        if await find_user(unit.execute, app_id, email=email) is not None:
            raise UserExists(remediation="This address has a user already: change the role with op:users_update.")
        upsert = build_upsert(unit.database.dialect, user_invitations).values(app_id=app_id, email=email, **row)
        await unit.execute(upsert.on_conflict_do_update(index_elements=["app_id", "email"], set_=row))
        await send_code(call.services, unit, app_id, email, "app_invitation", redirect_to)
    call.audit.resource_id = row["id"]
    return {"invitation": _describe({**row, "email": email})}


@users.tool(
    "GET /admin/auth/invitations",
    access=AppOwner(),
    effect="read",
)
async def users_invitations_list(call: Call, app_id: AppId) -> Invitations:
    """List the invitations to an app, the newest first. One that has ended is listed for another day."""
    query = select(user_invitations).where(_columns.app_id == app_id)
    query = query.order_by(_columns.created_at.desc(), _columns.id).limit(1000)
    async with call.reading() as execute:
        invitation_rows = (await execute(query)).mappings().all()
    return {"invitations": [_describe(row) for row in invitation_rows]}


@users.tool(
    "DELETE /admin/auth/invitations/{invitation_id}",
    access=_ADMIN,
    effect="write",
    raises=(InvitationNotFound,),
    audit=Audit("auth.user.uninvite", category="auth", action="delete", resource="invitation"),
)
async def users_invitations_revoke(call: Call, app_id: AppId, invitation_id: InvitationId) -> RevokedInvitation:
    """Revoke an invitation: its link and code stop working at once. Whoever has accepted it stays."""
    conditions = (_columns.app_id == app_id, _columns.id == invitation_id)
    async with FREEZES.writing(call) as unit:
        invitation = (await unit.execute(select(user_invitations).where(*conditions))).first()
        if invitation is None:
            raise InvitationNotFound
        email = invitation.email
        codes = (user_codes.c.app_id == app_id, user_codes.c.email == email, user_codes.c.purpose == "app_invitation")
        await unit.execute(delete(user_codes).where(*codes))
        await unit.execute(delete(user_invitations).where(*conditions))
        if invitation.accepted_at is None:
            await call.services.mailer.erase(unit.execute, app_id, email)
    call.audit.resource_id = invitation_id
    return {"revoked": True, "invitation_id": invitation_id}


@auth.tool(
    "POST /invitation/accept",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCode, CodeUsed, CodeExpired, WeakPassword, UserBanned, PlanLimitReached),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=Audit("invitation_accepted", category="auth", action="create", resource="user"),
    rest=Rest(examples={"link": "pS0xJ3Zk...", "password": "correct Horse 7!", "display_name": "Ada"}),
)
async def auth_accept_invitation(
    call: Call,
    app_id: AppId,
    password: Password,
    display_name: DisplayName = "",
    link: Link | None = None,
    email: Email | None = None,
    code: Code | None = None,
) -> SignedIn | Challenged:
    """Accept an invitation, once: set a password and sign in. The address counts as verified.

    password: the new password.
    link: the part `link` of the address in the mail.
    email: the invited address, together with `code` in place of `link`.
    """
    check_password(password)
    if link is None and (email is None or code is None):
        raise MissingField("Send `link`, or `email` and `code`.")
    password_hash = await hash_password(password)
    if link is not None:
        email = await use_link(call, link, "app_invitation")
    elif email is not None and code is not None:
        await use_code(call, email, "app_invitation", code)
    assert email is not None
    user, is_new = await _accept(call, email, password_hash, display_name)
    return await sign_in(call, user, "email", "signup", is_new=is_new, ends_others=not is_new)


def _describe(row: Any) -> Invitation:
    return cast(Invitation, {name: row[name] for name in Invitation.__annotations__})


async def _accept(call: Call, email: str, password_hash: str, display_name: str) -> tuple[dict[str, Any], bool]:
    """Makes the invited user, or gives password and role to one who has signed up meanwhile; whether it was made.

    In a transaction of its own, before the call's begins: signing in makes a key pair when it is the very first.
    """
    app_id = call.require_app().id
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        invitation = await find_invitation(unit.execute, app_id, email, call.now)
        if invitation is None:
            raise CodeExpired("Invitation expired")
        conditions = (_columns.app_id == app_id, _columns.id == invitation.id)
        await unit.execute(update(user_invitations).where(*conditions).values(accepted_at=call.now))
        user = await find_user(unit.execute, app_id, email=email)
        if user is None:
            further = {"email_verified": True, "password_hash": password_hash, "role": invitation.role}
            user = build_user(call.services, app_id, email, "email", display_name=display_name, **further)
            await require_user_room(unit.execute, call.require_app(), call.now)
            await insert_user(unit, user)
            return user, True
        # Somebody may have signed up with the address who does not read its mail.
        await confirm_address(unit, app_id, user["id"], password_hash=password_hash, role=invitation.role)
        if display_name:
            is_this = (rows.c.app_id == app_id, rows.c.id == user["id"])
            await unit.execute(update(rows).where(*is_this).values(display_name=display_name))
        updated_user = await find_user(unit.execute, app_id, user_id=user["id"])
    assert updated_user is not None
    return updated_user, False
