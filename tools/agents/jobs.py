"""The jobs of agents: they execute runs, continue them after decisions, end overdue ones and send webhooks."""

import contextlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic_core import to_json
from sqlalchemy import and_, func, or_, select, update

from baobab.runtime.agents.erasure import BATCH, UNUSED, erase_runs, sweep_runs
from baobab.runtime.agents.failures import RunTakenOver
from baobab.runtime.agents.job_kinds import ADVANCE, WEBHOOK
from baobab.runtime.agents.run_executor import RunExecutor
from baobab.runtime.agents.run_tree import fail_lost_run, request_cancel
from baobab.runtime.agents.tables import FROZEN, UNENDED, runs, webhook_secrets
from baobab.runtime.jobs.job_tables import jobs
from baobab.runtime.net.egress import EgressError
from baobab.runtime.net.webhooks import build_headers
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Database, Unit
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.redaction import redact_failure
from baobab.tools.agents.toolset import agents
from baobab.tools.core import AppNotFound, Job, RetryLater, Services
from baobab.tools.core.app_data import MOVE_ENDED
from baobab.tools.core.guard.steps import ENDED as APPROVAL_ENDED
from baobab.tools.core.jobs import Event

_ROUND = 500
_MADE = func.coalesce(runs.c.job_id, "") != FROZEN


async def _drop_runs(services: Services, database: Database, jobs_dropped: Sequence[Mapping[str, Any]]) -> None:
    """Cancels runs without telling their webhooks: what the original did with them is not known here."""
    is_one = (UNENDED, runs.c.id.in_([each["run_id"] for each in jobs_dropped]))
    async with database.writing(lock=None) as connection:
        await connection.execute(update(runs).where(*is_one).values(webhook_url=None))
    async with database.reading() as connection:
        rows = (await connection.execute(select(runs).where(*is_one))).all()
    for run in rows:
        await request_cancel(services, database, run)


@agents.job(attempts=1000, cancel="agents_runs_cancel", drop=_drop_runs)
async def agents_advance(job: Job, run_id: str) -> None:
    """Executes a run until it ends or pauses. If its worker is killed, another continues the run."""
    with contextlib.suppress(RunTakenOver):
        await RunExecutor(job, run_id).execute_run()


@agents.job(on=APPROVAL_ENDED)
async def agents_decided(job: Job, event: Event) -> None:
    """Continues a run after a call that it waited for has an outcome."""
    services = job.services
    run_id, approval_id = event.data["run_id"], event.data["approval_id"]
    try:
        app = await services.directory.app(event.app_id)
    except AppNotFound:
        return
    await _advance(services, services.stores_of(app.region).database, run_id, approval_id, app.organisation_id)


@agents.job(every=3)
async def agents_expire(job: Job) -> None:
    """Ends paused runs about which nobody has decided in time."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        overdue_query = select(runs.c.id, runs.c.organisation_id).where(
            UNENDED, runs.c.status == "paused", runs.c.paused_until <= services.clock.now(), _MADE
        )
        async with database.reading() as connection:
            overdue_runs = (await connection.execute(overdue_query.limit(_ROUND))).all()
        for run in overdue_runs:
            # The id is new in each round: a worker whose clock is behind may have decided that there is time left.
            await _advance(services, database, run.id, f"late:{job.id}", run.organisation_id)


@agents.job(every=30)
async def agents_tend(job: Job) -> None:
    """Continues runs that came with a move of their app, and ends those whose jobs used up their attempts.

    Erase those that have been kept for as long as they are to be.
    """
    services = job.services
    databases = list(dict.fromkeys(stores.database for stores in services.regions.values()))
    for database in databases:
        await _resume_runs(services, database)
        await _fail_lost_runs(services, database)
        await sweep_runs(services, database)
    if not services.closed_regions:
        # A run of a region that does not answer would look as if it had ended.
        await _withdraw_orphaned(services, databases)


async def _withdraw_orphaned(services: Services, databases: Sequence[Database]) -> None:
    """Withdraws proposals of runs that have ended; a worker that stood still may have made one late."""
    last = ""
    # It goes through all pages: the first may hold only runs that are still active.
    while True:
        run_ids = await services.approvals.list_runs_that_wait(last, _ROUND)
        if not run_ids:
            return
        last, ended_ids = run_ids[-1], set(run_ids)
        for database in databases:
            async with database.reading() as connection:
                alive = select(runs.c.id).where(UNENDED, runs.c.id.in_(ended_ids))
                ended_ids -= set((await connection.execute(alive)).scalars())
        for run_id in ended_ids:
            await services.approvals.abandon(run_id)


@agents.job(on=MOVE_ENDED)
async def agents_moved(job: Job, event: Event) -> None:
    """Continues the runs of an app after its move has ended, in the region where it now is."""
    services = job.services
    try:
        app = await services.directory.app(event.app_id)
    except AppNotFound:
        return
    await _resume_runs(services, services.stores_of(app.region).database)


async def _resume_runs(services: Services, database: Database) -> None:
    """Continues all runs of an app that have not ended; those that wait may have been decided during the move."""
    columns = (runs.c.id, runs.c.app_id, runs.c.organisation_id)
    resting = select(*columns).where(UNENDED, runs.c.job_id == FROZEN, FREEZES.is_thawed(runs.c.app_id))
    async with database.reading() as connection:
        rows = (await connection.execute(resting.limit(_ROUND))).all()
    for run_id, app_id, tenant in rows:
        is_run = (runs.c.app_id == app_id, runs.c.id == run_id)
        is_free = (*is_run, UNENDED, runs.c.job_id == FROZEN, FREEZES.is_thawed(runs.c.app_id))
        async with database.writing_unit(lock=app_id) as unit:
            if (await unit.execute(update(runs).where(*is_free).values(job_id=None))).rowcount:
                job_id = f"run:{run_id}:{services.ids.uuid()}"
                await services.jobs.enqueue(unit, ADVANCE, {"run_id": run_id}, job_id=job_id, tenant=tenant)


async def _fail_lost_runs(services: Services, database: Database) -> None:
    """Ends the runs whose job has used up its attempts."""
    first = and_(runs.c.status == "queued", jobs.c.id == "run:" + runs.c.id)
    given_up = and_(jobs.c.finished_at.is_not(None), jobs.c.error.is_not(None))
    query = select(runs).join(jobs, or_(jobs.c.id == runs.c.job_id, first)).where(UNENDED, given_up, _MADE)
    async with database.reading() as connection:
        rows = (await connection.execute(query.limit(_ROUND))).all()
    for run in rows:
        await fail_lost_run(services, database, run)


@agents.job()
async def agents_orphans(job: Job, run_id: str) -> None:
    """Ends the child runs of runs that have ended."""
    children = select(runs).where(UNENDED, runs.c.parent_run_id == run_id)
    async with job.database.reading() as connection:
        orphans = (await connection.execute(children)).all()
    for orphan in orphans:
        await request_cancel(job.services, job.database, orphan)


async def _advance(services: Services, database: Database, run_id: str, reason: str, tenant: str) -> None:
    """Enqueues the job that continues a run, once for each reason."""
    async with database.writing_unit(lock=None) as unit:
        await services.jobs.enqueue(unit, ADVANCE, {"run_id": run_id}, job_id=f"run:{run_id}:{reason}", tenant=tenant)


_AGAIN_SECONDS = 1.0


@agents.job(attempts=1000)
async def agents_erase(
    job: Job, app_id: str, person: str, until: str, agent_id: str | None = None, thread_id: str | None = None
) -> None:
    """Erases a person's runs that began before a moment. Those under way are cancelled and erased when they end."""
    services, conditions = (
        job.services,
        _deletion_filter(app_id, person, agent_id, thread_id, datetime.fromisoformat(until)),
    )
    async with job.database.reading() as connection:
        alive = (await connection.execute(select(runs).where(UNENDED, conditions))).all()
    for run in alive:
        await request_cancel(services, job.database, run)
    while True:
        query = select(runs.c.id).where(conditions, runs.c.finished_at.is_not(None), UNUSED).limit(BATCH)
        async with job.database.reading() as connection:
            run_ids = (await connection.execute(query)).scalars().all()
        if not run_ids:
            break
        await erase_runs(services, job.database, list(run_ids), with_thread_messages=True)
    if alive:
        raise RetryLater(_AGAIN_SECONDS, "runs are being cancelled")


def _deletion_filter(app_id: str, person: str, agent_id: str | None, thread_id: str | None, until: datetime) -> Any:
    conditions = [runs.c.app_id == app_id, runs.c.person == person, runs.c.created_at <= until]
    conditions += [runs.c.agent_id == agent_id] if agent_id is not None else []
    conditions += [runs.c.thread_id == thread_id] if thread_id is not None else []
    return and_(*conditions)


_SECONDS = 10.0


_TRIES = 5


_LONGEST_PAUSE_SECONDS = 300


_OUTSIDERS = ("end_user", "anonymous")


@agents.job(cancel=True)
async def agents_webhook(
    job: Job, run_id: str, tried: int = 0, approvals: Sequence[Mapping[str, Any]] | None = None
) -> None:
    """Sends the webhook of a run that has ended or paused, in up to five attempts with growing pauses.

    approvals: what a pause waits for. Once the run has ended, only its end is told.
    """
    async with job.database.reading() as connection:
        row: Any = (await connection.execute(select(runs).where(runs.c.id == run_id))).first()
        if row is None or row.webhook_url is None or (approvals and row.finished_at is not None):
            return
        of_app = webhook_secrets.c.app_id == row.app_id
        secret_row = (await connection.execute(select(webhook_secrets).where(of_app))).first()
    services = job.services
    event_id, sent_at = f"evt_{row.id.replace('-', '')}", services.clock.now()
    if approvals:
        event_id += f"_{approvals[0]['approval_id']}"
    body = to_json(_event(row, event_id, approvals))
    headers = build_headers(event_id, sent_at, body, _secrets(services.vault, secret_row, sent_at))
    headers["idempotency-key"] = event_id if approvals else row.id
    try:
        answer = await services.http_client.request(
            "POST", row.webhook_url, headers=headers, body=body, timeout=_SECONDS
        )
        status, was_accepted = answer.status, answer.status < 300
    except EgressError:
        status, was_accepted = None, False
    attempts = tried + 1
    async with job.writing(last=True) as unit:
        await _note(unit, row, event_id, attempts, status, sent_at if was_accepted else None)
        if not was_accepted and attempts < _TRIES:
            # A postponed job does not count as an attempt, so each attempt is a job of its own.
            retry_arguments: dict[str, Any] = {"run_id": run_id, "tried": attempts}
            retry_arguments |= {"approvals": approvals} if approvals else {}
            pause = min(2**attempts, _LONGEST_PAUSE_SECONDS)
            await services.jobs.enqueue(unit, WEBHOOK, retry_arguments, job_id=f"{job.id}:{attempts}", delay=pause)


def _event(run: Any, event_id: str, approvals: Sequence[Mapping[str, Any]] | None) -> dict[str, Any]:
    """Builds the body of a webhook; users and visitors get their run as they may see it."""
    # The run may have gone on since it paused.
    status = "paused" if approvals else run.status
    event = {"event_id": event_id, "type": f"run.{status}", "app_id": run.app_id, "agent": run.agent}
    event |= {"run_id": run.id, "status": status, "finished_at": run.finished_at}
    if approvals:
        return event | {"approvals": approvals}
    if run.status == "completed":
        return event | {"output": run.output} | ({} if run.incomplete is None else {"incomplete": run.incomplete})
    return event | {"error": redact_failure(run.error) if run.caller_kind in _OUTSIDERS else run.error}


async def _note(
    unit: Unit, run: Any, event_id: str, attempts: int, status: int | None, delivered_at: datetime | None
) -> None:
    """Records how far the delivery has come."""
    delivery = {"event_id": event_id, "attempts": attempts, "status": status}
    delivery["delivered_at"] = None if delivered_at is None else delivered_at.isoformat()
    is_run = (runs.c.app_id == run.app_id, runs.c.id == run.id)
    await unit.execute(update(runs).where(*is_run).values(webhook_delivery=delivery))


def _secrets(vault: Vault, sealed_secrets: Any, now: datetime) -> list[str]:
    """Returns the secrets that sign now, the newest first."""
    if sealed_secrets is None:
        return []
    secrets = [vault.open(sealed_secrets.secret, _context("secret", sealed_secrets.app_id)).decode()]
    if sealed_secrets.earlier is not None and sealed_secrets.earlier_until > now:
        secrets.append(vault.open(sealed_secrets.earlier, _context("earlier", sealed_secrets.app_id)).decode())
    return secrets


def _context(column: str, app_id: str) -> str:
    """Returns the context that a sealed secret is bound to."""
    return f"{webhook_secrets.name}.{column}:{app_id}"
