"""Tools for agents: list, read, create, change and delete them."""

from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.agents.spec.app_rights import grant_rights
from baobab.runtime.agents.spec.spec import GraphSpec, NamedApprovers
from baobab.runtime.agents.tables import agents as rows
from baobab.tools.agents.agent_rows import (
    agent_columns,
    agent_meaning,
    get_agent_row,
    load_agent_row,
    render_agent,
    require_agent_room,
)
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.errors import AgentExists, AgentNotFound, InvalidGraph, UnsafePublic
from baobab.tools.agents.graph_warnings import collect_warnings
from baobab.tools.agents.graphs import (
    GRAPH_EXAMPLE,
    MOST_GRAPH_BYTES,
    are_other_approvers,
    check_widening,
    does_graph_widen,
    list_writing_tools,
    require_right_to_enable,
    require_valid,
)
from baobab.tools.agents.schemas.agents import (
    Agents,
    AgentStatus,
    AgentToday,
    ChangedAgent,
    Concurrent,
    Days,
    DedupeWindow,
    Description,
    DisplayName,
    Graph,
    Hourly,
    ModelName,
    Name,
    Visibility,
)
from baobab.tools.agents.toolset import agents
from baobab.tools.core import OMITTED, Account, AppId, AppOwner, Audit, Call, Guard, Mcp, Rest, one_of
from baobab.tools.core.binding import Brief
from baobab.tools.core.call import Preview
from baobab.tools.core.guard.changes import describe_change
from baobab.tools.core.guard.escaping import escape_name
from baobab.tools.core.guard.widening import Widens, whatever_is_said
from baobab.tools.core.limits.money import Usd, dollars
from baobab.tools.core.limits.plan_room import PlanLimitReached

_LIST_AGENTS = select(rows).where(rows.c.app_id == bindparam("app"), rows.c.deleted_at.is_(None)).order_by(rows.c.name)
PUBLIC_AT_ONCE = 10
"""How many runs of a public agent may be under way if its settings do not say."""


_WITHOUT_GRAPH = Brief("agent", frozenset({"graph_spec"}), "`graph_spec` is left out: agents_get reads it.")
_LIST_WITHOUT_GRAPHS = Brief("agents", frozenset({"graph_spec"}), "`graph_spec` is left out: agents_get reads it.")
_WIDENS: dict[str, Widens] = {
    "visibility": one_of(["authenticated", "public"]),
    "safety_acknowledged": one_of([True]),
    "taint_checks": one_of([False]),
}


@agents.tool(
    "GET /agents", access=AppOwner(), effect="read", mcp=Mcp(defaults={"limit": 20}, brief=_LIST_WITHOUT_GRAPHS)
)
async def agents_list(
    call: Call,
    app_id: AppId,
    limit: Annotated[int, Field(ge=1, le=1000)] | None = None,
    offset: Annotated[int, Field(ge=0, le=1_000_000)] = 0,
) -> Agents:
    """List the app's agents by name.

    limit: how many at most; null for all.
    offset: how many to skip.
    """
    agent_rows = (await call.read(_LIST_AGENTS, {"app": app_id})).all()
    call.count_list(len(agent_rows))
    later_rows = agent_rows[offset:]
    return {"agents": [render_agent(row) for row in later_rows[:limit]]}


@agents.tool(
    "GET /agents/{name}",
    access=AppOwner(),
    effect="read",
    raises=(AgentNotFound,),
)
async def agents_get(call: Call, app_id: AppId, name: Name) -> AgentToday:
    """Read an agent, and what its runs have cost today."""
    row = await get_agent_row(call, app_id, name)
    budget = await call.services.credits.agent_budget(call.require_app().organisation_id, row.id)
    return {"agent": render_agent(row), "spent_today_usd": dollars(0 if budget is None else budget.spent_nanos)}


async def _preview_create(call: Call, app_id: AppId, name: Name, graph_spec: Graph, **_fields: Any) -> str:
    spec = await require_valid(call, name, graph_spec)
    async with call.reading() as execute:
        is_agent = (rows.c.app_id == app_id, rows.c.name == name, rows.c.deleted_at.is_(None))
        if (await execute(select(rows.c.id).where(*is_agent))).first():
            raise AgentExists
    return f"It would make the agent {name}, of {len(spec.nodes)} nodes."


@agents.tool(
    "POST /agents",
    access=AppOwner("admin"),
    effect="write",
    raises=(AgentExists, InvalidGraph, UnsafePublic, PlanLimitReached),
    audit=Audit("agent.create", action="create", resource="agent"),
    rest=Rest(status=201, max_body=MOST_GRAPH_BYTES, examples=GRAPH_EXAMPLE),
    mcp=Mcp(start=True, brief=_WITHOUT_GRAPH),
    guard=Guard(
        preview=_preview_create,
        widens={**_WIDENS, "approvers": are_other_approvers, "graph_spec": does_graph_widen},
    ),
)
async def agents_create(
    call: Call,
    app_id: AppId,
    name: Name,
    graph_spec: Graph,
    display_name: DisplayName | None = None,
    description: Description | None = None,
    default_model: ModelName | None = None,
    visibility: Visibility = "private",
    max_runs_per_user_per_hour: Hourly | None = None,
    max_runs_per_ip_per_hour: Hourly | None = None,
    max_runs_per_app_per_hour: Hourly | None = None,
    daily_budget_usd: Usd | None = None,
    max_concurrent_runs: Concurrent | None = None,
    dedupe_window_seconds: DedupeWindow | None = None,
    safety_acknowledged: bool = False,
    taint_checks: bool = True,
    retention_days: Days | None = None,
    approvers: NamedApprovers | None = None,
) -> ChangedAgent:
    """Make an agent from a graph of models and tools.

    Tools that change something wait for a person in every run. agents_validate checks a graph, agents_run starts it.

    display_name: the name that people see.
    description: what it does, for people.
    default_model: for nodes that name none; if left out, the app's.
    visibility: who may run it: `private`: those who run the app; `authenticated`: its users too; `public`: anybody.
    max_runs_per_user_per_hour: runs that each user of the app may start.
    max_runs_per_ip_per_hour: runs that visitors from one IP address may start.
    max_runs_per_app_per_hour: runs that all callers together may start.
    daily_budget_usd: what its runs may cost in a day (UTC), in US dollars.
    max_concurrent_runs: if left out, any number; 10 for a public agent.
    dedupe_window_seconds: for how long the same input from the same caller returns the same run, and another is
      refused; 0 for never. If left out, 60 for a private agent, else 0.
    safety_acknowledged: true confirms that somebody has reviewed what a public agent can do.
    taint_checks: false lets a run that has read outside text make external calls without asking.
    retention_days: how long its ended runs are kept; if left out, as the installation says.
    approvers: who decides on a waiting call if its node does not say: `starter` (whoever started the run), `user`
      (any user of the app), `member`, `admin`, {"role": ROLE} of the app's users, or {"persons": 2, "of": ...}.
    """
    columns = agent_columns(locals())
    spec = await require_valid(call, name, graph_spec)
    if visibility == "public" and not safety_acknowledged:
        raise UnsafePublic(details={"offending_tools": await list_writing_tools(call, spec)})
    if visibility == "public" and max_concurrent_runs is None:
        columns["max_concurrent_runs"] = PUBLIC_AT_ONCE
    now = call.now
    values: dict[str, Any] = {
        "id": call.services.ids.uuid(),
        "app_id": app_id,
        "name": name,
        "status": "active",
        **columns,
        "app_rights": grant_rights(spec, None, call.caller, now),
        "created_by": call.caller.account_id if isinstance(call.caller, Account) else None,
        "created_at": now,
        "updated_at": now,
    }
    call.audit.resource_id, call.audit.data["name"] = values["id"], name
    async with FREEZES.writing(call) as unit:
        await require_agent_room(call, unit, graph_spec)
        try:
            await unit.execute(insert(rows), values)
        except IntegrityError as exc:
            raise AgentExists from exc
        row = await load_agent_row(unit.execute, app_id, name)
    return await _render_changed(call, row, spec)


_COMPARED = ("graph_spec", "display_name", "description", "default_model", "visibility", "status")


async def _preview_update(call: Call, app_id: AppId, name: Name, **arguments: Any) -> Preview:
    row = await get_agent_row(call, app_id, name)
    if isinstance(arguments["graph_spec"], dict):
        await require_valid(call, name, arguments["graph_spec"])
    fields = sorted(field for field, value in arguments.items() if value is not OMITTED)
    values = [(field, getattr(row, field), arguments[field]) for field in _COMPARED if arguments[field] is not OMITTED]
    changes = [describe_change(field, before, after) for field, before, after in values if before != after]
    return Preview(f"It would change of the agent {name}: {', '.join(fields) or 'nothing'}.", changes)


@agents.tool(
    "PATCH /agents/{name}",
    access=AppOwner("admin"),
    effect="write",
    raises=(AgentNotFound, InvalidGraph, UnsafePublic, PlanLimitReached),
    audit=Audit("agent.update", resource="agent"),
    rest=Rest(max_body=MOST_GRAPH_BYTES),
    mcp=Mcp(brief=_WITHOUT_GRAPH),
    guard=Guard(
        preview=_preview_update,
        widens={**_WIDENS, "approvers": whatever_is_said},
        destructive_when="if it gives another graph: the one before is not kept",
        meaning=agent_meaning,
    ),
)
async def agents_update(
    call: Call,
    app_id: AppId,
    name: Name,
    graph_spec: Graph = OMITTED,
    display_name: DisplayName | None = OMITTED,
    description: Description | None = OMITTED,
    default_model: ModelName | None = OMITTED,
    status: AgentStatus = OMITTED,
    visibility: Visibility = OMITTED,
    max_runs_per_user_per_hour: Hourly | None = OMITTED,
    max_runs_per_ip_per_hour: Hourly | None = OMITTED,
    max_runs_per_app_per_hour: Hourly | None = OMITTED,
    daily_budget_usd: Usd | None = OMITTED,
    max_concurrent_runs: Concurrent | None = OMITTED,
    dedupe_window_seconds: DedupeWindow | None = OMITTED,
    safety_acknowledged: bool = OMITTED,
    taint_checks: bool = OMITTED,
    retention_days: Days | None = OMITTED,
    approvers: NamedApprovers | None = OMITTED,
) -> ChangedAgent:
    """Change an agent. Fields that you leave out stay. Runs in progress keep the graph that they started with.

    display_name: null removes it.
    description: null removes it.
    default_model: null for the app's default model.
    status: a disabled agent starts no runs.
    visibility: who may run it, as in agents_create.
    max_runs_per_user_per_hour: null for no limit.
    max_runs_per_ip_per_hour: null for no limit.
    max_runs_per_app_per_hour: null for no limit.
    daily_budget_usd: null for no budget.
    max_concurrent_runs: null for no limit.
    dedupe_window_seconds: null for what agents_create does if it is left out.
    safety_acknowledged: as in agents_create.
    taint_checks: as in agents_create.
    retention_days: null for the installation's default.
    approvers: null for none: then whoever started a run, and admins where tool servers are called.
    """
    values = agent_columns(locals())
    call.audit.data |= {"name": name, "fields": sorted(values)}
    async with FREEZES.writing(call) as unit:
        row = await load_agent_row(unit.execute, app_id, name)
        graph = values.get("graph_spec", row.graph_spec)
        if graph != row.graph_spec:
            check_widening(call.caller, row.graph_spec, graph)
            call.declare_destructive()
        if values.get("status") == "active" and row.status != "active":
            require_right_to_enable(call.caller, row.graph_spec)
        if graph_spec is not OMITTED:
            # Only then: an agent can be disabled even if a tool of its graph was deleted or has changed.
            spec = await require_valid(call, name, graph)
            values["app_rights"] = grant_rights(spec, row.app_rights, call.caller, call.now)
            await require_agent_room(call, unit, graph, beside=row.id)
        public = values.get("visibility", row.visibility) == "public"
        if public and not values.get("safety_acknowledged", row.safety_acknowledged):
            tools = await list_writing_tools(call, GraphSpec.model_validate(graph))
            raise UnsafePublic(details={"offending_tools": tools})
        if public and row.visibility != "public" and row.max_concurrent_runs is None:
            values.setdefault("max_concurrent_runs", PUBLIC_AT_ONCE)
        call.audit.resource_id = row.id
        statement = update(rows).where(rows.c.app_id == app_id, rows.c.id == row.id)
        await unit.execute(statement.values(**values, updated_at=call.now))
        row = await load_agent_row(unit.execute, app_id, name)
    return await _render_changed(call, row, GraphSpec.model_validate(row.graph_spec))


async def _preview_delete(call: Call, app_id: AppId, name: Name) -> str:
    row = await get_agent_row(call, app_id, name)
    display_name = f" ({escape_name(row.display_name)})" if row.display_name else ""
    changed_at = f"{row.updated_at:%Y-%m-%d %H:%M} UTC"
    return f"It would remove the agent {name}{display_name}, last changed {changed_at}. Its runs stay."


@agents.tool(
    "DELETE /agents/{name}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(AgentNotFound,),
    audit=Audit("agent.delete", action="delete", resource="agent"),
    rest=Rest(status=204),
    guard=Guard(preview=_preview_delete),
)
async def agents_delete(call: Call, app_id: AppId, name: Name) -> None:
    """Delete an agent; its name is free again. Its runs can still be read, and active runs continue."""
    async with FREEZES.writing(call) as unit:
        row = await load_agent_row(unit.execute, app_id, name)
        call.audit.resource_id, call.audit.data["name"] = row.id, name
        # Runs have their own copy of the graph, so the agent's is deleted.
        values = {"deleted_at": call.now, "status": "disabled", "graph_spec": {}}
        await unit.execute(update(rows).where(rows.c.app_id == app_id, rows.c.id == row.id).values(**values))


async def _render_changed(call: Call, row: Any, spec: GraphSpec) -> ChangedAgent:
    warnings = await collect_warnings(call, row.name, spec, row.visibility, row.approvers, row.default_model)
    answer: ChangedAgent = {"agent": render_agent(row)}
    return {**answer, "warnings": warnings} if warnings else answer
