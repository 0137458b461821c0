"""Who is told of a call that waits."""

from typing import Any

from sqlalchemy import select

from baobab.storage.database import Execute
from baobab.tools.approvals.notices.tables import notice_settings
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.deciders import ADMIN, Decider, PendingDecision
from baobab.tools.core.auth.roles import Role
from baobab.tools.core.auth.tables import members


def may_decide(approval: Any, account_id: str, role: Role) -> bool:
    """Whether a member may decide about a call."""
    return Decider(Account(account_id, approval.organisation_id), role).may(PendingDecision.of_approval(approval))


def is_told(approval: Any, account_id: str, role: Role, which: str) -> bool:
    """Whether a member is told of a call.

    which: `all` that they may decide; or `mine`, without what they may decide only because they run the organisation.
    """
    if not may_decide(approval, account_id, role):
        return False
    pending = PendingDecision.of_approval(approval)
    return which == "all" or pending.approvers.of == ADMIN or may_decide(approval, account_id, "member")


async def list_recipients(execute: Execute, approval: Any) -> list[Any]:
    """Lists the settings of those who are told of a call: members who have set up notices and may decide about it."""
    query = select(notice_settings, members.c.role).join(members, members.c.account_id == notice_settings.c.account_id)
    rows = await execute(query.where(members.c.organisation_id == approval.organisation_id))
    return [row for row in rows if is_told(approval, row.account_id, row.role, row.which)]


async def load_roles(execute: Execute, account_id: str) -> dict[str, Role]:
    """Returns the roles of an account by organisation."""
    query = select(members.c.organisation_id, members.c.role).where(members.c.account_id == account_id)
    return {row.organisation_id: row.role for row in await execute(query)}
