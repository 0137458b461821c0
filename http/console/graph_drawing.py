"""Draws the graph of an agent: lays it out in rows from its first node, and says what the SVG of a page contains."""

from collections.abc import Mapping
from typing import Any

from baobab.tools.core.guard.escaping import escape_text

_WIDTH, _HEIGHT, _GAP_X, _GAP_Y, _MARGIN = 172, 46, 28, 40, 16
_LETTERS = 20
_AROUND = 26
"""The distance from the nodes of an edge that goes back or passes rows."""


def draw_graph(graph: Mapping[str, Any], states: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Returns the boxes and lines of a graph, in units of the drawing.

    states: of nodes by their ids: `done`, `active`, `waiting` or `failed`.
    """
    nodes: Mapping[str, Any] = graph["nodes"]
    edges = [edge for edge in graph.get("edges", []) if edge["from"] in nodes and edge["to"] in nodes]
    rows = _arrange(graph["entry"], nodes, edges)
    width = max(len(row) for row in rows) * (_WIDTH + _GAP_X) - _GAP_X
    boxes: dict[str, dict[str, Any]] = {}
    for number, row in enumerate(rows):
        start = (width - len(row) * (_WIDTH + _GAP_X) + _GAP_X) / 2
        for place, node_id in enumerate(row):
            boxes[node_id] = {
                "x": _MARGIN + _AROUND + start + place * (_WIDTH + _GAP_X),
                "y": _MARGIN + number * (_HEIGHT + _GAP_Y),
                "row": number,
                "name": _cut(node_id),
                "id": escape_text(node_id),
                "about": _cut(_describe(nodes[node_id])),
                "state": (states or {}).get(node_id, "idle"),
            }
    lines = [_draw_edge(boxes[edge["from"]], boxes[edge["to"]], edge, width) for edge in edges]
    return {
        "width": width + 2 * (_MARGIN + _AROUND),
        "height": len(rows) * (_HEIGHT + _GAP_Y) - _GAP_Y + 2 * _MARGIN,
        "box": (_WIDTH, _HEIGHT),
        "boxes": list(boxes.values()),
        "lines": lines,
    }


def _arrange(entry: str, nodes: Mapping[str, Any], edges: list[Mapping[str, Any]]) -> list[list[str]]:
    """Returns the ids of the nodes in rows. Each node is below all nodes that lead to it, except by edges that go back.
    The last row holds the nodes that no edge leads to.
    """
    following: dict[str, list[str]] = {}
    for edge in edges:
        following.setdefault(edge["from"], []).append(edge["to"])
    order, back_edges = _order(entry, following)
    rank = dict.fromkeys(order, 0)
    for node_id in order:
        for successor in following.get(node_id, ()):
            if (node_id, successor) not in back_edges:
                rank[successor] = max(rank[successor], rank[node_id] + 1)
    rows: list[list[str]] = [[] for _ in range(max(rank.values()) + 1)]
    for node_id in order:
        rows[rank[node_id]].append(node_id)
    unreachable_nodes = [node_id for node_id in nodes if node_id not in rank]
    return [*rows, unreachable_nodes] if unreachable_nodes else rows


def _order(entry: str, following: Mapping[str, list[str]]) -> tuple[list[str], set[tuple[str, str]]]:
    """Returns the nodes that can be reached from the first one, each before those that follow it, and the edges that go
    back.
    """
    order: list[str] = []
    back_edges: set[tuple[str, str]] = set()
    open_nodes, visited_nodes = {entry}, {entry}
    path = [(entry, iter(following.get(entry, ())))]
    while path:
        node_id, successors = path[-1]
        for successor in successors:
            if successor in open_nodes:
                back_edges.add((node_id, successor))
            elif successor not in visited_nodes:
                visited_nodes.add(successor)
                open_nodes.add(successor)
                path.append((successor, iter(following.get(successor, ()))))
                break
        else:
            path.pop()
            open_nodes.discard(node_id)
            order.append(node_id)
    return order[::-1], back_edges


def _draw_edge(source: Mapping[str, Any], target: Mapping[str, Any], edge: Mapping[str, Any], width: float) -> Any:
    """Returns the SVG path of an edge: straight down to the next row, otherwise around the nodes in between, on the
    right or on the left.
    """
    middle, end = source["x"] + _WIDTH / 2, target["x"] + _WIDTH / 2
    top, bottom = target["y"], source["y"] + _HEIGHT
    if source is target:
        right, y = source["x"] + _WIDTH, source["y"]
        path = f"M {right} {y + 12} C {right + 26} {y + 4} {right + 26} {y + 42} {right + 1} {y + 34}"
    elif target["row"] == source["row"] + 1:
        half = (top - bottom) / 2
        path = f"M {middle} {bottom} C {middle} {bottom + half} {end} {top - half} {end} {top}"
    elif target["row"] > source["row"]:
        side = _MARGIN + 4.0
        path = f"M {middle - 30} {bottom} C {middle - 30} {bottom + 24} {side} {bottom} {side} {bottom + 40}"
        path += f" L {side} {top - 40} C {side} {top} {end - 30} {top - 24} {end - 30} {top}"
    else:
        side = _MARGIN + 2 * _AROUND + width - 4
        start, goal = source["y"] + _HEIGHT / 2, target["y"] + _HEIGHT / 2
        path = f"M {source['x'] + _WIDTH} {start} C {side + 8} {start} {side} {start - 10} {side} {start - 24}"
        path += f" L {side} {goal + 24} C {side} {goal + 10} {side + 8} {goal} {target['x'] + _WIDTH} {goal}"
    return {"path": path, "conditional": edge.get("when") is not None}


def _describe(node: Mapping[str, Any]) -> str:
    """Returns what a node does, in a few words."""
    match node.get("type"):
        case "llm":
            return f"model {node['model']}" if node.get("model") else "model"
        case "tool":
            return str(node["tool_ref"]["name"])
        case "map":
            return f"each: {node['tool_ref']['name']}"
        case "agent":
            return f"agent {node['agent']}"
    return str(node.get("type"))


def _cut(text: str) -> str:
    return escape_text(text if len(text) <= _LETTERS else text[: _LETTERS - 1] + "…")
