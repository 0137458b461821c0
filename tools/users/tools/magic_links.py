"""Sign-in without a password: by a code that is mailed."""

from datetime import timedelta
from typing import Any

from baobab.tools.core import EVERYBODY, AppId, Audit, Call, Email, PerAddress, Rest
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.admission import admit
from baobab.tools.users.codes import find_link, say_sent, use_code, use_link
from baobab.tools.users.errors import CodeExpired, CodeUsed, RedirectRefused, SignUpClosed, UserBanned, WrongCode
from baobab.tools.users.fields import Link
from baobab.tools.users.jobs import request_code
from baobab.tools.users.redirects import RedirectTo, is_redirect_allowed
from baobab.tools.users.rows import build_user, insert_user, read_user
from baobab.tools.users.schemas import Challenged, MailedLink, Message, SignedIn
from baobab.tools.users.sign_in import sign_in
from baobab.tools.users.tables import FREEZES
from baobab.tools.users.tools.passwords import WINDOW, Code
from baobab.tools.users.toolset import auth

_NEW = timedelta(minutes=2)
"""A user who signs in within this time of being made is a new one."""


@auth.tool(
    "POST /magic-link",
    access=EVERYBODY,
    effect="write",
    raises=(RedirectRefused,),
    limit=PerAddress(5, WINDOW, per_app=True),
    audit=Audit("magic_link_requested", category="auth", resource="user"),
    rest=Rest(examples={"email": "ada@example.com"}),
)
async def auth_magic_link(call: Call, app_id: AppId, email: Email, redirect_to: RedirectTo | None = None) -> Message:
    """Mail a code to sign in with, which lives 15 minutes. An address that is not known yet becomes a user.

    The answer is the same whether or not the address is known.

    redirect_to: where a link in the mail leads with the tokens, as in op:auth_oauth_start. Left out, the mail has no
        link.
    """
    if redirect_to is not None and not is_redirect_allowed(call, redirect_to):
        raise RedirectRefused
    await request_code(call, email, "magic_link", redirect_to)
    return {"message": say_sent(call, "If the address can receive mail, a sign-in code was sent to it.")}


@auth.tool(
    "POST /magic-link/verify",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCode, CodeUsed, CodeExpired, UserBanned, SignUpClosed, PlanLimitReached),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=Audit("magic_link_login", category="auth", action="create", resource="session"),
    rest=Rest(examples={"email": "ada@example.com", "code": "123456"}),
)
async def auth_magic_link_verify(
    call: Call,
    app_id: AppId,
    email: Email,
    code: Code,
) -> SignedIn | Challenged:
    """Sign in with a mailed code. The address counts as verified.

    Where nobody had verified the address yet, a password that was set before is removed: somebody else may have set it.
    """
    await use_code(call, email, "magic_link", code)
    return await _sign_in(call, email)


@auth.tool(
    "GET /link/request",
    access=EVERYBODY,
    effect="read",
    raises=(WrongCode, CodeUsed, CodeExpired, RedirectRefused),
    limit=PerAddress(60, WINDOW, per_app=True),
)
async def auth_link_request(call: Call, app_id: AppId, link: Link) -> MailedLink:
    """Return what the link in a mail is for, without using it up, so that a page can ask for a click first.

    link: the part `link` of the address in the mail.
    """
    row = await find_link(call, link)
    if row.purpose not in ("magic_link", "app_invitation", "verify_email"):
        raise WrongCode
    # The app may have taken the origin back since the mail was sent.
    if row.redirect_to is not None and not is_redirect_allowed(call, row.redirect_to):
        raise RedirectRefused
    return {
        "purpose": row.purpose,
        "email": row.email,
        "redirect_to": row.redirect_to,
        "app_name": call.require_app().title,
    }


@auth.tool(
    "POST /magic-link/confirm",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCode, CodeUsed, CodeExpired, UserBanned, SignUpClosed, PlanLimitReached),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=Audit("magic_link_login", category="auth", action="create", resource="session"),
    rest=Rest(examples={"link": "pS0xJ3Zk..."}),
)
async def auth_magic_link_confirm(call: Call, app_id: AppId, link: Link) -> SignedIn | Challenged:
    """Sign in with the link of a mail, once, as with its code.

    link: the part `link` of the address in the mail.
    """
    return await _sign_in(call, await use_link(call, link, "magic_link"))


async def _sign_in(call: Call, email: str) -> SignedIn | Challenged:
    """Signs in whoever has proven to read the mail of an address; one who is invited becomes a user by it."""
    user = await read_user(call, email=email)
    if user is None:
        user = await _join(call, email)
        return await sign_in(call, user, "magic_link", "magic_link_login", is_new=True)
    is_new = call.now - user["created_at"] <= _NEW
    return await sign_in(call, user, "magic_link", "magic_link_login", is_new=is_new, proves_address=True)


async def _join(call: Call, email: str) -> dict[str, Any]:
    """Makes a user of an address that was invited. Raises SignUpClosed, and WrongCode where it is not invited."""
    app_id = call.require_app().id
    user = build_user(call.services, app_id, email, "magic_link", email_verified=True)
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        invitation_columns = await admit(unit.execute, call.require_app(), email, call.now, proves_address=True)
        if not invitation_columns:
            # The user was deleted, or the invitation revoked, after the mail was sent.
            raise WrongCode("Invalid sign-in code")
        user |= invitation_columns
        await insert_user(unit, user)
    return user
