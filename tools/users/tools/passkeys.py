"""Passkeys of a user: register, sign in with, list and delete them."""

from collections.abc import Sequence
from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.passkeys import Ceremonies, Owner, PasskeyRefused, PasskeysUnavailable, Site
from baobab.storage.sql.database import Execute
from baobab.tools.core import (
    EVERYBODY,
    AppId,
    Audit,
    Call,
    EndUser,
    Forbidden,
    NameText,
    PerAddress,
    Rest,
    Secret,
    Text,
    Uuid,
)
from baobab.tools.core.types import AnyJsonObject
from baobab.tools.users.access import SIGNED_IN_USER, USER_OR_CHALLENGE
from baobab.tools.users.errors import (
    ChallengeOver,
    FactorExists,
    PasskeyExists,
    PasskeyNotFound,
    SignInTooOld,
    TooManyPasskeys,
    UserBanned,
)
from baobab.tools.users.recent_sign_in import require_recent_sign_in
from baobab.tools.users.redirects import is_redirect_allowed
from baobab.tools.users.rows import read_user
from baobab.tools.users.schemas import Passkey, PasskeyAdded, PasskeyCeremony, PasskeyDeleted, Passkeys, SignedIn
from baobab.tools.users.second_factor import find_challenge, find_factors, read_challenge, spend_challenge
from baobab.tools.users.sign_in import finish_sign_in, name_user
from baobab.tools.users.tables import FREEZES, user_challenges, user_passkeys
from baobab.tools.users.tools.passwords import WINDOW
from baobab.tools.users.tools.second_factor import Challenge, find_enrolling, finish_challenge
from baobab.tools.users.toolset import auth

MOST_PASSKEYS = 20
columns = user_passkeys.c


def get_ceremonies(call: Call) -> Ceremonies:
    return Ceremonies(call.services.vault, call.services.clock.time, f"users:{call.require_app().id}")


def find_site(call: Call, origin: str | None) -> Site:
    """Returns the site on which a ceremony runs: that of the page that calls, if the app allows its origin.

    origin: as the browser says it; None, as of a program, stands for this server's own address. Passkeys belong to the
    host name of the page: one that was made on the app's own host is not offered on the server's, and the other way
    round. Raises PasskeysUnavailable.
    """
    own_addresses = (call.services.options.base_url, call.context.base_url)
    if origin is None:
        return Site.parse(own_addresses[0])
    if origin not in own_addresses and not is_redirect_allowed(call, origin):
        raise PasskeysUnavailable(
            "The app does not allow this page's origin.", remediation="Add it with op:config_cors."
        )
    return Site.parse(origin)


async def list_passkeys(execute: Execute, app_id: str, user_id: str) -> Sequence[Any]:
    """Returns the rows of a user's passkeys, the newest first."""
    conditions = (columns.app_id == app_id, columns.user_id == user_id)
    query = (
        select(user_passkeys).where(*conditions).order_by(columns.created_at.desc(), columns.id).limit(MOST_PASSKEYS)
    )
    return (await execute(query)).all()


async def find_passkey(execute: Execute, app_id: str, credential_id: str, rp_id: str) -> Any:
    """Returns the row of a passkey of the app by the id that browsers know; None if there is none of this host."""
    conditions = (columns.app_id == app_id, columns.credential_id == credential_id, columns.rp_id == rp_id)
    return (await execute(select(user_passkeys).where(*conditions))).first()


def describe_passkey(row: Any) -> Passkey:
    return cast(Passkey, {name: getattr(row, name) for name in Passkey.__annotations__})


Origin = Annotated[
    str,
    Text(300),
    Field(description="The origin of the page on which the browser asks; browsers send it by themselves."),
]
State = Annotated[str, Secret(2000, min_length=1), Field(description="The `state` that the first call returned.")]
Answer = Annotated[AnyJsonObject, Field(description="What the browser returned: `credential.toJSON()`.")]
PasskeyName = Annotated[str, NameText(100), Field(description="What the user calls it.", examples=["My phone"])]

_LARGEST = 32_768
_FROM_PAGE = {"origin": "origin"}
_EXAMPLE = {"state": "v1.0a1b2c3d.c2VhbGVk", "credential": {"id": "AbCd"}}


@auth.tool(
    "POST /passkeys/options",
    access=USER_OR_CHALLENGE,
    effect="read",
    raises=(ChallengeOver, FactorExists, PasskeysUnavailable, SignInTooOld, TooManyPasskeys),
    limit=PerAddress(30, WINDOW, per_app=True),
    rest=Rest(from_headers=_FROM_PAGE),
)
async def auth_passkey_options(
    call: Call, app_id: AppId, challenge: Challenge | None = None, origin: Origin | None = None
) -> PasskeyCeremony:
    """Begin to add a passkey: returns the options of `navigator.credentials.create`.

    A passkey belongs to the host name of the page that calls: this server's, the app's own, or one of its allowed
    origins. The session must have begun within the last 15 minutes.

    challenge: in place of a token, where the app requires a second factor and the user has none yet; otherwise null.
    origin: of the page; null, as from a program, for this server's own address.
    """
    site = find_site(call, origin)
    user_id = _user(call).user_id if challenge is None else await find_enrolling(call, challenge)
    if challenge is None:
        await require_recent_sign_in(call)
    user = await read_user(call, user_id=user_id)
    if user is None or user["email"] is None:
        raise Forbidden("An anonymous user has no passkeys.", remediation="Give the user an address first.")
    async with call.reading() as execute:
        own_passkeys = await list_passkeys(execute, app_id, user_id)
    if len(own_passkeys) >= MOST_PASSKEYS:
        raise TooManyPasskeys
    owner = Owner(user_id, user["email"], user["display_name"], call.require_app().title)
    credential_ids = [row.credential_id for row in own_passkeys if row.rp_id == site.rp_id]
    options, state = await get_ceremonies(call).begin_registration(site, owner, known_ids=credential_ids)
    return {"options": options, "state": state}


@auth.tool(
    "POST /passkeys",
    access=USER_OR_CHALLENGE,
    effect="write",
    raises=(ChallengeOver, FactorExists, PasskeyRefused, PasskeyExists, TooManyPasskeys, UserBanned),
    limit=PerAddress(30, WINDOW, per_app=True),
    audit=Audit("passkey_added", category="auth", action="create", resource="user"),
    rest=Rest(status=201, max_body=_LARGEST, examples={**_EXAMPLE, "name": "My phone"}),
)
async def auth_passkey_add(
    call: Call,
    app_id: AppId,
    state: State,
    credential: Answer,
    name: PasskeyName = "Passkey",
    challenge: Challenge | None = None,
) -> PasskeyAdded:
    """Add the passkey that the browser has made to the user.

    challenge: in place of a token, as for op:auth_passkey_options; the sign-in is finished by this. Otherwise null.
    """
    user_id = _user(call).user_id if challenge is None else await find_enrolling(call, challenge)
    waiting = None if challenge is None else await read_challenge(call, challenge)
    registration = await get_ceremonies(call).finish_registration(state, user_id, credential)
    row: dict[str, Any] = {"app_id": app_id, "id": call.services.ids.uuid(), "user_id": user_id, "name": name}
    row |= {part: getattr(registration, part) for part in ("credential_id", "public_key", "sign_count", "transports")}
    row |= {
        "backed_up": registration.backed_up,
        "rp_id": registration.rp_id,
        "created_at": call.now,
        "last_used_at": None,
    }
    await _insert(call, row, waiting)
    call.audit.resource_id = user_id
    signed_in = None if waiting is None else await finish_challenge(call, waiting)
    passkey = cast(Passkey, {part: row[part] for part in Passkey.__annotations__})
    return {**passkey, "signed_in": signed_in}


async def _insert(call: Call, row: dict[str, Any], waiting: Any) -> None:
    """Stores a passkey, and uses up the challenge that it answers, if any. Raises PasskeyExists and TooManyPasskeys,
    and FactorExists where the challenge could be answered by a factor that was set up a moment ago.

    In a transaction of its own, before the call's begins: signing in makes a key pair when it is the very first.
    """
    app_id, user_id = row["app_id"], row["user_id"]
    try:
        async with call.stores.database.writing(lock=app_id) as connection:
            await FREEZES.require_thawed(connection.execute, app_id)
            if waiting is not None:
                if (await find_factors(connection.execute, app_id, user_id)).list_methods():
                    raise FactorExists
                await spend_challenge(connection.execute, waiting, call.now)
            if len(await list_passkeys(connection.execute, app_id, user_id)) >= MOST_PASSKEYS:
                raise TooManyPasskeys
            await connection.execute(insert(user_passkeys), row)
    except IntegrityError as exc:
        raise PasskeyExists from exc


@auth.tool("GET /passkeys", access=SIGNED_IN_USER, effect="read")
async def auth_passkeys(call: Call, app_id: AppId) -> Passkeys:
    """List the passkeys of the signed-in user, the newest first."""
    async with call.reading() as execute:
        rows = await list_passkeys(execute, app_id, _user(call).user_id)
    return {"passkeys": [describe_passkey(row) for row in rows]}


@auth.tool(
    "DELETE /passkeys/{passkey_id}",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(PasskeyNotFound, SignInTooOld),
    audit=Audit("passkey_removed", category="auth", action="delete", resource="user"),
)
async def auth_passkey_delete(call: Call, app_id: AppId, passkey_id: Uuid) -> PasskeyDeleted:
    """Delete a passkey of the signed-in user. The session must have begun within the last 15 minutes.

    passkey_id: the passkey, by the `id` of op:auth_passkeys.
    """
    await require_recent_sign_in(call)
    user_id = _user(call).user_id
    conditions = (columns.app_id == app_id, columns.id == passkey_id, columns.user_id == user_id)
    async with FREEZES.writing(call) as unit:
        if not (await unit.execute(delete(user_passkeys).where(*conditions))).rowcount:
            raise PasskeyNotFound
    call.audit.resource_id = user_id
    return {"deleted": True, "id": passkey_id}


@auth.tool(
    "POST /passkeys/sign-in/options",
    access=EVERYBODY,
    effect="read",
    raises=(PasskeysUnavailable, ChallengeOver, PasskeyNotFound),
    limit=PerAddress(60, WINDOW, per_app=True),
    rest=Rest(from_headers=_FROM_PAGE),
)
async def auth_passkey_sign_in_options(
    call: Call, app_id: AppId, challenge: Challenge | None = None, origin: Origin | None = None
) -> PasskeyCeremony:
    """Begin a sign-in with a passkey: returns the options of `navigator.credentials.get`. No user name is needed.

    challenge: the challenge of a sign-in that needs a passkey as its second factor; otherwise null.
    origin: of the page; null, as from a program, for this server's own address.
    """
    site, allow = find_site(call, origin), []
    if challenge is not None:
        async with call.reading() as execute:
            row = await find_challenge(execute, call, challenge)
            rows = await list_passkeys(execute, app_id, row.user_id)
        allow = [each.credential_id for each in rows if each.rp_id == site.rp_id]
        if not allow:
            raise PasskeyNotFound(f"The user has no passkey for pages of {site.rp_id}.")
    ceremonies = get_ceremonies(call)
    options, state = await ceremonies.begin_sign_in(
        site, allow=allow, subject=challenge or "", needs_verification=challenge is None
    )
    return {"options": options, "state": state}


@auth.tool(
    "POST /passkeys/sign-in",
    access=EVERYBODY,
    effect="write",
    raises=(PasskeyRefused, ChallengeOver, UserBanned),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit("passkey_login", failure_event="login_failed", category="auth", action="create", resource="session"),
    rest=Rest(max_body=_LARGEST, examples=_EXAMPLE),
)
async def auth_passkey_sign_in(call: Call, app_id: AppId, state: State, credential: Answer) -> SignedIn:
    """Finish a sign-in with a passkey, which is both factors at once: a device, and its PIN or a fingerprint.

    After another first factor, it is the second.
    """
    attempt = await get_ceremonies(call).open_attempt(state, credential)
    async with call.stores.database.reading() as connection:
        passkey = await find_passkey(connection.execute, app_id, attempt.credential_id, attempt.rp_id)
        row = await find_challenge(connection.execute, call, attempt.subject) if attempt.subject else None
    # A passkey is its user's only: the authenticator, if it says whose it is, and the challenge must agree.
    owners = {attempt.owner_id or (passkey and passkey.user_id), row.user_id if row else (passkey and passkey.user_id)}
    if passkey is None or owners != {passkey.user_id}:
        raise PasskeyRefused
    name_user(call, passkey.user_id)
    count = await attempt.verify(passkey.public_key, passkey.sign_count, needs_verification=row is None)
    user = await read_user(call, user_id=passkey.user_id)
    if user is None:
        raise PasskeyRefused
    method, event, is_new = ("passkey", "passkey_login", False) if row is None else (row.method, row.event, row.is_new)
    async with call.stores.database.writing(lock=app_id) as connection:
        await FREEZES.require_thawed(connection.execute, app_id)
        if row is None:
            await _spend(call, connection.execute, attempt.digest, passkey.user_id)
        else:
            await spend_challenge(connection.execute, row, call.now)
        await _count_use(connection.execute, passkey, count, call.now)
    if row is not None:
        call.audit.data["second_factor"] = "shown"
    return await finish_sign_in(call, user, method, event, is_new=is_new)


async def _spend(call: Call, execute: Execute, digest: str, user_id: str) -> None:
    """Notes that an attempt was used. Raises PasskeyRefused if it was before."""
    conditions = (user_challenges.c.app_id == call.require_app().id, user_challenges.c.digest == digest)
    if (await execute(select(user_challenges.c.digest).where(*conditions))).first() is not None:
        raise PasskeyRefused
    row: dict[str, Any] = {"app_id": call.require_app().id, "digest": digest, "user_id": user_id, "method": "passkey"}
    row |= {"event": "passkey_login", "is_new": False, "created_at": call.now, "used_at": call.now}
    # It is pruned a day after this, and the attempt ends in five minutes.
    await execute(insert(user_challenges), {**row, "expires_at": call.now})


async def _count_use(execute: Execute, passkey: Any, count: int, now: Any) -> None:
    """Stores the sign count of a passkey. Raises PasskeyRefused if another sign-in has shown one as high meanwhile:
    then there are two of it.
    """
    conditions = [columns.app_id == passkey.app_id, columns.id == passkey.id]
    if count:
        conditions.append(columns.sign_count < count)
    if not (
        await execute(update(user_passkeys).where(*conditions).values(sign_count=count, last_used_at=now))
    ).rowcount:
        raise PasskeyRefused


def _user(call: Call) -> EndUser:
    """Returns the signed-in user. Raises Forbidden for a key that acts for the user."""
    caller = call.caller
    assert isinstance(caller, EndUser)
    if caller.session_id is None:
        raise Forbidden("A key has no passkeys.", remediation="Sign in as the user.")
    return caller
