"""Proposers: who made a call that waits for approval, how that is stored, and how the caller is restored."""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, select

from baobab.storage.database import Fetch
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser, Limits, ScopedKey
from baobab.tools.core.auth.tables import api_keys, members
from baobab.tools.core.call import Call
from baobab.tools.core.credits import Credits
from baobab.tools.core.errors import Forbidden, InvalidApiKey
from baobab.tools.core.steps import Step


def proposer_name(caller: Caller, step: Step | None = None) -> str:
    """Returns the name of the credential, which must not decide about what it proposed; others of its account may.

    step: the step of a run. What a run proposes is the run's, whoever started it.
    """
    if step is not None:
        return f"run:{step.run_id}"
    key_id = getattr(caller, "key_id", None)
    return f"key:{key_id}" if key_id else f"{caller.actor}:{caller.actor_id}"


def kind_of(caller: Caller) -> str:
    """Returns the kind of a caller as one word, which is also the `caller_kind` of runs."""
    match caller:
        case Account():
            return "dashboard"
        case AppKey():
            return "function"
        case EndUser():
            return "end_user"
        case ScopedKey():
            return "scoped_key"
    return "anonymous"


def encode_caller(caller: Caller, voucher: tuple[str, str] | None = None) -> dict[str, Any]:
    """Encodes a caller so that it can be restored: who acts, and separately the key that vouches for them.

    voucher: the account that has this done as a user, and the organisation that it must still belong to then.
    """
    names = ("app_id", "account_id", "organisation_id", "user_id", "role", "key_id")
    fields = {name: getattr(caller, name, None) for name in names} | {"kind": kind_of(caller)}
    if isinstance(caller, AppKey):
        fields["gateway"] = caller.gateway
    if isinstance(caller, Account):
        fields["substrate"] = caller.substrate
    if isinstance(caller, ScopedKey):
        fields["scopes"] = sorted(caller.scopes)
    if voucher is not None:
        fields["account_id"], fields["organisation_id"] = voucher
    return fields


def find_voucher(proposer: Mapping[str, Any]) -> tuple[str, str] | None:
    """Returns the voucher with which a user was encoded, if there was one."""
    is_vouched = proposer.get("kind") == "end_user" and proposer["account_id"] is not None
    return (proposer["account_id"], proposer["organisation_id"]) if is_vouched else None


_FIND_ROLE = select(members.c.role).where(
    members.c.account_id == bindparam("account"), members.c.organisation_id == bindparam("organisation")
)


@cache
def _select_live_key(has_budget_column: ColumnElement[bool]) -> Select[Any]:
    """Builds the query for a live key. It is built once, because each run uses it."""
    is_live = (api_keys.c.id == bindparam("key"), api_keys.c.revoked_at.is_(None))
    return select(api_keys, has_budget_column).where(*is_live)


async def restore_caller(
    fetch: Fetch,
    credits_: Credits,
    proposer: dict[str, Any],
    now: datetime,
) -> Caller:
    """Restores the caller who acts, with the present limits of their key.

    Raises InvalidApiKey if the key that vouches was revoked or has expired, Forbidden if the account that vouches
    for a user has left. What the caller itself may do is asked again at each call.
    """
    limits = None
    if proposer["key_id"] is not None:
        keys = await fetch(_select_live_key(credits_.has_budget_column), {"key": proposer["key_id"]})
        if not keys:
            raise InvalidApiKey("The key that proposed this call has been revoked.")
        (key,) = keys
        if key.ends_at is not None and key.ends_at <= now:
            raise InvalidApiKey("The key that proposed this call has ended.")
        limits = Limits.of(key)
    caller = _actor(proposer, limits)
    if isinstance(caller, EndUser) and proposer["account_id"] is not None:
        parameters = {"account": proposer["account_id"], "organisation": proposer["organisation_id"]}
        if not await fetch(_FIND_ROLE, parameters):
            raise Forbidden("The account that acted as a user in this call has left the organisation.")
    return caller


def _actor(proposer: dict[str, Any], limits: Limits | None) -> Caller:
    """Builds the caller. Raises Forbidden for a row of an older version, which did not say who acts."""
    key_id = proposer["key_id"]
    match proposer.get("kind"):
        case "dashboard":
            substrate = proposer.get("substrate", False)
            return Account(proposer["account_id"], proposer["organisation_id"], key_id, limits, substrate)
        case "function":
            gateway = proposer.get("gateway", False)
            return AppKey(proposer["app_id"], key_id, proposer["account_id"], limits, gateway)
        case "end_user":
            return EndUser(proposer["app_id"], proposer["user_id"], proposer["role"], key_id, limits)
        case "scoped_key":
            scopes = frozenset(proposer["scopes"])
            return ScopedKey(proposer["account_id"], proposer["organisation_id"], key_id, scopes, limits)
        case "anonymous":
            return Anonymous(proposer["app_id"])
    raise Forbidden("An older version of the server stored this call, without who acts in it. Propose it again.")


async def find_key_name(call: Call, proposer: dict[str, Any]) -> str | None:
    """Returns the name of a key; None if it was revoked."""
    query = select(api_keys.c.name).where(api_keys.c.id == proposer["key_id"], api_keys.c.revoked_at.is_(None))
    key_name: str | None = (await call.execute(query)).scalar()
    return key_name


async def get_owner(call: Call) -> tuple[str, str]:
    """Returns the ids of the organisation and the account that a proposal belongs to."""
    caller = call.caller
    if call.context.step is not None:
        return call.context.step.organisation_id, call.context.step.account_id
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
