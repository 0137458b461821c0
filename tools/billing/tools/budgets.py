"""/dashboard/billing/budgets: what an app or a key may spend in a day or a month."""

from typing import Annotated

from pydantic import Field
from sqlalchemy import select

from baobab.tools.billing.errors import BudgetNotFound, SubjectNotFound, TooManyBudgets
from baobab.tools.billing.ledger.budgets import Budget, BudgetPeriod, BudgetSubject
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.schemas import BudgetDeleted, BudgetRow, Budgets, BudgetSet, Kind
from baobab.tools.billing.standing import OrganizationId, resolve_organisation
from baobab.tools.billing.toolset import billing
from baobab.tools.core import AnyAccount, Audit, Call, Guard, Rest, Text
from baobab.tools.core.auth.tables import api_keys, apps
from baobab.tools.core.limits.money import Usd, dollars, usd

MOST = 1000

Subject = Annotated[Kind, Field(description="What is limited: an app, or an API key.")]
SubjectId = Annotated[
    str, Text(36, min_length=1), Field(description="The app's or the key's id.", examples=["app_1a2b3c4d5e6f"])
]
Period = Annotated[BudgetPeriod, Field(description="A day, or a calendar month, both in UTC.")]


@billing.tool(
    "GET /billing/budgets",
    access=AnyAccount(),
    effect="read",
)
async def billing_budgets(call: Call, org_id: OrganizationId | None = None) -> Budgets:
    """List an organisation's budgets, with what is spent of each."""
    organisation = await resolve_organisation(call, org_id)
    return {"budgets": [render_budget(budget) for budget in await call.services.part(Credits).budgets(organisation)]}


@billing.tool(
    "PUT /billing/budgets/{subject}/{subject_id}/{period}",
    access=AnyAccount(named_role="admin"),
    effect="write",
    raises=(SubjectNotFound, TooManyBudgets),
    audit=Audit("billing.budget.set", resource="budget"),
    rest=Rest(
        query=("org_id",),
        examples={"subject": "app", "subject_id": "app_1a2b3c4d5e6f", "period": "day", "most_usd": "2.50"},
    ),
    guard=Guard(
        # A key whose limits somebody has chosen does not choose what it may spend.
        grants=True
    ),
)
async def billing_set_budget(
    call: Call,
    subject: Subject,
    subject_id: SubjectId,
    period: Period,
    most_usd: Usd,
    org_id: OrganizationId | None = None,
) -> BudgetSet:
    """Limit what an app or a key may spend in each day or month; admins and owners only. Takes effect at once.

    What was spent before in this period counts. 0 refuses every call that costs anything. An agent has its daily budget
    among its settings: `daily_budget_usd` of op:agents_create and op:agents_update.

    most_usd: US dollars, with up to 9 decimals, exactly; a number or its text.
    """
    organisation = await resolve_organisation(call, org_id, "admin")
    await _require_own(call, organisation, subject, subject_id)
    credits_ = call.services.part(Credits)
    # A caller who sets another budget at the same time waits until this call is committed.
    budgets = await credits_.budgets(organisation, unit=call.unit)
    existing_keys = {(budget.subject, budget.subject_id, budget.period) for budget in budgets}
    if (subject, subject_id, period) not in existing_keys and len(budgets) >= MOST:
        raise TooManyBudgets(f"The organisation has {MOST} budgets.", details={"limit": MOST})
    budget = await credits_.set_budget(organisation, subject, subject_id, period, most_usd, unit=call.unit)
    await _publish_change(call, subject, subject_id, period)
    call.audit.data["most_usd"] = dollars(most_usd)
    return {"budget": render_budget(budget)}


@billing.tool(
    "DELETE /billing/budgets/{subject}/{subject_id}/{period}",
    access=AnyAccount(named_role="admin"),
    effect="destructive",
    raises=(BudgetNotFound,),
    audit=Audit("billing.budget.delete", action="delete", resource="budget"),
    guard=Guard(grants=True),
)
async def billing_delete_budget(
    call: Call, subject: Subject, subject_id: SubjectId, period: Period, org_id: OrganizationId | None = None
) -> BudgetDeleted:
    """Delete a budget; admins and owners only. Then only the organisation's credits limit the app or key."""
    organisation = await resolve_organisation(call, org_id, "admin")
    # The app or key need not exist any more: the budget of a deleted one can be deleted too.
    if not await call.services.part(Credits).delete_budget(organisation, subject, subject_id, period, unit=call.unit):
        raise BudgetNotFound
    await _publish_change(call, subject, subject_id, period)
    return {"deleted": True}


def render_budget(budget: Budget) -> BudgetRow:
    return {
        "subject": "app" if budget.subject == "app" else "key",
        "subject_id": budget.subject_id,
        "period": budget.period,
        "limit_usd": usd(budget.most),
        "spent_usd": usd(budget.spent_nanos),
        "reserved_usd": usd(budget.reserved_nanos),
        "resets_at": budget.resets_at,
    }


async def _require_own(call: Call, organisation: str, subject: BudgetSubject, subject_id: str) -> None:
    """SubjectNotFound unless it is an app or a live key of the organisation."""
    table = apps if subject == "app" else api_keys
    own_query = select(table.c.id).where(table.c.id == subject_id, table.c.organisation_id == organisation)
    if subject == "key":
        own_query = own_query.where(api_keys.c.revoked_at.is_(None))
    if (await call.execute(own_query)).first() is None:
        raise SubjectNotFound


async def _publish_change(call: Call, subject: BudgetSubject, subject_id: str, period: BudgetPeriod) -> None:
    if subject == "key":
        # A key with a budget may call fewer tools (tools/core/auth/key_limits.py), so cached keys are dropped.
        digests = await call.execute(select(api_keys.c.digest).where(api_keys.c.id == subject_id))
        for digest in digests.scalars():
            await call.services.notices.publish(call.unit, "key", digest)
        await call.services.notices.publish(call.unit, "tools", f"key:{subject_id}")
    call.audit.resource_id = f"{subject}/{subject_id}/{period}"
    call.audit.app_id = subject_id if subject == "app" else None
