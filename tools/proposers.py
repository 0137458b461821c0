"""Proposers: who made a call that waits, as it is kept, and as it acts again when the call is executed."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from sqlalchemy import CursorResult, Select, select

from baobab.tools.callers import Account, Anonymous, AppKey, Caller, EndUser, Limits, ScopedKey
from baobab.tools.credit_rows import BUDGETED
from baobab.tools.errors import Forbidden, InvalidApiKey
from baobab.tools.platform_tables import api_keys
from baobab.tools.steps import Step

if TYPE_CHECKING:
    from baobab.tools.call import Call


def name(caller: Caller, step: Step | None = None) -> str:
    """The credential itself: of all that an account holds, the one that proposed must not decide.

    step: what a run proposes is the run's, whoever started it.
    """
    if step is not None:
        return f"run:{step.run_id}"
    key_id = getattr(caller, "key_id", None)
    return f"key:{key_id}" if key_id else f"{caller.actor}:{caller.actor_id}"


def kept(caller: Caller) -> dict[str, Any]:
    """What makes the caller again, beside its key's row."""
    key_id = getattr(caller, "key_id", None)
    held: dict[str, Any] = {"key_id": key_id}
    if isinstance(caller, EndUser):
        held |= {"user_id": caller.user_id, "role": caller.role}
    if key_id is None and isinstance(caller, (EndUser, Anonymous)):
        held["app_id"] = caller.app_id
    elif key_id is None and isinstance(caller, Account):
        held |= {"account_id": caller.account_id, "organisation_id": caller.organisation_id}
    return held


async def restored(execute: Callable[[Select[Any]], Awaitable[CursorResult[Any]]], held: dict[str, Any]) -> Caller:
    """The caller as its key stands now. InvalidApiKey where the key was revoked since."""
    if held["key_id"] is None:
        return _keyless(held)
    query = select(api_keys, BUDGETED).where(api_keys.c.id == held["key_id"], api_keys.c.revoked_at.is_(None))
    key = (await execute(query)).first()
    if key is None:
        raise InvalidApiKey("The key that proposed this call has been revoked.")
    limits = Limits.of(key)
    if key.app_id is not None:
        if "user_id" in held:
            return EndUser(key.app_id, held["user_id"], held["role"], key.id, limits)
        return AppKey(key.app_id, key.id, key.account_id, limits)
    if "*" in key.scopes:
        return Account(key.account_id, key.organisation_id, key.id, limits)
    return ScopedKey(key.account_id, key.organisation_id, key.id, frozenset(key.scopes), limits)


def _keyless(held: dict[str, Any]) -> Caller:
    """Somebody who came with a token, or with nothing; what they may do is asked again at each call."""
    if "account_id" in held:
        return Account(held["account_id"], held["organisation_id"])
    if "user_id" in held:
        return EndUser(held["app_id"], held["user_id"], held["role"])
    return Anonymous(held["app_id"])


async def called(call: "Call", held: dict[str, Any]) -> str | None:
    """The name that a key's owner gave it; None once it is revoked."""
    query = select(api_keys.c.name).where(api_keys.c.id == held["key_id"], api_keys.c.revoked_at.is_(None))
    found: str | None = (await call.execute(query)).scalar()
    return found


async def owner(call: "Call") -> tuple[str, str]:
    """The organisation and the account that a proposal belongs to."""
    caller = call.caller
    if call.door.step is not None:
        return call.door.step.organisation_id, call.door.step.account_id
    if isinstance(caller, (Account, ScopedKey)):
        organisation = call.app.organisation_id if call.app else caller.organisation_id
        return organisation, caller.account_id
    key_id = getattr(caller, "key_id", None)
    query = select(api_keys.c.organisation_id, api_keys.c.account_id).where(api_keys.c.id == key_id)
    async with call.services.database.reading() as connection:
        row = (await connection.execute(query)).first()
    if row is None:
        raise Forbidden("Only keys propose calls.")
    return row.organisation_id, row.account_id
