"""Sessions: chains of refresh tokens, each good for one use.

The successor of a token is derived from it, so that a client whose answer was lost, or whose two tabs refresh at once,
gets the very same successor for a short while, and no token is ever stored. Later reuse means that two parties hold
the token: the whole chain ends.
"""

import base64
import hashlib
import hmac
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update

from baobab.storage.secrets import Vault, digest_token
from baobab.tools.accounts.errors import InvalidRefreshToken
from baobab.tools.accounts.tables import refresh_tokens
from baobab.tools.core import Call, Services
from baobab.tools.core.auth.tables import accounts

LIFETIME = timedelta(days=7)
GRACE = timedelta(seconds=10)
_KIND = "bb_rt_"


@dataclass(frozen=True, slots=True)
class SessionHolder:
    account_id: str
    email: str


async def start(call: Call, account_id: str) -> str:
    """Starts a new chain and returns its first token. Deletes the account's expired tokens."""
    is_expired = (refresh_tokens.c.account_id == account_id, refresh_tokens.c.expires_at <= call.now)
    await call.execute(delete(refresh_tokens).where(*is_expired))
    token = _KIND + call.services.ids.secret(43)
    await _keep(call, token, account_id, call.services.ids.uuid())
    return token


async def get_holder(services: Services, token: str) -> SessionHolder:
    """Returns the account that a token belongs to. A token that is used again after the grace period ends its chain.

    The end of the chain must stay although the call is refused. So this uses transactions of its own, before the
    call's transaction begins.
    """
    query = (
        select(refresh_tokens, accounts.c.email).join(accounts).where(refresh_tokens.c.digest == digest_token(token))
    )
    async with services.database.reading() as connection:
        row = (await connection.execute(query)).first()
    now = services.clock.now()
    if row is None or not _is_live(row, now):
        raise InvalidRefreshToken
    if _is_spent(row, now):
        async with services.database.writing(lock=None) as connection:
            chain = (refresh_tokens.c.family == row.family, refresh_tokens.c.revoked_at.is_(None))
            await connection.execute(update(refresh_tokens).where(*chain).values(revoked_at=now))
        raise InvalidRefreshToken("The refresh token was used before; the session has ended.")
    return SessionHolder(row.account_id, row.email)


async def rotate(call: Call, token: str) -> str:
    """Marks a token as used and returns its successor; within the grace period, the same successor again."""
    row, now = await _row(call, token), call.now
    if row is None or not _is_live(row, now) or _is_spent(row, now):
        raise InvalidRefreshToken
    successor = _successor(call.services.vault, token)
    if row.used_at is None:
        mark_used = update(refresh_tokens).where(refresh_tokens.c.digest == row.digest).values(used_at=now)
        await call.execute(mark_used)
        await _keep(call, successor, row.account_id, row.family)
    else:
        successor_row = await _row(call, successor)
        if successor_row is None or not _is_live(successor_row, now):
            raise InvalidRefreshToken
    return successor


async def end_all(call: Call, account_id: str) -> None:
    await call.execute(update(accounts).where(accounts.c.id == account_id).values(signed_out_at=call.now))
    is_live = (refresh_tokens.c.account_id == account_id, refresh_tokens.c.revoked_at.is_(None))
    await call.execute(update(refresh_tokens).where(*is_live).values(revoked_at=call.now))


async def _keep(call: Call, token: str, account_id: str, family: str) -> None:
    now = call.now
    row = {
        "digest": digest_token(token),
        "family": family,
        "account_id": account_id,
        "created_at": now,
        "expires_at": now + LIFETIME,
    }
    await call.execute(insert(refresh_tokens), row)


async def _row(call: Call, token: str) -> Any:
    """Returns the row of a token, locked: whoever rotates the same token at the same time waits."""
    query = select(refresh_tokens).where(refresh_tokens.c.digest == digest_token(token)).with_for_update()
    return (await call.execute(query)).first()


def _is_live(row: Any, now: datetime) -> bool:
    return row.revoked_at is None and bool(row.expires_at > now)


def _is_spent(row: Any, now: datetime) -> bool:
    return row.used_at is not None and bool(now - row.used_at > GRACE)


def _successor(vault: Vault, token: str) -> str:
    mac = hmac.digest(vault.derive("refresh"), token.encode(), hashlib.sha256)
    return _KIND + base64.urlsafe_b64encode(mac).decode().rstrip("=")
