"""Tools for runs of public agents, for callers with the app's anon key and for its users."""

from datetime import timedelta
from typing import Any

from sqlalchemy import delete, insert, select, update

from baobab.runtime.agents.tables import runs, stream_tokens
from baobab.storage.secrets import digest_token
from baobab.tools.agents import run_ownership
from baobab.tools.agents.access import PUBLIC
from baobab.tools.agents.agent_rows import agent_meaning, get_agent_row
from baobab.tools.agents.awaited_runs import list_awaited_runs
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.decisions import cancel_run, resume_run
from baobab.tools.agents.errors import RunNotFound, StreamTokenInvalid
from baobab.tools.agents.fields import (
    ApprovalToken,
    IdempotencyKey,
    Input,
    LastEventId,
    PageSize,
    Reason,
    RunId,
    Seq,
    StreamToken,
    ThreadId,
    VisitorId,
)
from baobab.tools.agents.run_creation import RunRequest, start_run
from baobab.tools.agents.run_events import is_visitor, list_events, stream_events, stream_socket
from baobab.tools.agents.run_ownership import get_run_row
from baobab.tools.agents.schemas.agents import (
    Events,
    Name,
    OneRun,
    Opened,
    RunState,
    StartedPublicly,
    run_of,
)
from baobab.tools.agents.tools.runs import CANCELLING, PUBLIC_RUN_TO_END, RESUMING, STARTING, UNTIL_OVER
from baobab.tools.agents.toolset import agents
from baobab.tools.core import (
    EVERYBODY,
    Anonymous,
    AppId,
    Audit,
    Call,
    EndUser,
    Guard,
    JsonObject,
    Mcp,
    Rest,
    Unauthenticated,
)
from baobab.tools.core.auth.deciders import Decider

_TOKEN_LIFE = timedelta(minutes=15)
_TOKEN_LENGTH = 40


@agents.tool(
    "POST /public/agents/{name}/runs",
    access=PUBLIC,
    effect="external",
    raises=STARTING,
    audit=Audit("agent.run", category="agents", action="invoke", resource="run"),
    rest=Rest(status=202, examples={"name": "greeter", "input": {"name": "Ada"}}),
    mcp=Mcp(offered=False),
    guard=Guard(meaning=agent_meaning),
    waits=PUBLIC_RUN_TO_END,
)
async def agents_public_run(
    call: Call,
    app_id: AppId,
    name: Name,
    input: Input,
    idempotency_key: IdempotencyKey | None = None,
    thread_id: ThreadId | None = None,
    visitor_id: VisitorId | None = None,
) -> StartedPublicly:
    """Start a run of a public agent, with a token for one stream of its events.

    Without an `idempotency_key`, each start of a visitor is a run of its own.
    """
    agent = await get_agent_row(call, app_id, name)
    row, is_new = await start_run(call, agent, RunRequest(input, idempotency_key, thread_id, visitor_id=visitor_id))
    call.audit.nothing_done = not is_new
    token = await _token(call, app_id, row.id)
    answer: StartedPublicly = {
        "run_id": row.id,
        "status": row.status,
        "stream_token": token["stream_token"],
        "expires_at": token["expires_at"],
    }
    if isinstance(call.caller, Anonymous):
        answer["visitor_id"] = visitor_id or run_ownership.derive_visitor_id(call.services.vault, row.id)
    return answer


@agents.tool(
    "GET /public/runs/{id}",
    access=PUBLIC,
    effect="read",
    raises=(RunNotFound,),
    waits=UNTIL_OVER,
    mcp=Mcp(offered=False),
)
async def agents_public_get(call: Call, app_id: AppId, id: RunId) -> OneRun:
    """Read a run of a public agent. Whoever knows its id may read it."""
    row = await get_run_row(call, app_id, id)
    return {"run": run_of(row, call.caller, await list_awaited_runs(call, row))}


@agents.tool(
    "POST /public/runs/{id}/cancel",
    access=PUBLIC,
    effect="write",
    raises=CANCELLING,
    audit=Audit("agent.run.cancel", category="agents", resource="run"),
    rest=Rest(status=202),
    mcp=Mcp(offered=False),
)
async def agents_public_cancel(call: Call, app_id: AppId, id: RunId) -> RunState:
    """Cancel a run. A run that waits ends at once; any other as soon as its worker is notified."""
    return await cancel_run(call, app_id, id)


@agents.tool(
    "POST /public/runs/{id}/resume",
    access=PUBLIC,
    effect="external",
    raises=RESUMING,
    audit=Audit("agent.run.resume", category="agents", resource="run"),
    rest=Rest(examples={"approval_token": "appr_0a1b2c3d", "approved": True}),
    mcp=Mcp(offered=False),
)
async def agents_public_resume(
    call: Call,
    app_id: AppId,
    id: RunId,
    approval_token: ApprovalToken,
    approved: bool,
    arguments: JsonObject | None = None,
    data: JsonObject | None = None,
    reason: Reason | None = None,
    even_if_failing: bool = False,
) -> RunState:
    """Decide about a call that a paused run waits for.

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
    )


@agents.tool(
    "GET /public/runs/{id}/events.json", access=PUBLIC, effect="read", raises=(RunNotFound,), mcp=Mcp(offered=False)
)
async def agents_public_events_list(
    call: Call,
    app_id: AppId,
    id: RunId,
    since_seq: Seq = 0,
    limit: PageSize = 100,
) -> Events:
    """List the events of a run, oldest first."""
    return await list_events(call, await get_run_row(call, app_id, id), since_seq, limit)


@agents.tool(
    "POST /public/runs/{id}/stream-token",
    access=PUBLIC,
    effect="write",
    raises=(RunNotFound,),
    audit=Audit("agent.run.stream_token", category="agents", resource="run", tallied=True),
    mcp=Mcp(offered=False),
)
async def agents_public_stream_token(call: Call, app_id: AppId, id: RunId) -> Opened:
    """Get a token that opens one stream of the run's events within 15 minutes, where no header can be sent."""
    await get_run_row(call, app_id, id)
    return await _token(call, app_id, id)


@agents.tool(
    "GET /public/runs/{id}/events",
    access=EVERYBODY,
    effect="read",
    raises=(StreamTokenInvalid, Unauthenticated),
    rest=Rest(media_type="text/event-stream", from_headers={"last_event_id": "last-event-id"}),
    mcp=Mcp(offered=False),
)
async def agents_public_events(
    call: Call,
    app_id: AppId,
    id: RunId,
    token: StreamToken = "",
    last_event_id: LastEventId | None = None,
    since_seq: Seq = 0,
) -> str:
    """Follow the events of a run as server-sent events, until it ends.

    Send `Last-Event-ID`, as browsers do, to reopen the stream with the same token.
    """
    await _require_token(call, app_id, id, token, is_reconnect=bool(last_event_id or since_seq))
    run = await _run(call, app_id, id)
    _require_open(call, run)
    return stream_events(call, run, last_event_id, _reader(run), since_seq)


@agents.tool(
    "GET /public/runs/{id}/ws",
    access=EVERYBODY,
    effect="read",
    raises=(StreamTokenInvalid, Unauthenticated),
    rest=Rest(socket=True),
    mcp=Mcp(offered=False),
)
async def agents_public_socket(
    call: Call,
    app_id: AppId,
    id: RunId,
    token: StreamToken = "",
    since_seq: Seq = 0,
) -> str:
    """Follow the events of a run over a WebSocket: each frame is one event as JSON; it closes with 1000 at the end."""
    await _require_token(call, app_id, id, token, is_reconnect=bool(since_seq))
    run = await _run(call, app_id, id)
    _require_open(call, run)
    return stream_socket(call, run, since_seq, _reader(run))


async def _token(call: Call, app_id: str, run_id: str) -> Opened:
    token, expires = call.services.ids.secret(_TOKEN_LENGTH), call.now + _TOKEN_LIFE
    async with FREEZES.writing(call) as unit:
        await unit.execute(delete(stream_tokens).where(stream_tokens.c.expires_at < call.now))
        token_row = {"app_id": app_id, "run_id": run_id, "digest": digest_token(token), "expires_at": expires}
        await unit.execute(insert(stream_tokens), token_row)
    return {"stream_token": token, "expires_at": expires}


async def _run(call: Call, app_id: str, run_id: str) -> Any:
    async with call.reading() as execute:
        row = (await execute(select(runs).where(runs.c.app_id == app_id, runs.c.id == run_id))).first()
    if row is None:
        raise StreamTokenInvalid
    return row


def _require_open(call: Call, run: Any) -> None:
    """Raises Unauthenticated for a visitor's token if the app now asks everybody to sign in."""
    if is_visitor(run, _reader(run)) and call.require_app().access_mode == "authenticated":
        raise Unauthenticated("This app requires sign-in.", remediation="Send a token of one of the app's users.")


def _reader(run: Any) -> Decider:
    """Returns whom a stream token stands for: the visitor or user whose run it is; for other runs, nobody."""
    if run.caller_kind == "end_user":
        return Decider(EndUser(run.app_id, run.caller_user_id))
    return Decider(Anonymous(run.app_id if run.caller_kind == "anonymous" else None))


async def _require_token(call: Call, app_id: str, run_id: str, token: str, *, is_reconnect: bool) -> None:
    """Marks the token as used. is_reconnect: whether the reader names the last event that it received."""
    columns = stream_tokens.c
    conditions = [columns.app_id == app_id, columns.run_id == run_id, columns.digest == digest_token(token)]
    conditions.append(columns.expires_at > call.now)
    if not is_reconnect:
        conditions.append(columns.opened_at.is_(None))
    # Checked before anything is written: anonymous callers may send any token and must not take the write lock.
    async with call.stores.database.reading() as connection:
        if not token or (await connection.execute(select(columns.digest).where(*conditions))).first() is None:
            raise StreamTokenInvalid
    statement = update(stream_tokens).where(*conditions).values(opened_at=call.now)
    async with call.stores.database.writing(lock=None) as connection:
        if (await connection.execute(statement)).rowcount != 1:
            raise StreamTokenInvalid
