"""Tells in sentences how a change of an agent's graph differs from the graph before."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from baobab.tools.core.guard.titles import TitlePart

Sentence = Sequence[TitlePart]
_APART = ("entry", "nodes", "edges", "tools")


def is_graph(value: Any) -> bool:
    """Returns whether a value is an agent's graph."""
    return isinstance(value, dict) and "spec_version" in value and isinstance(value.get("nodes"), dict)


def tell_graph_change(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[Sentence]:
    """Returns a sentence for each difference of two graphs: tools first, then nodes and the ways between them.

    Names in them are as whoever proposed the graph chose them, and no words of ours.
    """
    sentences = [*_tell_tools(before, after), *_tell_nodes(before["nodes"], after["nodes"])]
    if before.get("entry") != after.get("entry"):
        sentences.append(_write("The run begins with ", after.get("entry"), ", no longer with ", before.get("entry")))
    sentences += _tell_edges(before.get("edges") or [], after.get("edges") or [])
    others = [name for name in {**before, **after} if name not in _APART and before.get(name) != after.get(name)]
    return [*sentences, *(_write("Changes the graph's ", name) for name in others)]


def _write(*pieces: Any) -> Sentence:
    """Returns a sentence: words of ours, then a name, and so on in turn."""
    return [(str(piece), place % 2 == 0) for place, piece in enumerate(pieces) if piece != ""]


def _tell_tools(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Sentence]:
    old, new = (_list_tools(graph.get("tools") or {}) for graph in (before, after))
    for name in new:
        if name not in old:
            yield _write("May now use the tool ", name)
        elif new[name] != old[name]:
            yield _write("Changes the terms on which it may use the tool ", name)
    for name in old:
        if name not in new:
            yield _write("May no longer use the tool ", name)


def _list_tools(tools: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the tools that a graph may use, each with the terms that differ from the tool's own."""
    terms_by_tool = {name: None for kind in ("builtin", "functions") for name in tools.get(kind) or ()}
    for server in tools.get("mcp_servers") or ():
        terms: Mapping[str, Any] = server.get("tool_overrides") or {}
        terms_by_tool |= {f"{server['server_id']}: {name}": terms.get(name) for name in server.get("tools") or ()}
    return terms_by_tool


def _tell_nodes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Sentence]:
    for name, node in after.items():
        if name not in before:
            words, subject = _say_work(node)
            yield _write("Adds the node ", name, f", which {words}", subject)
        elif before[name] != node:
            yield _tell_node(name, before[name], node)
        if node.get("run_as") == "app" and before.get(name, {}).get("run_as") != "app":
            yield _write("Lends the app's own right to the call of ", name, ", once somebody approves it")
    for name, node in before.items():
        if name not in after:
            words, subject = _say_work(node)
            yield _write("Removes the node ", name, f", which {words}", subject)


def _tell_node(name: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Sentence:
    words, subject = _say_work(after)
    if (words, subject) != _say_work(before):
        old_words, old_subject = _say_work(before)
        return _write("The node ", name, f" now {words}", subject, f"; before, it {old_words}", old_subject)
    names = [each for each in {**before, **after} if before.get(each) != after.get(each)]
    return _write("Changes of the node ", name, f", which {words}", subject, ": ", ", ".join(names))


def _say_work(node: Mapping[str, Any]) -> tuple[str, str]:
    """Returns what a node does: words of ours, and the name that follows them."""
    kind, tool = str(node.get("type")), str((node.get("tool_ref") or {}).get("name", ""))
    if kind == "tool" and tool == "interrupt":
        return "asks a person", ""
    if kind == "llm":
        return ("asks the model ", str(node["model"])) if node.get("model") else ("asks a model", "")
    works = {
        "tool": ("calls the tool ", tool),
        "map": ("calls, once for each item of a list, the tool ", tool),
        "agent": ("runs the agent ", str(node.get("agent", ""))),
        "end": ("ends the run", ""),
    }
    return works.get(kind, ("is of the kind ", kind))


def _tell_edges(before: Sequence[Mapping[str, Any]], after: Sequence[Mapping[str, Any]]) -> Iterator[Sentence]:
    old, new = _list_rules(before), _list_rules(after)
    for ends, rules in new.items():
        if ends not in old:
            yield _write("After ", ends[0], " may come " if all(rules) else " comes ", ends[1])
        elif rules != old[ends]:
            yield _write("Changes when ", ends[1], " comes after ", ends[0])
    for ends in old:
        if ends not in new:
            yield _write("After ", ends[0], " no longer comes ", ends[1])
    if old == new and list(before) != list(after):
        yield _write("Changes the order in which the ways from a node are tried")


def _list_rules(edges: Sequence[Mapping[str, Any]]) -> dict[tuple[str, str], list[Any]]:
    """Returns the rules of edges by the two nodes that they connect."""
    rules: dict[tuple[str, str], list[Any]] = {}
    for edge in edges:
        rules.setdefault((str(edge.get("from")), str(edge.get("to"))), []).append(edge.get("when"))
    return rules
