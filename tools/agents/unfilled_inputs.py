"""Fields of the input that a run needs, and that whoever starts it does not give."""

from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.spec.input_fields import find_unfilled_inputs, list_fields_of_graph, list_input_fields
from baobab.runtime.agents.spec.issue import MAX_ISSUES, quote_name
from baobab.runtime.agents.spec.spec import AgentNode, GraphSpec
from baobab.runtime.agents.tables import agents as rows
from baobab.tools.agents.schemas.agents import Issue
from baobab.tools.core import Call


async def warn_of_unfilled_agents(call: Call, name: str, spec: GraphSpec) -> list[Issue]:
    """Warns of nodes that run an agent without what its graph names. name: the agent that the graph is for."""
    agent_names = {node.agent for node in spec.nodes.values() if isinstance(node, AgentNode)}
    if not agent_names:
        return []
    query = select(rows.c.name, rows.c.graph_spec).where(rows.c.app_id == call.require_app().id)
    async with call.reading() as execute:
        agent_rows = (await execute(query.where(rows.c.deleted_at.is_(None), rows.c.name.in_(agent_names)))).all()
    fields_of_agents = {row.name: list_fields_of_graph(row.graph_spec) for row in agent_rows}
    fields_of_agents[name] = list_input_fields(spec)
    issues = find_unfilled_inputs(spec, fields_of_agents)
    return [{"path": list(issue.path), "message": issue.message} for issue in issues[:MAX_ISSUES]]


def warn_of_unfilled_input(call: Call, graph: Any, values: Mapping[str, Any]) -> None:
    """Warns whoever starts a run of the fields that its graph names and the input does not have."""
    missing_fields = {name: node for name, node in list_fields_of_graph(graph).items() if name not in values}
    call.warn(
        *(
            f"The input has no {quote_name(name)}: a run that comes to the node {quote_name(node)} ends there."
            for name, node in missing_fields.items()
        )
    )
