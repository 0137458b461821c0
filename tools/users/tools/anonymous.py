"""Anonymous users: a sign-in without an address, and the address that is added later."""

from baobab.runtime.passwords import hash_password
from baobab.tools.core import EVERYBODY, AppId, Audit, Call, Email, EndUser, Forbidden, PerAddress, Rest
from baobab.tools.core.auth.passwords import Password, WeakPassword, check_password
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.users.access import SIGNED_IN_USER
from baobab.tools.users.admission import admit, require_open
from baobab.tools.users.anonymous import give_address, seal_ticket
from baobab.tools.users.codes import say_sent, use_code
from baobab.tools.users.errors import (
    AnonymousClosed,
    CodeExpired,
    CodeUsed,
    NotAnonymous,
    SignUpClosed,
    UserExists,
    WrongCode,
)
from baobab.tools.users.fields import DisplayName
from baobab.tools.users.jobs import request_code, send_code
from baobab.tools.users.rows import build_user, insert_user, read_user
from baobab.tools.users.schemas import Message, NewUser, SignedIn, SignedUp, UpgradeTicket
from baobab.tools.users.sessions import announce_change, end_sessions
from baobab.tools.users.settings import read_settings
from baobab.tools.users.sign_in import finish_sign_in, report_sign_in
from baobab.tools.users.tables import FREEZES
from baobab.tools.users.tools.passwords import WINDOW, Code
from baobab.tools.users.toolset import auth

_UPGRADED = Audit("anonymous_upgraded", category="auth", resource="user")


@auth.tool(
    "POST /anonymous",
    access=EVERYBODY,
    effect="write",
    raises=(AnonymousClosed, SignUpClosed, PlanLimitReached),
    limit=PerAddress(30, 3600, per_app=True),
    audit=Audit("anonymous_login", category="auth", action="create", resource="session"),
)
async def auth_anonymous(call: Call, app_id: AppId) -> SignedIn:
    """Make a user without an address and sign them in, where the app allows it (op:users_settings_update).

    The tokens are the only way back in, until the user gets an address by op:auth_upgrade,
    op:auth_upgrade_code or op:auth_upgrade_oauth. The id stays the same then.
    """
    if not (await read_settings(call))["anonymous"]:
        raise AnonymousClosed
    # Used from now on: the sweep must not take it for an old one.
    user = build_user(call.services, app_id, None, "anonymous", last_sign_in_at=call.now)
    async with call.stores.database.writing_unit(lock=app_id) as unit:
        await FREEZES.require_thawed(unit.execute, app_id)
        user |= await admit(unit.execute, call.require_app(), None, call.now, proves_address=False)
        await insert_user(unit, user)
    return await finish_sign_in(call, user, "anonymous", "anonymous_login", is_new=True)


@auth.tool(
    "POST /upgrade",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(NotAnonymous, UserExists, WeakPassword, SignUpClosed, PlanLimitReached),
    limit=PerAddress(5, WINDOW, per_app=True),
    audit=_UPGRADED,
    rest=Rest(examples={"email": "ada@example.com", "password": "correct Horse 7!", "display_name": "Ada"}),
)
async def auth_upgrade(
    call: Call, app_id: AppId, email: Email, password: Password, display_name: DisplayName = ""
) -> SignedUp:
    """Give the signed-in anonymous user an address and a password, and mail a code that verifies the address.

    The user keeps the id and this session; the next access token says that the user is not anonymous.

    email: the user's address; upper and lower case count as the same.
    """
    caller = await _require_anonymous(call)
    check_password(password)
    await require_open(call)
    password_hash = await hash_password(password)
    further = {"password_hash": password_hash, "display_name": display_name, "provider": "email"}
    async with FREEZES.writing(call) as unit:
        further |= await admit(unit.execute, call.require_app(), email, call.now, proves_address=False)
        user = await give_address(unit, app_id, caller.user_id, email, **further)
        await send_code(call.services, unit, app_id, email, "verify_email")
        await announce_change(call, caller.user_id)
    await report_sign_in(call, user, "email", "signup", is_new=True)
    new_user: NewUser = {
        "id": user["id"],
        "email": user["email"],
        "email_verified": user["email_verified"],
        "display_name": user["display_name"],
    }
    return {"user": new_user, "message": say_sent(call, "Verification email sent")}


@auth.tool(
    "POST /upgrade/code",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(NotAnonymous,),
    limit=PerAddress(5, WINDOW, per_app=True),
    audit=Audit("anonymous_upgrade_requested", category="auth", resource="user"),
    rest=Rest(examples={"email": "ada@example.com"}),
)
async def auth_upgrade_code(call: Call, app_id: AppId, email: Email) -> Message:
    """Mail a code by which the signed-in anonymous user gets an address without a password. It lives 15 minutes.

    The answer is the same whether or not the address is known.
    """
    await _require_anonymous(call)
    await request_code(call, email, "add_address")
    return {"message": say_sent(call, "If the address can receive mail, a code was sent to it.")}


@auth.tool(
    "POST /upgrade/verify",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(NotAnonymous, UserExists, WrongCode, CodeUsed, CodeExpired, SignUpClosed, PlanLimitReached),
    limit=PerAddress(10, WINDOW, per_app=True),
    audit=_UPGRADED,
    rest=Rest(examples={"email": "ada@example.com", "code": "123456"}),
)
async def auth_upgrade_verify(call: Call, app_id: AppId, email: Email, code: Code) -> Message:
    """Give the signed-in anonymous user the address that the code was mailed to, as a verified one.

    The user keeps the id and this session; all other sessions end.
    """
    caller = await _require_anonymous(call)
    await use_code(call, email, "add_address", code)
    async with FREEZES.writing(call) as unit:
        invitation_columns = await admit(unit.execute, call.require_app(), email, call.now, proves_address=True)
        further = {"email_verified": True, "provider": "magic_link", **invitation_columns}
        user = await give_address(unit, app_id, caller.user_id, email, **further)
        await end_sessions(call, unit, caller.user_id, but=caller.session_id)
    await report_sign_in(call, user, "magic_link", "signup", is_new=True)
    return {"message": "The address was added."}


@auth.tool(
    "POST /upgrade/oauth",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(NotAnonymous,),
    audit=Audit("anonymous_upgrade_requested", category="auth", resource="user"),
)
async def auth_upgrade_oauth(call: Call, app_id: AppId) -> UpgradeTicket:
    """Return a ticket with which op:auth_oauth_start gives the signed-in anonymous user an identity of a provider.

    The user keeps the id; all sessions end but the one that the flow begins.
    """
    return {"upgrade": seal_ticket(call, await _require_anonymous(call))}


async def _require_anonymous(call: Call) -> EndUser:
    """Returns the caller, who has no address yet. Raises NotAnonymous, and Forbidden for a key."""
    caller = call.caller
    assert isinstance(caller, EndUser)
    if caller.session_id is None:
        raise Forbidden("A key cannot give a user an address.", remediation="Sign in as the user.")
    user = await read_user(call, user_id=caller.user_id)
    if user is None or user["email"] is not None:
        raise NotAnonymous
    call.audit.resource_id = caller.user_id
    return caller
