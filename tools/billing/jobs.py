"""What billing does by itself: money that was set aside for calls whose process is gone comes back."""

from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.toolset import billing
from baobab.tools.core.job import Job


@billing.job(every=30)
async def credits_sweep(job: Job) -> None:
    """Release reservations that are past their time."""
    await job.services.part(Credits).sweep()
