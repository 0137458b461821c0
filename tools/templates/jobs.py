"""The jobs of clones: they make them, tell the template's owner, and forget them after a while."""

import hmac
from datetime import timedelta
from hashlib import sha256

from pydantic_core import to_json
from sqlalchemy import delete, select

from baobab.runtime.net.deliveries import send
from baobab.tools.core import Job, RetryLater
from baobab.tools.core.app_data import erase_app
from baobab.tools.core.auth.tables import apps
from baobab.tools.templates.cloner import Cloner
from baobab.tools.templates.tables import clone_jobs, clone_webhooks, seal_context
from baobab.tools.templates.toolset import templates

EVENT = "clone_completed"
_MOST_TURNS = 3
_PAUSES = (10.0, 120.0)
_KEPT = timedelta(days=90)
_ELSEWHERE_SECONDS = 300.0


# Two at once, so that clones of large apps leave room for other jobs.
@templates.job(attempts=1000, at_once=2)
async def clones_advance(job: Job, clone_job_id: str) -> None:
    """Make the remaining steps of a clone."""
    async with job.database.reading() as connection:
        row = (await connection.execute(select(clone_jobs).where(clone_jobs.c.id == clone_job_id))).first()
    if row is not None:
        await Cloner(job, row).advance()


@templates.job(attempts=1000)
async def clones_discard(job: Job, app_id: str, region: str) -> None:
    """Remove what is left of a clone that has failed."""
    stores = job.services.regions.get(region)
    if stores is None:
        raise RetryLater(_ELSEWHERE_SECONDS, f"the region {region} is not served here")
    async with job.database.reading() as connection:
        is_there = (await connection.execute(select(apps.c.id).where(apps.c.id == app_id))).first() is not None
    if not is_there:
        await erase_app(job.registry.toolsets, stores, app_id)


@templates.job(drop=True)
async def clones_tell(job: Job, clone_job_id: str, turn: int) -> None:
    """Tell the owner of a template that it was cloned."""
    services, now = job.services, job.services.clock.now()
    async with job.database.reading() as connection:
        row = (await connection.execute(select(clone_jobs).where(clone_jobs.c.id == clone_job_id))).first()
        if row is None:
            return
        query = select(clone_webhooks, apps.c.organisation_id).join(apps, apps.c.id == clone_webhooks.c.id)
        webhook = (await connection.execute(query.where(clone_webhooks.c.id == row.source_app_id))).first()
    if webhook is None:
        return
    secret = services.vault.open(webhook.secret, seal_context(clone_webhooks, "secret", webhook.id))
    event = {
        "event": EVENT,
        "job_id": row.id,
        "source_app_id": row.source_app_id,
        "dest_app_id": row.dest_app_id,
        "dest_region": row.dest_region,
        "completed_at": row.completed_at,
    }
    body = to_json(event)
    headers = {
        "content-type": "application/json",
        "idempotency-key": row.id,
        "x-platform-event": EVENT,
        "x-platform-signature": f"sha256={hmac.new(secret, body, sha256).hexdigest()}",
    }
    attempt = await send(services.http_client, webhook.url, headers, body, turn - 1, now)
    if attempt.values["error"] is None or turn >= _MOST_TURNS:
        return
    async with job.writing(last=True) as unit:
        arguments = {"clone_job_id": clone_job_id, "turn": turn + 1}
        delay = _PAUSES[turn - 1]
        await services.jobs.enqueue(unit, "clones_tell", arguments, delay=delay, tenant=webhook.organisation_id)


@templates.job(every=86_400, in_copies=True)
async def clones_forget(job: Job) -> None:
    """Forget the jobs of clones that ended 90 days ago."""
    async with job.database.writing(lock=None) as connection:
        ended_before = job.services.clock.now() - _KEPT
        await connection.execute(delete(clone_jobs).where(clone_jobs.c.completed_at < ended_before))
