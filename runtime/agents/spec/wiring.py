"""Validates how the nodes of a graph are connected: its entry, its ends and its cycles."""

import json
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches

from baobab.runtime.agents.spec.issue import Issue, quote_name
from baobab.runtime.agents.spec.spec import EndNode, GraphSpec, LlmNode, Node
from baobab.runtime.agents.spec.templates import list_names

# The ids of the nodes that a node leads to, by its id.
Leads = Mapping[str, Sequence[str]]


def find_wiring_issues(spec: GraphSpec, *, are_edges_known: bool = True) -> Iterator[Issue]:
    """Validates the connections. If not all edges are known, what nodes lead to is not checked."""
    leads = build_leads(spec)
    reached_nodes = _find_reachable([spec.entry], leads) if spec.entry in leads else None
    if reached_nodes is None:
        yield Issue(("entry",), _no_node_message(spec, spec.entry))
    yield from _find_end_issues(spec, reached_nodes if are_edges_known else None)
    yield from _find_edge_issues(spec)
    if not are_edges_known:
        return
    yield from _find_node_issues(spec, reached_nodes)
    for cycle in _find_endless_cycles(leads):
        yield Issue(("nodes", cycle[0]), f"the cycle {_draw_cycle(cycle)} is never left: no edge of it leads to an end")


def build_leads(spec: GraphSpec) -> dict[str, list[str]]:
    """Returns the nodes that each node leads to, in the order of the edges. Edges from ends or unknown nodes are left
    out.
    """
    leads: dict[str, list[str]] = {node_id: [] for node_id in spec.nodes}
    for edge in spec.edges:
        if edge.to in leads and edge.from_ in leads and not isinstance(spec.nodes[edge.from_], EndNode):
            leads[edge.from_].append(edge.to)
    return leads


def writable_before(spec: GraphSpec) -> dict[str, set[str]]:
    """Returns the keys of the state that may have been written before each node, on any path to it."""
    leads = build_leads(spec)
    writers: dict[str, list[str]] = {}
    for node_id, node in spec.nodes.items():
        for key in written_keys(node):
            writers.setdefault(key, []).append(node_id)
    keys: dict[str, set[str]] = {node_id: set() for node_id in spec.nodes}
    for key, writing in writers.items():
        for node_id in _find_reachable([target for writer in writing for target in leads[writer]], leads):
            keys[node_id].add(key)
    return keys


def is_inevitable(spec: GraphSpec, node_id: str) -> bool:
    """Returns whether every path from the entry to an end goes through the node. The graph must have no issues."""
    if node_id == spec.entry:
        return True
    leads = {start: [to for to in targets if to != node_id] for start, targets in build_leads(spec).items()}
    reached_nodes = _find_reachable([spec.entry], leads)
    return not any(isinstance(spec.nodes[other], EndNode) for other in reached_nodes)


def written_keys(node: Node) -> frozenset[str]:
    if isinstance(node, EndNode) or node.output_key is None:
        return frozenset()
    return frozenset([node.output_key])


def is_output(spec: GraphSpec, node: LlmNode) -> bool:
    """Returns whether an end of the graph names what the node writes, so that it is a part of the run's output."""
    output_templates = (other.output_template for other in spec.nodes.values() if isinstance(other, EndNode))
    return any(
        name[0] == "state" and name[1:2] in ((), (node.output_key,))
        for end in output_templates
        for name in list_names(end)
    )


def _find_reachable(starts: Sequence[str], leads: Leads) -> set[str]:
    """Returns the given nodes, and all nodes that can be reached from them."""
    reached_nodes = set(starts)
    waiting = list(reached_nodes)
    while waiting:
        for target in leads[waiting.pop()]:
            if target not in reached_nodes:
                reached_nodes.add(target)
                waiting.append(target)
    return reached_nodes


def _find_end_issues(spec: GraphSpec, reached_nodes: set[str] | None) -> Iterator[Issue]:
    end_nodes = {node_id for node_id, node in spec.nodes.items() if isinstance(node, EndNode)}
    if not end_nodes:
        yield Issue(("nodes",), "there is no node of type end")
    elif reached_nodes is not None and not end_nodes & reached_nodes:
        yield Issue(("entry",), "no node of type end can be reached from here")


def _find_edge_issues(spec: GraphSpec) -> Iterator[Issue]:
    defaults: set[str] = set()
    seen_nodes: set[str] = set()
    for index, edge in enumerate(spec.edges):
        for end, node_id in (("from", edge.from_), ("to", edge.to)):
            if node_id not in spec.nodes:
                yield Issue(("edges", index, end), _no_node_message(spec, node_id))
        identity = json.dumps([edge.from_, edge.to, edge.when], sort_keys=True)
        if isinstance(spec.nodes.get(edge.from_), EndNode):
            yield Issue(("edges", index, "from"), f"{quote_name(edge.from_)} is an end: nothing follows it")
        elif edge.from_ in defaults:
            yield Issue(
                ("edges", index), f"is never taken: an edge without when leaves {quote_name(edge.from_)} before it"
            )
        elif identity in seen_nodes:
            yield Issue(("edges", index), "is listed twice")
        seen_nodes.add(identity)
        if edge.when is None:
            defaults.add(edge.from_)


def _no_node_message(spec: GraphSpec, node_id: str) -> str:
    matches = get_close_matches(node_id, list(spec.nodes), 1)
    return f"there is no node {quote_name(node_id)}" + (f"; did you mean {quote_name(matches[0])}?" if matches else "")


def _find_node_issues(spec: GraphSpec, reached_nodes: set[str] | None) -> Iterator[Issue]:
    leaving = {edge.from_ for edge in spec.edges}
    for node_id, node in spec.nodes.items():
        if reached_nodes is not None and node_id not in reached_nodes:
            yield Issue(("nodes", node_id), f"cannot be reached from the entry {quote_name(spec.entry)}")
        if node_id not in leaving and not isinstance(node, EndNode):
            yield Issue(("nodes", node_id), "no edge leaves it, and it is not of type end")


def _find_endless_cycles(leads: Leads) -> Iterator[list[str]]:
    """Yields the cycles from which no path leads to a node where a run stops."""
    sources: dict[str, list[str]] = {node_id: [] for node_id in leads}
    for node_id, targets in leads.items():
        for target in targets:
            sources[target].append(node_id)
    stopping: set[str] = set()
    for node_id, targets in leads.items():
        if not targets and node_id not in stopping:
            stopping |= _find_reachable([node_id], sources)
    visited_nodes: set[str] = set()
    for start in leads:
        path: list[str] = []
        node_id = start
        # A trapped node leads only to trapped nodes, so following any edge must end in a cycle.
        while node_id not in stopping and node_id not in visited_nodes:
            path.append(node_id)
            visited_nodes.add(node_id)
            node_id = leads[node_id][0]
        if node_id in path:
            yield [*path[path.index(node_id) :], node_id]


def _draw_cycle(cycle: Sequence[str]) -> str:
    names = [quote_name(node_id) for node_id in cycle]
    return " -> ".join(names if len(names) <= 8 else [*names[:4], "...", *names[-3:]])
