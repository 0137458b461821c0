"""Membership: creates organisations and reads roles, in the caller's own transaction."""

from typing import Any, cast

from sqlalchemy import Select, insert, select

from baobab.storage.sql.database import Execute
from baobab.tools.core.auth.callers import Account, AppKey
from baobab.tools.core.auth.deciders import Decider
from baobab.tools.core.auth.roles import Role, require_role
from baobab.tools.core.auth.tables import members, organisations
from baobab.tools.core.call import Call
from baobab.tools.core.errors import Forbidden
from baobab.tools.core.services import Services

UNNAMED = "My organisation"
"""The name of the first account's organisation until somebody gives it one."""


async def create_organisation_row(
    execute: Execute, services: Services, name: str, owner_id: str, *, personal: bool
) -> dict[str, Any]:
    """Inserts an organisation with one owner and returns its row.

    No notice: nobody can have asked for an id that did not exist.
    """
    row = {
        "id": services.ids.uuid(),
        "name": name,
        "personal": personal,
        "plan": services.options.default_plan,
        "created_at": services.clock.now(),
    }
    await execute(insert(organisations), row)
    await services.credits.open_account(execute, row)
    member = {"organisation_id": row["id"], "account_id": owner_id, "role": "owner", "created_at": row["created_at"]}
    await execute(insert(members), member)
    return row


def select_memberships(account_id: str) -> Select[Any]:
    """Lists the organisations of an account with its role in each, its personal one first."""
    return (
        select(organisations, members.c.role)
        .join(members, members.c.organisation_id == organisations.c.id)
        .where(members.c.account_id == account_id)
        .order_by(
            (organisations.c.personal & (members.c.role == "owner")).desc(),
            organisations.c.created_at,
            organisations.c.id,
        )
    )


async def load_role(call: Call, organisation_id: str, account_id: str) -> Role | None:
    """Returns the role as this transaction sees it. Changes rely on it, for the directory's may be stale."""
    query = select(members.c.role).where(
        members.c.organisation_id == organisation_id, members.c.account_id == account_id
    )
    return cast("Role | None", (await call.execute(query)).scalar())


async def decider_of(call: Call, organisation_id: str) -> Decider:
    """Returns the caller with the role that this transaction sees."""
    caller = call.caller
    if not isinstance(caller, (Account, AppKey)) or caller.account_id is None:
        return Decider(caller)
    if isinstance(caller, Account) and caller.key_id and caller.organisation_id != organisation_id:
        return Decider(caller)
    query = select(members.c.role, members.c.app_ids).where(
        members.c.organisation_id == organisation_id, members.c.account_id == caller.account_id
    )
    member = (await call.execute(query)).first()
    return Decider(caller) if member is None else Decider(caller, member.role, read_app_ids(member))


def read_app_ids(member: Any) -> frozenset[str] | None:
    """Returns the only apps about whose calls a member decides, from the row of `members`; None for all."""
    return None if member.app_ids is None else frozenset(member.app_ids)


async def resolve_organisation_id(call: Call, organisation_id: str | None, role: Role = "member") -> str:
    """Returns the organisation to act in, where the caller has the role: the requested one, else the caller's own."""
    account = call.account
    if organisation_id is None or organisation_id == account.organisation_id:
        if role != "member":
            require_role(await call.services.directory.role(account.organisation_id, account.account_id), role)
        return account.organisation_id
    if account.key_id is not None:
        raise Forbidden("An API key is pinned to its organisation.")
    require_role(await call.services.directory.role(organisation_id, account.account_id), role)
    # Instead of the caller's own, and not with it: two who act in each other's would wait for each other.
    call.unit.lock_for(organisation_id)
    return organisation_id
