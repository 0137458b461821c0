"""Grants: a person gave an OAuth client access, by a key whose text changes and refresh tokens for one use each."""

import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from baobab.runtime.oauth.errors import InvalidGrant
from baobab.storage.secrets import digest_token
from baobab.tools.core import Call
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.oauth.tables import oauth_grants, oauth_refresh_tokens

ACCESS_LIFETIME = timedelta(hours=1)
REFRESH_LIFETIME = timedelta(days=30)
"""How long an unused refresh token is valid."""
GRACE = timedelta(seconds=10)
"""How long a used refresh token gets the same new tokens again: the answer may have been lost."""
_REFRESH = "bb_ort_"
_LENGTH = 43


def expiry(now: datetime, ends_at: datetime | None) -> datetime:
    """Returns when an access token that is issued now expires. ends_at: when the grant itself ends."""
    usual = now + ACCESS_LIFETIME
    return usual if ends_at is None else min(usual, ends_at)


async def create_grant(call: Call, key_id: str, about: dict[str, Any]) -> str:
    """Stores a grant, whose key is stored already, and returns its first refresh token."""
    await call.execute(insert(oauth_grants), {"key_id": key_id, **about, "created_at": call.now})
    return await _add_refresh_token(call, key_id)


async def rotate(call: Call, row: Any) -> dict[str, Any] | None:
    """Exchanges a refresh token for new tokens. Returns None if it was used before: the grant is then revoked.

    row: the refresh token's row.
    Raises InvalidGrant if it is too old, or the grant was revoked.
    """
    grant: Any = (await call.execute(select(oauth_grants).where(oauth_grants.c.key_id == row.key_id))).one()
    live = (api_keys.c.id == row.key_id, api_keys.c.revoked_at.is_(None))
    key: Any = (await call.execute(select(api_keys).where(*live))).first()
    if key is None or row.created_at <= call.now - REFRESH_LIFETIME:
        raise InvalidGrant("The refresh token has expired, or its access was revoked.")
    if key.ends_at is not None and key.ends_at <= call.now:
        raise InvalidGrant("The access that a person gave has ended.", remediation="Ask that person to give it again.")
    if await load_role(call, key.organisation_id, key.account_id) is None:
        raise InvalidGrant("The person who gave access is no longer a member of the organisation.")
    vault, context = call.services.vault, f"oauth_refresh_tokens.successor:{row.digest}"
    is_unused = (oauth_refresh_tokens.c.digest == row.digest, oauth_refresh_tokens.c.used_at.is_(None))
    if not (await call.execute(update(oauth_refresh_tokens).where(*is_unused).values(used_at=call.now))).rowcount:
        used_token: Any = (
            await call.execute(select(oauth_refresh_tokens).where(oauth_refresh_tokens.c.digest == row.digest))
        ).one()
        if used_token.used_at > call.now - GRACE and used_token.successor is not None:
            earlier_tokens: dict[str, Any] = json.loads(vault.open(used_token.successor, context))
            return earlier_tokens
        call.audit.data |= {"replayed": True, "keys_revoked": await keys.revoke(call, api_keys.c.id == row.key_id)}
        return None
    text = keys.plaintext(call.services.ids)
    now = call.now
    expires_at = expiry(now, key.ends_at)
    values = {"digest": digest_token(text), "prefix": text[:12], "expires_at": expires_at}
    await call.execute(update(api_keys).where(*live).values(**values))
    await call.services.notices.publish(call.unit, "key", key.digest)
    tokens = {
        "access_token": text,
        "refresh_token": await _add_refresh_token(call, row.key_id),
        "scope": grant.scope,
        "expires_in": int((expires_at - now).total_seconds()),
    }
    sealed_tokens = vault.seal(json.dumps(tokens).encode(), context)
    this_token = oauth_refresh_tokens.c.digest == row.digest
    await call.execute(update(oauth_refresh_tokens).where(this_token).values(successor=sealed_tokens))
    call.audit.resource_id, call.audit.organisation_id = row.key_id, key.organisation_id
    call.audit.actor, call.audit.actor_id = "api_key", row.key_id
    return tokens


async def find_refresh_token(call: Call, client_id: str | None, token: str) -> Any:
    """Returns the row of a client's refresh token. Raises InvalidGrant if there is none."""
    conditions: list[ColumnElement[bool]] = [oauth_refresh_tokens.c.digest == digest_token(token)]
    if client_id is not None:
        conditions.append(oauth_grants.c.client_id == client_id)
    query = select(oauth_refresh_tokens, oauth_grants.c.scope).join(
        oauth_grants, oauth_grants.c.key_id == oauth_refresh_tokens.c.key_id
    )
    row = (await call.execute(query.where(*conditions))).first()
    if row is None:
        raise InvalidGrant("The refresh token is unknown.", remediation="Start again in the client.")
    return row


async def _add_refresh_token(call: Call, key_id: str) -> str:
    token = _REFRESH + call.services.ids.secret(_LENGTH)
    row = {"digest": digest_token(token), "key_id": key_id, "created_at": call.now}
    await call.execute(insert(oauth_refresh_tokens), row)
    return token
