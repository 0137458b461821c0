"""The rows of API keys, and whose they are."""

from collections.abc import Mapping
from typing import Any, cast

from sqlalchemy import select

from baobab.tools.api_keys.errors import KeyNotFound
from baobab.tools.api_keys.schemas import ListedKey
from baobab.tools.core import Call, Role
from baobab.tools.core.auth.membership import load_role
from baobab.tools.core.auth.roles import rank
from baobab.tools.core.auth.tables import api_keys as rows

LISTED = tuple(rows.c[name] for name in ListedKey.__annotations__)


def describe_key(row: Mapping[str, Any]) -> ListedKey:
    return cast(ListedKey, {**row, "asks": row["asks"] or {}})


async def _get_own_row(call: Call, key_id: str) -> Any:
    """Returns the row of a key that the caller may change, revoked or not."""
    row = (await call.execute(select(rows).where(rows.c.id == key_id))).first()
    call.audit.resource_id = key_id
    role = None if row is None else await find_role(call, row.organisation_id)
    if row is None or role is None or not (sees_all(role) or row.account_id == call.account.account_id):
        raise KeyNotFound
    call.audit.organisation_id = row.organisation_id
    return row


async def get_live_row(call: Call, key_id: str) -> Any:
    """Returns the row of a key that the caller may change. Raises KeyNotFound, also for a key that is revoked."""
    row = await _get_own_row(call, key_id)
    if row.revoked_at is not None:
        raise KeyNotFound("This key has been revoked.")
    return row


async def find_role(call: Call, organisation_id: str) -> Role | None:
    """Returns the caller's role as this transaction sees it; an API key has one in its own organisation only."""
    if call.account.key_id is not None and call.account.organisation_id != organisation_id:
        return None
    return await load_role(call, organisation_id, call.account.account_id)


def sees_all(role: Role) -> bool:
    return rank(role) >= rank("admin")
