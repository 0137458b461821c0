"""/v1/console: signing in to the console, and its sessions."""

from typing import Annotated, Any, cast

from pydantic import Field
from sqlalchemy import select, update

from baobab.tools.console.errors import ConsoleLinkSpent, ConsoleSessionNotFound, ConsoleSignInUnclear
from baobab.tools.console.schemas import ConsoleSession, ConsoleSessions, ConsoleSessionsEnded, SignedInToConsole
from baobab.tools.console.sessions import NOTICE, start_session, use_link
from baobab.tools.console.tables import console_sessions as rows
from baobab.tools.console.toolset import console
from baobab.tools.core.auth.access import EVERYBODY, AnyAccount
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.membership import select_memberships
from baobab.tools.core.auth.passwords import AnyPassword
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.errors import InvalidApiKey, Unauthenticated
from baobab.tools.core.limits import PerAddress
from baobab.tools.core.secret import Secret
from baobab.tools.core.types import Email, Uuid

_PerAddress = PerAddress(60, 900)
_SHOWN = [rows.c[name] for name in ConsoleSession.__annotations__ if name != "by_key"]

KeyText = Annotated[str, Secret(300)]
LinkSecret = Annotated[str, Secret(100)]
SessionId = Annotated[Uuid, Field(description="The session's id, as the list shows it.")]


@console.tool(
    access=EVERYBODY,
    effect="write",
    raises=(ConsoleSignInUnclear, ConsoleLinkSpent, Unauthenticated, InvalidApiKey),
    limit=_PerAddress,
    audit=Audit("console_login", category="auth", action="create", resource="session"),
)
async def console_sign_in(
    call: Call,
    email: Email | None = None,
    password: AnyPassword | None = None,
    key: KeyText | None = None,
    link: LinkSecret | None = None,
) -> SignedInToConsole:
    """Sign in to the console: with a password for a week, with an API key for twelve hours, within the key's limits.

    email: the account's address, with `password`.
    key: an API key of an account.
    link: the secret of a one-time link, which the server prints on a terminal when it starts.
    """
    ways = (email is not None and password is not None, key is not None, link is not None)
    if sum(ways) != 1 or (email is None) is not (password is None):
        raise ConsoleSignInUnclear
    if key is not None:
        found = await call.services.credentials.caller(f"Bearer {key}".encode())
        if not isinstance(found, Account) or found.key_id is None:
            raise Unauthenticated("This is not the API key of an account.")
        caller = found
    else:
        if link is not None:
            account_id = await use_link(call, link)
        else:
            given = {"email": email, "password": password}
            # In a call of its own, which counts wrong passwords and whose refusal has its own audit row.
            signed_in, _ = await call.registry.run(
                call.registry.find("platform_login"), given, call.caller, call.context
            )
            account_id = signed_in["user"]["id"]
        home = (await call.execute(select_memberships(account_id).limit(1))).one()
        caller = Account(account_id, home.id)
    session, expires_at = await start_session(call, caller)
    call.audit.actor, call.audit.actor_id = caller.actor, caller.actor_id
    call.audit.resource_id, call.audit.organisation_id = caller.account_id, caller.organisation_id
    call.audit.data["by"] = "key" if key is not None else "link" if link is not None else "password"
    return {"session": session, "expires_at": expires_at}


@console.tool("GET /sessions", access=AnyAccount(), effect="read")
async def console_sessions_list(call: Call) -> ConsoleSessions:
    """List the account's sessions of the console that are in force, newest first; a key sees those that it began."""
    query = select(*_SHOWN, rows.c.key_id).where(*_in_force(call)).order_by(rows.c.created_at.desc(), rows.c.id)
    found: Any = (await call.execute(query)).mappings()
    shown = [{**row, "by_key": row["key_id"] is not None} for row in found]
    return {"sessions": [cast(ConsoleSession, {n: row[n] for n in ConsoleSession.__annotations__}) for row in shown]}


@console.tool(
    "DELETE /sessions/{session_id}",
    access=AnyAccount(),
    effect="write",
    raises=(ConsoleSessionNotFound,),
    audit=Audit("console_session_revoke", category="auth", action="delete", resource="session"),
)
async def console_session_revoke(call: Call, session_id: SessionId) -> ConsoleSessionsEnded:
    """End one session of the console; pages that it has open lose it at once. A key ends those that it began."""
    call.audit.resource_id = session_id
    ended = update(rows).where(*_in_force(call), rows.c.id == session_id).values(revoked_at=call.now)
    if (await call.execute(ended)).rowcount != 1:
        raise ConsoleSessionNotFound
    await call.services.notices.publish(call.unit, NOTICE, call.account.account_id)
    return {"ended": 1}


@console.tool(
    access=AnyAccount(),
    effect="write",
    audit=Audit("console_logout", category="auth", action="delete", resource="session"),
)
async def console_sign_out(call: Call, session_id: SessionId) -> ConsoleSessionsEnded:
    """End the session that asks; a key may end its own."""
    whose = (*_in_force(call), rows.c.id == session_id, rows.c.key_id.is_not_distinct_from(call.account.key_id))
    ended = await call.execute(update(rows).where(*whose).values(revoked_at=call.now))
    call.audit.resource_id = session_id
    await call.services.notices.publish(call.unit, NOTICE, call.account.account_id)
    return {"ended": ended.rowcount}


def _in_force(call: Call) -> tuple[Any, ...]:
    """The conditions of the caller's sessions that have not ended: a person's are all of the account."""
    own = (rows.c.account_id == call.account.account_id, rows.c.revoked_at.is_(None), rows.c.expires_at > call.now)
    return own if call.account.key_id is None else (*own, rows.c.key_id == call.account.key_id)
