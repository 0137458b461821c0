"""Tools for runs, for the people and keys that run the app and for its users."""

from datetime import datetime
from functools import cache
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import Select, bindparam, select, tuple_

from baobab.runtime.agents.tables import model_calls
from baobab.runtime.agents.tables import runs as rows
from baobab.tools.agents.agent_rows import agent_meaning, get_agent_row
from baobab.tools.agents.awaited_runs import list_awaited_runs, tell_what_a_run_waits_for
from baobab.tools.agents.decisions import cancel_run, get_cancellable_run, may_cancel, resume_run
from baobab.tools.agents.errors import (
    AgentDisabled,
    AgentNotFound,
    KeyReused,
    LimitExceeded,
    NotPaused,
    NotYourRun,
    Overloaded,
    RunConflict,
    RunEnded,
    RunNotFound,
    TokenInvalid,
)
from baobab.tools.agents.fields import (
    ApprovalToken,
    IdempotencyKey,
    Input,
    LastEventId,
    PageSize,
    Reason,
    RunId,
    Seq,
    ThreadId,
    UserId,
    WebhookUrl,
)
from baobab.tools.agents.graphs import describe_agent
from baobab.tools.agents.redaction import is_outsider
from baobab.tools.agents.run_creation import RunRequest, start_run
from baobab.tools.agents.run_events import list_events, stream_events
from baobab.tools.agents.run_ownership import caller_subject, get_run_row, is_agent_available
from baobab.tools.agents.schemas.agents import (
    Events,
    ModelCalls,
    Name,
    NameOrNone,
    OneRun,
    Runs,
    RunState,
    RunStatus,
    Started,
    model_call_of,
    run_of,
)
from baobab.tools.agents.toolset import agents
from baobab.tools.agents.unfilled_inputs import warn_of_unfilled_input
from baobab.tools.core import (
    AppId,
    AppOwner,
    Audit,
    BadRequest,
    Call,
    Cursor,
    EndUser,
    Guard,
    JsonObject,
    Mcp,
    Rest,
    Uuid,
    decode_cursor,
    encode_cursor,
)
from baobab.tools.core.auth.access import OF_APP
from baobab.tools.core.auth.deciders import Decider, NeedsAnother, NotAnApprover, NotYoursToDecide
from baobab.tools.core.guard.approvals import AlreadyDecided, EditsTakeOne, WouldFail
from baobab.tools.core.list_totals import count_list
from baobab.tools.core.listing import Listing
from baobab.tools.core.pagination import CursorInvalid
from baobab.tools.core.types import Moment
from baobab.tools.core.waiting import Waits

_NEWEST = 50
_LIST = "agent runs"
RunsPage = Annotated[int, Field(ge=1, le=200)]
STARTING = (AgentNotFound, AgentDisabled, NotYourRun, RunConflict, KeyReused, LimitExceeded, Overloaded)
CANCELLING = (RunNotFound, RunEnded, NotYoursToDecide, NotAnApprover)
RESUMING = (
    RunNotFound,
    RunEnded,
    NotPaused,
    TokenInvalid,
    AlreadyDecided,
    NotYoursToDecide,
    NotAnApprover,
    NeedsAnother,
    EditsTakeOne,
    WouldFail,
    BadRequest,
)


def _is_over(state: OneRun) -> bool:
    return state["run"]["status"] in ("completed", "failed", "cancelled", "timed_out", "paused")


def _add_end(result: Any, state: OneRun) -> Any:
    run = state["run"]
    return {**result, "status": run["status"], "output": run["output"], "error": run["error"]}


def _find_run(result: Any) -> dict[str, Any]:
    return {"id": result["run_id"]}


UNTIL_OVER = Waits(_is_over)
RUN_TO_END = Waits(_is_over, "agents_runs_get", _find_run, _add_end)
PUBLIC_RUN_TO_END = Waits(_is_over, "agents_public_get", _find_run, _add_end)


@cache
def _select_page(*columns: str, since: bool, to: bool, goes_on: bool) -> Select[Any]:
    """Selects the newest runs with given values in some columns. There are few such selections: each is built once.

    since, to: whether they are bounded by the time at which they were created. goes_on: whether they follow those of an
    earlier page.
    """
    query = select(rows).where(*[rows.c[column] == bindparam(f"of_{column}") for column in columns])
    if since:
        query = query.where(rows.c.created_at >= bindparam("since", type_=rows.c.created_at.type))
    if to:
        query = query.where(rows.c.created_at < bindparam("to", type_=rows.c.created_at.type))
    if goes_on:
        last = tuple_(bindparam("at", type_=rows.c.created_at.type), bindparam("last", type_=rows.c.id.type))
        query = query.where(tuple_(rows.c.created_at, rows.c.id) < last)
    return query.order_by(rows.c.created_at.desc(), rows.c.id.desc()).limit(bindparam("most"))


async def _preview_run(call: Call, app_id: AppId, name: Name, **_: Any) -> str:
    return await describe_agent(call, await get_agent_row(call, app_id, name))


@agents.tool(
    "POST /agents/{name}/runs",
    access=OF_APP,
    effect="external",
    raises=STARTING,
    audit=Audit("agent.run", category="agents", action="invoke", resource="run"),
    rest=Rest(
        status=lambda result: 200 if "replayed" in result else 201,
        statuses=(201, 200),
        examples={"name": "greeter", "input": {"name": "Ada"}},
    ),
    mcp=Mcp(start=True),
    guard=Guard(meaning=agent_meaning, preview=_preview_run),
    waits=RUN_TO_END,
)
async def agents_run(
    call: Call,
    app_id: AppId,
    name: Name,
    input: Input,
    idempotency_key: IdempotencyKey | None = None,
    thread_id: ThreadId | None = None,
    webhook_url: WebhookUrl | None = None,
    caller_user_id: Uuid | None = None,
) -> Started:
    """Start a run of an agent. Follow it by reading the run or its events.

    The same input within the agent's `dedupe_window_seconds` returns the same run.

    caller_user_id: the app's user that it acts as; for those who run the app.
    """
    agent = await get_agent_row(call, app_id, name)
    row, is_new = await start_run(
        call, agent, RunRequest(input, idempotency_key, thread_id, webhook_url, caller_user_id)
    )
    answer: Started = {"run_id": row.id, "status": row.status}
    if not is_new:
        call.audit.nothing_done = True
        answer["replayed"] = True
    elif not is_outsider(call.caller):
        warn_of_unfilled_input(call, agent.graph_spec, input)
    return answer


@agents.tool(
    "GET /agents/{name}/runs",
    access=OF_APP,
    effect="read",
    raises=(AgentNotFound, NotYourRun, CursorInvalid),
)
async def agents_runs_list(
    call: Call,
    app_id: AppId,
    name: NameOrNone,
    status: RunStatus | None = None,
    thread_id: ThreadId | None = None,
    caller_user_id: UserId | None = None,
    parent_run_id: RunId | None = None,
    since: Annotated[Moment | None, Field(alias="from")] = None,
    to: Moment | None = None,
    limit: RunsPage = _NEWEST,
    cursor: Cursor | None = None,
) -> Runs:
    """List an agent's runs, newest first; a user of the app sees its own.

    name: the agent; `_` lists the runs of all agents, for those who run the app.
    status: only runs with this status.
    caller_user_id: only runs that act as this user of the app.
    limit: how many runs at most.
    parent_run_id: only runs that are steps of this run.
    since: runs created from this moment on; ISO 8601, UTC if it names no zone.
    to: runs created before this moment; ISO 8601, UTC if it names no zone.
    """
    filters: dict[str, Any] = {
        "app_id": app_id,
        "status": status,
        "thread_id": thread_id,
        "caller_user_id": caller_user_id,
        "parent_run_id": parent_run_id,
    }
    if name != "_":
        agent = await get_agent_row(call, app_id, name)
        if not is_agent_available(agent.visibility, call.caller):
            raise NotYourRun
        filters["agent"] = name
    elif is_outsider(call.caller):
        raise NotYourRun("Only those who run the app can list the runs of all agents. Name one agent.")
    if isinstance(call.caller, EndUser):
        filters["subject"] = caller_subject(call.caller, "")
    values = {f"of_{column}": value for column, value in filters.items() if value is not None}
    columns = [column for column, value in filters.items() if value is not None]
    query = _select_page(*columns, since=since is not None, to=to is not None, goes_on=cursor is not None)
    values |= {name: moment for name, moment in (("since", since), ("to", to)) if moment is not None}
    vault = call.services.vault
    if cursor is not None:
        at, values["last"] = decode_cursor(vault, _LIST, cursor)
        values["at"] = datetime.fromisoformat(at)
    run_rows = list((await call.read(query, {**values, "most": limit + 1})).all())
    whole_query = _select_page(*columns, since=since is not None, to=to is not None, goes_on=False)
    is_all = cursor is None and len(run_rows) <= limit
    await count_list(call, call.read, whole_query, is_all=is_all, values=values)
    answer: Runs = {"runs": [run_of(row, call.caller) for row in run_rows[:limit]]}
    if len(run_rows) > limit:
        last = run_rows[limit - 1]
        answer["next_cursor"] = encode_cursor(vault, _LIST, last.created_at.isoformat(), last.id)
    return answer


@agents.tool(
    "GET /agents/{name}/runs/{id}",
    access=OF_APP,
    effect="read",
    waits=UNTIL_OVER,
    raises=(RunNotFound,),
    mcp=Mcp(start=True),
)
async def agents_runs_get(call: Call, app_id: AppId, name: Name, id: RunId, with_graph: bool = False) -> OneRun:
    """Read a run: its status, what it has used, and its result.

    with_graph: also return the graph as it was at the start; for those who run the app.
    """
    row = await get_run_row(call, app_id, id, name)
    answer: OneRun = {"run": run_of(row, call.caller, await list_awaited_runs(call, row))}
    await tell_what_a_run_waits_for(call, row)
    answer["may_cancel"] = may_cancel(call, row)
    if not is_outsider(call.caller):
        answer["run"]["started_by_name"] = await _name_starter(call, row)
        if with_graph:
            answer["graph_spec"] = row.graph_spec
    return answer


async def _name_starter(call: Call, row: Any) -> str | None:
    """Returns the name of the trigger, account or key that started a run; None for the app's users and visitors."""
    if (trigger := row.caller.get("trigger")) is not None:
        return f"trigger:{trigger['name']}"
    key_id = row.caller.get("key_id")
    if key_id is not None:
        return await call.services.directory.name(f"key:{key_id}")
    is_account = row.caller_kind in ("dashboard", "function") and row.account_id is not None
    return await call.services.directory.name(f"account:{row.account_id}") if is_account else None


async def _preview_cancel(call: Call, app_id: AppId, name: Name, id: RunId) -> str:
    row = await get_cancellable_run(call, app_id, id, name)
    return f"It would end a run of the agent {name}, which is {row.status} now."


@agents.tool(
    "POST /agents/{name}/runs/{id}/cancel",
    access=OF_APP,
    effect="write",
    raises=CANCELLING,
    audit=Audit("agent.run.cancel", category="agents", resource="run"),
    rest=Rest(status=202),
    guard=Guard(overwrites=True, preview=_preview_cancel),
)
async def agents_runs_cancel(call: Call, app_id: AppId, name: Name, id: RunId) -> RunState:
    """Cancel a run. A run that waits ends at once; any other as soon as its worker is notified."""
    return await cancel_run(call, app_id, id, name)


@agents.tool(
    "POST /agents/{name}/runs/{id}/resume",
    access=OF_APP,
    effect="external",
    raises=RESUMING,
    audit=Audit("agent.run.resume", category="agents", resource="run"),
    rest=Rest(examples={"approval_token": "appr_0a1b2c3d", "approved": True}),
    waits=RUN_TO_END,
    guard=Guard(overwrites=True, grants=True),
)
async def agents_runs_resume(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,
    approval_token: ApprovalToken,
    approved: bool,
    arguments: JsonObject | None = None,
    data: JsonObject | None = None,
    reason: Reason | None = None,
    even_if_failing: bool = False,
) -> RunState:
    """Decide about a call that a paused run waits for: approve it, with changed arguments if you like, or reject it.

    approved: true makes the call, false refuses it.
    arguments: the arguments to call with, in place of those that the run proposed.
    data: the answer to a question, as its `answer_schema` describes it.
    even_if_failing: approve it all the same if it would fail now.
    """
    return await resume_run(
        call,
        app_id,
        id,
        approval_token,
        approved=approved,
        arguments=arguments,
        data=data,
        reason=reason,
        even_if_failing=even_if_failing,
        agent=name,
    )


@agents.tool(
    "GET /agents/{name}/runs/{id}/events.json",
    access=OF_APP,
    effect="read",
    listing=Listing("events", continues=("since_seq", "seq")),
    raises=(RunNotFound,),
)
async def agents_runs_events_list(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,
    since_seq: Seq = 0,
    limit: PageSize = 100,
) -> Events:
    """List the events of a run, oldest first."""
    return await list_events(call, await get_run_row(call, app_id, id, name), since_seq, limit)


@agents.tool(
    "GET /agents/{name}/runs/{id}/model-calls",
    access=AppOwner(),
    effect="read",
    listing=Listing("model_calls", continues=("after_step", "step")),
    taints=True,
    raises=(RunNotFound,),
)
async def agents_runs_model_calls(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,
    after_step: Annotated[int, Field(ge=-1, le=2**31 - 1)] = -1,
    limit: Annotated[int, Field(ge=1, le=50)] = 20,
) -> ModelCalls:
    """Read what a run asked its models and what they answered, with tokens, cost and time, oldest first.

    The newest 200 steps are kept, as long as the run; users of the app do not see them.

    after_step: only calls of later steps.
    limit: how many calls at most.
    """
    run = await get_run_row(call, app_id, id, name)
    table = model_calls.c
    query = select(model_calls).where(table.app_id == app_id, table.run_id == run.id, table.step > after_step)
    async with call.reading() as execute:
        call_rows = (await execute(query.order_by(table.step).limit(limit))).all()
    return {"model_calls": [model_call_of(row) for row in call_rows]}


@agents.tool(
    "GET /agents/{name}/runs/{id}/events",
    access=OF_APP,
    effect="read",
    raises=(RunNotFound,),
    rest=Rest(media_type="text/event-stream", from_headers={"last_event_id": "last-event-id"}),
    mcp=Mcp(offered=False),
)
async def agents_runs_events(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,
    last_event_id: LastEventId | None = None,
    since_seq: Seq = 0,
) -> str:
    """Follow the events of a run as server-sent events, until it ends."""
    return stream_events(
        call, await get_run_row(call, app_id, id, name), last_event_id, Decider(call.caller, call.role), since_seq
    )
