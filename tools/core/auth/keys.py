"""API keys: how they are created, stored and revoked, for every domain that hands them out."""

from collections.abc import Iterable
from typing import Any

from sqlalchemy import ColumnElement, Select, delete, func, select, update

from baobab.storage.clock import Ids
from baobab.storage.secrets import digest_token
from baobab.tools.core.auth.callers import Limits
from baobab.tools.core.auth.function_keys import void_function_keys_shown_by
from baobab.tools.core.auth.tables import api_keys, invitations
from baobab.tools.core.call import Call
from baobab.tools.core.limits import plan_room
from baobab.tools.core.limits.plan_room import hold_plan
from baobab.tools.core.services import Services

SERVICE, SUBSTRATE = "bb_sk_", "bb_sub_"
_SECRET = 40
_UNACCEPTED = invitations.c.accepted_at.is_(None)
_SHOWN = 12


def plaintext(ids: Ids, kind: str = SERVICE) -> str:
    """Returns the text of a new key. It is shown once, and only its digest is stored."""
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
    made_by: str | None = None,
) -> dict[str, Any]:
    """Builds the row of a key: its digest and first characters, never its text. made_by: the key that creates it."""
    held_to = limits or Limits()
    return {
        "id": services.ids.uuid(),
        "organisation_id": organisation_id,
        "account_id": account_id,
        "made_by": made_by,
        "app_id": app_id,
        "name": name,
        "prefix": key[:_SHOWN],
        "digest": digest_token(key),
        "scopes": list(scopes),
        "toolsets": None if held_to.toolsets is None else sorted(held_to.toolsets),
        "read_only": held_to.read_only,
        "approval": held_to.approval,
        "asks": dict.fromkeys(sorted(held_to.always_ask), "always") | dict.fromkeys(sorted(held_to.never_ask), "never"),
        "only_app_id": held_to.app_id,
        "ends_at": held_to.ends_at,
        "expires_at": held_to.ends_at,
        "created_at": services.clock.now(),
    }


async def require_room(call: Call, organisation_id: str) -> None:
    """Raises PlanLimitReached if the organisation has as many live keys as its plan allows."""
    plan = await hold_plan(call.unit, organisation_id)
    count = await count_live(call, api_keys.c.organisation_id == organisation_id)
    plan_room.require_room("live API keys", plan, plan.api_keys, count)


async def revoke(call: Call, *conditions: ColumnElement[bool], keep_made: bool = False) -> int:
    """Revokes the matching live keys on every worker and returns their number. Their rows stay.

    What they made goes with them unless `keep_made`: the keys that they made, and those that these made; invitations
    that nobody has accepted; function keys that they were shown.
    """
    is_live = api_keys.c.revoked_at.is_(None)
    key_ids = select(api_keys.c.id).where(*conditions, is_live)
    if not keep_made:
        key_ids = _with_made(key_ids)
        await call.execute(delete(invitations).where(invitations.c.key_id.in_(key_ids), _UNACCEPTED))
        await void_function_keys_shown_by(call, key_ids)
    key_conditions = (api_keys.c.id.in_(key_ids), is_live)
    digests = (await call.execute(select(api_keys.c.digest).where(*key_conditions))).scalars().all()
    if digests:
        await call.execute(update(api_keys).where(*key_conditions).values(revoked_at=call.now))
    for digest in digests:
        await call.services.notices.publish(call.unit, "key", digest)
    return len(digests)


async def count_live(call: Call, *conditions: ColumnElement[bool]) -> int:
    """Counts the matching keys that are not revoked."""
    query = select(func.count()).select_from(api_keys).where(*conditions, api_keys.c.revoked_at.is_(None))
    count: int = (await call.execute(query)).scalar_one()
    return count


async def count_made(call: Call, key_id: str) -> int:
    """Counts the live keys that a key has created, directly or through other keys."""
    made_ids = _with_made(select(api_keys.c.id).where(api_keys.c.id == key_id))
    return await count_live(call, api_keys.c.id.in_(made_ids), api_keys.c.id != key_id)


def _with_made(makers: Select[Any]) -> Select[Any]:
    """Builds the query for the ids of keys and of all keys created with them, even through keys revoked since."""
    made_keys = makers.cte("made", recursive=True)
    made_keys = made_keys.union(select(api_keys.c.id).where(api_keys.c.made_by == made_keys.c.id))
    return select(made_keys.c.id)
