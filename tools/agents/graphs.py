"""Graphs of agents: whether one is valid, which tools it uses, what it can do, and who decides about its calls."""

import asyncio
from collections.abc import Mapping
from typing import Any

from sqlalchemy import select

from baobab.runtime.agents.offers import ToolOffers, load_offers
from baobab.runtime.agents.spec.app_rights import list_lenders
from baobab.runtime.agents.spec.issue import MAX_ISSUES
from baobab.runtime.agents.spec.issue import Issue as GraphIssue
from baobab.runtime.agents.spec.spec import AgentNode, GraphSpec, LlmNode, MapNode, ToolNode, ToolRef
from baobab.runtime.agents.spec.validation import find_issues, find_self_approvals, list_node_refs, narrow_offer
from baobab.runtime.agents.spec.wiring import is_inevitable
from baobab.runtime.agents.tables import agents as rows
from baobab.tools.agents.errors import InvalidGraph
from baobab.tools.agents.schemas.agents import Issue
from baobab.tools.core import Anonymous, Call, Caller, EndUser
from baobab.tools.core.auth.deciders import ADMIN, Approvers
from baobab.tools.core.errors import KeyLimited
from baobab.tools.core.guard.escaping import escape_name

MOST_GRAPH_BYTES = 2 * 2**20
_APP = "app_000000000000"
# Nobody in particular: what any user and any visitor may call.
_USER, _VISITOR = EndUser(_APP, "somebody"), Anonymous(_APP)
GRAPH_EXAMPLE = {
    "name": "greeter",
    "graph_spec": {
        "spec_version": 1,
        "entry": "greet",
        "nodes": {
            "greet": {
                "type": "llm",
                "input_template": "Greet {{ input.name }}. The key `greeting` says how.",
                "tools": [{"source": "builtin", "name": "kv_get"}],
                "output_key": "greeting",
            },
            "done": {"type": "end", "output_template": {"greeting": "{{ state.greeting }}"}},
        },
        "edges": [{"from": "greet", "to": "done"}],
        "tools": {"builtin": ["kv_get"]},
    },
}


async def validate_graph(call: Call, name: str, graph: Any) -> tuple[GraphSpec | None, list[Issue]]:
    """Returns the graph if it is valid, and all issues and warnings."""
    offers = await load_tool_offers(call)
    # Checking its schemas takes time: it is done in a thread, off the event loop.
    spec, issues = await asyncio.to_thread(find_issues, graph, offers)
    if spec is not None:
        issues += await _find_agent_issues(call, name, spec, whole=not issues)
    problems: list[Issue] = [{"path": list(issue.path), "message": issue.message} for issue in issues[:MAX_ISSUES]]
    return (None if problems else spec), problems


async def _find_agent_issues(call: Call, name: str, spec: GraphSpec, *, whole: bool) -> list[GraphIssue]:
    """Returns the issues with the agents that an agent of this name runs.

    whole: whether there is nothing else to say against the graph.
    """
    nodes = [(node_id, node) for node_id, node in spec.nodes.items() if isinstance(node, AgentNode)]
    if not nodes:
        return []
    agent_names = {node.agent for _, node in nodes}
    query = select(rows.c.name).where(rows.c.app_id == call.require_app().id, rows.c.deleted_at.is_(None))
    async with call.reading() as execute:
        existing_names = {name, *(await execute(query.where(rows.c.name.in_(agent_names)))).scalars()}
    agent_issues = []
    for node_id, node in nodes:
        path = ("nodes", node_id, "agent")
        if node.agent not in existing_names:
            agent_issues.append(GraphIssue(path, f"there is no agent {node.agent}"))
        elif node.agent == name and whole and is_inevitable(spec, node_id):
            agent_issues.append(GraphIssue(path, "runs this agent itself, and no condition leads past it"))
    return agent_issues[:MAX_ISSUES]


async def require_valid(call: Call, name: str, graph: Any) -> GraphSpec:
    spec, issues = await validate_graph(call, name, graph)
    if spec is None or issues:
        path = ".".join(map(str, issues[0]["path"]))
        place = f"{escape_name(path)} " if path else ""
        raise InvalidGraph(f"The graph is not valid: {place}{issues[0]['message']}.", details={"issues": issues})
    return spec


async def load_tool_offers(call: Call) -> ToolOffers:
    async with call.reading() as execute:
        return await load_offers(call.registry, execute, call.require_app().id)


async def list_writing_tools(call: Call, spec: GraphSpec) -> list[str]:
    """Returns the tools of a graph that change something."""
    offers = await load_tool_offers(call)
    offers_of_tools = ((ref.name, offers.get_offer(ref)) for ref in list_tool_refs(spec))
    return sorted(
        {name for name, offer in offers_of_tools if isinstance(offer, str) or narrow_offer(offer).mode == "read_write"}
    )


def list_tool_refs(spec: GraphSpec) -> list[ToolRef]:
    refs: list[ToolRef] = []
    for node in spec.nodes.values():
        match node:
            case LlmNode():
                refs += node.tools
            case ToolNode() | MapNode():
                refs.append(node.tool_ref)
    return refs


def list_warnings(spec: GraphSpec, visibility: str, approvers: Any, offers: ToolOffers) -> list[Issue]:
    """Warns about what users or visitors, who may run the agent, cannot do in its runs, and about calls that whoever
    starts a run decides about.
    """
    if visibility == "private":
        return []
    issues = _find_withheld(spec, visibility, offers)
    if approvers is None:
        issues += find_self_approvals(spec, offers)
    return [{"path": list(issue.path), "message": issue.message} for issue in issues[:MAX_ISSUES]]


def _find_withheld(spec: GraphSpec, visibility: str, offers: ToolOffers) -> list[GraphIssue]:
    """Finds the tools of a graph that users or visitors do not get. A node that acts as the app needs no right of
    theirs.
    """
    callers: dict[str, Caller] = {"users": _USER} | ({"visitors": _VISITOR} if visibility == "public" else {})
    issues = []
    for node_id, node in spec.nodes.items():
        refs = list_node_refs(node) if getattr(node, "run_as", None) is None else []
        for path, ref in refs:
            barred_callers = [word for word, caller in callers.items() if not offers.is_admitted(spec, ref, caller)]
            if not barred_callers:
                continue
            twins = [
                name
                for name in offers.list_twins(ref)
                if all(
                    offers.is_admitted(spec, ToolRef(source="builtin", name=name), callers[word])
                    for word in barred_callers
                )
            ]
            advice = f"; they can call {twins[0]}" if twins else ""
            message = f"{' and '.join(barred_callers)} cannot call {ref.name} in their runs{advice}"
            issues.append(GraphIssue(("nodes", node_id, *path), message))
    return issues


async def describe_agent(call: Call, row: Any) -> str:
    """Describes what an agent can do, for the person who decides about it."""
    spec, offers = GraphSpec.model_validate(row.graph_spec), await load_tool_offers(call)
    lines = [f"The agent {row.name} ({row.visibility}) has {len(spec.nodes)} nodes."]
    for ref in dict.fromkeys((ref.source, ref.server_id, ref.name) for ref in list_tool_refs(spec)):
        tool = ToolRef(source=ref[0], server_id=ref[1], name=ref[2])
        offer = offers.get_offer(tool)
        if isinstance(offer, str):
            effect_text = f"cannot be used: {offer}"
        else:
            effect_text = "changes something: each call waits for a person" if offer.mode == "read_write" else "reads"
        server = f" of the tool server {escape_name(ref[1])}" if ref[1] else ""
        lines.append(f"tool {escape_name(ref[2])}{server}: {effect_text}")
    agents_in_it = {node.agent for node in spec.nodes.values() if isinstance(node, AgentNode)}
    lines += [f"agent {name}: runs below it" for name in sorted(agents_in_it)]
    thinking = [node for node in spec.nodes.values() if isinstance(node, LlmNode)]
    models = {node.model or row.default_model or "the app's" for node in thinking}
    lines += [f"model {escape_name(name)}" for name in sorted(models)]
    acting_tools = sorted({node.tool_ref.name for node in list_lenders(spec).values()})
    lines += [f"tool {escape_name(name)}: with the app's right, once others approve it" for name in acting_tools]
    if not row.taint_checks:
        lines.append("It is not asked for approval after it has read text from outside.")
    return "\n".join(lines)


def are_other_approvers(value: Any) -> bool:
    """Returns whether approvers other than admins are named, which a key with limits may not do.

    Admins may decide about every call anyway.
    """
    return value is not None and Approvers.parse(value).of != ADMIN


def does_graph_widen(graph: Any) -> bool:
    """Returns whether a node of a graph names approvers other than admins, or lends the app's right to its call."""
    return bool(_acting_nodes(graph)) or any(approvers != ADMIN for approvers in _node_approvers(graph).values())


def check_widening(caller: Caller, before: Any, after: Any) -> None:
    """Raises KeyLimited if a caller with limits changes who decides about a node, or a node that acts as the app."""
    if caller.limits is None:
        return
    acting_before, acting_after = _acting_nodes(before), _acting_nodes(after)
    for node in acting_before.keys() | acting_after.keys():
        if acting_before.get(node) != acting_after.get(node):
            raise KeyLimited(
                f"A key with limits cannot change the node `{node[:100]}`, which acts with the app's right.",
                remediation="Leave the node as it is, without `run_as` if it is new, or ask an admin who is signed in.",
                details={"argument": "graph_spec"},
            )
    approvers_before, approvers_after = _node_approvers(before), _node_approvers(after)
    for node in approvers_before.keys() | approvers_after.keys():
        if approvers_before.get(node) != approvers_after.get(node) and (
            node in approvers_before or approvers_after[node] != ADMIN
        ):
            raise KeyLimited(
                f"A key with limits cannot change who decides about the node `{node[:100]}`.",
                remediation="Leave its `approvers` as they are, or ask somebody who is signed in to change them.",
                details={"argument": "graph_spec"},
            )


def require_right_to_enable(caller: Caller, graph: Any) -> None:
    """Raises KeyLimited if a caller with limits enables an agent that acts with the app's right."""
    if caller.limits is not None and _acting_nodes(graph):
        raise KeyLimited(
            "A key with limits cannot enable an agent that acts with the app's right.",
            remediation="Leave `status` out, or ask an admin who is signed in.",
            details={"argument": "status"},
        )


def _acting_nodes(graph: Any) -> dict[str, Any]:
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    items = nodes.items() if isinstance(nodes, Mapping) else ()
    return {name: node for name, node in items if isinstance(node, Mapping) and node.get("run_as") is not None}


def _node_approvers(graph: Any) -> dict[str, Any]:
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    items = nodes.items() if isinstance(nodes, Mapping) else ()
    approvers_by_node = {name: node.get("approvers") for name, node in items if isinstance(node, Mapping)}
    return {name: approvers for name, approvers in approvers_by_node.items() if approvers is not None}
