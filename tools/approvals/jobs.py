"""Jobs of approvals."""

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.storage.sql.database import Database
from baobab.tools.approvals.errors import Unfinished
from baobab.tools.approvals.executor import MOST_ATTEMPTS
from baobab.tools.approvals.inbox.holding import count_held, forget_past
from baobab.tools.approvals.service import service_of
from baobab.tools.approvals.toolset import approvals
from baobab.tools.core import Job, Services
from baobab.tools.core.job import LEFT_UNDONE


async def _drop_executions(services: Services, database: Database, jobs: Sequence[Mapping[str, Any]]) -> None:
    del database
    for each in jobs:
        await service_of(services).refuse_outdated(each["approval_id"], Unfinished(LEFT_UNDONE), status="approved")


# The executor itself gives up, and says so to whoever waits for the call.
@approvals.job(attempts=10 * MOST_ATTEMPTS, approved=True, drop=_drop_executions)
async def approvals_execute(job: Job, approval_id: str) -> None:
    """Make a call that was approved."""
    await service_of(job.services).executor.execute(job, approval_id)


@approvals.job(approved=True)
async def approvals_count_held(job: Job, held_id: str) -> None:
    """Make a decision count that was held for ten seconds."""
    await count_held(job, held_id)


@approvals.job(every=60)
async def approvals_tend(job: Job) -> None:
    """Expire calls that nobody has decided in time, and erase old ones."""
    await service_of(job.services).tend()
    await forget_past(job.services.database, job.services.clock)
