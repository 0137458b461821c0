"""Room in a plan: what is added to an organisation is counted in the transaction that adds it."""

from typing import Any

from sqlalchemy import Select, bindparam, select

from baobab.storage.sql.database import Unit
from baobab.storage.sql.prepared_statements import Result
from baobab.tools.core.auth.tables import accounts, members, organisations
from baobab.tools.core.errors import Forbidden
from baobab.tools.core.limits.plans import PLANS, Plan


class PlanLimitReached(Forbidden):
    code = "plan_limit_exceeded"
    flat = True
    summary = "The organisation's plan does not allow any more of these."
    remediation = "Use what there is, or ask the operator for another plan (`baobab plan`)."


class ProjectLimitReached(PlanLimitReached):
    code = "project_limit_reached"
    summary = "The organisation has as many apps as its plan allows."
    remediation = "Work in an app that there is, or ask the operator for another plan (`baobab plan`)."


# Built once: to build a statement takes as long as to run it.
HELD_PLAN = (
    select(organisations.c.plan).where(organisations.c.id == bindparam("organisation")).with_for_update(key_share=True)
)
"""Locks the plan of an organisation: others who add something wait, and count afterwards. `read_plan` reads it."""
_FIRST_ACCOUNT = select(accounts.c.id).order_by(accounts.c.created_at, accounts.c.id).limit(1).scalar_subquery()
_OPERATORS_OWN: Select[Any] = (
    select(organisations.c.id)
    .join(members, members.c.organisation_id == organisations.c.id)
    .where(members.c.account_id == _FIRST_ACCOUNT, members.c.role == "owner", organisations.c.personal)
)
"""The personal organisation of the first account, which the first start has made."""


async def hold_plan(unit: Unit, organisation_id: str) -> Plan:
    """Returns the plan of an organisation and locks it: others who add something wait, and count afterwards."""
    return read_plan(await unit.execute(HELD_PLAN, {"organisation": organisation_id}))


def read_plan(result: Result) -> Plan:
    """Returns the plan in the result of `HELD_PLAN`. Raises NoResultFound if the organisation has been deleted."""
    return PLANS[result.one().plan]


def require_room(
    what: str, plan: Plan, cap: int | None, count: int, more: int = 1, error: type[PlanLimitReached] = PlanLimitReached
) -> None:
    """Raises PlanLimitReached if `more` of something do not fit under the limit.

    count: taken in the transaction that adds them, so that concurrent callers cannot exceed the limit together.
    """
    if cap is not None and count + more > cap:
        details = {"plan": plan.name, "what": what, "limit": cap, "current": count}
        raise error(f"The plan {plan.name} has room for {cap} {what}; there are {count}.", details=details)


async def cap_of_apps(unit: Unit, organisation_id: str, plan: Plan) -> int | None:
    """Returns how many apps an organisation may have; None for the organisation that operates the server."""
    if plan.apps is None:
        return None
    operators_own = (await unit.execute(_OPERATORS_OWN)).scalar()
    return None if operators_own == organisation_id else plan.apps
