"""The codes and tokens of clients, for the token endpoint and the revocation endpoint."""

from typing import Annotated, Any, cast

from sqlalchemy import insert, or_, select, update

from baobab.runtime.oauth import redirects
from baobab.runtime.oauth.clients import ClientId
from baobab.runtime.oauth.errors import InvalidGrant
from baobab.storage.secrets import digest_token
from baobab.tools.core import Audit, Call, PerAddress, Secret, Text
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.oauth_endpoints import OAUTH_ENDPOINTS
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.core.limits.plan_room import PlanLimitReached
from baobab.tools.oauth.grants import REFRESH_LIFETIME, create_grant, expiry, find_refresh_token, rotate
from baobab.tools.oauth.schemas import Exchanged, PendingCode, PendingRefresh, Revoked
from baobab.tools.oauth.tables import oauth_codes, oauth_grants, oauth_refresh_tokens
from baobab.tools.oauth.toolset import oauth

_OF_KEYS = " (OAuth)"
# The scopes of the key for each OAuth scope. The contract: `mcp` also opens the substrate.
_STORED = {"mcp": ["*", "substrate"], "ai:gateway": ["ai:gateway"]}
SecretToken = Annotated[str, Secret(100, min_length=1)]
Code = Annotated[str, Text(100, min_length=1)]


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
    """Exchange a code for its key, once. A second use revokes that key: somebody else may have the code.

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
        raise InvalidGrant("The person who agreed is no longer a member of the organisation.")
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


async def _code(call: Call, client_id: str, code: str) -> Any:
    """Returns the row of a client's code. Raises InvalidGrant if there is none, or it has expired."""
    conditions = (oauth_codes.c.digest == digest_token(code), oauth_codes.c.client_id == client_id)
    row = (await call.execute(select(oauth_codes).where(*conditions))).first()
    if row is None or row.expires_at <= call.now:
        raise InvalidGrant
    return row
