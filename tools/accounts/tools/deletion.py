"""The tool that deletes an account."""

import json
from typing import Any

from sqlalchemy import delete, func, select

from baobab.tools.accounts.errors import AccountHasApps, AccountOwnsOrganisations, FirstAccountStays, WrongPassword
from baobab.tools.accounts.schemas import AccountDeleted
from baobab.tools.accounts.tools.accounts import verify_own_password
from baobab.tools.accounts.toolset import accounts
from baobab.tools.core import AnyAccount, Audit, Call, Guard, Mcp
from baobab.tools.core.auth import keys
from baobab.tools.core.auth.membership import select_memberships
from baobab.tools.core.auth.passwords import AnyPassword
from baobab.tools.core.auth.roles import APPROVER
from baobab.tools.core.auth.tables import accounts as rows
from baobab.tools.core.auth.tables import api_keys, apps, members, organisations


async def _list_memberships(call: Call) -> list[Any]:
    """Returns the account's organisations. Raises what keeps the account from being deleted."""
    account_id = call.account.account_id
    first_query = select(rows.c.id).order_by(rows.c.created_at, rows.c.id).limit(1)
    if (await call.execute(first_query)).scalar() == account_id:
        raise FirstAccountStays
    memberships = list((await call.execute(select_memberships(account_id))).all())
    only_owned: list[str] = []
    for row in memberships:
        owners = select(func.count()).where(members.c.organisation_id == row.id, members.c.role == "owner")
        if not row.personal and row.role == "owner" and (await call.execute(owners)).scalar() == 1:
            only_owned.append(row.name)
        own_apps = select(func.count()).where(apps.c.organisation_id == row.id)
        if _is_own(row) and (await call.execute(own_apps)).scalar():
            raise AccountHasApps(f"The apps of {json.dumps(row.name)}, your own organisation, are still there.")
    if only_owned:
        names = ", ".join(json.dumps(name) for name in only_owned)
        raise AccountOwnsOrganisations(f"You are the only owner of {names}.", details={"organizations": only_owned})
    return memberships


def _is_own(row: Any) -> bool:
    return bool(row.personal and row.role == "owner")


async def _preview_delete(call: Call, current_password: AnyPassword | None = None) -> str:
    memberships = await _list_memberships(call)
    key_count = await keys.count_live(call, api_keys.c.account_id == call.account.account_id)
    names = [json.dumps(row.name) for row in memberships if not _is_own(row)]
    leaving = f", leave {', '.join(names)}" if names else ""
    return f"It would delete your account{leaving}, and revoke {key_count} API keys."


@accounts.tool(
    "DELETE /me",
    access=AnyAccount(APPROVER, keys=False),
    effect="destructive",
    raises=(FirstAccountStays, AccountHasApps, AccountOwnsOrganisations, WrongPassword),
    audit=Audit("account.delete", category="auth", action="delete", resource="account"),
    mcp=Mcp(offered=False),
    guard=Guard(preview=_preview_delete, grants=True),
)
async def platform_delete(call: Call, current_password: AnyPassword | None = None) -> AccountDeleted:
    """Delete the account for good, with its sessions, passkeys, notification settings, API keys and open invitations.

    It leaves its organisations, and its personal one is deleted. What it did there stays, without its name. An account
    that is the only owner of an organisation, or whose personal one has apps, is not deleted.

    current_password: the present password, if the account has one.
    """
    account_id = call.account.account_id
    await verify_own_password(call, account_id, current_password)
    memberships = await _list_memberships(call)
    # In one order, so that two who delete accounts at once do not wait for each other.
    for organisation_id in sorted(row.id for row in memberships):
        await call.hold(organisation_id)
    for row in await _list_memberships(call):
        if _is_own(row):
            await keys.revoke(call, api_keys.c.organisation_id == row.id)
            await call.execute(delete(organisations).where(organisations.c.id == row.id))
            await call.services.notices.publish(call.unit, "organisation", row.id)
        else:
            await call.invoke("organisations_remove_member", organization_id=row.id, account_id=account_id)
    await keys.revoke(call, api_keys.c.account_id == account_id)
    await call.execute(delete(rows).where(rows.c.id == account_id))
    for topic in ("account", "members", "console"):
        await call.services.notices.publish(call.unit, topic, account_id)
    call.audit.resource_id = account_id
    return {"deleted": True, "id": account_id}
