"""API keys: how their texts are made, kept and taken out of force, for every domain that hands them out."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, select, update

from baobab.storage.clock import Ids
from baobab.storage.secrets import digest
from baobab.tools.call import Call
from baobab.tools.platform_tables import api_keys
from baobab.tools.services import Services

SERVICE, SUBSTRATE = "bb_sk_", "bb_sub_"
_SECRET = 40
_SHOWN = 12


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
) -> dict[str, Any]:
    """What is kept of a key: its digest and its first characters, never its text."""
    return {
        "id": services.ids.uuid(),
        "organisation_id": organisation_id,
        "account_id": account_id,
        "app_id": app_id,
        "name": name,
        "prefix": key[:_SHOWN],
        "digest": digest(key),
        "scopes": list(scopes),
        "created_at": services.clock.now(),
    }


async def revoke(call: Call, *which: ColumnElement[bool]) -> int:
    """Take the live keys that match out of force on every worker; how many there were. Their rows stay."""
    live = (*which, api_keys.c.revoked_at.is_(None))
    digests = (await call.execute(select(api_keys.c.digest).where(*live))).scalars().all()
    if digests:
        await call.execute(update(api_keys).where(*live).values(revoked_at=call.now))
    for revoked in digests:
        await call.services.notices.publish(call.unit, "key", revoked)
    return len(digests)
