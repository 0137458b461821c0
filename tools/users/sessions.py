"""Sessions of an app's users: started at a sign-in, kept alive by refresh tokens that are each good for one use.

Two tabs that refresh at once, or a client whose answer was lost, get the very same next token for a short while. Later
reuse of a token means that two parties hold it: the session ends.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import bindparam, delete, insert, select, update

from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core import Call
from baobab.tools.core.auth.user_sessions import USER_TOPIC, user_subject
from baobab.tools.core.auth.user_tools import SCOPE, build_resource
from baobab.tools.core.limits.rate_limits import network
from baobab.tools.users.errors import UserBanned, WrongRefreshToken
from baobab.tools.users.refresh_tokens import RefreshToken
from baobab.tools.users.schemas import Session, Tokens
from baobab.tools.users.second_factor import delete_challenges
from baobab.tools.users.tables import FREEZES, user_mcp_codes, user_sessions, users

GRACE = timedelta(seconds=10)
MOST_SESSIONS = 50
"""Sessions that a user may have; a further one ends the oldest."""

_columns = user_sessions.c
# Built once: every token is refreshed each hour.
_FIND_EXCHANGE = (
    select(
        *users.c, _columns.id.label("session_id"), _columns.generation, _columns.client_id,
        _columns.refreshed_at, _columns.expires_at,
    )
    .join(users, (users.c.app_id == _columns.app_id) & (users.c.id == _columns.user_id))
    .where(_columns.app_id == bindparam("app"), users.c.app_id == bindparam("app"), _columns.id == bindparam("session"))
)  # fmt: skip
_EXTEND = (
    update(user_sessions)
    .where(_columns.app_id == bindparam("app"), _columns.id == bindparam("session"))
    .where(_columns.generation == bindparam("spent"))
    .values(generation=bindparam("newest"), refreshed_at=bindparam("now"), expires_at=bindparam("until"))
)
_MCP_SECONDS = 3600


@dataclass(frozen=True, slots=True)
class McpClient:
    """An MCP client that a user lets in. name: what it calls itself; nobody has checked that."""

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class Exchange:
    """The session that a refresh token renews, if the token may be exchanged."""

    user: Any
    session_id: str
    generation: int
    """The generation of the token that the exchange answers."""
    rotates: bool
    """Whether the exchange makes that token; otherwise another one has made it a moment ago."""


async def mint_access_token(call: Call, user: Any, session_id: str, client_id: str | None = None) -> str:
    """Mints an access token. It must precede the call's first statement: the very first token creates the key pair.

    client_id: the MCP client that the session is of. Its token is good at the app's MCP endpoint only.
    """
    claims = {"sub": user["id"], "email": user["email"], "email_verified": user["email_verified"]}
    claims |= {"role": user["role"], "sid": session_id, "is_anonymous": user["email"] is None}
    app = call.require_app()
    if client_id is not None:
        resource = build_resource(call.services.options.base_url, app.id)
        claims |= {"aud": resource, "client_id": client_id, "scope": SCOPE}
    return await call.services.signers.mint(app.id, claims, find_lifetime(call, client_id))


def find_lifetime(call: Call, client_id: str | None = None) -> int:
    """Returns how many seconds an access token lives; that of an MCP client at most an hour."""
    seconds = call.require_app().access_token_seconds
    return seconds if client_id is None else min(seconds, _MCP_SECONDS)


async def start_session(
    call: Call, unit: Unit, user_id: str, session_id: str, method: str, client: McpClient | None = None
) -> str:
    """Inserts a session and returns its first refresh token. The oldest ones above MOST_SESSIONS end.

    method: how the user signed in, such as `email` or `magic_link`. client: the MCP client that the user let in.
    """
    app, now = call.require_app(), call.now
    of_user = (_columns.app_id == app.id, _columns.user_id == user_id)
    newest = select(_columns.id).where(*of_user, _columns.expires_at > now).order_by(_columns.refreshed_at.desc())
    await unit.execute(delete(user_sessions).where(*of_user, _columns.id.not_in(newest.limit(MOST_SESSIONS - 1))))
    row = {"app_id": app.id, "id": session_id, "user_id": user_id, "generation": 0, "method": method}
    row |= {"created_at": now, "refreshed_at": now, "expires_at": now + timedelta(days=app.session_days)}
    row |= {"ip_address": network(call.context.ip), "user_agent": call.context.user_agent[:300]}
    row |= {"client_id": client and client.id, "client_name": client and client.name}
    await unit.execute(insert(user_sessions), row)
    is_this = (users.c.app_id == app.id, users.c.id == user_id)
    await unit.execute(update(users).where(*is_this).values(last_sign_in_at=now))
    return RefreshToken(session_id, 0).encode(call.services.vault, app.id)


async def find_exchange(call: Call, token: str, client_id: str | None = None) -> Exchange:
    """Finds what a refresh token is good for. A token that is used again after the grace period ends its session.

    The end of the session must stay although the call is refused. So this uses transactions of its own, before the
    call's begins. Raises WrongRefreshToken and UserBanned.
    client_id: the MCP client that shows the token. A token of such a client is good for that client only, and never for
    a token that opens REST.
    """
    app_id = call.require_app().id
    refresh_token = RefreshToken.decode(call.services.vault, app_id, token)
    parameters = {"app": app_id, "session": refresh_token.session_id}
    async with call.stores.database.reading() as connection:
        session = (await connection.execute(_FIND_EXCHANGE, parameters)).first()
    if session is None or session.expires_at <= call.now or session.client_id != client_id:
        raise WrongRefreshToken
    user = {column.name: getattr(session, column.name) for column in users.c}
    if user["banned_at"] is not None:
        raise UserBanned
    if refresh_token.generation == session.generation:
        return Exchange(user, session.session_id, session.generation + 1, rotates=True)
    if _is_just_spent(session, refresh_token.generation, call.now):
        return Exchange(user, session.session_id, session.generation, rotates=False)
    async with call.stores.database.writing(lock=app_id) as connection:
        await FREEZES.require_thawed(connection.execute, app_id)
        conditions = (_columns.app_id == app_id, _columns.id == session.session_id)
        await connection.execute(delete(user_sessions).where(*conditions))
    async with call.services.database.writing_unit(lock=None) as notice_unit:
        await call.services.notices.publish(notice_unit, USER_TOPIC, user_subject(app_id, user["id"]))
    raise WrongRefreshToken


async def exchange_token(call: Call, unit: Unit, exchange: Exchange) -> str:
    """Returns the refresh token of an exchange, and extends its session. Raises WrongRefreshToken."""
    app, now = call.require_app(), call.now
    if exchange.rotates:
        data = {"app": app.id, "session": exchange.session_id, "spent": exchange.generation - 1}
        data |= {"newest": exchange.generation, "now": now, "until": now + timedelta(days=app.session_days)}
        if not (await unit.execute(_EXTEND, data)).rowcount:
            # Another exchange of the same token was quicker, or the session has ended in between.
            conditions = (_columns.app_id == app.id, _columns.id == exchange.session_id)
            session = (await unit.execute(select(user_sessions).where(*conditions))).first()
            if session is None or not _is_just_spent(session, exchange.generation - 1, now):
                raise WrongRefreshToken
        if exchange.user["email"] is None:
            # An anonymous user never signs in again: this is the use that keeps it from being deleted.
            is_user = (users.c.app_id == app.id, users.c.id == exchange.user["id"])
            await unit.execute(update(users).where(*is_user).values(last_sign_in_at=now))
    return RefreshToken(exchange.session_id, exchange.generation).encode(call.services.vault, app.id)


async def end_sessions(
    call: Call, unit: Unit, user_id: str, session_id: str | None = None, *, but: str | None = None
) -> int:
    """Ends the sessions of a user, or one of them, and returns how many. Their access tokens stop working, too.

    but: the id of a session that goes on.
    """
    app_id = call.require_app().id
    conditions = [_columns.app_id == app_id, _columns.user_id == user_id]
    if session_id is not None:
        conditions.append(_columns.id == session_id)
    if but is not None:
        conditions.append(_columns.id != but)
    ended_count = (await unit.execute(delete(user_sessions).where(*conditions))).rowcount
    if session_id is None:
        # A code on its way to an MCP client would begin a session anew.
        codes = (user_mcp_codes.c.app_id == app_id, user_mcp_codes.c.user_id == user_id)
        await unit.execute(delete(user_mcp_codes).where(*codes))
        await delete_challenges(unit.execute, app_id, user_id)
    await announce_change(call, user_id)
    return ended_count


async def announce_change(call: Call, user_id: str) -> None:
    """Tells every worker, when the call commits, that the user's sessions, role or ban have changed."""
    subject = user_subject(call.require_app().id, user_id)
    await call.services.notices.publish(call.unit, USER_TOPIC, subject)


async def find_session(call: Call, session_id: str) -> Any:
    """Returns the row of a session of the app, in a transaction that precedes the call's; None if there is none."""
    conditions = (_columns.app_id == call.require_app().id, _columns.id == session_id)
    async with call.stores.database.reading() as connection:
        return (await connection.execute(select(user_sessions).where(*conditions))).first()


async def list_sessions(execute: Execute, app_id: str, user_id: str, now: datetime) -> list[Any]:
    """Returns the rows of a user's sessions, the most recently used first."""
    conditions = (_columns.app_id == app_id, _columns.user_id == user_id, _columns.expires_at > now)
    query = (
        select(user_sessions)
        .where(*conditions)
        .order_by(_columns.refreshed_at.desc(), _columns.id)
        .limit(MOST_SESSIONS)
    )
    return list((await execute(query)).all())


def describe_session(row: Any, current: str | None) -> Session:
    """Builds what a session's row shows. current: the id of the session that asks."""
    session = {name: getattr(row, name) for name in Session.__annotations__ if name != "current"}
    return cast(Session, {**session, "current": row.id == current})


def build_tokens(call: Call, access_token: str, refresh_token: str) -> Tokens:
    return {
        "access_token": access_token,
        "refresh_token": refresh_token,
        "expires_in": find_lifetime(call),
        "token_type": "Bearer",
    }


def _is_just_spent(session: Any, generation: int, now: datetime) -> bool:
    """Returns whether a token is the one before the session's newest, and was exchanged a moment ago."""
    return bool(session.generation - 1 == generation and now - session.refreshed_at <= GRACE)
