"""Sessions: a random secret in a cookie, of which the database keeps a digest.

A session never gives more than what signed in: the caller is read anew with each request, with the present limits of
its key. It ends by itself, when it is revoked, and when the account's password, the key or the account goes.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

from sqlalchemy import insert, select, update

from baobab.storage.secrets import digest_token
from baobab.storage.sql.database import Execute
from baobab.tools.console.errors import ConsoleLinkSpent, ConsoleSignedOut, ConsoleSignInTooOld
from baobab.tools.console.tables import console_links, console_sessions
from baobab.tools.core import Account, Call, Caller, Forbidden, Role, Services
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.membership import select_memberships
from baobab.tools.core.auth.roles import rank
from baobab.tools.core.auth.tables import accounts, api_keys, apps
from baobab.tools.core.auth.tables import organisations as organisations_table
from baobab.tools.core.errors import InvalidApiKey

LIFETIME, OF_KEY = timedelta(days=7), timedelta(hours=12)
LINK_LIFETIME = timedelta(minutes=10)
LOGGED_LINK_LIFETIME = timedelta(minutes=2)
"""The lifetime of a link that is written to a place where it stays, such as a log file."""
RECENT = timedelta(minutes=15)
NOTICE = "console"
"""The topic of the notice that a session has been revoked; its subject is the account."""
_SEEN = timedelta(minutes=1)
_LONGEST = 100


@dataclass(frozen=True, slots=True)
class LiveSession:
    id: str
    caller: Account
    email: str
    name: str
    csrf: str
    """The token that every form of the session carries. It is derived from the secret, which no page shows."""
    expires_at: datetime
    organisations: tuple[Mapping[str, Any], ...] = ()
    """Those of the person, each with its `id`, `name`, `personal`, the person's `role`, and whether it `has_apps`. A
    personal one in which there is nothing is left out where there is another.
    """

    @property
    def is_new_owner(self) -> bool:
        """Whether the person may do everything in their organisations, none of which has an app yet."""
        is_new = all(row["role"] == "owner" and not row["has_apps"] for row in self.organisations)
        return is_new and bool(self.organisations) and self.caller.limits is None

    def find_role(self, organisation_id: str | None) -> Role | None:
        """Returns the role in an organisation, or without one the highest that the person has anywhere."""
        roles = [row["role"] for row in self.organisations if organisation_id in (None, row["id"])]
        return max(roles, key=rank, default=None)


async def start_session(call: Call, caller: Account) -> tuple[str, datetime]:
    """Starts a session of a caller, and returns its secret and until when it lasts."""
    secret, now = call.services.ids.secret(43), call.now
    password_hash = (
        await call.execute(select(accounts.c.password_hash).where(accounts.c.id == caller.account_id))
    ).scalar()
    expires_at = now + (LIFETIME if caller.key_id is None else OF_KEY)
    row = {
        "id": call.services.ids.uuid(),
        "digest": digest_token(secret),
        "account_id": caller.account_id,
        "key_id": caller.key_id,
        "caller": proposers.encode_caller(caller),
        "password": _digest_password(password_hash),
        "created_at": now,
        "last_seen_at": now,
        "expires_at": expires_at,
        "user_agent": call.context.user_agent[:300],
        "ip": call.context.ip[:64],
    }
    await call.execute(insert(console_sessions), row)
    if caller.key_id is None:
        await call.execute(update(accounts).where(accounts.c.id == caller.account_id).values(last_seen_at=now))
    return secret, expires_at


async def find_session(services: Services, secret: str) -> LiveSession:
    """Returns the session of a secret. Raises ConsoleSignedOut where there is none in force."""
    if not secret or len(secret) > _LONGEST:
        raise ConsoleSignedOut
    now = services.clock.now()
    columns = (accounts.c.email, accounts.c.name, accounts.c.password_hash, accounts.c.signed_out_at)
    query = select(console_sessions, *columns).join(accounts, accounts.c.id == console_sessions.c.account_id)
    async with services.database.reading() as connection:
        row: Any = (await connection.execute(query.where(console_sessions.c.digest == digest_token(secret)))).first()
        if row is None or row.revoked_at is not None or row.expires_at <= now:
            raise ConsoleSignedOut
        # A sign-out of the account leaves its keys as they are, and so the sessions that a key began.
        if row.key_id is None and row.signed_out_at is not None and row.created_at <= row.signed_out_at:
            raise ConsoleSignedOut
        if not hmac.compare_digest(row.password, _digest_password(row.password_hash)):
            raise ConsoleSignedOut
        try:
            caller = await proposers.restore_caller(connection.execute, services.credits, row.caller, now)
        except (InvalidApiKey, Forbidden) as exc:
            raise ConsoleSignedOut from exc
        organisations = await _list_organisations(connection.execute, caller)
    assert isinstance(caller, Account)
    if now - row.last_seen_at > _SEEN:
        statement = update(console_sessions).where(console_sessions.c.id == row.id).values(last_seen_at=now)
        async with services.database.writing(lock=None) as connection:
            await connection.execute(statement)
            if row.key_id is None:
                seen_account = update(accounts).where(accounts.c.id == row.account_id).values(last_seen_at=now)
                await connection.execute(seen_account)
    return LiveSession(row.id, caller, row.email, row.name, derive_csrf(secret), row.expires_at, organisations)


async def _list_organisations(execute: Execute, caller: Caller) -> tuple[Mapping[str, Any], ...]:
    assert isinstance(caller, Account)
    has_apps = select(apps.c.id).where(apps.c.organisation_id == organisations_table.c.id).exists()
    is_live = (api_keys.c.organisation_id == organisations_table.c.id, api_keys.c.revoked_at.is_(None))
    has_keys = select(api_keys.c.id).where(*is_live).exists()
    query = select_memberships(caller.account_id).add_columns(
        has_apps.label("has_apps"), (has_apps | has_keys).label("is_used")
    )
    rows = [dict(row) for row in (await execute(query)).mappings()]
    if caller.key_id is not None:
        return tuple(row for row in rows if row["id"] == caller.organisation_id)
    shown_rows = [row for row in rows if row["is_used"] or not row["personal"] or row["role"] != "owner"]
    return tuple(shown_rows or rows)


async def require_recent_sign_in(call: Call, session_id: str) -> None:
    """Raises ConsoleSignInTooOld unless the caller began this session within the last 15 minutes, and it is in force.

    Whoever finds a browser that somebody left signed in must not add a way in that outlives the session.
    """
    conditions = (
        console_sessions.c.id == session_id,
        console_sessions.c.account_id == call.account.account_id,
        console_sessions.c.key_id.is_(None),
        console_sessions.c.revoked_at.is_(None),
        console_sessions.c.created_at > call.now - RECENT,
    )
    if (await call.execute(select(console_sessions.c.id).where(*conditions))).first() is None:
        raise ConsoleSignInTooOld


def derive_csrf(secret: str) -> str:
    return hmac.digest(secret.encode(), b"console form", sha256).hex()


async def create_link(services: Services, account_id: str, lifetime: timedelta = LINK_LIFETIME) -> str:
    """Returns the secret of a link that signs an account in, once."""
    secret = services.ids.secret(43)
    row = {
        "digest": digest_token(secret),
        "account_id": account_id,
        "expires_at": services.clock.now() + lifetime,
    }
    async with services.database.writing(lock=None) as connection:
        await connection.execute(insert(console_links), row)
    return secret


async def use_link(call: Call, secret: str) -> str:
    """Uses a link up, and returns its account. Raises ConsoleLinkSpent."""
    is_usable = (
        console_links.c.digest == digest_token(secret),
        console_links.c.used_at.is_(None),
        console_links.c.expires_at > call.now,
    )
    if (await call.execute(update(console_links).where(*is_usable).values(used_at=call.now))).rowcount != 1:
        raise ConsoleLinkSpent
    owner = select(console_links.c.account_id).where(console_links.c.digest == digest_token(secret))
    return str((await call.execute(owner)).scalar_one())


def _digest_password(password_hash: str | None) -> str:
    return sha256((password_hash or "").encode()).hexdigest()
