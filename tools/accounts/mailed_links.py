"""Links that are mailed to the owner of an address: sealed texts that nobody can make or read but this server.

Nothing is stored. A link names the account, its address and a digest of its password as they were; once one of them has
changed, which using the link does, it is spent.
"""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any, Literal

from sqlalchemy import Row, select

from baobab.storage.secrets import SecretUnreadable
from baobab.storage.sql.database import Execute
from baobab.tools.accounts.errors import AccountLinkSpent
from baobab.tools.core import Call, Services
from baobab.tools.core.auth.tables import accounts

LIFETIME = timedelta(hours=1)
Kind = Literal["new_password", "new_email"]


def make_link(services: Services, kind: Kind, account: Any, **fields: str) -> tuple[str, datetime]:
    """Returns the address of the page that uses a link up, and when the link expires."""
    expires_at = services.clock.now() + LIFETIME
    content = {
        "account_id": account.id,
        "email": account.email,
        "password": _digest(account.password_hash),
        "until": expires_at.timestamp(),
        **fields,
    }
    token = services.vault.seal(json.dumps(content).encode(), _context(kind))
    page = {"new_password": "new-password", "new_email": "confirm-email"}[kind]
    # The address of the settings, and never the one that a request names.
    return f"{services.options.base_url}/console/{page}?token={token}", expires_at


async def open_link(call: Call, kind: Kind, token: str) -> tuple[Row[Any], Mapping[str, Any]]:
    """Returns the account that a link belongs to, and what the link says. Raises AccountLinkSpent."""
    try:
        content = json.loads(call.services.vault.open(token, _context(kind)))
    except SecretUnreadable as exc:
        raise AccountLinkSpent from exc
    account = await find_account(call.execute, accounts.c.id == content["account_id"])
    is_current = (
        account is not None
        and content["until"] > call.services.clock.time()
        and content["email"] == account.email
        and content["password"] == _digest(account.password_hash)
    )
    if account is None or not is_current:
        raise AccountLinkSpent
    return account, content


async def find_account(execute: Execute, condition: Any) -> Row[Any] | None:
    return (await execute(select(accounts).where(condition))).first()


def _digest(password_hash: str | None) -> str:
    return sha256((password_hash or "").encode()).hexdigest()


def _context(kind: Kind) -> str:
    return f"account link:{kind}"
