"""Approvers as arguments: a key with limits does not choose who decides."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.auth.callers import Caller
from baobab.tools.core.auth.deciders import ADMIN, Approvers
from baobab.tools.core.errors import KeyLimited


def are_others(value: Any) -> bool:
    """Whether approvers other than admins are named. Admins may decide about every call anyway."""
    return value is not None and Approvers.parse(value).of != ADMIN


def names_others(graph: Any) -> bool:
    """Whether a node of a graph names approvers other than admins."""
    return any(named != ADMIN for named in _node_approvers(graph).values())


def check_graph(caller: Caller, before: Any, after: Any) -> None:
    """Raises KeyLimited if a caller with limits changes who decides about a node."""
    if caller.limits is None:
        return
    was, now = _node_approvers(before), _node_approvers(after)
    for node in was.keys() | now.keys():
        if was.get(node) != now.get(node) and (node in was or now[node] != ADMIN):
            raise KeyLimited(
                f"A key with limits cannot change who decides about the node `{node[:100]}`.",
                remediation="Leave its `approvers` as they are, or have somebody do it who is signed in.",
                details={"argument": "graph_spec"},
            )


def _node_approvers(graph: Any) -> dict[str, Any]:
    nodes = graph.get("nodes") if isinstance(graph, Mapping) else None
    items = nodes.items() if isinstance(nodes, Mapping) else ()
    named = {name: node.get("approvers") for name, node in items if isinstance(node, Mapping)}
    return {name: approvers for name, approvers in named.items() if approvers is not None}
