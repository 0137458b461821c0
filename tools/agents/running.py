"""Runs, for those who run the app and for its users."""

from typing import Annotated, Any, Literal, NotRequired

from pydantic import Field, StringConstraints
from sqlalchemy import select
from typing_extensions import TypedDict

from baobab.runtime.agents.rows import runs as rows
from baobab.tools.access import OF_APP
from baobab.tools.agents.agents import found_agent
from baobab.tools.agents.deciding import cancelled, resumed
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
from baobab.tools.agents.owning import run_row, subject
from baobab.tools.agents.reading import PAGE, read_events, stream
from baobab.tools.agents.records import Events, Name, OneRun, Runs, RunStatus, run_of
from baobab.tools.agents.starting import Wish, started
from baobab.tools.agents.toolset import agents
from baobab.tools.call import Call
from baobab.tools.callers import EndUser
from baobab.tools.stream import Stream
from baobab.tools.tool import Audit
from baobab.tools.types import AppId, JsonObject, Text, Uuid

RunId = Annotated[Uuid, Field(description="The run.")]
Input = Annotated[JsonObject, Field(description="What the graph calls `input`.", max_length=1000)]
Key = Annotated[str, Text(128, min_length=1)]
Token = Annotated[
    str,
    StringConstraints(pattern=r"^appr_[A-Za-z0-9]{1,80}$", max_length=90),
    Field(description="The approval_token of the run_paused event.", examples=["appr_0a1b2c3d"]),
]
Seq = Annotated[int, Field(ge=0, le=2**31 - 1)]
LastEventId = Annotated[str, Text(20)]
Reason = Annotated[str, Text(1000)]
WebhookUrl = Annotated[str, Text(2000), StringConstraints(pattern=r"^https?://")]
_NEWEST = 50
STARTING = (AgentNotFound, AgentDisabled, NotYourRun, RunConflict, KeyReused, LimitExceeded, Overloaded)
RESUMING = (RunNotFound, RunEnded, NotPaused, TokenInvalid)


class Started(TypedDict):
    run_id: str
    status: RunStatus
    replayed: NotRequired[Annotated[Literal[True], Field(description="The same body has started this run before.")]]


class RunState(TypedDict):
    run_id: str
    status: RunStatus


@agents.tool(
    "POST /agents/{name}/runs",
    access=OF_APP,
    effect="external",
    status=lambda result: 200 if "replayed" in result else 201,
    statuses=(201, 200),
    raises=STARTING,
    audit=Audit("agent.run", category="agents", action="invoke", resource="run"),
    examples={"name": "greeter", "input": {"name": "Ada"}},
)
async def agents_run(
    call: Call,
    app_id: AppId,
    name: Name,
    input: Input,  # noqa: A002 - the name on the wire
    idempotency_key: Key | None = None,
    thread_id: Key | None = None,
    webhook_url: WebhookUrl | None = None,
    caller_user_id: Annotated[str, Text(80, min_length=1)] | None = None,
) -> Started:
    """Start a run of an agent; read it, or its events, to see it through.

    The same body sent again soon leads to the same run.

    idempotency_key: names the run instead of its body.
    thread_id: the conversation that the run belongs to, for nodes that remember.
    webhook_url: told when the run has ended.
    caller_user_id: the app's user that the run acts as; for those who run the app.
    """
    agent = await found_agent(call, app_id, name)
    row, new = await started(call, agent, Wish(input, idempotency_key, thread_id, webhook_url, caller_user_id))
    told: Started = {"run_id": row.id, "status": row.status}
    if not new:
        call.audit.nothing_done = True
        told["replayed"] = True
    return told


@agents.tool("GET /agents/{name}/runs", access=OF_APP, effect="read", raises=(AgentNotFound,))
async def agents_runs_list(call: Call, app_id: AppId, name: Name, status: RunStatus | None = None) -> Runs:
    """List an agent's newest runs; a user of the app sees its own."""
    await found_agent(call, app_id, name)
    query = select(rows).where(rows.c.app_id == app_id, rows.c.agent == name).order_by(rows.c.created_at.desc())
    if isinstance(call.caller, EndUser):
        query = query.where(rows.c.subject == subject(call.caller, ""))
    if status is not None:
        query = query.where(rows.c.status == status)
    async with call.stores.database.reading() as connection:
        found = (await connection.execute(query.limit(_NEWEST))).all()
    return {"runs": [run_of(row) for row in found]}


@agents.tool("GET /agents/{name}/runs/{id}", access=OF_APP, effect="read", raises=(RunNotFound,))
async def agents_runs_get(call: Call, app_id: AppId, name: Name, id: RunId) -> OneRun:  # noqa: A002
    """Read a run: where it stands, what it has used, what came of it."""
    return {"run": run_of(await run_row(call, app_id, id, name))}


@agents.tool(
    "POST /agents/{name}/runs/{id}/cancel",
    access=OF_APP,
    effect="write",
    status=202,
    raises=(RunNotFound, RunEnded),
    audit=Audit("agent.run.cancel", category="agents", resource="run"),
)
async def agents_runs_cancel(call: Call, app_id: AppId, name: Name, id: RunId) -> RunState:  # noqa: A002
    """Have a run end: at once where it waits, else as soon as its worker hears of it."""
    return {"run_id": id, "status": await cancelled(call, app_id, id, name)}  # type: ignore[typeddict-item]


@agents.tool(
    "POST /agents/{name}/runs/{id}/resume",
    access=OF_APP,
    effect="external",
    raises=RESUMING,
    examples={"approval_token": "appr_0a1b2c3d", "approved": True},
    audit=Audit("agent.run.resume", category="agents", resource="run"),
    grants=True,
)
async def agents_runs_resume(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,  # noqa: A002
    approval_token: Token,
    approved: bool,
    arguments: JsonObject | None = None,
    reason: Reason | None = None,
) -> RunState:
    """Decide about a call that a paused run waits for: approve it, with other arguments perhaps, or refuse it.

    arguments: with which the call is made, instead of those that the run wanted.
    reason: why it is refused; the run is told.
    """
    row = await resumed(
        call, app_id, id, approval_token, approved=approved, arguments=arguments, reason=reason, agent=name
    )
    return {"run_id": row.id, "status": row.status}


@agents.tool("GET /agents/{name}/runs/{id}/events.json", access=OF_APP, effect="read", raises=(RunNotFound,))
async def agents_runs_events_list(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,  # noqa: A002
    since_seq: Seq = 0,
    limit: Annotated[int, Field(ge=1, le=PAGE)] = 100,
) -> Events:
    """List what a run has done, oldest first.

    since_seq: only what came after this one.
    """
    await run_row(call, app_id, id, name)
    found: Any = await read_events(call.services, call.stores.database, id, since_seq, limit)
    return {"events": found}


@agents.tool(
    "GET /agents/{name}/runs/{id}/events",
    access=OF_APP,
    effect="read",
    raises=(RunNotFound,),
    media_type="text/event-stream",
    from_headers={"last_event_id": "last-event-id"},
    mcp=False,
)
async def agents_runs_events(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,  # noqa: A002
    last_event_id: LastEventId | None = None,
) -> str:
    """Follow what a run does, as server-sent events, to its end.

    last_event_id: the `id` of the last event that was received; those after it are sent.
    """
    await run_row(call, app_id, id, name)
    streamed: Any = Stream(stream(call, id, after(last_event_id)))
    return streamed  # type: ignore[no-any-return]


def after(last_event_id: str | None) -> int:
    return int(last_event_id) if last_event_id and last_event_id.isascii() and last_event_id.isdigit() else 0
