"""Jobs of notices."""

from baobab.tools.approvals.notices.sending import (
    deliver_message,
    escalate_notice,
    forget_old,
    plan_notices,
    send_due_notices,
)
from baobab.tools.approvals.notices.toolset import notices
from baobab.tools.core import Job


@notices.job(drop=True)
async def notices_plan(job: Job, approval_id: str) -> None:
    """Writes down who is told of a call that waits."""
    await plan_notices(job, approval_id)


@notices.job(attempts=1000, drop=True)
async def notices_send(job: Job, account_id: str) -> None:
    """Notification of what waits for a person."""
    await send_due_notices(job, account_id)


@notices.job(drop=True)
async def notices_escalate(job: Job, approval_id: str, account_id: str) -> None:
    """Tells another member of what a person has not decided in time."""
    await escalate_notice(job, approval_id, account_id)


@notices.job(attempts=1000, drop=True)
async def notices_deliver(job: Job, message_id: str) -> None:
    """Delivers a message to a channel."""
    await deliver_message(job, message_id)


@notices.job(every=3600.0, in_copies=True)
async def notices_forget(job: Job) -> None:
    """Forgets old messages."""
    await forget_old(job.services)
