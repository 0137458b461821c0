"""Grants: what a person has let an OAuth client have. A key whose text changes, and refresh tokens for one use each."""

import json
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update

from baobab.storage.secrets import digest_token
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.tables import api_keys
from baobab.tools.core.call import Call
from baobab.tools.oauth.errors import InvalidGrant
from baobab.tools.oauth.tables import oauth_grants, oauth_refresh_tokens

ACCESS_LIFETIME = timedelta(hours=1)
REFRESH_LIFETIME = timedelta(days=30)
"""How long a refresh token waits for its use."""
GRACE = timedelta(seconds=10)
"""How long a used refresh token is answered with what it was exchanged for: the answer may have been lost."""
_REFRESH = "bb_ort_"
_LENGTH = 43


def expiry(now: datetime, ends_at: datetime | None) -> datetime:
    """Until when an access token that is given now is good. ends_at: when the access ends that a person gave."""
    usual = now + ACCESS_LIFETIME
    return usual if ends_at is None else min(usual, ends_at)


async def create_grant(call: Call, key_id: str, about: dict[str, Any]) -> str:
    """Keep a grant, whose key has been kept; its first refresh token."""
    await call.execute(insert(oauth_grants), {"key_id": key_id, **about, "created_at": call.now})
    return await _add_refresh_token(call, key_id)


async def rotate(call: Call, row: Any) -> dict[str, Any] | None:
    """New tokens for a refresh token: its row. None where it was used before: then the grant is revoked.

    InvalidGrant where it is too old, or the grant was revoked.
    """
    grant: Any = (await call.execute(select(oauth_grants).where(oauth_grants.c.key_id == row.key_id))).one()
    live = (api_keys.c.id == row.key_id, api_keys.c.revoked_at.is_(None))
    key: Any = (await call.execute(select(api_keys).where(*live))).first()
    if key is None or row.created_at <= call.now - REFRESH_LIFETIME:
        raise InvalidGrant("The refresh token is too old, or what it stood for was revoked.")
    if key.ends_at is not None and key.ends_at <= call.now:
        raise InvalidGrant("The access that a person gave has ended.", remediation="Ask that person for it anew.")
    if await load_role(call, key.organisation_id, key.account_id) is None:
        raise InvalidGrant("Who agreed is no longer a member of the organisation.")
    vault, context = call.services.vault, f"oauth_refresh_tokens.successor:{row.digest}"
    unused = (oauth_refresh_tokens.c.digest == row.digest, oauth_refresh_tokens.c.used_at.is_(None))
    if not (await call.execute(update(oauth_refresh_tokens).where(*unused).values(used_at=call.now))).rowcount:
        used: Any = (
            await call.execute(select(oauth_refresh_tokens).where(oauth_refresh_tokens.c.digest == row.digest))
        ).one()
        if used.used_at > call.now - GRACE and used.successor is not None:
            told: dict[str, Any] = json.loads(vault.open(used.successor, context))
            return told
        call.audit.data |= {"replayed": True, "keys_revoked": await keys.revoke(call, api_keys.c.id == row.key_id)}
        return None
    text = keys.plaintext(call.services.ids)
    now = call.now
    expires_at = expiry(now, key.ends_at)
    values = {"digest": digest_token(text), "prefix": text[:12], "expires_at": expires_at}
    await call.execute(update(api_keys).where(*live).values(**values))
    await call.services.notices.publish(call.unit, "key", key.digest)
    made = {
        "access_token": text,
        "refresh_token": await _add_refresh_token(call, row.key_id),
        "scope": grant.scope,
        "expires_in": int((expires_at - now).total_seconds()),
    }
    sealed = vault.seal(json.dumps(made).encode(), context)
    mine = oauth_refresh_tokens.c.digest == row.digest
    await call.execute(update(oauth_refresh_tokens).where(mine).values(successor=sealed))
    call.audit.resource_id, call.audit.organisation_id = row.key_id, key.organisation_id
    call.audit.actor, call.audit.actor_id = "api_key", row.key_id
    return made


async def find_refresh_token(call: Call, client_id: str | None, token: str) -> Any:
    """The row of a client's refresh token; InvalidGrant where there is none."""
    which: list[ColumnElement[bool]] = [oauth_refresh_tokens.c.digest == digest_token(token)]
    if client_id is not None:
        which.append(oauth_grants.c.client_id == client_id)
    query = select(oauth_refresh_tokens, oauth_grants.c.scope).join(
        oauth_grants, oauth_grants.c.key_id == oauth_refresh_tokens.c.key_id
    )
    row = (await call.execute(query.where(*which))).first()
    if row is None:
        raise InvalidGrant("The refresh token is unknown.", remediation="Start again in the client.")
    return row


async def _add_refresh_token(call: Call, key_id: str) -> str:
    token = _REFRESH + call.services.ids.secret(_LENGTH)
    row = {"digest": digest_token(token), "key_id": key_id, "created_at": call.now}
    await call.execute(insert(oauth_refresh_tokens), row)
    return token
