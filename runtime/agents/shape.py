"""The shape of a graph: what of it cannot be read, and a graph without that, so that the rest can be looked through."""

import difflib
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from baobab.runtime.agents.issue import MAX_ISSUES, Issue, Path, quoted
from baobab.runtime.agents.spec import (
    AGENT_NAME,
    NODE_ID,
    OUTPUT_KEY,
    AgentNode,
    Edge,
    EndNode,
    GraphSpec,
    Limits,
    LlmNode,
    MapNode,
    Override,
    ToolNode,
    ToolRef,
    Tools,
    ToolServer,
)

_NODES: dict[str, type[BaseModel]] = {
    "llm": LlmNode,
    "tool": ToolNode,
    "map": MapNode,
    "agent": AgentNode,
    "end": EndNode,
}
_ROUNDS = 3
_TYPES = "llm, tool, map, agent or end"
_PLAIN = {
    "missing": "is required",
    "string_type": "must be text",
    "int_type": "must be a whole number",
    "float_type": "must be a number",
    "bool_type": "must be true or false",
    "list_type": "must be a list",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
}
_PATTERNS = {
    NODE_ID: "must not hold control characters",
    OUTPUT_KEY: "must be a name: letters, digits and _, no digit first",
    AGENT_NAME: "must be the name of an agent: lower-case letters, digits, - and _",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """What could be read of a graph.

    spec: the graph without what is wrong, so that the rest can be looked through; None where too much is wrong.
    replaced: nodes that could not be read, for which others stand in `spec`.
    """

    spec: GraphSpec | None
    issues: list[Issue]
    replaced: frozenset[str] = frozenset()


def read_shape(value: Any) -> Shape:
    issues: list[Issue] = []
    replaced: set[str] = set()
    readable = value
    for _ in range(_ROUNDS):
        try:
            return Shape(GraphSpec.model_validate(readable), issues, frozenset(replaced))
        except ValidationError as exc:
            # The inputs would only be copied into the errors, and nothing here shows them.
            faults = exc.errors(include_url=False, include_input=False)
        issues += [_issue(fault, value) for fault in faults[:MAX_ISSUES]]
        if len(faults) > MAX_ISSUES:
            break
        readable = deepcopy(readable)
        for fault in faults:
            if not _take_out(readable, fault) and not _replace_node(readable, fault, replaced):
                return Shape(None, issues)
    return Shape(None, issues)


def did_you_mean(name: str, known: Sequence[str]) -> str:
    """The nearest of the names, as the end of a message; nothing where none is near."""
    near = difflib.get_close_matches(name, known, 1, 0.7)
    return f"; did you mean {quoted(near[0])}?" if near else ""


def _take_out(graph: Any, fault: ErrorDetails) -> bool:
    """Take a field at fault out of a graph; whether the graph can do without it."""
    path = _path(fault)
    model = _model_at(path[:-1], graph) if path else None
    if model is None or not isinstance(path[-1], str) or fault["type"] == "missing":
        return False
    field = next((f for name, f in model.model_fields.items() if (f.alias or name) == path[-1]), None)
    if field is not None and field.is_required():
        return False
    holder = _at(graph, path[:-1])
    if holder is None:
        return False
    holder.pop(path[-1], None)
    return True


def _replace_node(graph: Any, fault: ErrorDetails, replaced: set[str]) -> bool:
    """Put another node in the place of one that cannot be read; whether the fault is in a node."""
    match _path(fault):
        case ("nodes", str() as node_id, *_) if "[key]" not in fault["loc"]:
            node = graph["nodes"][node_id]
            given = node if isinstance(node, dict) else {}
            key = given.get("output_key")
            written = key if isinstance(key, str) and re.fullmatch(OUTPUT_KEY, key) and len(key) <= 64 else "unknown"
            edges = graph.get("edges")
            left = [e.get("from") for e in edges if isinstance(e, dict)] if isinstance(edges, list) else []
            other = {"type": "llm", "output_key": written} if node_id in left else {"type": "end"}
            graph["nodes"][node_id] = other
            replaced.add(node_id)
            return True
    return False


def _issue(fault: ErrorDetails, graph: Any) -> Issue:
    path = _path(fault)
    context = fault.get("ctx", {})
    match fault["type"]:
        case "extra_forbidden":
            known = list(_fields(_model_at(path[:-1], graph)))
            message = f"is no field here{did_you_mean(str(path[-1]), known)}"
            message += f"; the fields are {', '.join(known)}" if known else ""
        case "string_pattern_mismatch":
            message = _PATTERNS[context["pattern"]]
        case "too_long":
            message = f"must have at most {context['max_length']} entries"
        case "greater_than_equal":
            message = f"must be at least {_number(context['ge'])}"
        case "less_than_equal":
            message = f"must be at most {_number(context['le'])}"
        case "literal_error":
            message = f"must be {context['expected']}"
        case "union_tag_not_found":
            message = f"needs a type: {_TYPES}"
        case "union_tag_invalid":
            path = (*path, "type")
            message = f"must be {_TYPES}{did_you_mean(str(context.get('tag', '')).lower(), list(_NODES))}"
        case "value_error":
            message = str(context["error"])
        case other:
            message = _PLAIN.get(other) or re.sub(r"^\w+ should ", "must ", fault["msg"])
    return Issue(path, message)


def _path(fault: ErrorDetails) -> Path:
    """Where a fault is, without steps of the reader's own: the type that it read a node as, and that a key is at fault
    and not its value.
    """
    path = list(fault["loc"])
    if path[:1] == ["nodes"]:
        del path[2:3]
    elif path[5:] == ["[key]"]:
        del path[5]
    return tuple(path)


def _model_at(path: Path, graph: Any) -> type[BaseModel] | None:
    """What the object at a path is read as."""
    model: type[BaseModel] | None = None
    match path:
        case ():
            model = GraphSpec
        case ("nodes", str() as node_id):
            node = graph["nodes"][node_id]
            model = _NODES.get(str(node.get("type"))) if isinstance(node, dict) else None
        case ("nodes", _, "tool_ref") | ("nodes", _, "tools", int()):
            model = ToolRef
        case ("edges", int()):
            model = Edge
        case ("tools",):
            model = Tools
        case ("tools", "mcp_servers", int()):
            model = ToolServer
        case ("tools", "mcp_servers", int(), "tool_overrides", _):
            model = Override
        case ("limits",):
            model = Limits
    return model


def _at(graph: Any, path: Path) -> Any:
    """What stands at a path; None where that is gone with something above it."""
    for step in path:
        within = step in graph if isinstance(graph, dict) else isinstance(step, int) and isinstance(graph, list)
        if not within:
            return None
        graph = graph[step]
    return graph


def _fields(model: type[BaseModel] | None) -> Iterator[str]:
    return ((field.alias or name) for name, field in model.model_fields.items()) if model else iter(())


def _number(bound: float) -> str:
    return str(bound).removesuffix(".0")
