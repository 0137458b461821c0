"""OAuth 2.1 for MCP clients: a person agrees, and the client gets an API key.

mcp_server/oauth/ speaks the protocol itself. These tools hold its rules and make its changes.
"""

from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Any, Literal, cast
from urllib.parse import urlsplit

from pydantic import Field
from sqlalchemy import insert, or_, select, update

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import MOST_REDIRECTS, NAMELESS, Client, ClientId, ClientName, readable_name
from baobab.runtime.oauth.documents import ClientDocuments, is_address
from baobab.runtime.oauth.errors import DocumentRefused, InvalidGrant, RedirectRefused, RequestGone, UnknownClient
from baobab.runtime.oauth.requests import LONGEST, AuthorizationRequest
from baobab.storage.secrets import digest_token
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.access import EVERYBODY, AnyAccount
from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.key_limits import ToolsetNames, UnknownToolset, list_open_toolsets
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.oauth_endpoints import OAUTH_ENDPOINTS
from baobab.tools.core.auth.roles import require_role
from baobab.tools.core.auth.tables import api_keys, apps, organisations
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.days import Day
from baobab.tools.core.effects import Policy
from baobab.tools.core.errors import AppNotFound, BadRequest
from baobab.tools.core.escaping import escape_text
from baobab.tools.core.limits import PerAddress
from baobab.tools.core.plan_room import PlanLimitReached
from baobab.tools.core.secret import Secret
from baobab.tools.core.toolset import Guard, Rest
from baobab.tools.core.types import AppId, Text, Uuid
from baobab.tools.oauth.errors import ProgramNotFound
from baobab.tools.oauth.grants import (
    REFRESH_LIFETIME,
    create_grant,
    expiry,
    find_refresh_token,
    rotate,
)
from baobab.tools.oauth.requests import open_request
from baobab.tools.oauth.schemas import (
    AskedFor,
    Decided,
    Exchanged,
    PendingCode,
    PendingRefresh,
    Program,
    Programs,
    Revoked,
)
from baobab.tools.oauth.tables import oauth_clients, oauth_codes, oauth_grants, oauth_refresh_tokens
from baobab.tools.oauth.toolset import oauth

CODE_LIFETIME = timedelta(minutes=5)
_CODE_LENGTH = 43
_OF_KEYS = " (OAuth)"
_NAMES = ("client_name", "organization_name", "only_app_name")
# The scopes of the key for each OAuth scope. The contract: `mcp` also opens the substrate.
_STORED = {"mcp": ["*", "substrate"], "ai:gateway": ["ai:gateway"]}

RedirectUris = Annotated[
    list[Annotated[str, Text(redirects.LONGEST, min_length=1)]], Field(min_length=1, max_length=MOST_REDIRECTS)
]
SealedRequest = Annotated[
    str, Text(LONGEST, 1, r"^[A-Za-z0-9._=-]+$"), Field(description="The request, as the consent page got it.")
]
SecretToken = Annotated[str, Secret(100, min_length=1)]
Code = Annotated[str, Text(100, min_length=1)]
Decision = Literal["approve", "deny"]
OrganizationId = Annotated[Uuid, Field(description="An organisation of yours; the token's own when left out.")]


@oauth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    limit=PerAddress(20, 3600),
    raises=(RedirectRefused,),
    audit=Audit("oauth.client.register", category="auth", action="create", resource="oauth_client"),
)
async def oauth_register(call: Call, redirect_uris: RedirectUris, client_name: ClientName | None = None) -> Client:
    """Register a public client (RFC 7591). It gets no secret; unused for 30 days, it is deleted.

    redirect_uris: where it may be sent back to.
    client_name: what it calls itself.
    """
    client: Client = {
        "client_id": call.services.ids.uuid(),
        "name": readable_name(client_name or "", NAMELESS),
        "redirect_uris": [redirects.check_redirect(uri) for uri in redirect_uris],
        "document": False,
    }
    row = {"id": client["client_id"], "name": client["name"], "redirect_uris": client["redirect_uris"]}
    await call.execute(insert(oauth_clients), {**row, "created_at": call.now})
    call.audit.resource_id = client["client_id"]
    call.audit.data["name"] = client["name"]
    return client


@oauth.tool(access=OAUTH_ENDPOINTS, effect="read", limit=PerAddress(60, 60), raises=(UnknownClient, DocumentRefused))
async def oauth_client(call: Call, client_id: ClientId) -> Client:
    """Read a client by its id: one that registered, or one whose id is the address of its metadata document."""
    if is_address(client_id):
        return await call.services.of(ClientDocuments).client(client_id)
    row = (await call.execute(select(oauth_clients).where(oauth_clients.c.id == client_id))).first()
    if row is None:
        raise UnknownClient
    return {"client_id": row.id, "name": row.name, "redirect_uris": row.redirect_uris, "document": False}


@oauth.tool("GET /oauth/request", access=EVERYBODY, effect="read", raises=(RequestGone,))
async def oauth_request(call: Call, request: SealedRequest) -> AskedFor:
    """Read what a client asks for, as the consent page shows it to the person who decides."""
    auth_request = open_request(call.services, request)
    return {
        "client_id": auth_request.client_id,
        "client_name": auth_request.client_name,
        "client_document": auth_request.document,
        "redirect_host": redirects.display_host(auth_request.redirect_uri),
        "scopes": auth_request.scopes,
        "families": [
            {"name": toolset.name, "description": toolset.description}
            for toolset in call.registry.toolsets
            if toolset.mcp
        ],
        "server": urlsplit(auth_request.issuer).netloc,
        "expires_at": datetime.fromtimestamp(auth_request.expires_at, call.now.tzinfo),
    }


@oauth.tool(
    "POST /oauth/decision",
    access=AnyAccount(keys=False),
    effect="write",
    raises=(RequestGone, UnknownClient, PlanLimitReached, AppNotFound, UnknownToolset),
    audit=Audit("oauth.decision", category="auth", action="create", resource="oauth_client"),
    rest=Rest(examples={"request": "v1.0a1b2c3d.c2VhbGVk", "decision": "approve", "read_only": True}),
    guard=Guard(grants=True),
)
async def oauth_decide(
    call: Call,
    request: SealedRequest,
    decision: Decision,
    organization_id: OrganizationId | None = None,
    read_only: bool = False,
    approval: Policy = "destructive",
    toolsets: ToolsetNames | None = None,
    only_app_id: AppId | None = None,
    last_day: Day | None = None,
) -> Decided:
    """Let a client have a key of yours, or deny it: a person's decision, made on the consent page.

    The client gets a code that is good for one key within five minutes. The key is in /api-keys, where it is revoked.

    organization_id: the organisation whose key it will be.
    read_only: whether the key only reads.
    approval: from which effect on a call of the key waits for a person.
    toolsets: the toolsets that the key opens; all when left out.
    only_app_id: the only app that the key opens, one of the organisation's; all that the account may when left out.
    last_day: the day (UTC) at whose end the access ends for good; when left out, it lasts until it is revoked.
    """
    auth_request = open_request(call.services, request)
    organisation = organization_id or call.account.organisation_id
    require_role(await load_role(call, organisation, call.account.account_id), "member")
    host = redirects.display_host(auth_request.redirect_uri)
    call.audit.resource_id, call.audit.organisation_id = auth_request.client_id[:200], organisation
    call.audit.data |= {"decision": decision, "client": auth_request.client_name, "redirect_host": host}
    if decision == "deny":
        return _redirect_back(auth_request, error="access_denied", error_description="The person denied the request.")
    if only_app_id is not None:
        await _require_app(call, only_app_id, organisation, auth_request.scopes)
    open_toolsets = list_open_toolsets(call.registry, toolsets, asks=approval != "none")
    ends_at = None if last_day is None else datetime.combine(last_day + timedelta(days=1), time(), UTC)
    if ends_at is not None and ends_at <= call.now:
        raise BadRequest("`last_day` is over.")
    await keys.require_room(call, organisation)
    if not auth_request.document:
        mark_used = (
            update(oauth_clients).where(oauth_clients.c.id == auth_request.client_id).values(last_used_at=call.now)
        )
        if not (await call.execute(mark_used)).rowcount:
            raise UnknownClient
    code = call.services.ids.secret(_CODE_LENGTH)
    row = {
        "digest": digest_token(code),
        "client_id": auth_request.client_id,
        "client_name": auth_request.client_name,
        "redirect_uri": auth_request.redirect_uri,
        "redirect_given": auth_request.redirect_given,
        "code_challenge": auth_request.code_challenge,
        "resource": auth_request.resource,
        "scopes": auth_request.scopes,
        "account_id": call.account.account_id,
        "organisation_id": organisation,
        "read_only": read_only,
        "approval": approval,
        "toolsets": None if open_toolsets is None else sorted(open_toolsets),
        "only_app_id": only_app_id,
        "ends_at": ends_at,
        "created_at": call.now,
        "expires_at": call.now + CODE_LIFETIME,
    }
    await call.execute(insert(oauth_codes), row)
    call.audit.data |= {"scopes": auth_request.scopes, "read_only": read_only, "approval": approval}
    call.audit.data |= {
        "toolsets": row["toolsets"],
        "only_app_id": only_app_id,
        "ends_at": ends_at and ends_at.isoformat(),
    }
    return _redirect_back(auth_request, code=code)


@oauth.tool(access=OAUTH_ENDPOINTS, effect="read", raises=(InvalidGrant,))
async def oauth_code(call: Call, client_id: ClientId, code: Code) -> PendingCode:
    """Read the request that a client's code is bound to, for the token endpoint. A used code is found until it expires.

    code: the code.
    """
    row = await _code(call, client_id, code)
    return cast(PendingCode, {name: getattr(row, name) for name in PendingCode.__annotations__})


@oauth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    raises=(InvalidGrant, PlanLimitReached),
    audit=Audit("oauth.exchange", category="auth", action="create", resource="api_key"),
)
async def oauth_exchange(call: Call, client_id: ClientId, code: Code) -> Exchanged:
    """Exchange a code for the key it is good for, once. A second use revokes that key: somebody else may have the code.

    code: the code, whose verifier and redirect address the token endpoint has checked.
    """
    row = await _code(call, client_id, code)
    call.audit.organisation_id = row.organisation_id
    call.audit.actor, call.audit.actor_id = "platform_user", row.account_id
    call.audit.data["client"] = row.client_name
    key = keys.plaintext(call.services.ids)
    key_row = keys.key_row(
        call.services,
        key,
        row.client_name[: 100 - len(_OF_KEYS)] + _OF_KEYS,
        [stored_scope for scope in row.scopes for stored_scope in _STORED[scope]],
        organisation_id=row.organisation_id,
        account_id=row.account_id,
        limits=Limits(
            None if row.toolsets is None else frozenset(row.toolsets),
            row.read_only,
            row.approval,
            app_id=row.only_app_id,
            ends_at=row.ends_at,
        ),
    )
    is_unused = (oauth_codes.c.digest == row.digest, oauth_codes.c.used_at.is_(None))
    spend_code = update(oauth_codes).where(*is_unused).values(used_at=call.now, key_id=key_row["id"])
    scope = " ".join(row.scopes)
    if not (await call.execute(spend_code)).rowcount:
        # Answered, not raised: the revocation must be committed.
        first = select(oauth_codes.c.key_id).where(oauth_codes.c.digest == row.digest).scalar_subquery()
        call.audit.data |= {"replayed": True, "keys_revoked": await keys.revoke(call, api_keys.c.id == first)}
        return {"access_token": None, "refresh_token": None, "expires_in": 0, "scope": scope}
    if await load_role(call, row.organisation_id, row.account_id) is None:
        raise InvalidGrant("Who agreed is no longer a member of the organisation.")
    await keys.require_room(call, row.organisation_id)
    if row.ends_at is not None and row.ends_at <= call.now:
        raise InvalidGrant("The access that a person gave has ended.")
    now = call.now
    expires_at = expiry(now, row.ends_at)
    await call.execute(insert(api_keys), {**key_row, "expires_at": expires_at})
    about = {
        "client_id": row.client_id,
        "client_name": row.client_name,
        "redirect_host": redirects.display_host(row.redirect_uri)[:300],
        "scope": scope,
    }
    refresh_token = await create_grant(call, key_row["id"], about)
    call.audit.resource_id = key_row["id"]
    call.audit.data |= {"prefix": key_row["prefix"], "scopes": key_row["scopes"]}
    seconds = int((expires_at - now).total_seconds())
    return {"access_token": key, "refresh_token": refresh_token, "expires_in": seconds, "scope": scope}


@oauth.tool(access=OAUTH_ENDPOINTS, effect="read", raises=(InvalidGrant,))
async def oauth_refresh_token(call: Call, client_id: ClientId, refresh_token: SecretToken) -> PendingRefresh:
    """Read the grant of a client's refresh token, also of a used one."""
    row = await find_refresh_token(call, client_id, refresh_token)
    return {"scope": row.scope, "expires_at": row.created_at + REFRESH_LIFETIME}


@oauth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    raises=(InvalidGrant,),
    audit=Audit("oauth.refresh", category="auth", action="update", resource="api_key"),
)
async def oauth_refresh(call: Call, client_id: ClientId, refresh_token: SecretToken) -> Exchanged:
    """Exchange a refresh token for the next pair of tokens, once. A later second use revokes the grant.

    A second use within ten seconds gets the same pair: an answer may be lost, and two windows may ask at once.
    """
    row = await find_refresh_token(call, client_id, refresh_token)
    tokens = await rotate(call, row)
    if tokens is None:
        # Answered, not raised: the revocation must be committed.
        return {"access_token": None, "refresh_token": None, "expires_in": 0, "scope": row.scope}
    return cast(Exchanged, tokens)


@oauth.tool(
    access=OAUTH_ENDPOINTS,
    effect="write",
    limit=PerAddress(60, 60),
    audit=Audit("oauth.revoke", category="auth", action="delete", resource="api_key"),
)
async def oauth_revoke(call: Call, token: SecretToken, client_id: ClientId | None = None) -> Revoked:
    """Revoke what a token stands for (RFC 7009): access token and refresh token end together."""
    grants = select(oauth_grants.c.key_id)
    if client_id is not None:
        grants = grants.where(oauth_grants.c.client_id == client_id)
    refreshing = select(oauth_refresh_tokens.c.key_id).where(oauth_refresh_tokens.c.digest == digest_token(token))
    of_token = or_(api_keys.c.digest == digest_token(token), api_keys.c.id.in_(refreshing))
    revoked_count = await keys.revoke(call, api_keys.c.id.in_(grants), of_token)
    call.audit.nothing_done = revoked_count == 0
    return {"revoked": revoked_count > 0}


@oauth.tool("GET /oauth/programs", access=AnyAccount(keys=False), effect="read")
async def oauth_programs_list(call: Call) -> Programs:
    """List the programs that have access to this server as you, by OAuth."""
    grant, key = oauth_grants.c, api_keys.c
    query = (
        select(api_keys, grant.client_id, grant.client_name, grant.redirect_host, grant.scope)
        .add_columns(organisations.c.name.label("organization_name"), apps.c.name.label("only_app_name"))
        .add_columns(key.organisation_id.label("organization_id"))
        .join(oauth_grants, grant.key_id == key.id)
        .join(organisations, organisations.c.id == key.organisation_id)
        .outerjoin(apps, apps.c.id == key.only_app_id)
        .where(key.account_id == call.account.account_id, key.revoked_at.is_(None))
        .where(or_(key.ends_at.is_(None), key.ends_at > call.now))
        .order_by(key.created_at.desc())
    )
    rows = (await call.execute(query)).all()
    programs = [{name: getattr(row, name) for name in Program.__annotations__} for row in rows]
    for program in programs:
        # Names may date from before invisible characters were refused.
        program |= {name: escape_text(program[name]) for name in _NAMES if program[name] is not None}
    return {"programs": cast(list[Program], programs)}


@oauth.tool(
    "DELETE /oauth/programs/{program_id}",
    access=AnyAccount(keys=False),
    effect="destructive",
    raises=(ProgramNotFound,),
    audit=Audit("oauth.program.revoke", category="auth", action="delete", resource="api_key"),
)
async def oauth_programs_revoke(call: Call, program_id: Uuid) -> Revoked:
    """Take a program's access away at once, with all that it handed out."""
    grants = select(oauth_grants.c.key_id).where(oauth_grants.c.key_id == program_id)
    revoked_count = await keys.revoke(call, api_keys.c.id.in_(grants), api_keys.c.account_id == call.account.account_id)
    if not revoked_count:
        raise ProgramNotFound
    call.audit.resource_id = program_id
    return {"revoked": True}


async def _require_app(call: Call, app_id: str, organisation: str, scopes: list[str]) -> None:
    """Raises AppNotFound for an app that does not exist or is another organisation's."""
    if "mcp" not in scopes:
        raise BadRequest("What asks for models only is not narrowed to an app: a key of the app opens its models.")
    if (await call.services.directory.app(app_id)).organisation_id != organisation:
        raise AppNotFound


async def _code(call: Call, client_id: str, code: str) -> Any:
    """Returns the row of a client's code. Raises InvalidGrant if there is none, or it has expired."""
    conditions = (oauth_codes.c.digest == digest_token(code), oauth_codes.c.client_id == client_id)
    row = (await call.execute(select(oauth_codes).where(*conditions))).first()
    if row is None or row.expires_at <= call.now:
        raise InvalidGrant
    return row


def _redirect_back(request: AuthorizationRequest, **parameters: str) -> Decided:
    """Returns the client's address with the answer, the client's state and the issuer (RFC 9207)."""
    return {
        "redirect_to": redirects.answer(request.redirect_uri, **parameters, state=request.state, iss=request.issuer)
    }
