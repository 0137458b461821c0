"""Sign-in without a password: by a code that is mailed."""

from datetime import timedelta

from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.limits import PerAddress
from baobab.tools.core.toolset import Rest
from baobab.tools.core.types import AppId, Email
from baobab.tools.users.codes import use_code
from baobab.tools.users.errors import CodeExpired, CodeUsed, UserBanned, WrongCode
from baobab.tools.users.jobs import request_code
from baobab.tools.users.rows import read_user
from baobab.tools.users.schemas import Message, SignedIn
from baobab.tools.users.sign_in import sign_in
from baobab.tools.users.tools.passwords import WINDOW, Code
from baobab.tools.users.toolset import auth

_NEW = timedelta(minutes=2)
"""A user who signs in within this time of being made is a new one."""


@auth.tool(
    "POST /magic-link",
    access=EVERYBODY,
    effect="write",
    limit=PerAddress(5, WINDOW, per_app=True),
    audit=Audit("magic_link_requested", category="auth", resource="user"),
    rest=Rest(examples={"email": "ada@example.com"}),
)
async def auth_magic_link(call: Call, app_id: AppId, email: Email) -> Message:
    """Mail a code to sign in with, which lives 15 minutes. An address that is not known yet becomes a user.

    The answer is the same whether or not the address is known.
    """
    await request_code(call, email, "magic_link")
    return {"message": "If the address can receive mail, a sign-in code was sent to it."}


@auth.tool(
    "POST /magic-link/verify",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCode, CodeUsed, CodeExpired, UserBanned),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=Audit("magic_link_login", category="auth", action="create", resource="session"),
    rest=Rest(examples={"email": "ada@example.com", "code": "123456"}),
)
async def auth_magic_link_verify(
    call: Call,
    app_id: AppId,
    email: Email,
    code: Code,
) -> SignedIn:
    """Sign in with a mailed code. The address counts as verified.

    Where nobody had verified the address yet, a password that was set before is removed: somebody else may have set it.
    """
    await use_code(call, email, "magic_link", code)
    user = await read_user(call, email=email)
    if user is None:
        raise WrongCode("Invalid sign-in code")
    is_new = call.now - user["created_at"] <= _NEW
    return await sign_in(call, user, "magic_link", "magic_link_login", is_new=is_new, proves_address=True)
