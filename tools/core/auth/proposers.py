"""Proposers: who made a call that waits for approval, how that is stored, and how the caller is restored.

A call or a run may wait while the server is upgraded, so the stored form has a version, and this module reads every
version that a server may have written:

- 0, without `version` and `kind` (until November 2026): the key, and the user for whom it acts. The rest is in the
  key's row. Whoever came without a key is named by their ids.
- 1 (also stored without `version`, but with `kind`): the kind of the caller and all ids.

A change of the form is a new version with a reader of its own; the readers of the former ones stay.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import cache
from typing import Any

from sqlalchemy import ColumnElement, Select, bindparam, select

from baobab.storage.sql.database import Execute
from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser, Limits, ScopedKey
from baobab.tools.core.auth.tables import api_keys, members
from baobab.tools.core.call import Call
from baobab.tools.core.errors import Conflict, Forbidden, InvalidApiKey
from baobab.tools.core.guard.steps import Step
from baobab.tools.core.limits.credits import Credits

VERSION = 1
"""The version of the form in which `encode_caller` stores a caller."""


class CallerUnreadable(Conflict):
    """The stored caller is of a form that this version does not read."""

    code = "STORED_CALL_UNREADABLE"
    summary = "Another version of the server stored this, in a form that this one does not read."
    remediation = (
        "If the servers are being upgraded, wait until all of them run the new version. Otherwise reject the call, and "
        "have it made again."
    )


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
    fields = {name: getattr(caller, name, None) for name in names} | {"kind": kind_of(caller), "version": VERSION}
    if isinstance(caller, AppKey):
        fields["gateway"] = caller.gateway
    if isinstance(caller, Account):
        fields["substrate"] = caller.substrate
    if isinstance(caller, ScopedKey):
        fields["scopes"] = sorted(caller.scopes)
    if voucher is not None:
        fields["account_id"], fields["organisation_id"] = voucher
    return fields


def list_identities(caller: Caller) -> list[dict[str, Any]]:
    """Lists what identifies a caller in the digest of a call: as this version and as each former one wrote it.

    A call that was proposed before an upgrade is found again by one of the former. These never change.
    """
    current = encode_caller(caller)
    del current["version"]
    former: dict[str, Any] = {"key_id": current["key_id"]}
    if isinstance(caller, EndUser):
        former |= {"user_id": caller.user_id, "role": caller.role}
    if former["key_id"] is None and isinstance(caller, (EndUser, Anonymous)):
        former["app_id"] = caller.app_id
    elif former["key_id"] is None and isinstance(caller, Account):
        former |= {"account_id": caller.account_id, "organisation_id": caller.organisation_id}
    return [current, former]


def find_user(proposer: Mapping[str, Any]) -> str | None:
    """Returns the id of the app's user who acts; None if none does."""
    is_user = proposer.get("kind", "end_user") == "end_user"
    user_id: str | None = proposer.get("user_id") if is_user else None
    return user_id


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
    execute: Execute,
    credits_: Credits,
    proposer: dict[str, Any],
    now: datetime,
) -> Caller:
    """Restores the caller who acts, with the present limits of their key.

    Raises InvalidApiKey if the key that vouches was revoked or has expired, Forbidden if the account that vouches
    for a user has left, CallerUnreadable for a form that this version does not know. What the caller itself may do is
    asked again at each call.
    """
    version = read_version(proposer)
    key: Any = None
    if proposer["key_id"] is not None:
        keys = (await execute(_select_live_key(credits_.has_budget_column), {"key": proposer["key_id"]})).all()
        if not keys:
            raise InvalidApiKey("The key that proposed this call has been revoked.")
        (key,) = keys
        if key.ends_at is not None and key.ends_at <= now:
            raise InvalidApiKey("The key that proposed this call has ended.")
    limits = None if key is None else Limits.of(key)
    caller = _build_caller(proposer if version else _complete_version_0(proposer, key), limits)
    if isinstance(caller, EndUser) and (voucher := find_voucher(proposer)) is not None:
        account_id, organisation_id = voucher
        membership = await execute(_FIND_ROLE, {"account": account_id, "organisation": organisation_id})
        if membership.first() is None:
            raise Forbidden("The account that acted as a user in this call has left the organisation.")
    return caller


def read_version(proposer: Mapping[str, Any]) -> int:
    """Returns the version of a stored form. Raises CallerUnreadable if this version of the server does not read it."""
    version = proposer.get("version", 1 if "kind" in proposer else 0)
    if version not in (0, 1) or "key_id" not in proposer:
        raise CallerUnreadable
    return int(version)


def _complete_version_0(proposer: Mapping[str, Any], key: Any) -> dict[str, Any]:
    """Writes a caller of version 0 in the form of version 1. key: the row of its key; None if it has none."""
    fields: dict[str, Any] = {
        "app_id": None,
        "account_id": None,
        "organisation_id": None,
        "user_id": None,
        "role": "user",
    } | dict(proposer)
    if key is not None:
        fields |= {"app_id": key.app_id, "organisation_id": key.organisation_id}
        # An account in the form of a user is one that vouches, which version 0 did not have.
        fields |= {"account_id": None if "user_id" in proposer else key.account_id}
        fields |= {"scopes": key.scopes, "gateway": "ai:gateway" in key.scopes, "substrate": "substrate" in key.scopes}
    if "user_id" in proposer:
        kind = "end_user"
    elif key is not None:
        kind = "function" if key.app_id is not None else "dashboard" if "*" in key.scopes else "scoped_key"
    else:
        kind = "dashboard" if "account_id" in proposer else "anonymous"
    return fields | {"kind": kind}


def _build_caller(proposer: Mapping[str, Any], limits: Limits | None) -> Caller:
    """Builds the caller from the form of version 1. Raises CallerUnreadable if it is of no known kind."""
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
    raise CallerUnreadable


async def find_key_name(call: Call, proposer: dict[str, Any]) -> str | None:
    """Returns the name of a key; None if it was revoked."""
    query = select(api_keys.c.name).where(api_keys.c.id == proposer.get("key_id"), api_keys.c.revoked_at.is_(None))
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
