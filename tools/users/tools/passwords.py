"""Sign-in by password: sign up, sign in, verify the address, set a new password."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import update

from baobab.runtime.passwords import hash_password, is_outdated, verify_password
from baobab.tools.core import EVERYBODY, AppId, Audit, Call, Email, PerAddress, Rest, Text
from baobab.tools.core.auth.password_attempts import PasswordAttempts
from baobab.tools.core.auth.passwords import AnyPassword, Password, WeakPassword, check_password
from baobab.tools.core.errors import MissingField
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.admission import admit, require_open
from baobab.tools.users.codes import DIGITS, say_sent, use_code, use_link
from baobab.tools.users.errors import (
    CodeExpired,
    CodeUsed,
    SignUpClosed,
    UserBanned,
    UserExists,
    WrongCode,
    WrongCredentials,
)
from baobab.tools.users.events import EMAIL_VERIFIED
from baobab.tools.users.fields import DisplayName, Link
from baobab.tools.users.jobs import request_code, send_code
from baobab.tools.users.rows import build_user, find_user, insert_user, read_user
from baobab.tools.users.schemas import Challenged, Message, NewUser, SignedIn, SignedUp
from baobab.tools.users.sessions import end_sessions
from baobab.tools.users.sign_in import (
    confirm_address,
    name_user,
    report_change,
    report_sign_in,
    sign_in,
)
from baobab.tools.users.tables import FREEZES, users
from baobab.tools.users.toolset import auth

WINDOW = 900

Code = Annotated[
    str, Text(20, min_length=1), Field(description=f"The {DIGITS} digits that were mailed.", examples=["123456"])
]


@auth.tool(
    "POST /signup",
    access=EVERYBODY,
    effect="write",
    raises=(WeakPassword, UserExists, SignUpClosed, PlanLimitReached),
    limit=PerAddress(5, WINDOW, per_app=True),
    audit=Audit("signup", category="auth", action="create", resource="user"),
    rest=Rest(
        status=201,
        examples={"email": "ada@example.com", "password": "correct Horse 7!", "display_name": "Ada"},
    ),
)
async def auth_signup(
    call: Call,
    app_id: AppId,
    email: Email,
    password: Password,
    display_name: DisplayName = "",
) -> SignedUp:
    """Make a user of an app and mail a code that verifies the address. Sign in afterwards for tokens.

    email: the user's address; upper and lower case count as the same.
    """
    check_password(password)
    await require_open(call)
    password_hash = await hash_password(password)
    user = build_user(call.services, app_id, email, "email", password_hash=password_hash, display_name=display_name)
    async with FREEZES.writing(call) as unit:
        user |= await admit(unit.execute, call.require_app(), email, call.now, proves_address=False)
        await insert_user(unit, user)
        await send_code(call.services, unit, app_id, email, "verify_email")
    await report_sign_in(call, user, "email", "signup", is_new=True)
    new_user: NewUser = {"id": user["id"], "email": email, "email_verified": False, "display_name": display_name}
    return {"user": new_user, "message": say_sent(call, "Verification email sent")}


@auth.tool(
    "POST /login",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCredentials, UserBanned),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=Audit("login", category="auth", action="create", resource="session"),
    rest=Rest(examples={"email": "ada@example.com", "password": "correct Horse 7!"}),
)
async def auth_login(
    call: Call,
    app_id: AppId,
    email: Email,
    password: AnyPassword,
) -> SignedIn | Challenged:
    """Sign in with a password: an access token and a refresh token. The address need not be verified.

    After twenty wrong passwords for one user, from any address, each address has one more try for that user, so that
    nobody can lock the user out.

    password: the user's password.
    """
    attempts = PasswordAttempts(call, email)
    await attempts.require_room()
    user = await read_user(call, email=email)
    password_hash: str | None = user["password_hash"] if user else None
    is_correct = await verify_password(password_hash, password)
    if user is None or password_hash is None or not is_correct:
        # The refusal does not say which of the two was wrong; the audit row may name the user.
        if user is not None:
            name_user(call, user["id"])
        await attempts.count_wrong()
        raise WrongCredentials
    if is_outdated(password_hash):
        await _renew_hash(call, user["id"], password_hash, await hash_password(password))
    return await sign_in(call, user, "email", "login")


@auth.tool(
    "POST /verify-email",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCode, CodeUsed, CodeExpired, MissingField),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=Audit("email_verified", category="auth", resource="user"),
    rest=Rest(examples={"email": "ada@example.com", "code": "123456"}),
)
async def auth_verify_email(
    call: Call, app_id: AppId, email: Email | None = None, code: Code | None = None, link: Link | None = None
) -> Message:
    """Verify a user's address with the code of the sign-up mail, or with its link, which live 24 hours.

    email: the user's address, together with `code`.
    link: the part `link` of the address in the mail, in place of both.
    """
    if link is not None:
        email = await use_link(call, link, "verify_email")
    elif email is not None and code is not None:
        await use_code(call, email, "verify_email", code)
    else:
        raise MissingField("Send `email` and `code`, or `link`.")
    async with FREEZES.writing(call) as unit:
        user = await find_user(unit.execute, app_id, email=email)
        if user is None:
            raise WrongCode("Invalid verification code")
        name_user(call, user["id"])
        await confirm_address(unit, app_id, user["id"])
    await report_change(call, EMAIL_VERIFIED, user)
    return {"message": "Email verified successfully"}


@auth.tool(
    "POST /forgot-password",
    access=EVERYBODY,
    effect="write",
    limit=PerAddress(3, WINDOW, per_app=True),
    audit=Audit("password_reset_requested", category="auth", resource="user"),
    rest=Rest(examples={"email": "ada@example.com"}),
)
async def auth_forgot_password(call: Call, app_id: AppId, email: Email) -> Message:
    """Mail a code with which a new password can be set. The answer is the same whether or not the address is known."""
    await request_code(call, email, "reset_password")
    return {"message": say_sent(call, "If the address has an account, a code was sent to it.")}


@auth.tool(
    "POST /reset-password",
    access=EVERYBODY,
    effect="write",
    raises=(WrongCode, CodeUsed, CodeExpired, WeakPassword),
    limit=PerAddress(5, WINDOW, per_app=True),
    audit=Audit("password_reset_completed", category="auth", resource="user"),
    rest=Rest(examples={"email": "ada@example.com", "code": "123456", "new_password": "Battery staple 9?"}),
)
async def auth_reset_password(call: Call, app_id: AppId, email: Email, code: Code, new_password: Password) -> Message:
    """Set a new password with a mailed code, which lives an hour. Every session of the user ends.

    new_password: the new password.
    """
    check_password(new_password)
    password_hash = await hash_password(new_password)
    await use_code(call, email, "reset_password", code)
    async with FREEZES.writing(call) as unit:
        user = await find_user(unit.execute, app_id, email=email)
        if user is None:
            raise WrongCode("Invalid reset code")
        name_user(call, user["id"])
        # A caller with the code can read the mail of the address.
        await confirm_address(unit, app_id, user["id"], password_hash=password_hash)
        await end_sessions(call, unit, user["id"])
    return {"message": "Password reset successfully"}


async def _renew_hash(call: Call, user_id: str, old_hash: str, new_hash: str) -> None:
    """Stores a password's hash with today's parameters, unless another password was set in between."""
    is_this = (users.c.app_id == call.require_app().id, users.c.id == user_id, users.c.password_hash == old_hash)
    async with call.stores.database.writing(lock=call.require_app().id) as connection:
        if not await FREEZES.is_frozen(connection.execute, call.require_app().id):
            await connection.execute(update(users).where(*is_this).values(password_hash=new_hash))
