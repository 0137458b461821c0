"""Parses the shape of a graph, and leaves out what cannot be read, so that the rest can still be validated."""

import difflib
import re
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from baobab.runtime.agents.spec.issue import MAX_ISSUES, Issue, Path, quote_name
from baobab.runtime.agents.spec.spec import (
    AGENT_NAME,
    NODE_ID,
    OUTPUT_KEY,
    AgentNode,
    Ask,
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
MESSAGES = {
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
_PATTERN_MESSAGES = {
    NODE_ID: "must not hold control characters",
    OUTPUT_KEY: "must be a name: letters, digits and _, no digit first",
    AGENT_NAME: "must be the name of an agent: lower-case letters, digits, - and _",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """The parts of a graph that could be read.

    spec: the graph without its faults, so that the rest can be validated; None where too much is wrong.
    replaced_paths: the paths of nodes and edges, and of `entry`, that could not be read and have a substitute in
        `spec`.
    unknown: the fields of the graph of which an unreadable part was left out of `spec`.
    """

    spec: GraphSpec | None
    issues: list[Issue]
    replaced_paths: frozenset[Path] = frozenset()
    unknown: frozenset[str] = frozenset()


def read_shape(value: Any) -> Shape:
    """Parses a graph. Faults become issues, and the parts that have them are left out or replaced."""
    issues: list[Issue] = []
    replaced_paths: set[Path] = set()
    unknown: set[str] = set()
    readable = value
    for _ in range(_ROUNDS):
        try:
            spec = GraphSpec.model_validate(readable)
            return Shape(spec, issues, frozenset(replaced_paths), frozenset(unknown))
        except ValidationError as exc:
            # Without the inputs, which are large and not shown.
            faults = exc.errors(include_url=False, include_input=False)
        issues += [_build_issue(fault, value) for fault in faults[:MAX_ISSUES]]
        if len(faults) > MAX_ISSUES:
            break
        readable = deepcopy(readable)
        for fault in faults:
            path = _replace_part(readable, fault)
            if path is not None:
                replaced_paths.add(path)
            elif not _remove_field(readable, fault):
                return Shape(None, issues)
            elif fault["type"] != "extra_forbidden":
                unknown.add(str(_fault_path(fault)[0]))
    return Shape(None, issues)


def suggest_name(name: str, known_names: Sequence[str]) -> str:
    """Suggests the most similar of the known names, as the end of a message; empty where none is similar."""
    matches = difflib.get_close_matches(name, known_names, 1, 0.7)
    return f"; did you mean {quote_name(matches[0])}?" if matches else ""


def _remove_field(graph: Any, fault: ErrorDetails) -> bool:
    """Removes a faulty field from a graph. Returns False where the graph cannot do without it."""
    path = _fault_path(fault)
    while path:
        model, name = _model_at(path[:-1], graph), path[-1]
        if model is not None and isinstance(name, str):
            field = next((f for field_name, f in model.model_fields.items() if (f.alias or field_name) == name), None)
            holder = _value_at(graph, path[:-1])
            if (field is not None and field.is_required()) or holder is None:
                return False
            holder.pop(name, None)
            return True
        # An item of a list, or a value that no model describes: what contains it is removed instead.
        path = path[:-1]
    return False


def _replace_part(graph: Any, fault: ErrorDetails) -> Path | None:
    """Replaces a required part that cannot be read. Returns its path; None where it can be removed instead."""
    match _fault_path(fault):
        case ("nodes", str() as node_id, *inside) if "[key]" not in fault["loc"]:
            if inside and fault["type"] != "missing" and _is_removable(graph, ("nodes", node_id, *inside)):
                return None
            graph["nodes"][node_id] = _build_substitute(graph, node_id)
            return ("nodes", node_id)
        case ("edges", int() as index, *_) if fault["type"] != "extra_forbidden":
            edge = graph["edges"][index]
            node_ids = edge if isinstance(edge, dict) else {}
            nowhere = _find_free_name(graph)
            node_ids = {end: node_ids[end] if _is_id(node_ids.get(end)) else nowhere for end in ("from", "to")}
            # With a condition, because the edges after one without would never be taken.
            graph["edges"][index] = {**node_ids, "when": {"var": "input"}}
            return ("edges", index)
        case ("entry",):
            graph["entry"] = _find_free_name(graph)
            return ("entry",)
        case ("spec_version",):
            graph["spec_version"] = 1
            return ("spec_version",)
    return None


def _is_removable(graph: Any, path: Path) -> bool:
    """Returns whether the value at a path of a node can be removed and the node still be parsed."""
    model = _model_at(path[:-1], graph)
    fields = {} if model is None else {(f.alias or name): f for name, f in model.model_fields.items()}
    return model is not None and (path[-1] not in fields or not fields[str(path[-1])].is_required())


def _build_substitute(graph: Any, node_id: str) -> dict[str, str]:
    """Builds a node in place of one that cannot be read, which is an end only if no edge leaves that one."""
    node = graph["nodes"][node_id]
    key = node.get("output_key") if isinstance(node, dict) else None
    output_key = key if isinstance(key, str) and re.fullmatch(OUTPUT_KEY, key) and len(key) <= 64 else "unknown"
    edges = graph.get("edges")
    sources = [e.get("from") for e in edges if isinstance(e, dict)] if isinstance(edges, list) else []
    return {"type": "llm", "output_key": output_key} if node_id in sources else {"type": "end"}


def _find_free_name(graph: Any) -> str:
    """Returns an id that no node has."""
    nodes, name = graph.get("nodes"), "unknown"
    while isinstance(nodes, dict) and name in nodes:
        name += "_"
    return name


def _is_id(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= 64 and re.fullmatch(NODE_ID, value) is not None


def _build_issue(fault: ErrorDetails, graph: Any) -> Issue:
    path = _fault_path(fault)
    context = fault.get("ctx", {})
    match fault["type"]:
        case "extra_forbidden":
            field_names = list(_field_names(_model_at(path[:-1], graph)))
            message = f"is not a field here{suggest_name(str(path[-1]), field_names)}"
            message += f"; the fields are {', '.join(field_names)}" if field_names else ""
        case "string_pattern_mismatch":
            message = _PATTERN_MESSAGES[context["pattern"]]
        case "too_long":
            message = f"must have at most {context['max_length']} entries"
        case "greater_than_equal":
            message = f"must be at least {_format_bound(context['ge'])}"
        case "less_than_equal":
            message = f"must be at most {_format_bound(context['le'])}"
        case "literal_error":
            message = f"must be {context['expected']}"
        case "union_tag_not_found":
            message = f"needs a type: {_TYPES}"
        case "union_tag_invalid":
            path = (*path, "type")
            message = f"must be {_TYPES}{suggest_name(str(context.get('tag', '')).lower(), list(_NODES))}"
        case "value_error":
            message = str(context["error"])
        case other:
            message = MESSAGES.get(other) or re.sub(r"^\w+ should ", "must ", fault["msg"])
    return Issue(path, message)


def _fault_path(fault: ErrorDetails) -> Path:
    """Returns the path of a fault in the graph, without what pydantic adds: the type of a node, and the mark of a
    faulty key.
    """
    path = list(fault["loc"])
    if path[:1] == ["nodes"]:
        del path[2:3]
    elif path[5:] == ["[key]"]:
        del path[5]
    return tuple(path)


def _model_at(path: Path, graph: Any) -> type[BaseModel] | None:
    """Returns the model that parses the object at a path."""
    model: type[BaseModel] | None = None
    match path:
        case ():
            model = GraphSpec
        case ("nodes", str() as node_id):
            node = graph["nodes"][node_id]
            model = _NODES.get(str(node.get("type"))) if isinstance(node, dict) else None
        case ("nodes", _, "tool_ref") | ("nodes", _, "tools", int()):
            model = ToolRef
        case ("nodes", _, "ask"):
            model = Ask
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


def _value_at(graph: Any, path: Path) -> Any:
    """Returns the value at a path; None where it was removed with something that contained it."""
    for step in path:
        within = step in graph if isinstance(graph, dict) else isinstance(step, int) and isinstance(graph, list)
        if not within:
            return None
        graph = graph[step]
    return graph


def _field_names(model: type[BaseModel] | None) -> Iterator[str]:
    return ((field.alias or name) for name, field in model.model_fields.items()) if model else iter(())


def _format_bound(limit: float) -> str:
    return str(limit).removesuffix(".0")
