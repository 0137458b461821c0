"""The jobs of agents: segments of runs, and what follows from decisions."""

import contextlib
from collections.abc import Sequence

from sqlalchemy import and_, func, or_, select, update

from baobab.runtime.agents.erasing import sweep_runs
from baobab.runtime.agents.failures import RunTaken
from baobab.runtime.agents.family import cancel, fail_lost
from baobab.runtime.agents.kinds import ADVANCE
from baobab.runtime.agents.rows import FROZEN, UNENDED, runs
from baobab.runtime.agents.segment import Segment
from baobab.runtime.job_rows import jobs
from baobab.storage.database import Database
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.toolset import agents
from baobab.tools.core.app_data import MOVE_ENDED
from baobab.tools.core.errors import AppNotFound
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Event
from baobab.tools.core.services import Services
from baobab.tools.core.steps import ENDED as APPROVAL_ENDED

_ROUND = 500
_MADE = func.coalesce(runs.c.job_id, "") != FROZEN


@agents.job(attempts=1000)
async def agents_advance(job: Job, run_id: str) -> None:
    """Make a segment of a run. However often its worker is killed, the run is taken up again."""
    with contextlib.suppress(RunTaken):
        await Segment(job, run_id).make()


@agents.job(on=APPROVAL_ENDED)
async def agents_decided(job: Job, event: Event) -> None:
    """Go on with a run that has the outcome of a call it waited for."""
    services = job.services
    run_id, approval_id = event.data["run_id"], event.data["approval_id"]
    try:
        app = await services.directory.app(event.app_id)
    except AppNotFound:
        return
    await _advance(services, services.regions[app.region].database, run_id, approval_id, app.organisation_id)


@agents.job(every=3)
async def agents_expire(job: Job) -> None:
    """End the runs that nobody has decided about in time."""
    services = job.services
    for database in dict.fromkeys(stores.database for stores in services.regions.values()):
        overdue = select(runs.c.id, runs.c.organisation_id).where(
            UNENDED, runs.c.status == "paused", runs.c.paused_until <= services.clock.now(), _MADE
        )
        async with database.reading() as connection:
            late = (await connection.execute(overdue.limit(_ROUND))).all()
        for run in late:
            # Anew in each round: a worker whose clock is behind may have found that there is time left.
            await _advance(services, database, run.id, f"late:{job.id}", run.organisation_id)


@agents.job(every=30)
async def agents_tend(job: Job) -> None:
    """Go on with the runs that have come with a move, and end those whose jobs were given up.

    Erase those that have been kept for as long as they are to be.
    """
    services = job.services
    databases = list(dict.fromkeys(stores.database for stores in services.regions.values()))
    for database in databases:
        await _take_up(services, database)
        await _end_lost(services, database)
        await sweep_runs(services, database)
    await _withdraw(services, databases)


async def _withdraw(services: Services, databases: Sequence[Database]) -> None:
    """Nobody decides about calls of runs that are no more: a worker that stood still may have proposed late."""
    last = ""
    # All of them: those whose runs go on may be many, and come first.
    while True:
        few = await services.approvals.list_runs_that_wait(last, _ROUND)
        if not few:
            return
        last, theirs = few[-1], set(few)
        for database in databases:
            async with database.reading() as connection:
                alive = select(runs.c.id).where(UNENDED, runs.c.id.in_(theirs))
                theirs -= set((await connection.execute(alive)).scalars())
        for run_id in theirs:
            await services.approvals.abandon(run_id)


@agents.job(on=MOVE_ENDED)
async def agents_moved(job: Job, event: Event) -> None:
    """Go on with the runs of an app that is not moved any more, wherever it is now."""
    services = job.services
    try:
        app = await services.directory.app(event.app_id)
    except AppNotFound:
        return
    await _take_up(services, services.regions[app.region].database)


async def _take_up(services: Services, database: Database) -> None:
    """Those that wait too: what they wait for may have been decided on the way."""
    theirs = (runs.c.id, runs.c.organisation_id)
    resting = select(*theirs).where(UNENDED, runs.c.job_id == FROZEN, FREEZES.thawed(runs.c.app_id))
    async with database.reading() as connection:
        found = (await connection.execute(resting.limit(_ROUND))).all()
    for run_id, tenant in found:
        free = (runs.c.id == run_id, UNENDED, runs.c.job_id == FROZEN, FREEZES.thawed(runs.c.app_id))
        async with database.working() as unit:
            if (await unit.execute(update(runs).where(*free).values(job_id=None))).rowcount:
                job_id = f"run:{run_id}:{services.ids.uuid()}"
                await services.jobs.enqueue(unit, ADVANCE, {"run_id": run_id}, job_id=job_id, tenant=tenant)


async def _end_lost(services: Services, database: Database) -> None:
    """End the runs whose job has used up its attempts: none would ever go on with them."""
    first = and_(runs.c.status == "queued", jobs.c.id == "run:" + runs.c.id)
    given_up = and_(jobs.c.finished_at.is_not(None), jobs.c.error.is_not(None))
    lost = select(runs).join(jobs, or_(jobs.c.id == runs.c.job_id, first)).where(UNENDED, given_up, _MADE)
    async with database.reading() as connection:
        found = (await connection.execute(lost.limit(_ROUND))).all()
    for run in found:
        await fail_lost(services, database, run)


@agents.job()
async def agents_orphans(job: Job, run_id: str) -> None:
    """End the runs that were steps of one which has ended."""
    theirs = select(runs).where(UNENDED, runs.c.parent_run_id == run_id)
    async with job.database.reading() as connection:
        orphans = (await connection.execute(theirs)).all()
    for orphan in orphans:
        await cancel(job.services, job.database, orphan)


async def _advance(services: Services, database: Database, run_id: str, why: str, tenant: str) -> None:
    """Ask for another segment of a run, once for each reason."""
    async with database.working() as unit:
        await services.jobs.enqueue(unit, ADVANCE, {"run_id": run_id}, job_id=f"run:{run_id}:{why}", tenant=tenant)
