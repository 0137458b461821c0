"""The tool that checks a graph without storing it."""

from sqlalchemy import select

from baobab.runtime.agents.spec.spec import NamedApprovers
from baobab.runtime.agents.tables import agents as rows
from baobab.tools.agents.agent_rows import agent_columns
from baobab.tools.agents.errors import NoGraph
from baobab.tools.agents.graph_warnings import collect_warnings
from baobab.tools.agents.graphs import GRAPH_EXAMPLE, MOST_GRAPH_BYTES, validate_graph
from baobab.tools.agents.schemas.agents import (
    AnyGraph,
    Concurrent,
    Days,
    DedupeWindow,
    Description,
    DisplayName,
    Hourly,
    ModelName,
    NameOrNone,
    Validity,
    Visibility,
)
from baobab.tools.agents.toolset import agents
from baobab.tools.core import OMITTED, AppId, AppOwner, Call, Rest
from baobab.tools.core.limits.money import Usd


@agents.tool(
    "POST /agents/{name}/validate",
    access=AppOwner(),
    effect="read",
    raises=(NoGraph,),
    rest=Rest(repeats=("name",), max_body=MOST_GRAPH_BYTES, examples=GRAPH_EXAMPLE),
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
    dedupe_window_seconds: DedupeWindow | None = None,
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
    visibility: for warnings: the visibility you plan; by default, the present.
    approvers: the same; null for none.
    """
    agent_columns(locals())
    if not isinstance(graph_spec, dict):
        raise NoGraph(details={"issues": [{"path": [], "message": "must be an object"}]})
    spec, issues = await validate_graph(call, name, graph_spec)
    if spec is None or issues:
        return {"valid": False, "issues": issues}
    if visibility is OMITTED or approvers is OMITTED or default_model is None:
        is_agent = (rows.c.app_id == app_id, rows.c.name == name, rows.c.deleted_at.is_(None))
        async with call.reading() as execute:
            row = (await execute(select(rows).where(*is_agent))).first()
        visibility = (row.visibility if row else "private") if visibility is OMITTED else visibility
        approvers = (row.approvers if row else None) if approvers is OMITTED else approvers
        default_model = default_model or (row.default_model if row else None)
    warnings = await collect_warnings(call, name, spec, visibility, approvers, default_model)
    return {"valid": True, "warnings": warnings} if warnings else {"valid": True}
