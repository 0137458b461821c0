"""Deleting runs, threads, and all that agents have of one person."""

from datetime import datetime
from typing import Any

from sqlalchemy import and_, func, select
from typing_extensions import TypedDict

from baobab.runtime.agents.erasing import BATCH, UNUSED, erase_in, erase_runs, erase_threads
from baobab.runtime.agents.family import cancel
from baobab.runtime.agents.rows import ENDED, UNENDED, runs
from baobab.storage.transactions import within
from baobab.tools.agents.agents import found_agent
from baobab.tools.agents.errors import AgentNotFound, RunNotFound, RunUnderWay
from baobab.tools.agents.fields import RunId, ThreadId, UserId
from baobab.tools.agents.owning import person, run_row, visitor
from baobab.tools.agents.records import Name
from baobab.tools.agents.region import writing
from baobab.tools.agents.toolset import agents
from baobab.tools.core.auth.access import AppOwner
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.job import Job
from baobab.tools.core.jobs import Again
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import AppId

_AGAIN_SECONDS = 1.0


class Erasing(TypedDict):
    runs: int
    """How many runs are being erased."""


async def _erasing_run(call: Call, app_id: AppId, name: Name, id: RunId) -> str:  # noqa: A002 - on the wire
    steps = len(await _ended_family(call, app_id, name, id)) - 1
    return f"It would erase a run of the agent {name} for good, with {steps} runs that were steps of it."


@agents.tool(
    "DELETE /agents/{name}/runs/{id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(RunNotFound, RunUnderWay),
    audit=Audit("agent.run.delete", category="agents", action="delete", resource="run"),
    rest=Rest(status=204),
    mcp=Mcp(
        keywords=(
            "delete, erase, remove a run, its events and history, clean up old runs; "
            "Lauf löschen; "
            "borrar, eliminar ejecución"
        )
    ),
    guard=Guard(preview=_erasing_run),
)
async def agents_runs_delete(call: Call, app_id: AppId, name: Name, id: RunId) -> None:  # noqa: A002 - on the wire
    """Erase a run that has ended: its events, checkpoints and approvals, and what its thread remembers of it.

    Runs that were steps of it are erased too.
    """
    ids = await _ended_family(call, app_id, name, id)
    call.audit.resource_id = id
    await call.services.approvals.erase_of_runs(call.execute, ids)
    async with writing(call) as unit:
        await within(unit, lambda statements: erase_in(statements, ids, remembered=True))


async def _ended_family(call: Call, app_id: str, name: str, run_id: str) -> list[str]:
    """The ids of a run and of those that were steps of it; RunUnderWay where one has not ended."""
    row = await run_row(call, app_id, run_id, name)
    ids, found = [run_id], [run_id]
    async with call.reading() as execute:
        unused = (await execute(select(runs.c.id).where(runs.c.id == run_id, UNUSED))).first() is not None
        while found:
            below = select(runs.c.id, runs.c.status).where(runs.c.parent_run_id.in_(found))
            children = (await execute(below)).all()
            unused = unused and all(child.status in ENDED for child in children)
            found = [child.id for child in children]
            ids += found
    if row.status not in ENDED or not unused:
        raise RunUnderWay(details={"status": row.status})
    return ids


async def _erasing_thread(
    call: Call, app_id: AppId, name: Name, thread_id: ThreadId, user_id: UserId | None = None
) -> str:
    agent = await found_agent(call, app_id, name)
    return await _told(call, _person(call, user_id), agent.id, thread_id)


@agents.tool(
    "DELETE /agents/{name}/threads/{thread_id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(AgentNotFound,),
    audit=Audit("agent.thread.delete", category="agents", action="delete", resource="thread"),
    rest=Rest(status=202),
    mcp=Mcp(
        keywords=(
            "delete, erase, forget a conversation, thread, chat, memory; "
            "Unterhaltung löschen, vergessen; "
            "borrar, olvidar conversación"
        )
    ),
    guard=Guard(preview=_erasing_thread),
)
async def agents_threads_delete(
    call: Call, app_id: AppId, name: Name, thread_id: ThreadId, user_id: UserId | None = None
) -> Erasing:
    """Erase a conversation and the runs in it. Those under way are cancelled first.

    user_id: of the user, or the `visitor_id` of the visitor, whose conversation it is; left out, the caller's own.
    """
    agent = await found_agent(call, app_id, name)
    call.audit.data |= {"agent": name}
    return await _erase(call, _person(call, user_id), agent.id, thread_id)


async def _erasing_user(call: Call, app_id: AppId, user_id: UserId) -> str:  # noqa: ARG001 - the call knows
    return await _told(call, _person(call, user_id), None, None)


@agents.tool(
    "DELETE /agent-users/{user_id}",
    access=AppOwner("admin"),
    effect="destructive",
    audit=Audit("agent.user.erase", category="agents", action="delete", resource="user"),
    rest=Rest(status=202),
    mcp=Mcp(
        keywords=(
            "erase everything of a person, right to be forgotten, GDPR, delete user data; "
            "alle Daten einer Person löschen, DSGVO; "
            "borrar todos los datos de una persona, derecho al olvido"
        )
    ),
    guard=Guard(preview=_erasing_user),
)
async def agents_users_erase(call: Call, app_id: AppId, user_id: UserId) -> Erasing:  # noqa: ARG001 - the call knows
    """Erase all that the app's agents have of one person: threads, and runs with their events, checkpoints, approvals.

    Runs under way are cancelled first.

    user_id: of the app's user, or the `visitor_id` of a visitor.
    """
    return await _erase(call, _person(call, user_id), None, None)


@agents.job(attempts=1000)
async def agents_erase(
    job: Job, app_id: str, person: str, until: str, agent_id: str | None = None, thread_id: str | None = None
) -> None:
    """Erase a person's runs that had begun by then; those under way are cancelled, and erased when they have ended."""
    services, theirs = (
        job.services,
        _theirs(app_id, person, agent_id, thread_id, datetime.fromisoformat(until)),
    )
    async with job.database.reading() as connection:
        alive = (await connection.execute(select(runs).where(UNENDED, theirs))).all()
    for run in alive:
        await cancel(services, job.database, run)
    while True:
        ended = select(runs.c.id).where(theirs, runs.c.finished_at.is_not(None), UNUSED).limit(BATCH)
        async with job.database.reading() as connection:
            few = (await connection.execute(ended)).scalars().all()
        if not few:
            break
        await erase_runs(services, job.database, list(few), remembered=True)
    if alive:
        raise Again(_AGAIN_SECONDS, "runs are being cancelled")


async def _erase(call: Call, whose: str, agent_id: str | None, thread_id: str | None) -> Erasing:
    app_id = call.require_app().id
    theirs = _theirs(app_id, whose, agent_id, thread_id, call.now)
    async with writing(call) as unit:
        await erase_threads(unit.execute, app_id=app_id, person=whose, agent_id=agent_id, name=thread_id)
        count = (await unit.execute(select(func.count()).select_from(runs).where(theirs))).scalar_one()
        given: dict[str, Any] = {"app_id": app_id, "person": whose, "until": call.now.isoformat()}
        given |= {"agent_id": agent_id, "thread_id": thread_id}
        job_id, tenant = f"erase:{call.services.ids.uuid()}", call.require_app().organisation_id
        await call.services.jobs.enqueue(unit, "agents_erase", given, job_id=job_id, tenant=tenant)
    return {"runs": count}


async def _told(call: Call, whose: str, agent_id: str | None, thread_id: str | None) -> str:
    theirs = _theirs(call.require_app().id, whose, agent_id, thread_id, call.now)
    async with call.reading() as execute:
        count = (await execute(select(func.count()).select_from(runs).where(theirs))).scalar_one()
    what = "all that agents have of this person" if thread_id is None else "this conversation"
    return f"It would erase {what}: {count} runs with their events, for good."


def _theirs(app_id: str, whose: str, agent_id: str | None, thread_id: str | None, until: datetime) -> Any:
    conditions = [runs.c.app_id == app_id, runs.c.person == whose, runs.c.created_at <= until]
    conditions += [runs.c.agent_id == agent_id] if agent_id is not None else []
    conditions += [runs.c.thread_id == thread_id] if thread_id is not None else []
    return and_(*conditions)


def _person(call: Call, user_id: str | None) -> str:
    if user_id is None:
        return person(call.caller)
    return visitor(user_id) if user_id.startswith("vis_") else f"user:{user_id}"[:80]
