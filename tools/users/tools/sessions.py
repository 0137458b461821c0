"""The sessions of a user: refresh, sign out, list and end them."""

from typing import Annotated

from baobab.tools.core import EVERYBODY, AppId, Audit, Call, EndUser, PerAddress, Rest, Secret, Uuid
from baobab.tools.users.access import SIGNED_IN_USER
from baobab.tools.users.errors import SessionNotFound, UserBanned, WrongRefreshToken
from baobab.tools.users.schemas import EndedSessions, Message, Sessions, Tokens
from baobab.tools.users.sessions import (
    build_tokens,
    describe_session,
    end_sessions,
    exchange_token,
    find_exchange,
    list_sessions,
    mint_access_token,
)
from baobab.tools.users.sign_in import name_user
from baobab.tools.users.tables import FREEZES
from baobab.tools.users.tools.passwords import WINDOW
from baobab.tools.users.toolset import auth

RefreshText = Annotated[str, Secret(200, min_length=1)]


@auth.tool(
    "POST /refresh",
    access=EVERYBODY,
    effect="write",
    raises=(WrongRefreshToken, UserBanned),
    limit=PerAddress(20, WINDOW, per_app=True),
    audit=Audit("refresh_token_used", failure_event="refresh_token_failed", category="auth", resource="session"),
    rest=Rest(examples={"refresh_token": "bb_ur_..."}),
)
async def auth_refresh(
    call: Call,
    app_id: AppId,
    refresh_token: RefreshText,
) -> Tokens:
    """Exchange a refresh token for a fresh pair of tokens; each refresh token works once.

    The same token sent again within 10 seconds gets the same new token, so that a lost answer or a second tab signs
    nobody out. Sent later, it ends the session with all its tokens.

    refresh_token: the newest refresh token of the session.
    """
    exchange = await find_exchange(call, refresh_token)
    name_user(call, exchange.user["id"])
    access_token = await mint_access_token(call, exchange.user, exchange.session_id)
    async with FREEZES.writing(call) as unit:
        next_refresh_token = await exchange_token(call, unit, exchange)
    return build_tokens(call, access_token, next_refresh_token)


@auth.tool(
    "POST /logout",
    access=SIGNED_IN_USER,
    effect="write",
    audit=Audit("logout", category="auth", action="delete", resource="session"),
)
async def auth_logout(call: Call, app_id: AppId) -> Message:
    """Sign the user out everywhere: refresh tokens and access tokens of all sessions stop working, on every server."""
    user_id = _user(call).user_id
    async with FREEZES.writing(call) as unit:
        await end_sessions(call, unit, user_id)
    call.audit.resource_id = user_id
    return {"message": "Logged out successfully"}


@auth.tool("GET /sessions", access=SIGNED_IN_USER, effect="read")
async def auth_sessions(call: Call, app_id: AppId) -> Sessions:
    """List where the user is signed in, the most recently used first."""
    caller = _user(call)
    async with call.reading() as execute:
        rows = await list_sessions(execute, app_id, caller.user_id, call.now)
    return {"sessions": [describe_session(row, caller.session_id) for row in rows]}


@auth.tool(
    "DELETE /sessions/{session_id}",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(SessionNotFound,),
    audit=Audit("session.end", category="auth", action="delete", resource="session"),
)
async def auth_session_end(call: Call, app_id: AppId, session_id: Uuid) -> EndedSessions:
    """Sign the user out of one session: its tokens stop working; the others stay valid.

    session_id: the session, by the `id` of op:auth_sessions.
    """
    async with FREEZES.writing(call) as unit:
        ended_count = await end_sessions(call, unit, _user(call).user_id, session_id)
    if not ended_count:
        raise SessionNotFound
    call.audit.resource_id = session_id
    return {"ended": ended_count}


def _user(call: Call) -> EndUser:
    assert isinstance(call.caller, EndUser)
    return call.caller
