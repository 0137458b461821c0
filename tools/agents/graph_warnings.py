"""Everything that is no mistake of a graph, but that whoever saves or checks it should know."""

from typing import Any

from baobab.runtime.agents.spec.spec import GraphSpec
from baobab.tools.agents.barred_writes import find_barred_writes
from baobab.tools.agents.graphs import list_warnings, load_tool_offers
from baobab.tools.agents.named_data import find_unknown_names
from baobab.tools.agents.schemas.agents import Issue
from baobab.tools.agents.unfilled_inputs import warn_of_unfilled_agents
from baobab.tools.core import Call


async def collect_warnings(
    call: Call, name: str, spec: GraphSpec, visibility: str, approvers: Any, default_model: str | None
) -> list[Issue]:
    """Returns all warnings of a graph for an agent of this name with these settings."""
    warnings = list_warnings(spec, visibility, approvers, await load_tool_offers(call))
    warnings += await find_barred_writes(call, spec, visibility)
    warnings += await warn_of_unfilled_agents(call, name, spec)
    return warnings + await find_unknown_names(call, spec, default_model)
