"""What was set aside for calls whose process is gone comes back."""

from baobab.tools.ai.toolset import ai
from baobab.tools.jobs import Job


@ai.job(every=30)
async def credits_sweep(job: Job) -> None:
    """Release reservations that are past their time."""
    await job.registry.services.credits.sweep()
