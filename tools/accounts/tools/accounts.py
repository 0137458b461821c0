"""/platform: accounts of those who build apps."""

from typing import Annotated, Any, cast

from sqlalchemy import insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.passwords import hash_password, is_outdated, verify_password
from baobab.tools.accounts import sessions
from baobab.tools.accounts.errors import (
    EmailTaken,
    InvalidCredentials,
    InvalidRefreshToken,
    WrongPassword,
)
from baobab.tools.accounts.schemas import Me, Organization, Refreshed, SignedIn, SignedOut, SignedUp, Updated, User
from baobab.tools.accounts.toolset import accounts
from baobab.tools.core import (
    EVERYBODY,
    AnyAccount,
    Audit,
    BadRequest,
    Call,
    Email,
    Forbidden,
    Guard,
    Mcp,
    NameText,
    PerAddress,
    Rest,
    Secret,
    Services,
)
from baobab.tools.core.auth.membership import create_organisation_row, select_memberships
from baobab.tools.core.auth.password_attempts import PasswordAttempts
from baobab.tools.core.auth.passwords import AnyPassword, Password, WeakPassword, check_password
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.signing import PLATFORM
from baobab.tools.core.auth.tables import accounts as rows
from baobab.tools.core.errors import MissingField, SignupClosed
from baobab.tools.core.limits.rate_limits import resolve_answer

TOKEN_SECONDS = 3600
_WINDOW = 900
_GUESSES = 10

PersonName = Annotated[str, NameText(200, min_length=1)]
InvitationToken = Annotated[str, Secret(60, pattern=r"^inv_[A-Za-z0-9]+$")]
RefreshToken = Annotated[str, Secret(100, min_length=1)]


@accounts.tool(
    "POST /signup",
    access=EVERYBODY,
    effect="write",
    raises=(SignupClosed, WeakPassword, EmailTaken),
    limit=PerAddress(5, _WINDOW),
    audit=Audit("signup", category="auth", action="create", resource="account"),
    rest=Rest(status=201, examples={"email": "ada@example.com", "password": "correct Horse 7!", "name": "Ada"}),
    mcp=Mcp(offered=False),
)
async def platform_signup(
    call: Call, email: Email, password: Password, name: PersonName, invitation: InvitationToken | None = None
) -> SignedUp:
    """Create an account for somebody who builds apps, with a personal organisation. Sign in afterwards to get tokens.

    email: the account's address; upper and lower case count as the same.
    name: what the account and its personal organisation are called.
    invitation: the token of an open invitation of this address. Whoever is invited may sign up even where the
      installation takes no new accounts; accept it afterwards (op:organisations_accept_invitation).
    """
    is_invited = False
    if invitation is not None:
        # In a transaction of its own: nothing may be held while the password is hashed.
        async with call.reading_apart() as reading:
            offer = await reading.invoke("organisations_read_invitation", token=invitation)
        is_invited = offer["status"] == "open" and offer["email"] == email
    if not is_invited and not call.services.options.signup_open:
        raise SignupClosed
    check_password(password)
    account: dict[str, Any] = {
        "id": call.services.ids.uuid(),
        "email": email,
        "name": name,
        "password_hash": await hash_password(password),
        "email_verified": False,
        "created_at": call.now,
    }
    try:
        await call.execute(insert(rows), account)
    except IntegrityError as exc:
        raise EmailTaken from exc
    organisation = await create_organisation_row(call.execute, call.services, name, account["id"], personal=True)
    _note(call, account["id"], organisation["id"])
    return {"user": _user(account), "organization": _organization({**organisation, "role": "owner"})}


@accounts.tool(
    "POST /login",
    access=EVERYBODY,
    effect="write",
    raises=(InvalidCredentials,),
    # Counts right and wrong passwords: a team behind one address must be able to sign in. Wrong ones have their own.
    limit=PerAddress(300, _WINDOW),
    audit=Audit("login", category="auth", action="create", resource="session"),
    rest=Rest(examples={"email": "ada@example.com", "password": "correct Horse 7!"}),
    mcp=Mcp(offered=False),
)
async def platform_login(call: Call, email: Email, password: AnyPassword) -> SignedIn:
    """Sign in: an access token for one hour and a refresh token for seven days.

    Ten wrong passwords from one address block it for fifteen minutes; right ones do not count. After twenty wrong ones
    for one account, from any address, each address has one more try for it, so that nobody can lock its owner out.

    password: the account's password.
    """
    guesses = PasswordAttempts(call, email)
    await guesses.require_room()
    async with call.services.database.reading() as connection:
        account = (await connection.execute(select(rows).where(rows.c.email == email))).mappings().first()
    password_hash: str | None = account["password_hash"] if account else None
    is_password_right = await verify_password(password_hash, password)
    if account is None or password_hash is None or not is_password_right:
        # The refusal does not say which of the two was wrong; the audit row may name the account.
        if account is not None:
            _note(call, account["id"], await _home_organisation(call.services, account["id"]))
        await guesses.count_wrong()
        raise InvalidCredentials
    token = await _token(call, account["id"], email)
    new_hash = await hash_password(password) if is_outdated(password_hash) else password_hash
    # No lock was held while the password was checked: it must still be the same.
    is_unchanged = (rows.c.id == account["id"], rows.c.password_hash == password_hash)
    if not (
        await call.execute(update(rows).where(*is_unchanged).values(password_hash=new_hash, last_seen_at=call.now))
    ).rowcount:
        raise InvalidCredentials
    return {**_tokens(token, await sessions.start(call, account["id"])), "user": _user(account)}


@accounts.tool(
    "POST /refresh",
    access=EVERYBODY,
    effect="write",
    raises=(InvalidRefreshToken,),
    limit=PerAddress(20, _WINDOW),
    audit=Audit("refresh_token_used", failure_event="refresh_token_failed", category="auth", resource="session"),
    rest=Rest(examples={"refresh_token": "bb_rt_..."}),
    mcp=Mcp(offered=False),
)
async def platform_refresh(call: Call, refresh_token: RefreshToken) -> Refreshed:
    """Exchange a refresh token for a fresh pair of tokens; each refresh token works once.

    The same token sent again within 10 seconds gets the same new token, so that a lost answer or a second tab
    signs nobody out. Sent later, it ends the session with all its tokens.

    refresh_token: the newest refresh token of the session.
    """
    owner = await sessions.get_holder(call.services, refresh_token)
    token = await _token(call, owner.account_id, owner.email)
    return _tokens(token, await sessions.rotate(call, refresh_token))


@accounts.tool(
    "POST /logout",
    access=AnyAccount(APPROVER, keys=False),
    effect="write",
    audit=Audit("logout", category="auth", action="delete", resource="session"),
    mcp=Mcp(offered=False),
)
async def platform_logout(call: Call) -> SignedOut:
    """Sign out everywhere: no refresh token of the account works any more, and its sessions in the console have ended.

    Access tokens stay valid until they expire, one hour at most. API keys are not affected.
    """
    await sessions.end_all(call, call.account.account_id)
    call.audit.resource_id = call.account.account_id
    return {"message": "Logged out successfully"}


@accounts.tool(
    "GET /me",
    access=AnyAccount(APPROVER),
    effect="read",
)
async def platform_me(call: Call) -> Me:
    """Read the account of the credential, and the organisations it belongs to. A key sees its own organisation only."""
    caller = call.account
    account = (await call.execute(select(rows).where(rows.c.id == caller.account_id))).mappings().one()
    memberships = (await call.execute(select_memberships(caller.account_id))).mappings()
    return {
        "user": _user(account),
        "organizations": [
            _organization(row) for row in memberships if caller.key_id is None or row["id"] == caller.organisation_id
        ],
        "has_password": account["password_hash"] is not None,
    }


@accounts.tool(
    "PATCH /me",
    access=AnyAccount(APPROVER),
    effect="write",
    raises=(WeakPassword, WrongPassword),
    audit=Audit("account.update", category="auth", action="update", resource="account"),
    rest=Rest(examples={"name": "Ada Lovelace"}),
    guard=Guard(grants=True),
)
async def platform_update(
    call: Call,
    name: PersonName | None = None,
    password: Password | None = None,
    current_password: AnyPassword | None = None,
) -> Updated:
    """Change the account's name or password. A new password ends every session; sign in again afterwards.

    Sign in to set a password: no API key may, because a signed-in person may do more than a key. An account that never
    had a password gets its first one from the operator, with the command `baobab password`.

    name: the new name; the personal organisation keeps its own.
    current_password: the present password, needed to set a new one.
    """
    if name is None and password is None:
        raise BadRequest("Nothing to change: send `name` or `password`.")
    account_id = call.account.account_id
    changes: dict[str, Any] = {} if name is None else {"name": name}
    conditions = [rows.c.id == account_id]
    if password is not None:
        if call.account.key_id is not None:
            raise Forbidden(
                "A key cannot set a password.",
                remediation="Sign in with it (op:platform_login), or have the operator set one with `baobab password`.",
            )
        password_hash = await verify_own_password(call, account_id, current_password)
        check_password(password)
        changes["password_hash"] = await hash_password(password)
        conditions.append(rows.c.password_hash.is_not_distinct_from(password_hash))
    call.audit.resource_id = account_id
    call.audit.data["fields"] = ["password" if field == "password_hash" else field for field in changes]
    if not (await call.execute(update(rows).where(*conditions).values(**changes))).rowcount:
        raise WrongPassword
    if password is not None:
        await sessions.end_all(call, account_id)
        await call.services.notices.publish(call.unit, "account", account_id)
    return {"user": _user((await call.execute(select(rows).where(rows.c.id == account_id))).mappings().one())}


async def verify_own_password(call: Call, account_id: str, current: str | None) -> str | None:
    """Checks the present password of an account and returns its hash; None for an account without a password."""
    async with call.services.database.reading() as connection:
        password_hash: str | None = await connection.scalar(select(rows.c.password_hash).where(rows.c.id == account_id))
    if password_hash is None:
        return None
    if current is None:
        raise MissingField("`current_password` is missing.")
    # A thief of the token must not be able to guess the password here.
    await resolve_answer(call.services.limits.spend("current_password", account_id, _GUESSES, _WINDOW))
    if not await verify_password(password_hash, current):
        raise WrongPassword
    return password_hash


async def _token(call: Call, account_id: str, email: str) -> str:
    """Mints an access token. It must precede the call's first statement: the very first token creates the key pair."""
    organisation = await _home_organisation(call.services, account_id)
    claims = {"sub": account_id, "email": email, "org_id": organisation}
    _note(call, account_id, organisation)
    return await call.services.signers.mint(PLATFORM, claims, TOKEN_SECONDS)


async def _home_organisation(services: Services, account_id: str) -> str:
    """Returns the account's personal organisation."""
    async with services.database.reading() as connection:
        return str((await connection.execute(select_memberships(account_id).limit(1))).one().id)


async def note_account(call: Call, account_id: str) -> None:
    """Names the account in the audit row of a call that came without a credential, in its first organisation."""
    home = (await call.execute(select_memberships(account_id).limit(1))).one()
    _note(call, account_id, home.id)


def _note(call: Call, account_id: str, organisation_id: str) -> None:
    """Names the account in the audit row of a call that came without a credential."""
    call.audit.actor = "platform_user"
    call.audit.actor_id = call.audit.resource_id = account_id
    call.audit.organisation_id = organisation_id


def _tokens(token: str, refresh_token: str) -> Refreshed:
    return {"token": token, "expires_in": TOKEN_SECONDS, "refresh_token": refresh_token, "token_type": "Bearer"}


def _user(row: Any) -> User:
    return cast(User, {key: row[key] for key in User.__annotations__})


def _organization(row: Any) -> Organization:
    return cast(Organization, {key: row[key] for key in Organization.__annotations__})
