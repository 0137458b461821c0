"""The second factor of a user: set up an authenticator app, and answer a challenge with it."""

from typing import Annotated, Any

from pydantic import Field

from baobab.tools.core import (
    EVERYBODY,
    AppId,
    AppOwner,
    Audit,
    Call,
    EndUser,
    Forbidden,
    Guard,
    PerAddress,
    Rest,
    Secret,
)
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.users.access import SIGNED_IN_USER, USER_OR_CHALLENGE
from baobab.tools.users.errors import (
    ChallengeOver,
    FactorExists,
    FactorNotFound,
    SignInTooOld,
    UserBanned,
    UserNotFound,
    WrongFactorCode,
)
from baobab.tools.users.recent_sign_in import require_recent_sign_in
from baobab.tools.users.rows import find_user, read_user
from baobab.tools.users.schemas import (
    Challenged,
    Message,
    RecoveryCodes,
    ResetFactors,
    SecondFactor,
    SignedIn,
    TotpConfirmed,
    TotpSecret,
)
from baobab.tools.users.second_factor import (
    delete_factors,
    describe_factors,
    enrol_totp,
    find_challenge,
    find_factors,
    read_challenge,
    remove_totp,
    renew_recovery_codes,
    try_code,
)
from baobab.tools.users.sign_in import finish_sign_in, name_user
from baobab.tools.users.tables import FREEZES
from baobab.tools.users.tools.administration import UserId
from baobab.tools.users.tools.passwords import WINDOW
from baobab.tools.users.toolset import auth, users
from baobab.tools.users.totp import build_uri

Challenge = Annotated[str, Secret(100, min_length=1), Field(description="What the sign-in returned instead of tokens.")]
FactorCode = Annotated[
    str,
    Secret(60, min_length=1),
    Field(description="The six digits that the authenticator app shows, or a recovery code.", examples=["123456"]),
]
AppCode = Annotated[
    str,
    Secret(20, min_length=1),
    Field(description="The six digits that the authenticator app shows.", examples=["123456"]),
]


@auth.tool(
    "POST /second-factor",
    access=EVERYBODY,
    effect="write",
    raises=(ChallengeOver, WrongFactorCode, FactorNotFound, UserBanned),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit(
        "second_factor_login", failure_event="login_failed", category="auth", action="create", resource="session"
    ),
    rest=Rest(examples={"challenge": "bb_2f_...", "code": "123456"}),
)
async def auth_second_factor(call: Call, app_id: AppId, challenge: Challenge, code: FactorCode) -> SignedIn:
    """Finish a sign-in with a code of the user's authenticator app, or with a recovery code. Each works once.

    After five wrong codes for a user, the next ones must wait for up to 15 minutes. Recovery codes and passkeys still
    work.
    """
    row = await read_challenge(call, challenge)
    name_user(call, row.user_id)
    await try_code(call, row.user_id, code, challenge=row)
    return await finish_challenge(call, row)


@auth.tool(
    "POST /second-factor/methods",
    access=EVERYBODY,
    effect="read",
    raises=(ChallengeOver,),
    limit=PerAddress(60, WINDOW, per_app=True),
    rest=Rest(examples={"challenge": "bb_2f_..."}),
)
async def auth_second_factor_methods(call: Call, app_id: AppId, challenge: Challenge) -> Challenged:
    """Tell how a challenge can be answered. For a page that got it in its address, after a sign-in by a provider."""
    async with call.reading() as execute:
        row = await find_challenge(execute, call, challenge)
        factors = await find_factors(execute, app_id, row.user_id)
    seconds = int((row.expires_at - call.now).total_seconds())
    methods = factors.list_methods()
    return {"challenge": challenge, "methods": methods, "enrol": not methods, "expires_in": seconds}


@auth.tool("GET /second-factor", access=SIGNED_IN_USER, effect="read")
async def auth_second_factor_get(call: Call, app_id: AppId) -> SecondFactor:
    """Return which second factors the signed-in user has set up."""
    async with call.reading() as execute:
        return await describe_factors(execute, app_id, _user(call).user_id)


@auth.tool(
    "POST /totp",
    access=USER_OR_CHALLENGE,
    effect="write",
    raises=(ChallengeOver, FactorExists, SignInTooOld),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit("totp_enrolled", category="auth", action="create", resource="user"),
)
async def auth_totp_enrol(call: Call, app_id: AppId, challenge: Challenge | None = None) -> TotpSecret:
    """Create a secret for the user's authenticator app. It takes effect when op:auth_totp_confirm gets a code.

    Called again before that, it makes another one. The session must have begun within the last 15 minutes.

    challenge: in place of a token, where the app requires a second factor and the user has none yet; otherwise null.
    """
    user_id = await find_enrolling(call, challenge)
    user = await read_user(call, user_id=user_id)
    if user is None or user["email"] is None:
        raise Forbidden("An anonymous user has no second factor.", remediation="Give the user an address first.")
    async with FREEZES.writing(call) as unit:
        secret = await enrol_totp(call, unit.execute, user_id)
    return {"secret": secret, "uri": build_uri(secret, call.require_app().title, user["email"])}


@auth.tool(
    "POST /totp/confirm",
    access=USER_OR_CHALLENGE,
    effect="write",
    raises=(ChallengeOver, FactorExists, FactorNotFound, SignInTooOld, WrongFactorCode, UserBanned),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit("totp_confirmed", category="auth", resource="user"),
    rest=Rest(examples={"code": "123456"}),
)
async def auth_totp_confirm(
    call: Call, app_id: AppId, code: AppCode, challenge: Challenge | None = None
) -> TotpConfirmed:
    """Confirm the user's authenticator app with a first code. From now on sign-ins ask for one.

    The answer has ten recovery codes, which are shown only once.

    challenge: in place of a token, as for op:auth_totp_enrol; the sign-in is finished by this. Otherwise null.
    """
    user_id = await find_enrolling(call, challenge)
    row = None if challenge is None else await read_challenge(call, challenge)
    await try_code(call, user_id, code, confirms=True, challenge=row)
    # Until these are shown, the user has none: if the server fails in between, op:auth_recovery_codes makes some.
    signed_in = None if row is None else await finish_challenge(call, row)
    async with FREEZES.writing(call) as unit:
        codes = await renew_recovery_codes(unit.execute, app_id, user_id)
    return {"recovery_codes": codes, "signed_in": signed_in}


@auth.tool(
    "POST /totp/remove",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(FactorNotFound, WrongFactorCode),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit("totp_removed", category="auth", action="delete", resource="user"),
    rest=Rest(examples={"code": "123456"}),
)
async def auth_totp_remove(call: Call, app_id: AppId, code: FactorCode) -> Message:
    """Remove the signed-in user's authenticator app and recovery codes, with a code of either."""
    user_id = _user_of_session(call)
    await try_code(call, user_id, code)
    async with FREEZES.writing(call) as unit:
        await remove_totp(unit.execute, app_id, user_id)
    call.audit.resource_id = user_id
    return {"message": "The authenticator app was removed."}


@auth.tool(
    "POST /recovery-codes",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(FactorNotFound, WrongFactorCode),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit("recovery_codes_renewed", category="auth", resource="user"),
    rest=Rest(examples={"code": "123456"}),
)
async def auth_recovery_codes(call: Call, app_id: AppId, code: AppCode) -> RecoveryCodes:
    """Create ten new recovery codes for the signed-in user. All earlier ones stop working."""
    user_id = _user_of_session(call)
    await try_code(call, user_id, code)
    async with FREEZES.writing(call) as unit:
        codes = await renew_recovery_codes(unit.execute, app_id, user_id)
    call.audit.resource_id = user_id
    return {"recovery_codes": codes}


async def _preview_reset(call: Call, app_id: str, user_id: str) -> str:
    async with call.reading() as execute:
        user = await find_user(execute, app_id, user_id=user_id)
        if user is None:
            raise UserNotFound
        factors = await find_factors(execute, app_id, user_id)
    keys = f"{factors.passkeys} passkey{'' if factors.passkeys == 1 else 's'}"
    has = f"the authenticator app and {keys}" if factors.totp else keys
    return f"Removes {has} of the user {escape_name(user['email'] or user_id)}, who signs in without them from then on."


@users.tool(
    "DELETE /admin/auth/users/{user_id}/second-factor",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(UserNotFound,),
    guard=Guard(preview=_preview_reset, grants=True),
    audit=Audit("auth.user.second_factor.reset", category="auth", action="delete", resource="user"),
)
async def users_second_factor_reset(call: Call, app_id: AppId, user_id: UserId) -> ResetFactors:
    """Remove a user's authenticator app, recovery codes and passkeys, as for somebody who has lost the phone.

    First make sure who is asking: afterwards the password alone is enough to sign in. Sessions stay open.
    """
    async with FREEZES.writing(call) as unit:
        if await find_user(unit.execute, app_id, user_id=user_id) is None:
            raise UserNotFound
        factors = await find_factors(unit.execute, app_id, user_id)
        await delete_factors(unit.execute, app_id, [user_id])
    call.audit.resource_id = user_id
    return {"totp": factors.totp, "passkeys": factors.passkeys}


async def finish_challenge(call: Call, row: Any) -> SignedIn:
    """Finishes the sign-in of a challenge that was answered. It must precede the call's first statement."""
    user = await read_user(call, user_id=row.user_id)
    if user is None:
        raise ChallengeOver
    call.audit.data["second_factor"] = "shown"
    return await finish_sign_in(call, user, row.method, row.event, is_new=row.is_new)


async def find_enrolling(call: Call, challenge: str | None) -> str:
    """Returns who sets up a second factor: the user of the token, or of the challenge. Raises ChallengeOver, and
    FactorExists for a challenge that another factor can answer: it proves a password only, which must not replace one.
    """
    if challenge is None:
        await require_recent_sign_in(call)
        call.audit.resource_id = _user(call).user_id
        return _user(call).user_id
    async with call.stores.database.reading() as connection:
        row = await find_challenge(connection.execute, call, challenge)
        factors = await find_factors(connection.execute, row.app_id, row.user_id)
    name_user(call, row.user_id)
    if factors.list_methods():
        raise FactorExists("The user has a second factor already.", remediation="Answer with one of `methods`.")
    return str(row.user_id)


def _user(call: Call) -> EndUser:
    assert isinstance(call.caller, EndUser)
    return call.caller


def _user_of_session(call: Call) -> str:
    """Returns the id of the signed-in user. Raises Forbidden for a key that acts for the user."""
    caller = _user(call)
    if caller.session_id is None:
        raise Forbidden("A key cannot change how a user signs in.", remediation="Sign in as the user.")
    return caller.user_id
