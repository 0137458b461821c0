"""Sign-in over MCP: a user lets an MCP client use the app as them, with the tools that the app gives to its users.

mcp_server/oauth/ speaks the protocol itself. These tools hold its rules and make its changes.
"""

from datetime import UTC, datetime
from typing import Annotated, Literal

from pydantic import Field

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import MOST_REDIRECTS, Client, ClientId, ClientName
from baobab.runtime.oauth.errors import (
    DocumentRefused,
    InvalidGrant,
    RedirectRefused,
    RequestGone,
    UnknownClient,
)
from baobab.runtime.oauth.requests import LONGEST
from baobab.tools.core import EVERYBODY, AppId, Audit, Call, EndUser, Forbidden, PerAddress, Rest, Secret, Text
from baobab.tools.core.auth.oauth_endpoints import OAUTH_ENDPOINTS
from baobab.tools.core.auth.user_tools import SCOPE, UserToolsClosed, build_resource, get_open_app
from baobab.tools.core.errors import InvalidUserToken
from baobab.tools.users.access import SIGNED_IN_USER
from baobab.tools.users.errors import UserBanned, WrongRefreshToken
from baobab.tools.users.mcp_clients import create_client, find_client
from baobab.tools.users.mcp_codes import issue_code, read_code, spend_code
from baobab.tools.users.mcp_requests import open_request
from baobab.tools.users.refresh_tokens import PREFIX, RefreshToken
from baobab.tools.users.rows import read_user
from baobab.tools.users.schemas import Decided, McpRequest, McpTokens, PendingMcpCode, Revoked
from baobab.tools.users.sessions import (
    McpClient,
    end_sessions,
    exchange_token,
    find_exchange,
    find_lifetime,
    find_session,
    mint_access_token,
    start_session,
)
from baobab.tools.users.sign_in import name_user
from baobab.tools.users.tables import FREEZES
from baobab.tools.users.toolset import auth

RedirectUris = Annotated[
    list[Annotated[str, Text(redirects.LONGEST, min_length=1)]], Field(min_length=1, max_length=MOST_REDIRECTS)
]
SealedRequest = Annotated[
    str, Text(LONGEST, 1, r"^[A-Za-z0-9._=-]+$"), Field(description="The request, as the consent page got it.")
]
Token = Annotated[str, Secret(8192, min_length=1)]
RefreshText = Annotated[str, Secret(200, min_length=1)]
Code = Annotated[str, Text(100, min_length=1)]


@auth.tool(
    "GET /mcp/request",
    access=EVERYBODY,
    effect="read",
    raises=(RequestGone, UserToolsClosed),
)
async def auth_mcp_request(call: Call, app_id: AppId, request: SealedRequest) -> McpRequest:
    """Return what an MCP client asks a user of the app for, as a consent page shows it."""
    app = await get_open_app(call.services.directory, app_id)
    authorization = open_request(call.services, app_id, request)
    tools = [call.registry.tools[name] for name in sorted(app.user_tools) if name in call.registry.tools]
    return {
        "client_id": authorization.client_id,
        "client_name": authorization.client_name,
        "client_document": authorization.document,
        "redirect_host": redirects.display_host(authorization.redirect_uri),
        "redirect_uri": authorization.redirect_uri,
        "app_name": app.title,
        "tools": [{"name": tool.name, "title": tool.title, "effect": tool.effect} for tool in tools],
        "expires_at": datetime.fromtimestamp(authorization.expires_at, UTC),
    }


@auth.tool(
    "POST /mcp/decision",
    access=SIGNED_IN_USER,
    effect="write",
    raises=(RequestGone, UserToolsClosed),
    audit=Audit("mcp_client_decision", category="auth", action="create", resource="session"),
    rest=Rest(examples={"request": "v1.0a1b2c3d.c2VhbGVk", "decision": "approve"}),
)
async def auth_mcp_decide(
    call: Call, app_id: AppId, request: SealedRequest, decision: Literal["approve", "deny"], sign_out: bool = False
) -> Decided:
    """Let an MCP client use the app as you, or deny it: the user's decision, made on a consent page.

    The client gets a code, which it exchanges for one session within a minute. The user's sessions include it.

    decision: `approve` lets the client in, `deny` refuses it.
    sign_out: whether the session that decides ends afterwards, as it does on the app's own page.
    """
    caller = call.caller
    assert isinstance(caller, EndUser)
    if caller.session_id is None:
        raise Forbidden("A key that acts for a user cannot agree in the user's place.")
    await get_open_app(call.services.directory, app_id)
    authorization = open_request(call.services, app_id, request)
    call.audit.resource_id = caller.user_id
    call.audit.data |= {"decision": decision, "client": authorization.client_name}
    call.audit.data["redirect_host"] = redirects.display_host(authorization.redirect_uri)
    answer: dict[str, str | None]
    async with FREEZES.writing(call) as unit:
        if decision == "approve":
            answer = {"code": await issue_code(call, unit, authorization, caller.user_id)}
        else:
            answer = {"error": "access_denied", "error_description": "The user denied the request."}
        if sign_out:
            await end_sessions(call, unit, caller.user_id, caller.session_id)
    return {
        "redirect_to": redirects.answer(
            authorization.redirect_uri, **answer, state=authorization.state, iss=authorization.issuer
        )
    }


@auth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    limit=PerAddress(20, 3600, per_app=True),
    raises=(RedirectRefused, UserToolsClosed),
    audit=Audit("mcp_client_register", category="auth", action="create", resource="mcp_client"),
)
async def auth_mcp_register(
    call: Call, app_id: AppId, redirect_uris: RedirectUris, client_name: ClientName | None = None
) -> Client:
    """Give a public MCP client an id for this app (RFC 7591). Nothing is stored: the id itself says who it is.

    redirect_uris: where it may be sent back to.
    client_name: what it calls itself.
    """
    await get_open_app(call.services.directory, app_id)
    client = create_client(call.services, app_id, redirect_uris, client_name)
    call.audit.data["name"] = client["name"]
    return client


@auth.tool(access=OAUTH_ENDPOINTS, effect="read", limit=PerAddress(60, 60), raises=(UnknownClient, DocumentRefused))
async def auth_mcp_client(call: Call, app_id: AppId, client_id: ClientId) -> Client:
    """Return an MCP client of the app by its id."""
    return await find_client(call.services, app_id, client_id)


@auth.tool(access=OAUTH_ENDPOINTS, effect="read", raises=(InvalidGrant,))
async def auth_mcp_code(call: Call, app_id: AppId, client_id: ClientId, code: Code) -> PendingMcpCode:
    """Read the request that a client's code is bound to, for the token endpoint. A used code is found until it expires.

    code: the code.
    """
    row = await read_code(call, client_id, code)
    return {
        "redirect_uri": row.redirect_uri,
        "redirect_given": row.redirect_given,
        "code_challenge": row.code_challenge,
        "resource": build_resource(call.services.options.base_url, app_id),
        "scopes": [SCOPE],
        "expires_at": row.expires_at,
    }


@auth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    raises=(InvalidGrant, UserBanned, UserToolsClosed),
    audit=Audit("mcp_client_login", category="auth", action="create", resource="session"),
)
async def auth_mcp_exchange(call: Call, app_id: AppId, client_id: ClientId, code: Code) -> McpTokens:
    """Exchange a code for a session, once. A second use ends that session: somebody else may have the code.

    code: the code, whose verifier and redirect address the token endpoint has checked.
    """
    await get_open_app(call.services.directory, app_id)
    row = await read_code(call, client_id, code)
    user = await read_user(call, user_id=row.user_id)
    if user is None:
        raise InvalidGrant
    if user["banned_at"] is not None:
        raise UserBanned
    name_user(call, user["id"])
    call.audit.data["client"] = row.client_name
    access_token = await mint_access_token(call, user, row.session_id, client_id)
    async with FREEZES.writing(call) as unit:
        if not await spend_code(call, unit, row):
            # Answered, not raised: the end of the session must be committed.
            call.audit.data |= {"replayed": True}
            await end_sessions(call, unit, user["id"], row.session_id)
            return {"access_token": None, "refresh_token": None, "expires_in": 0, "scope": SCOPE}
        client = McpClient(client_id, row.client_name)
        refresh_token = await start_session(call, unit, user["id"], row.session_id, "mcp", client)
    return _build_tokens(call, access_token, refresh_token, client_id)


@auth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    raises=(WrongRefreshToken, UserBanned, UserToolsClosed),
    audit=Audit("mcp_client_refresh", category="auth", resource="session"),
)
async def auth_mcp_refresh(call: Call, app_id: AppId, client_id: ClientId, refresh_token: RefreshText) -> McpTokens:
    """Exchange the refresh token of an MCP client for the next pair of tokens, once, as op:auth_refresh does."""
    await get_open_app(call.services.directory, app_id)
    exchange = await find_exchange(call, refresh_token, client_id)
    name_user(call, exchange.user["id"])
    access_token = await mint_access_token(call, exchange.user, exchange.session_id, client_id)
    async with FREEZES.writing(call) as unit:
        next_refresh_token = await exchange_token(call, unit, exchange)
    return _build_tokens(call, access_token, next_refresh_token, client_id)


@auth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    limit=PerAddress(60, 60),
    audit=Audit("mcp_client_logout", category="auth", action="delete", resource="session"),
)
async def auth_mcp_revoke(call: Call, app_id: AppId, token: Token, client_id: ClientId | None = None) -> Revoked:
    """End the session of an MCP client by one of its tokens (RFC 7009): both tokens end together."""
    session = None
    session_id = await _read_session_id(call, app_id, token)
    if session_id is not None:
        session = await find_session(call, session_id)
    is_theirs = session is not None and session.client_id is not None and client_id in (None, session.client_id)
    if session is None or not is_theirs:
        call.audit.nothing_done = True
        return {"revoked": False}
    name_user(call, session.user_id)
    async with FREEZES.writing(call) as unit:
        await end_sessions(call, unit, session.user_id, session.id)
    return {"revoked": True}


async def _read_session_id(call: Call, app_id: str, token: str) -> str | None:
    """Returns the session that a token names and proves; None for a token that is not the app's or has expired."""
    try:
        if token.startswith(PREFIX):
            return RefreshToken.decode(call.services.vault, app_id, token).session_id
        claims = await call.services.signers.verify(app_id, token)
    except InvalidUserToken:
        return None
    session_id = claims.get("sid")
    return session_id if isinstance(session_id, str) else None


def _build_tokens(call: Call, access_token: str, refresh_token: str, client_id: str) -> McpTokens:
    return {
        "access_token": access_token,
        "refresh_token": refresh_token,
        "scope": SCOPE,
        "expires_in": find_lifetime(call, client_id),
    }
