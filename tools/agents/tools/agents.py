"""Tools for agents: create, read, change, delete and validate them."""

import asyncio
import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Annotated, Any

from pydantic import BaseModel, Field
from sqlalchemy import Text as LongText
from sqlalchemy import cast, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.agents.issue import MAX_ISSUES
from baobab.runtime.agents.issue import Issue as Found
from baobab.runtime.agents.offers import ToolOffers, load_offers
from baobab.runtime.agents.spec import AgentNode, GraphSpec, LlmNode, MapNode, NamedApprovers, ToolNode, ToolRef
from baobab.runtime.agents.tables import agents as rows
from baobab.runtime.agents.validation import find_issues, find_self_approvals, narrow_offer
from baobab.runtime.agents.wiring import is_inevitable
from baobab.storage.database import Unit
from baobab.tools.agents.approvers import are_others, check_graph, names_others
from baobab.tools.agents.data import FREEZES
from baobab.tools.agents.errors import AgentExists, AgentNotFound, InvalidGraph, NoGraph, UnsafePublic
from baobab.tools.agents.schemas.agents import (
    Agents,
    AgentStatus,
    AnyGraph,
    ChangedAgent,
    Description,
    Graph,
    Hourly,
    Issue,
    Name,
    NameOrNone,
    OneAgent,
    Validity,
    Visibility,
    agent_of,
)
from baobab.tools.agents.toolset import agents
from baobab.tools.core.auth.access import AppOwner
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.deciders import Approvers
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.changes import Change, describe_change
from baobab.tools.core.escaping import escape_name
from baobab.tools.core.money import Usd
from baobab.tools.core.plan_room import PlanLimitReached, require_room
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import OMITTED, AppId, NameText, Text
from baobab.tools.core.widening import Widens, one_of, whatever_is_said

_DEDUPE_SECONDS = 60
_MOST_BYTES = 2 * 2**20
_EXAMPLE = {
    "name": "greeter",
    "graph_spec": {
        "spec_version": 1,
        "entry": "greet",
        "nodes": {
            "greet": {"type": "llm", "input_template": "Greet {{ input.name }}.", "output_key": "greeting"},
            "done": {"type": "end", "output_template": {"greeting": "{{ state.greeting }}"}},
        },
        "edges": [{"from": "greet", "to": "done"}],
    },
}

# Arguments that name the agent and are not settings of it.
_NAMING = frozenset(["call", "app_id", "name"])
_COLUMNS = {"daily_budget_usd": "daily_budget", "dedupe_window_seconds": "dedupe_window"}

ModelName = Annotated[str, Text(200, min_length=1)]
DisplayName = Annotated[str, NameText(200)]
Window = Annotated[int, Field(ge=0, le=3600)]
Days = Annotated[int, Field(ge=1, le=3650)]
PUBLIC_AT_ONCE = 10
"""How many runs of a public agent may be under way if its settings do not say."""
Concurrent = Annotated[int, Field(ge=1, le=10_000)]


_WIDENS: dict[str, Widens] = {
    "visibility": one_of(["authenticated", "public"]),
    "safety_acknowledged": one_of([True]),
    "taint_checks": one_of([False]),
}


async def agent_meaning(call: Call, app_id: AppId, name: Name, **_others: Any) -> str:
    """Returns a digest of the agent's present state, which an approval of a call that names the agent is bound to."""
    row = await get_agent_row(call, app_id, name)
    names = ("id", "graph_spec", "default_model", "visibility", "status", "taint_checks", "approvers")
    meant = json.dumps([getattr(row, column) for column in names], sort_keys=True, separators=(",", ":"))
    return sha256(meant.encode()).hexdigest()


@agents.tool(
    "GET /agents",
    access=AppOwner(),
    effect="read",
    mcp=Mcp(keywords="my agents, bots, assistants, workflows; Agenten auflisten; listar agentes, asistentes"),
)
async def agents_list(call: Call, app_id: AppId) -> Agents:
    """List the app's agents by name."""
    query = select(rows).where(rows.c.app_id == app_id, rows.c.deleted_at.is_(None)).order_by(rows.c.name)
    async with call.reading() as execute:
        agent_rows = (await execute(query)).all()
    return {"agents": [agent_of(row) for row in agent_rows]}


@agents.tool(
    "GET /agents/{name}",
    access=AppOwner(),
    effect="read",
    raises=(AgentNotFound,),
    mcp=Mcp(keywords="show the definition, graph, settings of an agent, bot, assistant; Agent ansehen; ver agente"),
)
async def agents_get(call: Call, app_id: AppId, name: Name) -> OneAgent:
    """Read an agent."""
    return {"agent": agent_of(await get_agent_row(call, app_id, name))}


async def _preview_create(call: Call, app_id: AppId, name: Name, graph_spec: Graph, **_given: Any) -> str:
    spec = await _require_valid(call, name, graph_spec)
    async with call.reading() as execute:
        mine = (rows.c.app_id == app_id, rows.c.name == name, rows.c.deleted_at.is_(None))
        if (await execute(select(rows.c.id).where(*mine))).first():
            raise AgentExists
    return f"It would make the agent {name}, of {len(spec.nodes)} nodes."


@agents.tool(
    "POST /agents",
    access=AppOwner("admin"),
    effect="write",
    raises=(AgentExists, InvalidGraph, UnsafePublic, PlanLimitReached),
    audit=Audit("agent.create", action="create", resource="agent"),
    rest=Rest(status=201, max_body=_MOST_BYTES, examples=_EXAMPLE),
    mcp=Mcp(
        keywords=(
            "build, new agent, bot, chatbot, assistant, workflow, automation, pipeline, graph, LLM with tools; "
            "Agent bauen, erstellen, anlegen, Ablauf; "
            "crear agente, asistente, flujo de trabajo"
        )
    ),
    guard=Guard(preview=_preview_create, widens={**_WIDENS, "approvers": are_others, "graph_spec": names_others}),
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
    dedupe_window_seconds: Window = _DEDUPE_SECONDS,
    safety_acknowledged: bool = False,
    taint_checks: bool = True,
    retention_days: Days | None = None,
    approvers: NamedApprovers | None = None,
) -> ChangedAgent:
    """Make an agent from a graph of models and tools.

    One answer: {"spec_version":1,"entry":"a","nodes":{"a":{"type":"llm","system_prompt":"Answer in one sentence.",
    "input_template":"{{ input.question }}","output_key":"answer"},"end":{"type":"end",
    "output_template":"{{ state.answer }}"}},"edges":[{"from":"a","to":"end"}]}

    With tools: {"spec_version":1,"entry":"a","nodes":{"a":{"type":"llm","input_template":"{{ input.task }}","tools":
    [{"source":"builtin","name":"kv_get"},{"source":"builtin","name":"kv_put"}],"output_key":"answer"},"end":{"type":
    "end","output_template":"{{ state.answer }}"}},"edges":[{"from":"a","to":"end"}],"tools":{"builtin":["kv_get",
    "kv_put"]}}

    A condition: {"spec_version":1,"entry":"look","nodes":{"look":{"type":"tool","tool_ref":{"source":"builtin",
    "name":"kv_exists"},"args_template":{"key":"user:{{ input.id }}"},"output_key":"found"},"yes":{"type":"end",
    "output_template":"known"},"no":{"type":"end","output_template":"new"}},"edges":[{"from":"look","to":"yes",
    "when":{"==":[{"var":"state.found.exists"},true]}},{"from":"look","to":"no"}],"tools":{"builtin":["kv_exists"]}}

    Tools that change something wait for a person in every run. agents_validate checks a graph, agents_run starts it.

    display_name: the name that people see.
    description: what it does, for people.
    default_model: for nodes that name none; if left out, the app's.
    visibility: who may run it: `private`: those who run the app; `authenticated`: its users too; `public`: anybody.
    max_runs_per_user_per_hour: how many runs each user of the app may start in an hour; if left out, any number.
    max_runs_per_ip_per_hour: how many runs visitors from one IP address may start; if left out, there is no limit.
    max_runs_per_app_per_hour: how many runs all callers together may start; if left out, there is no limit.
    daily_budget_usd: what its runs may cost in a day (UTC), in US dollars.
    max_concurrent_runs: if left out, any number; 10 for a public agent.
    dedupe_window_seconds: for how long the same input from the same caller returns the same run; 0 for never.
    safety_acknowledged: true confirms that somebody has reviewed what a public agent can do.
    taint_checks: false lets a run that has read outside text make external calls without asking.
    retention_days: how long its ended runs are kept; if left out, as long as the installation's setting says.
    approvers: who decides where a call waits and its node does not say: `starter` (whoever started the run), `user`
      (any user of the app), `member`, `admin`, {"role": ROLE} of the app's users, or {"persons": 2, "of": ...}.
    """
    columns = _columns(locals())
    spec = await _require_valid(call, name, graph_spec)
    if visibility == "public" and not safety_acknowledged:
        raise UnsafePublic(details={"offending_tools": await _writing_tools(call, spec)})
    if visibility == "public" and max_concurrent_runs is None:
        columns["max_concurrent_runs"] = PUBLIC_AT_ONCE
    now = call.now
    values: dict[str, Any] = {
        "id": call.services.ids.uuid(),
        "app_id": app_id,
        "name": name,
        "status": "active",
        **columns,
        "created_by": call.caller.account_id if isinstance(call.caller, Account) else None,
        "created_at": now,
        "updated_at": now,
    }
    call.audit.resource_id, call.audit.data["name"] = values["id"], name
    async with FREEZES.writing(call) as unit:
        await _require_room(call, unit, graph_spec)
        try:
            await unit.execute(insert(rows), values)
        except IntegrityError as exc:
            raise AgentExists from exc
        row = (await unit.execute(select(rows).where(rows.c.id == values["id"]))).one()
    return _render_changed(row, spec, await _load_offers(call))


async def _preview_update(call: Call, app_id: AppId, name: Name, **given: Any) -> str:
    await get_agent_row(call, app_id, name)
    if isinstance(given["graph_spec"], dict):
        await _require_valid(call, name, given["graph_spec"])
    fields = sorted(field for field, value in given.items() if value is not OMITTED)
    return f"It would change of the agent {name}: {', '.join(fields) or 'nothing'}."


_COMPARED = ("graph_spec", "display_name", "description", "default_model", "visibility", "status")


async def _list_update_changes(call: Call, app_id: AppId, name: Name, **given: Any) -> list[Change]:
    row = await get_agent_row(call, app_id, name)
    fields = [(field, getattr(row, field), given[field]) for field in _COMPARED if given[field] is not OMITTED]
    return [describe_change(field, before, after) for field, before, after in fields if before != after]


@agents.tool(
    "PATCH /agents/{name}",
    access=AppOwner("admin"),
    effect="write",
    raises=(AgentNotFound, InvalidGraph, UnsafePublic, PlanLimitReached),
    audit=Audit("agent.update", resource="agent"),
    rest=Rest(max_body=_MOST_BYTES),
    mcp=Mcp(
        keywords=(
            "edit, change an agent's graph, prompt, model, limits, make an agent public, enable, disable; "
            "Agent ändern, bearbeiten; "
            "cambiar, editar, modificar agente"
        )
    ),
    guard=Guard(
        preview=_preview_update,
        changes=_list_update_changes,
        widens={**_WIDENS, "approvers": whatever_is_said},
        destructive_when="where it gives another graph: the one before is not kept",
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
    dedupe_window_seconds: Window = OMITTED,
    safety_acknowledged: bool = OMITTED,
    taint_checks: bool = OMITTED,
    retention_days: Days | None = OMITTED,
    approvers: NamedApprovers | None = OMITTED,
) -> ChangedAgent:
    """Change an agent; what is left out stays. Runs that have started continue with the graph they started with.

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
    dedupe_window_seconds: as in agents_create.
    safety_acknowledged: as in agents_create.
    taint_checks: as in agents_create.
    retention_days: null for the installation's default.
    approvers: null for none: then whoever started a run, and admins where tool servers are called.
    """
    values = _columns(locals())
    call.audit.data |= {"name": name, "fields": sorted(values)}
    async with FREEZES.writing(call) as unit:
        row = await _get_agent_row(unit.execute, app_id, name)
        graph = values.get("graph_spec", row.graph_spec)
        if graph != row.graph_spec:
            check_graph(call.caller, row.graph_spec, graph)
            call.declare_destructive()
        if graph_spec is not OMITTED:
            # Only then: an agent can be disabled even if a tool of its graph was deleted or has changed.
            await _require_valid(call, name, graph)
            await _require_room(call, unit, graph, beside=row.id)
        public = values.get("visibility", row.visibility) == "public"
        if public and not values.get("safety_acknowledged", row.safety_acknowledged):
            tools = await _writing_tools(call, GraphSpec.model_validate(graph))
            raise UnsafePublic(details={"offending_tools": tools})
        if public and row.visibility != "public" and row.max_concurrent_runs is None:
            values.setdefault("max_concurrent_runs", PUBLIC_AT_ONCE)
        call.audit.resource_id = row.id
        changed = update(rows).where(rows.c.id == row.id).values(**values, updated_at=call.now)
        await unit.execute(changed)
        row = await _get_agent_row(unit.execute, app_id, name)
    return _render_changed(row, GraphSpec.model_validate(row.graph_spec), await _load_offers(call))


async def _preview_delete(call: Call, app_id: AppId, name: Name) -> str:
    row = await get_agent_row(call, app_id, name)
    shown = f" ({escape_name(row.display_name)})" if row.display_name else ""
    return f"It would remove the agent {name}{shown}, last changed {row.updated_at:%Y-%m-%d %H:%M} UTC. Its runs stay."


@agents.tool(
    "DELETE /agents/{name}",
    access=AppOwner("admin"),
    effect="destructive",
    raises=(AgentNotFound,),
    audit=Audit("agent.delete", action="delete", resource="agent"),
    rest=Rest(status=204),
    mcp=Mcp(keywords="remove an agent, bot, assistant, workflow; Agent löschen; eliminar, borrar agente"),
    guard=Guard(preview=_preview_delete),
)
async def agents_delete(call: Call, app_id: AppId, name: Name) -> None:
    """Delete an agent; its name is free again. Its runs can still be read, and active runs continue."""
    async with FREEZES.writing(call) as unit:
        row = await _get_agent_row(unit.execute, app_id, name)
        call.audit.resource_id, call.audit.data["name"] = row.id, name
        # Runs have their own copy of the graph, so the agent's is deleted.
        gone = {"deleted_at": call.now, "status": "disabled", "graph_spec": {}}
        await unit.execute(update(rows).where(rows.c.id == row.id).values(**gone))


@agents.tool(
    "POST /agents/{name}/validate",
    access=AppOwner(),
    effect="read",
    raises=(NoGraph,),
    rest=Rest(repeats=("name",), max_body=_MOST_BYTES, examples=_EXAMPLE),
    mcp=Mcp(
        keywords=(
            "check, verify, lint, test a graph, is it correct, errors, mistakes, dry run; "
            "Graph prüfen, Fehler; "
            "validar, comprobar grafo"
        )
    ),
)
async def agents_validate(
    call: Call,
    app_id: AppId,
    name: NameOrNone,
    graph_spec: AnyGraph,
    display_name: DisplayName | None = None,
    description: Description | None = None,
    default_model: ModelName | None = None,
    visibility: Visibility = OMITTED,
    max_runs_per_user_per_hour: Hourly | None = None,
    max_runs_per_ip_per_hour: Hourly | None = None,
    max_runs_per_app_per_hour: Hourly | None = None,
    daily_budget_usd: Usd | None = None,
    max_concurrent_runs: Concurrent | None = None,
    dedupe_window_seconds: Window | None = None,
    safety_acknowledged: bool | None = None,
    taint_checks: bool | None = None,
    retention_days: Days | None = None,
    approvers: NamedApprovers | None = OMITTED,
) -> Validity:
    """Check a graph without storing it: lists every issue with its path. The agent need not exist.

    The other fields of agents_create are accepted, too.

    display_name: as in agents_create.
    description: as in agents_create.
    default_model: as in agents_create.
    max_runs_per_user_per_hour: as in agents_create.
    max_runs_per_ip_per_hour: as in agents_create.
    max_runs_per_app_per_hour: as in agents_create.
    daily_budget_usd: as in agents_create.
    max_concurrent_runs: as in agents_create.
    dedupe_window_seconds: as in agents_create.
    safety_acknowledged: as in agents_create.
    taint_checks: as in agents_create.
    retention_days: as in agents_create.
    name: the agent that the graph is for; `_` if it has no name yet.
    visibility: what the agent shall have, for warnings; left out, what it has.
    approvers: the same; null for none.
    """
    _columns(locals())
    if not isinstance(graph_spec, dict):
        raise NoGraph(details={"issues": [{"path": [], "message": "must be an object"}]})
    spec, issues = await _validate_graph(call, name, graph_spec)
    if spec is None or issues:
        return {"valid": False, "issues": issues}
    if visibility is OMITTED or approvers is OMITTED:
        mine = (rows.c.app_id == app_id, rows.c.name == name, rows.c.deleted_at.is_(None))
        async with call.reading() as execute:
            row = (await execute(select(rows).where(*mine))).first()
        visibility = (row.visibility if row else "private") if visibility is OMITTED else visibility
        approvers = (row.approvers if row else None) if approvers is OMITTED else approvers
    warnings = _warnings(spec, visibility, approvers, await _load_offers(call))
    return {"valid": True, "warnings": warnings} if warnings else {"valid": True}


def _columns(given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of an agent by column. given: the arguments of a call, some of which may be left out."""
    shall = {field: value for field, value in given.items() if field not in _NAMING and value is not OMITTED}
    if isinstance(shall.get("approvers"), str | BaseModel):
        shall["approvers"] = Approvers.parse(shall["approvers"]).as_column
    return {_COLUMNS.get(field, field): value for field, value in shall.items()}


def _render_changed(row: Any, spec: GraphSpec, offers: ToolOffers) -> ChangedAgent:
    warnings = _warnings(spec, row.visibility, row.approvers, offers)
    answer: ChangedAgent = {"agent": agent_of(row)}
    return {**answer, "warnings": warnings} if warnings else answer


def _warnings(spec: GraphSpec, visibility: str, approvers: Any, offers: ToolOffers) -> list[Issue]:
    """Warns about calls that whoever starts a run decides about, in an agent that anybody may run."""
    if visibility == "private" or approvers is not None:
        return []
    return [{"path": list(issue.path), "message": issue.message} for issue in find_self_approvals(spec, offers)]


async def describe_agent(call: Call, row: Any) -> str:
    """Describes what an agent can do, for the person who decides about it."""
    spec, offers = GraphSpec.model_validate(row.graph_spec), await _load_offers(call)
    lines = [f"The agent {row.name} ({row.visibility}) has {len(spec.nodes)} nodes."]
    for ref in dict.fromkeys((ref.source, ref.server_id, ref.name) for ref in _refs(spec)):
        tool = ToolRef(source=ref[0], server_id=ref[1], name=ref[2])
        offer = offers.get_offer(tool)
        if isinstance(offer, str):
            how = f"cannot be used: {offer}"
        else:
            how = "changes something: each call waits for a person" if offer.mode == "read_write" else "reads"
        server = f" of the tool server {escape_name(ref[1])}" if ref[1] else ""
        lines.append(f"tool {escape_name(ref[2])}{server}: {how}")
    agents_in_it = {node.agent for node in spec.nodes.values() if isinstance(node, AgentNode)}
    lines += [f"agent {name}: runs below it" for name in sorted(agents_in_it)]
    thinking = [node for node in spec.nodes.values() if isinstance(node, LlmNode)]
    models = {node.model or row.default_model or "the app's" for node in thinking}
    lines += [f"model {escape_name(name)}" for name in sorted(models)]
    if not row.taint_checks:
        lines.append("It is not asked for approval after it has read text from outside.")
    return "\n".join(lines)


async def get_agent_row(call: Call, app_id: str, name: str) -> Any:
    async with call.reading() as execute:
        return await _get_agent_row(execute, app_id, name)


async def _get_agent_row(execute: Any, app_id: str, name: str) -> Any:
    mine = (rows.c.app_id == app_id, rows.c.name == name, rows.c.deleted_at.is_(None))
    row = (await execute(select(rows).where(*mine))).first()
    if row is None:
        raise AgentNotFound(f"There is no agent `{name}`.")
    return row


async def _validate_graph(call: Call, name: str, graph: Any) -> tuple[GraphSpec | None, list[Issue]]:
    """Returns the graph if it is valid, and all issues and warnings."""
    offers = await _load_offers(call)
    # Checking its schemas takes time: it is done in a thread, off the event loop.
    spec, issues = await asyncio.to_thread(find_issues, graph, offers)
    if spec is not None:
        issues += await _find_agent_issues(call, name, spec, whole=not issues)
    described: list[Issue] = [{"path": list(issue.path), "message": issue.message} for issue in issues[:MAX_ISSUES]]
    return (None if described else spec), described


async def _find_agent_issues(call: Call, name: str, spec: GraphSpec, *, whole: bool) -> list[Found]:
    """Returns the issues with the agents that an agent of this name runs.

    whole: whether there is nothing else to say against the graph.
    """
    nodes = [(node_id, node) for node_id, node in spec.nodes.items() if isinstance(node, AgentNode)]
    if not nodes:
        return []
    named = {node.agent for _, node in nodes}
    query = select(rows.c.name).where(rows.c.app_id == call.require_app().id, rows.c.deleted_at.is_(None))
    async with call.reading() as execute:
        known = {name, *(await execute(query.where(rows.c.name.in_(named)))).scalars()}
    agent_issues = []
    for node_id, node in nodes:
        where = ("nodes", node_id, "agent")
        if node.agent not in known:
            agent_issues.append(Found(where, f"there is no agent {node.agent}"))
        elif node.agent == name and whole and is_inevitable(spec, node_id):
            agent_issues.append(Found(where, "runs this agent itself, and no condition leads past it"))
    return agent_issues[:MAX_ISSUES]


async def _require_valid(call: Call, name: str, graph: Any) -> GraphSpec:
    spec, issues = await _validate_graph(call, name, graph)
    if spec is None or issues:
        raise InvalidGraph(f"The graph is not valid: {issues[0]['message']}", details={"issues": issues})
    return spec


async def _load_offers(call: Call) -> ToolOffers:
    async with call.reading() as execute:
        return await load_offers(call.registry, execute, call.require_app().id)


async def _writing_tools(call: Call, spec: GraphSpec) -> list[str]:
    """Returns the tools of a graph that change something."""
    offers = await _load_offers(call)
    offered = ((ref.name, offers.get_offer(ref)) for ref in _refs(spec))
    return sorted(
        {name for name, offer in offered if isinstance(offer, str) or narrow_offer(offer).mode == "read_write"}
    )


def _refs(spec: GraphSpec) -> list[ToolRef]:
    refs: list[ToolRef] = []
    for node in spec.nodes.values():
        match node:
            case LlmNode():
                refs += node.tools
            case ToolNode() | MapNode():
                refs.append(node.tool_ref)
    return refs


async def _require_room(call: Call, unit: Unit, graph: Mapping[str, Any], beside: str = "") -> None:
    """Raises PlanLimitReached if the plan has no room for the graph. beside: the agent whose graph it replaces."""
    plan = call.require_app().plan
    if plan.agents is None and plan.agent_bytes is None:
        return
    size = func.coalesce(func.sum(func.length(cast(rows.c.graph_spec, LongText))), 0)
    others = (rows.c.app_id == call.require_app().id, rows.c.deleted_at.is_(None), rows.c.id != beside)
    there: Any = (await unit.execute(select(func.count().label("agents"), size.label("bytes")).where(*others))).one()
    require_room("agents of an app", plan, plan.agents, there.agents)
    require_room("bytes of an app's graphs", plan, plan.agent_bytes, there.bytes, len(json.dumps(graph)))
