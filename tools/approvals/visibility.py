"""Which approvals are a caller's business: those that they proposed, may decide about, or answer for as admins."""

from typing import Any

from sqlalchemy import and_, or_, select

from baobab.tools.approvals.errors import ApprovalNotFound
from baobab.tools.approvals.tables import approvals as rows
from baobab.tools.core import Account, AppKey, Call, EndUser, Forbidden
from baobab.tools.core.auth import proposers
from baobab.tools.core.auth.deciders import MEMBER, OWNER_OF_KEY, STARTER, USER, person
from baobab.tools.core.auth.membership import decider_of
from baobab.tools.core.auth.roles import APPROVER, rank


async def find_approval(call: Call, approval_id: str) -> Any:
    """Returns the row of an approval that the caller may see. Raises ApprovalNotFound for a stranger's as for none."""
    row = (await call.execute(select(rows).where(rows.c.id == approval_id))).first()
    if row is None:
        raise ApprovalNotFound
    caller = call.caller
    # A person follows the address of an approval from whichever organisation they work in; a key stays in its own.
    by_token = isinstance(caller, Account) and caller.key_id is None
    home = row.organisation_id if by_token or not isinstance(caller, Account) else caller.organisation_id
    try:
        visible = select(rows.c.id).where(rows.c.id == approval_id, await select_visible(call, home))
    except Forbidden as exc:
        raise ApprovalNotFound from exc
    if (await call.execute(visible)).first() is None:
        raise ApprovalNotFound
    return row


async def select_visible(call: Call, organisation_id: str) -> Any:
    """Returns which approvals of an organisation are the caller's business."""
    caller = call.caller
    is_own = rows.c.proposer == proposers.proposer_name(caller)
    if caller.limits is None and isinstance(caller, (AppKey, EndUser)):
        of_app = and_(rows.c.app_id == caller.app_id, rows.c.run_id.is_not(None))
        if isinstance(caller, AppKey):
            return or_(is_own, of_app)
        own_runs = and_(rows.c.approvers == STARTER, rows.c.starter == person(caller))
        return or_(is_own, and_(of_app, or_(rows.c.approvers.in_((USER, f"role:{caller.role}")), own_runs)))
    if not isinstance(caller, Account) or caller.limits is not None:
        return is_own
    decider = await decider_of(call, organisation_id)
    role = decider.role
    if role is None:
        raise Forbidden("This account is not a member of the organisation.")
    of_organisation = rows.c.organisation_id == organisation_id
    if rank(role) >= rank("admin"):
        return of_organisation
    if role == APPROVER:
        # What Decider.may lets them decide about, waiting and decided.
        of_runs = and_(of_organisation, rows.c.run_id.is_not(None), rows.c.approvers == MEMBER)
        return of_runs if decider.app_ids is None else and_(of_runs, rows.c.app_id.in_(sorted(decider.app_ids)))
    is_starter = and_(rows.c.approvers.in_((STARTER, OWNER_OF_KEY)), rows.c.starter == person(caller))
    return and_(of_organisation, or_(rows.c.account_id == caller.account_id, rows.c.approvers == MEMBER, is_starter))
