"""The jobs of billing: reservations of processes that died are released."""

from baobab.tools.billing.ledger.budgets import BudgetPeriod
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.toolset import billing
from baobab.tools.core import Job
from baobab.tools.core.jobs import Event


@billing.job(every=30, in_copies=True)
async def credits_sweep(job: Job) -> None:
    """Releases expired reservations."""
    await job.services.part(Credits).sweep()


_PERIODS: tuple[BudgetPeriod, ...] = ("day", "month")


@billing.job(on="app.deleted")
async def billing_forget_app(job: Job, event: Event) -> None:
    """Deletes the budgets of an app that was deleted."""
    assert event.app_id is not None
    organisation: str | None = event.data.get("organization_id")
    if organisation is not None:
        for period in _PERIODS:
            await job.services.part(Credits).delete_budget(organisation, "app", event.app_id, period)
