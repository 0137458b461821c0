"""/oauth/request and /oauth/decision: what a client asks for, and what a person decides."""

from datetime import UTC, datetime, time, timedelta
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import Field
from sqlalchemy import insert, update

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.errors import RequestGone, UnknownClient
from baobab.runtime.oauth.requests import LONGEST, AuthorizationRequest
from baobab.storage.secrets import digest_token
from baobab.tools.core import (
    EVERYBODY,
    AnyAccount,
    AppId,
    AppNotFound,
    Audit,
    BadRequest,
    Call,
    Guard,
    Rest,
    Text,
    Uuid,
    require_role,
)
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.key_limits import ToolsetNames, UnknownToolset, list_open_toolsets
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.days import Day
from baobab.tools.core.effects import Policy
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.oauth.requests import open_request
from baobab.tools.oauth.schemas import AskedFor, Decided
from baobab.tools.oauth.tables import oauth_clients, oauth_codes
from baobab.tools.oauth.toolset import oauth

CODE_LIFETIME = timedelta(minutes=5)
_CODE_LENGTH = 43
SealedRequest = Annotated[
    str, Text(LONGEST, 1, r"^[A-Za-z0-9._=-]+$"), Field(description="The request, as the consent page got it.")
]
Decision = Literal["approve", "deny"]
OrganizationId = Annotated[Uuid, Field(description="An organisation of yours; the token's own when left out.")]


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

    The client gets a code, which it exchanges for one key within five minutes. Revoke the key at /api-keys.

    decision: `approve` gives the client a key, `deny` refuses it.
    organization_id: the organisation whose key it will be.
    read_only: whether the key only reads.
    approval: the mildest effect for which a call of the key waits for a person.
    toolsets: the toolsets that the key opens; all when left out.
    only_app_id: the only app that the key opens; left out, every app that the account can use.
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


async def _require_app(call: Call, app_id: str, organisation: str, scopes: list[str]) -> None:
    """Raises AppNotFound for an app that does not exist or is another organisation's."""
    if "mcp" not in scopes:
        raise BadRequest(
            "A client that asks for models only cannot be limited to one app. Use a key of the app instead."
        )
    if (await call.services.directory.app(app_id)).organisation_id != organisation:
        raise AppNotFound


def _redirect_back(request: AuthorizationRequest, **parameters: str) -> Decided:
    """Returns the client's address with the answer, the client's state and the issuer (RFC 9207)."""
    return {
        "redirect_to": redirects.answer(request.redirect_uri, **parameters, state=request.state, iss=request.issuer)
    }
