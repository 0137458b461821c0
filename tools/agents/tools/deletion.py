"""Tools that erase runs, threads, and everything that agents keep about one person."""

from typing import Any

from sqlalchemy import func, select

from baobab.runtime.agents.erasure import UNUSED, erase_in, erase_threads
from baobab.runtime.agents.tables import ENDED, runs
from baobab.tools.agents.agent_rows import get_agent_row
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.errors import AgentNotFound, RunNotFound, RunUnderWay
from baobab.tools.agents.fields import RunId, ThreadId, UserId
from baobab.tools.agents.jobs import _deletion_filter
from baobab.tools.agents.run_ownership import conversation_owner, get_run_row, resolve_person
from baobab.tools.agents.schemas.agents import Erasing, Name
from baobab.tools.agents.toolset import agents
from baobab.tools.core import AppId, AppOwner, Audit, Call, Guard, Rest


async def _preview_delete_run(call: Call, app_id: AppId, name: Name, id: RunId) -> str:
    steps = len(await _get_ended_family(call, app_id, name, id)) - 1
    return f"It would erase a run of the agent {name} for good, with {steps} runs that were steps of it."


@agents.tool(
    "DELETE /agents/{name}/runs/{id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(RunNotFound, RunUnderWay),
    audit=Audit("agent.run.delete", category="agents", action="delete", resource="run"),
    rest=Rest(status=204),
    guard=Guard(preview=_preview_delete_run),
)
async def agents_runs_delete(call: Call, app_id: AppId, name: Name, id: RunId) -> None:
    """Erase a run that has ended: its events, checkpoints and approvals, and what its thread remembers of it.

    Runs that were steps of it are erased too.
    """
    ids = await _get_ended_family(call, app_id, name, id)
    call.audit.resource_id = id
    await call.services.approvals.erase_of_runs(call.execute, ids)
    async with FREEZES.writing(call) as unit:
        await unit.run_statements(lambda statements: erase_in(statements, ids, with_thread_messages=True))


async def _get_ended_family(call: Call, app_id: str, name: str, run_id: str) -> list[str]:
    """Returns the ids of a run and its child runs. Raises RunUnderWay if one has not ended."""
    row = await get_run_row(call, app_id, run_id, name)
    ids, level = [run_id], [run_id]
    async with call.reading() as execute:
        is_unused = (await execute(select(runs.c.id).where(runs.c.id == run_id, UNUSED))).first() is not None
        while level:
            children_query = select(runs.c.id, runs.c.status).where(runs.c.parent_run_id.in_(level))
            children = (await execute(children_query)).all()
            is_unused = is_unused and all(child.status in ENDED for child in children)
            level = [child.id for child in children]
            ids += level
    if row.status not in ENDED or not is_unused:
        raise RunUnderWay(details={"status": row.status})
    return ids


async def _preview_delete_thread(
    call: Call, app_id: AppId, name: Name, thread_id: ThreadId, user_id: UserId | None = None
) -> str:
    agent = await get_agent_row(call, app_id, name)
    return await _describe_deletion(call, _resolve_person(call, user_id), agent.id, thread_id)


@agents.tool(
    "DELETE /agents/{name}/threads/{thread_id}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(AgentNotFound,),
    audit=Audit("agent.thread.delete", category="agents", action="delete", resource="thread"),
    rest=Rest(status=202),
    guard=Guard(preview=_preview_delete_thread),
)
async def agents_threads_delete(
    call: Call, app_id: AppId, name: Name, thread_id: ThreadId, user_id: UserId | None = None
) -> Erasing:
    """Erase a conversation and its runs. Runs in progress are cancelled first.

    user_id: the user whose conversation it is, or a visitor's `visitor_id`; by default, the caller's own.
    """
    agent = await get_agent_row(call, app_id, name)
    call.audit.data |= {"agent": name}
    return await _erase(call, _resolve_person(call, user_id), agent.id, thread_id)


async def _preview_erase_user(call: Call, app_id: AppId, user_id: UserId) -> str:
    return await _describe_deletion(call, _resolve_person(call, user_id), None, None)


@agents.tool(
    "DELETE /agent-users/{user_id}",
    access=AppOwner("admin"),
    effect="destructive",
    audit=Audit("agent.user.erase", category="agents", action="delete", resource="user"),
    rest=Rest(status=202),
    guard=Guard(preview=_preview_erase_user),
)
async def agents_users_erase(call: Call, app_id: AppId, user_id: UserId) -> Erasing:
    """Erase all that the app's agents keep of one person: threads, and runs with events, checkpoints and approvals.

    Runs in progress are cancelled first.

    user_id: the app's user, or the `visitor_id` of a visitor.
    """
    return await _erase(call, _resolve_person(call, user_id), None, None)


async def _erase(call: Call, person: str, agent_id: str | None, thread_id: str | None) -> Erasing:
    app_id = call.require_app().id
    conditions = _deletion_filter(app_id, person, agent_id, thread_id, call.now)
    async with FREEZES.writing(call) as unit:
        await erase_threads(unit.execute, app_id=app_id, person=person, agent_id=agent_id, name=thread_id)
        count = (await unit.execute(select(func.count()).select_from(runs).where(conditions))).scalar_one()
        arguments: dict[str, Any] = {"app_id": app_id, "person": person, "until": call.now.isoformat()}
        arguments |= {"agent_id": agent_id, "thread_id": thread_id}
        job_id, tenant = f"erase:{call.services.ids.uuid()}", call.require_app().organisation_id
        await call.services.jobs.enqueue(unit, "agents_erase", arguments, job_id=job_id, tenant=tenant)
    return {"runs": count}


async def _describe_deletion(call: Call, person: str, agent_id: str | None, thread_id: str | None) -> str:
    conditions = _deletion_filter(call.require_app().id, person, agent_id, thread_id, call.now)
    async with call.reading() as execute:
        count = (await execute(select(func.count()).select_from(runs).where(conditions))).scalar_one()
    scope = "all that agents have of this person" if thread_id is None else "this conversation"
    return f"It would erase {scope}: {count} runs with their events, for good."


def _resolve_person(call: Call, user_id: str | None) -> str:
    return conversation_owner(call.caller) if user_id is None else resolve_person(user_id)
