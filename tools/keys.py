"""API keys: how their texts are made, kept and taken out of force, for every domain that hands them out."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, func, select, update

from baobab.storage.clock import Ids
from baobab.storage.secrets import digest
from baobab.tools.call import Call
from baobab.tools.callers import Limits
from baobab.tools.errors import Conflict
from baobab.tools.platform_tables import api_keys
from baobab.tools.services import Services

SERVICE, SUBSTRATE = "bb_sk_", "bb_sub_"
MOST = 200
_SECRET = 40
_SHOWN = 12


class TooManyKeys(Conflict):
    summary = "The organisation has as many live keys as it may have."
    remediation = "Revoke keys that are no longer used (DELETE /api-keys/{key_id}); details.limit is the number."


def plaintext(ids: Ids, kind: str = SERVICE) -> str:
    return kind + ids.secret(_SECRET)


def key_row(
    services: Services,
    key: str,
    name: str,
    scopes: Iterable[str],
    *,
    organisation_id: str,
    account_id: str,
    app_id: str | None = None,
    limits: Limits | None = None,
) -> dict[str, Any]:
    """What is kept of a key: its digest and its first characters, never its text."""
    held_to = limits or Limits()
    return {
        "id": services.ids.uuid(),
        "organisation_id": organisation_id,
        "account_id": account_id,
        "app_id": app_id,
        "name": name,
        "prefix": key[:_SHOWN],
        "digest": digest(key),
        "scopes": list(scopes),
        "toolsets": None if held_to.toolsets is None else sorted(held_to.toolsets),
        "read_only": held_to.read_only,
        "approval": held_to.approval,
        "created_at": services.clock.now(),
    }


async def require_room(call: Call, organisation_id: str) -> None:
    """TooManyKeys where the organisation has as many live keys as it may have; else it may get one more."""
    live = select(func.count()).where(api_keys.c.organisation_id == organisation_id, api_keys.c.revoked_at.is_(None))
    if ((await call.execute(live)).scalar() or 0) >= MOST:
        raise TooManyKeys(f"The organisation has {MOST} live keys.", details={"limit": MOST})


async def revoke(call: Call, *which: ColumnElement[bool]) -> int:
    """Take the live keys that match out of force on every worker; how many there were. Their rows stay."""
    live = (*which, api_keys.c.revoked_at.is_(None))
    digests = (await call.execute(select(api_keys.c.digest).where(*live))).scalars().all()
    if digests:
        await call.execute(update(api_keys).where(*live).values(revoked_at=call.now))
    for revoked in digests:
        await call.services.notices.publish(call.unit, "key", revoked)
    return len(digests)
