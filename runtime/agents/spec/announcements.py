"""Announcements: the write that follows a question, which whoever answers approves together with the answer.

A question that names its write (`then`) keeps what that node's call is made of. The answer completes it to one exact
call: the next step of the run, of this node, with these arguments. Its digest is what is approved, so that a call which
differs in anything, or comes later, waits for a person like any other.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from baobab.runtime.agents.spec.app_rights import ActingNode
from baobab.runtime.agents.spec.issue import Issue, quote_name
from baobab.runtime.agents.spec.spec import GraphSpec, ToolNode
from baobab.runtime.agents.spec.templates import Name, Template, TemplateError, fill_tree, list_names
from baobab.tools.core.auth.deciders import Approvers

QUESTION = "interrupt"


@dataclass(frozen=True, slots=True)
class CallingNode:
    """The node of a graph that makes a call. announces: the write that follows, if the call is a question."""

    node_id: str
    node: ActingNode
    announces: "Announcement | None" = None
    ask: Mapping[str, Any] | None = None
    """What `keep_ask` returns of the node's `ask` (asks.py)."""

    @property
    def lends_right(self) -> bool:
        """Whether the call uses the app's right."""
        return self.node.run_as is not None


@dataclass(frozen=True, slots=True)
class Announcement:
    """The write that follows a question. call_id: of the next step. values: what its templates name, but the answer.

    answer_key: the key of the state under which the answer comes.
    """

    calling: CallingNode
    call_id: str
    values: Mapping[str, Any]
    answer_key: str


def announce_write(spec: GraphSpec, node_id: str, next_call_id: str, values: Mapping[str, Any]) -> Announcement | None:
    """Returns the write that the question of a node announces; None if it announces none.

    values: `state` and `input` of the run, as the question is asked.
    """
    node: Any = spec.nodes[node_id]
    if not isinstance(node, ToolNode) or node.then is None or node.output_key is None:
        return None
    write: Any = spec.nodes[node.then]
    kept_values: dict[str, dict[str, Any]] = {"state": {}, "input": {}}
    for root, *path in list_names(write.args_template):
        source = values.get(root, {})
        # A placeholder may name all of the input or of the state.
        keys = path[:1] or list(source)
        kept_values[root] |= {key: source[key] for key in keys if key in source}
    kept_values["state"].pop(node.output_key, None)
    return Announcement(CallingNode(node.then, write), next_call_id, kept_values, node.output_key)


def complete_arguments(announced: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the arguments of the announced call, by its tool's own names, with an answer to the question.

    announced: as an approval keeps it. answer: what the question returns. Raises TemplateError where the answer lacks
    what the call needs.
    """
    return _name_arguments(announced, fill_tree(announced["template"], _add_answer(announced, answer)))


def sketch_arguments(announced: Mapping[str, Any], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the same arguments with null for each text that lacks a value."""
    return _name_arguments(announced, _fill_known(announced["template"], _add_answer(announced, answer)))


def _add_answer(announced: Mapping[str, Any], answer: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns the values that the templates see once the question is answered."""
    values: Mapping[str, Any] = announced["values"]
    return {**values, "state": {**values["state"], announced["answer_key"]: dict(answer)}}


def _name_arguments(announced: Mapping[str, Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    names = announced["names"]
    return {**{names.get(name, name): value for name, value in arguments.items()}, **announced["bound"]}


def _fill_known(tree: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(tree, dict):
        return {key: _fill_known(child, values) for key, child in tree.items()}
    if isinstance(tree, list):
        return [_fill_known(child, values) for child in tree]
    try:
        return fill_tree(tree, values)
    except TemplateError:
        return None


def list_open_fields(announced: Mapping[str, Any]) -> list[str]:
    """Returns the arguments of the announced call that the answer fills, such as `changes.amount`."""
    names = announced["names"]
    fields: list[str] = []
    for name, template in announced["template"].items():
        places = _find_open(template, ("state", announced["answer_key"]), (names.get(name, name),))
        fields += [".".join(place) for place in places]
    return fields


def _find_open(tree: Any, answer: Name, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(tree, str):
        if any(name[:2] == answer or len(name) == 1 for name in Template(tree).names if name[0] == "state"):
            yield place
        return
    children = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, child in children:
        yield from _find_open(child, answer, (*place, str(key)))


def find_announcement_issues(spec: GraphSpec) -> Iterator[Issue]:
    """Finds questions that announce what no answer can approve."""
    for node_id, node in spec.nodes.items():
        if isinstance(node, ToolNode) and node.then is not None:
            for message in _find_then_problems(spec, node_id, node):
                yield Issue(("nodes", node_id, "then"), message)


def _find_then_problems(spec: GraphSpec, node_id: str, node: ToolNode) -> Iterator[str]:
    target, name = spec.nodes.get(node.then or ""), quote_name(node.then or "")
    if node.tool_ref.source != "builtin" or node.tool_ref.name != QUESTION:
        yield f"is for questions: nodes whose tool is {QUESTION}; leave it out"
    elif node.then == node_id or not isinstance(target, ToolNode) or target.tool_ref.source != "builtin":
        yield f"must name a node of type tool that calls a tool of this server; {name} is none"
    elif target.tool_ref.name == QUESTION:
        yield f"must name the write itself, and {name} is another question"
    elif not any(edge.from_ == node_id and edge.to == node.then for edge in spec.edges):
        yield f"must name the node that comes next: no edge leads from {quote_name(node_id)} to {name}"
    elif node.output_key is None:
        yield f"needs an output_key of this node, by which {name} gets the answer"
    elif target.approvers is not None and Approvers.parse(target.approvers).persons > 1:
        yield f"cannot stand for the approval of {name}, which several people must give; leave it out"
