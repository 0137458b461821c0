"""The tool for forks: runs that go on from a step of an earlier run."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import select

from baobab.runtime.agents.failures import RunFailed
from baobab.runtime.agents.langgraph_import import load_graph_library
from baobab.runtime.agents.tables import events, runs
from baobab.tools.agents.agent_rows import get_agent_row
from baobab.tools.agents.errors import NotYourRun, RunNotFound, StepNotFound
from baobab.tools.agents.fields import IdempotencyKey, Input, RunId, ShallowObject, WebhookUrl
from baobab.tools.agents.run_creation import ForkOrigin, RunRequest, start_run
from baobab.tools.agents.run_ownership import get_run_row
from baobab.tools.agents.schemas.agents import Name, Started
from baobab.tools.agents.tools.runs import RUN_TO_END, STARTING
from baobab.tools.agents.toolset import agents
from baobab.tools.core import AppId, Audit, BadRequest, Call, EndUser, Guard, Rest
from baobab.tools.core.auth.access import OF_APP

Step = Annotated[int, Field(ge=0, le=200)]
State = Annotated[ShallowObject, Field(max_length=1000)]


async def _preview_fork(call: Call, app_id: AppId, name: Name, id: RunId, **_fields: Any) -> str:
    run, agent = await get_run_row(call, app_id, id, name), await get_agent_row(call, app_id, name)
    return f"It would start a run of the agent {agent.name} that goes on from one of {run.created_at:%Y-%m-%d %H:%M}."


@agents.tool(
    "POST /agents/{name}/runs/{id}/fork",
    access=OF_APP,
    effect="external",
    raises=(*STARTING, RunNotFound, StepNotFound),
    audit=Audit("agent.run.fork", category="agents", action="invoke", resource="run"),
    rest=Rest(status=lambda result: 200 if "replayed" in result else 201, statuses=(201, 200)),
    guard=Guard(preview=_preview_fork),
    waits=RUN_TO_END,
)
async def agents_runs_fork(
    call: Call,
    app_id: AppId,
    name: Name,
    id: RunId,
    step: Step | None = None,
    input: Input | None = None,
    state: State | None = None,
    idempotency_key: IdempotencyKey | None = None,
    webhook_url: WebhookUrl | None = None,
) -> Started:
    """Start a run that continues an earlier one from a step, with that run's graph and state.

    Earlier steps are not run again; later calls wait for approvals of their own. With another `input` or `state`, the
    edge to follow from there is chosen again.

    step: the step after which it continues, as in `node_start`; 0 is the start. By default, the last step runs again.
    input: what the graph calls `input` from there on, for those who run the app.
    state: replaces values of keys that the graph's nodes write; for those who run the app.
    idempotency_key: the same key twice is one run.
    """
    run, agent = await get_run_row(call, app_id, id, name), await get_agent_row(call, app_id, name)
    point = await (await load_graph_library()).find_fork_point(call.stores.database, run, step)
    if point is None:
        raise StepNotFound
    if isinstance(call.caller, EndUser):
        if input is not None or state is not None:
            raise NotYourRun("Only those who run the app can change the input or state of a fork.")
        await _require_undecided(call, run, point.step)
    _require_known(run.graph_spec, state)
    try:
        point.apply_changes(run.graph_spec, input, state)
    except RunFailed as failed:
        raise BadRequest(failed.message, remediation="Change `state` or `input` so that an edge leads on.") from failed
    as_user = run.caller_user_id if run.caller_kind == "end_user" and not isinstance(call.caller, EndUser) else None
    origin = ForkOrigin(run, point, state)
    run_request = RunRequest(point.input, idempotency_key, run.thread_id, webhook_url, as_user, origin)
    row, is_new = await start_run(call, agent, run_request)
    call.audit.data["forked_from"] = id
    answer: Started = {"run_id": row.id, "status": row.status}
    if not is_new:
        call.audit.nothing_done = True
        answer["replayed"] = True
    return answer


def _require_known(graph: Mapping[str, Any], state: Mapping[str, Any] | None) -> None:
    """Raises BadRequest if no node of the graph writes a key of the state, for nothing would read it."""
    output_keys = {node["output_key"] for node in graph["nodes"].values() if node.get("output_key")}
    if unknown := sorted(set(state or ()) - output_keys):
        raise BadRequest(
            f"`state` has keys that no node of the graph writes: {', '.join(f'`{key[:60]}`' for key in unknown[:10])}.",
            remediation=f"Use the `output_key` of a node: {', '.join(sorted(output_keys)) or 'there is none'}.",
        )


async def _require_undecided(call: Call, run: Any, step: int) -> None:
    """Raises NotYourRun if somebody was asked before this step: their decision was made for that run only."""
    run_id: str | None = run.id
    while run_id is not None:
        is_asking = (events.c.app_id == run.app_id, events.c.run_id == run_id, events.c.type == "run_paused")
        query = select(events.c.payload).where(*is_asking)
        is_run = (runs.c.app_id == run.app_id, runs.c.id == run_id)
        origin = select(runs.c.forked_from, runs.c.forked_step).where(*is_run)
        async with call.reading() as execute:
            payloads = (await execute(query)).scalars().all()
            asking_event = (await execute(origin)).first()
        if asking_event is None:
            raise NotYourRun("An earlier run of this fork was deleted, so only those who run the app can fork it.")
        # The number of a child run's call is a step of that run: such a call counts as asked before every step.
        steps = [0 if "run_id" in payload else int(payload["call_id"].partition(".")[0]) for payload in payloads]
        if any(asked_at <= step for asked_at in steps):
            raise NotYourRun("A person was asked before this step, so only those who run the app can fork from it.")
        run_id, step = asking_event.forked_from, asking_event.forked_step
