"""The jobs of custom domains: each name is checked when its time has come, an active one every day."""

from datetime import timedelta

from sqlalchemy import select, update

from baobab.runtime.net.record_resolver import RecordResolver
from baobab.tools.core import AppNotFound, Job
from baobab.tools.core.auth.tables import apps, custom_domains
from baobab.tools.domains.findings import look
from baobab.tools.domains.hostnames import build_target
from baobab.tools.domains.states import find_domain, record_findings
from baobab.tools.domains.toolset import domains

_ROUND = 500
_AGAIN = timedelta(hours=1)
"""When a name is looked at again whose check does not end."""
_columns = custom_domains.c


@domains.job(drop=True)
async def domains_check(job: Job, app_id: str, domain_id: str) -> None:
    """Checks the records of a custom domain."""
    services = job.services
    row = await find_domain(services.database.execute, app_id, domain_id)
    if row is None:
        return
    try:
        app = await services.directory.app(app_id)
    except AppNotFound:
        return
    target = build_target(services.options, app.subdomain)
    findings = await look(services.part(RecordResolver), row.hostname, row.method, row.token, target)
    async with job.writing(last=True, lock=app_id) as unit:
        await record_findings(unit, services, row, findings)


@domains.job(every=60.0)
async def domains_sweep(job: Job) -> None:
    """Has the custom domains checked whose time has come."""
    services = job.services
    now = services.clock.now()
    query = (
        select(_columns.id, _columns.app_id, _columns.next_check_at, apps.c.organisation_id)
        .join(apps, apps.c.id == _columns.app_id)
        .where(_columns.next_check_at <= now)
        .order_by(_columns.next_check_at, _columns.id)
        .limit(_ROUND)
    )
    for due in (await services.database.execute(query)).all():
        async with job.writing(lock=due.app_id) as unit:
            is_it = (_columns.id == due.id, _columns.next_check_at == due.next_check_at)
            taken = await unit.execute(update(custom_domains).where(*is_it).values(next_check_at=now + _AGAIN))
            if taken.rowcount:
                arguments = {"app_id": due.app_id, "domain_id": due.id}
                job_id = f"domain:{due.id}:{due.next_check_at:%Y%m%dT%H%M%S}"
                await services.jobs.enqueue(
                    unit, domains_check.__name__, arguments, job_id=job_id, tenant=due.organisation_id
                )
