"""/v1/console: signing in to the console, and its sessions."""

from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import delete, select, update

from baobab.runtime.passkeys import Owner, PasskeyRefused, PasskeysUnavailable
from baobab.storage.sql.tables import build_upsert
from baobab.tools.console.errors import (
    AccountPasskeyNotFound,
    AccountPasskeysFull,
    ConsoleLinkSpent,
    ConsoleSessionNotFound,
    ConsoleSignInTooOld,
    ConsoleSignInUnclear,
)
from baobab.tools.console.passkeys import MOST_PASSKEYS, find_site, get_ceremonies, list_own, use_passkey
from baobab.tools.console.schemas import (
    AccountPasskey,
    AccountPasskeyRemoved,
    AccountPasskeys,
    ConsoleSession,
    ConsoleSessions,
    ConsoleSessionsEnded,
    PasskeyBegun,
    SignedInToConsole,
)
from baobab.tools.console.sessions import NOTICE, require_recent_sign_in, start_session, use_link
from baobab.tools.console.tables import console_passkeys
from baobab.tools.console.tables import console_sessions as rows
from baobab.tools.console.toolset import console
from baobab.tools.core import (
    EVERYBODY,
    Account,
    AnyAccount,
    Audit,
    Call,
    Email,
    NameText,
    PerAddress,
    Secret,
    Unauthenticated,
    Uuid,
)
from baobab.tools.core.auth.membership import select_memberships
from baobab.tools.core.auth.passwords import AnyPassword
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import accounts
from baobab.tools.core.errors import InvalidApiKey
from baobab.tools.core.limits.rate_limits import network, resolve_answer
from baobab.tools.core.types import AnyJsonObject

_WINDOW_SECONDS = 900
_MOST_FROM_ADDRESS = 600
"""Sign-ins from one address, right and wrong ones: each leaves a session, and a password costs time to check."""
_MOST_WRONG = 20
"""Refused ones among them. Wrong passwords have stricter limits of their own (tools/core/auth/password_attempts.py)."""
_SHOWN = [rows.c[name] for name in ConsoleSession.__annotations__ if name != "by_key"]

KeyText = Annotated[str, Secret(300)]
LinkSecret = Annotated[str, Secret(100)]
PasskeyState = Annotated[str, Secret(2000, min_length=1)]
PasskeyName = Annotated[str, NameText(100)]
_PERSON = AnyAccount(APPROVER, keys=False)
SessionId = Annotated[Uuid, Field(description="The session's id, as the list shows it.")]


@console.tool(
    access=EVERYBODY,
    effect="write",
    raises=(ConsoleSignInUnclear, ConsoleLinkSpent, PasskeyRefused, Unauthenticated, InvalidApiKey),
    limit=PerAddress(_MOST_FROM_ADDRESS, _WINDOW_SECONDS),
    audit=Audit("console_login", category="auth", action="create", resource="session"),
)
async def console_sign_in(
    call: Call,
    email: Email | None = None,
    password: AnyPassword | None = None,
    key: KeyText | None = None,
    link: LinkSecret | None = None,
    state: PasskeyState | None = None,
    credential: AnyJsonObject | None = None,
) -> SignedInToConsole:
    """Sign in to the console: with a password or passkey for a week, with an API key for twelve hours, within the
    key's limits.

    email: the account's address, with `password`.
    password: the account's password, with `email`.
    key: an API key of an account.
    link: the secret of a one-time link, which the server prints when it starts, and `baobab sign-in-link`.
    state: the state of the sign-in with a passkey, with `credential`.
    credential: what the browser returned: `credential.toJSON()`.
    """
    by_passkey = state is not None and credential is not None
    ways = (email is not None and password is not None, key is not None, link is not None, by_passkey)
    if sum(ways) != 1 or (email is None) is not (password is None) or (state is None) is not (credential is None):
        raise ConsoleSignInUnclear
    address, limits = network(call.context.ip), call.services.limits
    if await resolve_answer(limits.count_used("console_wrong", address, _MOST_WRONG, _WINDOW_SECONDS)) >= _MOST_WRONG:
        # Raises RateLimited, with how long to wait.
        await resolve_answer(limits.spend("console_wrong", address, _MOST_WRONG, _WINDOW_SECONDS))
    try:
        if key is not None:
            caller = await _use_key(call, key)
        elif link is not None:
            caller = await _open_home(call, await use_link(call, link))
        elif state is not None and credential is not None:
            caller = await _open_home(call, await use_passkey(call, state, credential))
        else:
            credentials = {"email": email, "password": password}
            # A separate call, which counts wrong passwords and writes its own audit row if it is refused.
            signed_in, _ = await call.registry.run(
                call.registry.find("platform_login"), credentials, call.caller, call.context
            )
            caller = await _open_home(call, signed_in["user"]["id"])
    except (ConsoleLinkSpent, PasskeyRefused, Unauthenticated, InvalidApiKey):
        await resolve_answer(limits.spend("console_wrong", address, _MOST_WRONG, _WINDOW_SECONDS))
        raise
    session, expires_at = await start_session(call, caller)
    call.audit.actor, call.audit.actor_id = caller.actor, caller.actor_id
    call.audit.resource_id, call.audit.organisation_id = caller.account_id, caller.organisation_id
    credentials_by_way = {"key": key is not None, "link": link is not None, "passkey": by_passkey}
    call.audit.data["by"] = next((way for way, is_used in credentials_by_way.items() if is_used), "password")
    return {"session": session, "expires_at": expires_at}


async def _use_key(call: Call, key: str) -> Account:
    caller = await call.services.credentials.caller(f"Bearer {key}".encode())
    if not isinstance(caller, Account) or caller.key_id is None:
        raise Unauthenticated("This is not the API key of an account.")
    return caller


async def _open_home(call: Call, account_id: str) -> Account:
    """Returns a person as a caller in their first organisation."""
    home = (await call.execute(select_memberships(account_id).limit(1))).one()
    return Account(account_id, home.id)


@console.tool("GET /sessions", access=AnyAccount(APPROVER), effect="read")
async def console_sessions_list(call: Call) -> ConsoleSessions:
    """List the account's sessions of the console that are in force, newest first; a key sees those that it began."""
    query = select(*_SHOWN, rows.c.key_id).where(*_in_force(call)).order_by(rows.c.created_at.desc(), rows.c.id)
    session_rows: Any = (await call.execute(query)).mappings()
    sessions = [{**row, "by_key": row["key_id"] is not None} for row in session_rows]
    return {"sessions": [cast(ConsoleSession, {n: row[n] for n in ConsoleSession.__annotations__}) for row in sessions]}


@console.tool(
    "DELETE /sessions/{session_id}",
    access=AnyAccount(APPROVER),
    effect="write",
    raises=(ConsoleSessionNotFound,),
    audit=Audit("console_session_revoke", category="auth", action="delete", resource="session"),
)
async def console_session_revoke(call: Call, session_id: SessionId) -> ConsoleSessionsEnded:
    """End one session of the console; pages that it has open lose it at once. A key ends those that it began."""
    call.audit.resource_id = session_id
    end_session = update(rows).where(*_in_force(call), rows.c.id == session_id).values(revoked_at=call.now)
    if (await call.execute(end_session)).rowcount != 1:
        raise ConsoleSessionNotFound
    await call.services.notices.publish(call.unit, NOTICE, call.account.account_id)
    return {"ended": 1}


@console.tool(
    access=AnyAccount(APPROVER),
    effect="write",
    audit=Audit("console_logout", category="auth", action="delete", resource="session"),
)
async def console_sign_out(call: Call, session_id: SessionId) -> ConsoleSessionsEnded:
    """End the session that asks; a key may end its own."""
    conditions = (*_in_force(call), rows.c.id == session_id, rows.c.key_id.is_not_distinct_from(call.account.key_id))
    result = await call.execute(update(rows).where(*conditions).values(revoked_at=call.now))
    call.audit.resource_id = session_id
    await call.services.notices.publish(call.unit, NOTICE, call.account.account_id)
    return {"ended": result.rowcount}


@console.tool(access=_PERSON, effect="read", raises=(ConsoleSignInTooOld, PasskeysUnavailable, AccountPasskeysFull))
async def console_passkey_begin(call: Call, session_id: SessionId) -> PasskeyBegun:
    """Begin to add a passkey to the account, soon after a sign-in: what the browser is asked for."""
    await require_recent_sign_in(call, session_id)
    own_passkeys = await list_own(call)
    if len(own_passkeys) >= MOST_PASSKEYS:
        raise AccountPasskeysFull
    account_id, site = call.account.account_id, find_site(call.services)
    account_row = (
        await call.execute(select(accounts.c.email, accounts.c.name).where(accounts.c.id == account_id))
    ).one()
    owner = Owner(account_id, account_row.email, account_row.name, "Baobab")
    known_credentials = [row.credential_id for row in own_passkeys if row.rp_id == site.rp_id]
    options, state = await get_ceremonies(call.services).begin_registration(site, owner, known_ids=known_credentials)
    return {"options": options, "state": state}


@console.tool(
    access=_PERSON,
    effect="write",
    raises=(ConsoleSignInTooOld, PasskeyRefused, AccountPasskeysFull),
    audit=Audit("console_passkey_add", category="auth", action="create", resource="account"),
)
async def console_passkey_add(
    call: Call, session_id: SessionId, state: PasskeyState, credential: AnyJsonObject, name: PasskeyName = "Passkey"
) -> AccountPasskey:
    """Add the passkey that the browser has made to the account, soon after a sign-in.

    state: as op:console_passkey_begin returned it.
    credential: what the browser returned: `credential.toJSON()`.
    name: what the person calls it.
    """
    await require_recent_sign_in(call, session_id)
    account_id = call.account.account_id
    passkey = await get_ceremonies(call.services).finish_registration(state, account_id, credential)
    row: dict[str, Any] = {
        "id": call.services.ids.uuid(),
        "account_id": account_id,
        "name": name,
        "rp_id": passkey.rp_id,
    }
    row |= {part: getattr(passkey, part) for part in ("credential_id", "public_key", "sign_count")}
    row |= {"created_at": call.now, "last_used_at": None}
    # Of two passkeys added at once, the second waits here for the first.
    call.unit.lock_for(account_id)
    inserting = build_upsert(call.unit.database.dialect, console_passkeys).on_conflict_do_nothing()
    if len(await list_own(call)) >= MOST_PASSKEYS or not (await call.execute(inserting.values(row))).rowcount:
        raise AccountPasskeysFull
    call.audit.resource_id = account_id
    return cast(AccountPasskey, {part: row[part] for part in AccountPasskey.__annotations__})


@console.tool(access=_PERSON, effect="read")
async def console_passkeys_list(call: Call) -> AccountPasskeys:
    """List the passkeys of the account, the newest first."""
    names = AccountPasskey.__annotations__
    return {"passkeys": [cast(AccountPasskey, {n: getattr(row, n) for n in names}) for row in await list_own(call)]}


@console.tool(
    access=_PERSON,
    effect="write",
    raises=(ConsoleSignInTooOld, AccountPasskeyNotFound),
    audit=Audit("console_passkey_remove", category="auth", action="delete", resource="account"),
)
async def console_passkey_remove(call: Call, session_id: SessionId, passkey_id: Uuid) -> AccountPasskeyRemoved:
    """Remove a passkey of the account, soon after a sign-in: nobody can sign in with it any more. Its
    sessions stay open.

    passkey_id: the passkey, by its id in the list.
    """
    await require_recent_sign_in(call, session_id)
    table = console_passkeys.c
    conditions = (table.id == passkey_id, table.account_id == call.account.account_id)
    if (await call.execute(delete(console_passkeys).where(*conditions))).rowcount != 1:
        raise AccountPasskeyNotFound
    call.audit.resource_id = call.account.account_id
    return {"removed": passkey_id}


def _in_force(call: Call) -> tuple[Any, ...]:
    """Returns the conditions of the caller's sessions that have not ended: a person's are all of the account."""
    conditions = (
        rows.c.account_id == call.account.account_id,
        rows.c.revoked_at.is_(None),
        rows.c.expires_at > call.now,
    )
    return conditions if call.account.key_id is None else (*conditions, rows.c.key_id == call.account.key_id)
