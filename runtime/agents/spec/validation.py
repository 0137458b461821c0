"""Validates a graph before it is saved for an agent. Nothing of it is run, rendered or evaluated."""

import difflib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from typing import Any, Protocol

from baobab.runtime.agents.spec.announcements import find_announcement_issues
from baobab.runtime.agents.spec.answer_schema import find_schema_error
from baobab.runtime.agents.spec.app_rights import ActingNode, find_approver_issues
from baobab.runtime.agents.spec.asks import ARGUMENTS, find_ask_issues, parse_path
from baobab.runtime.agents.spec.bounds import MAX_SCHEMA_VALUES, count_values, find_violations
from baobab.runtime.agents.spec.conditions import Condition
from baobab.runtime.agents.spec.issue import MAX_ISSUES, Issue, Path, quote_name
from baobab.runtime.agents.spec.shape import read_shape
from baobab.runtime.agents.spec.spec import (
    AgentNode,
    EndNode,
    Exposure,
    GraphSpec,
    LlmNode,
    MapNode,
    Mode,
    Node,
    Override,
    ToolKey,
    ToolNode,
    ToolRef,
    ToolServer,
)
from baobab.runtime.agents.spec.templates import Template, TemplateInvalid
from baobab.runtime.agents.spec.wiring import find_wiring_issues, writable_before, written_keys
from baobab.runtime.json_logic.context import RuleInvalid
from baobab.tools.core.effects import Effect

_RUN = ("state", "input")
_ELSEWHERE = {
    "item": "item is only available in the args_template of a map, or in its ask",
    ARGUMENTS: "arguments is only available in the ask of a node: name state or input",
    "event": "event is only available in the input that a trigger gives: the agent reads it as input",
}
_MOST_COMPARED = 50
"""The most names that a wrong name is compared with for a suggestion, because comparing takes time."""

__all__ = ["Issue", "OfferSource", "ToolOffer", "find_issues", "find_self_approvals", "narrow_offer", "validate_graph"]


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """The properties of a tool before any override."""

    mode: Mode
    exposed_to: Exposure
    find_argument_issues: Callable[[Mapping[str, Any]], Iterable[Issue]] = field(
        default=lambda _arguments: (), compare=False
    )
    """Finds what the tool refuses of the arguments of a node, by paths within them. The tools of tool servers refuse
    nothing here.
    """
    find_right_issues: Callable[[ActingNode], Iterable[Issue]] | None = field(default=None, compare=False)
    """Finds why a node may not call the tool with the app's right, by paths within the node. None: no node may."""
    effect: Effect = "external"
    schema: Mapping[str, Any] | None = field(default=None, compare=False)
    """The JSON Schema of the tool's arguments, by the names of the graph; None where it is not known."""


class OfferSource(Protocol):
    """The tools that an app has for its agents."""

    def get_offer(self, ref: ToolRef) -> ToolOffer | str:
        """Returns the tool that `ref` names, or a message that says why it cannot be used. Overrides of `ref` are
        ignored.
        """
        ...


def validate_graph(value: Any, tools: OfferSource) -> tuple[GraphSpec | None, list[Issue]]:
    """Validates a graph. Returns it without issues, or None and the first 100 issues, always in the same order.

    value: JSON of any kind and size, which is measured before it is read.
    """
    spec, issues = find_issues(value, tools)
    return (None if issues else spec), issues


def find_issues(value: Any, tools: OfferSource) -> tuple[GraphSpec | None, list[Issue]]:
    """Does the same as `validate_graph`, but returns what could be read of the graph even if it has issues."""
    if issues := list(find_violations(value)):
        return None, issues
    shape = read_shape(value)
    spec = shape.spec
    if spec is None:
        return None, shape.issues[:MAX_ISSUES]
    # If an edge could not be read, it is not known which nodes are connected.
    are_edges_known = "edges" not in shape.unknown and not any(path[0] == "edges" for path in shape.replaced_paths)
    # If a node could not be read, it is not known which keys it writes.
    complete = are_edges_known and not any(path[0] == "nodes" for path in shape.replaced_paths)
    offers = _CachedOffers(tools)
    tool_issues = () if "tools" in shape.unknown else _find_tool_issues(spec, offers)
    argument_issues = _find_argument_issues(spec, offers, {issue.path[:3] for issue in shape.issues})
    text_issues = (_find_text_issues(spec, complete=complete), _find_schema_issues(spec))
    rule_issues = (
        issue
        for issue in chain(
            find_wiring_issues(spec, are_edges_known=are_edges_known),
            tool_issues,
            argument_issues,
            _find_right_issues(spec, offers),
            _find_ask_issues(spec, offers),
            find_announcement_issues(spec),
            *text_issues,
        )
        if issue.path[:1] not in shape.replaced_paths and issue.path[:2] not in shape.replaced_paths
    )
    return spec, list(islice(chain(shape.issues, rule_issues), MAX_ISSUES))


def narrow_offer(offer: ToolOffer, *overrides: Override) -> ToolOffer:
    """Narrows an offer by overrides: the strictest mode and exposure win."""
    modes = {offer.mode, *(override.mode_override for override in overrides)}
    exposures = {offer.exposed_to, *(override.exposed_to_override for override in overrides)}
    return replace(
        offer,
        mode="read_write" if "read_write" in modes else "read_only",
        exposed_to="developer_only" if "developer_only" in exposures else "end_user",
    )


def find_self_approvals(spec: GraphSpec, tools: OfferSource) -> list[Issue]:
    """Lists the nodes whose calls are approved by whoever starts the run, because they name no approvers."""
    issues = []
    for node_id, node in spec.nodes.items():
        if getattr(node, "approvers", None) is not None:
            continue
        for path, ref in list_node_refs(node):
            offer = tools.get_offer(ref)
            if ref.source != "builtin" or isinstance(offer, str) or narrow_offer(offer, ref).mode != "read_write":
                continue
            message = f"whoever starts the run decides about {ref.name}: name `approvers` of the node or the agent"
            issues.append(Issue(("nodes", node_id, *path), message))
    return issues[:MAX_ISSUES]


# --- tools ------------------------------------------------------------------------------------------------------


def _find_tool_issues(spec: GraphSpec, offers: "_CachedOffers") -> Iterator[Issue]:
    paths_by_ref = dict(_list_refs(spec))
    servers = {server.server_id: server for server in reversed(spec.tools.mcp_servers)}
    yield from _find_repeats(("tools", "builtin"), spec.tools.builtin)
    yield from _find_repeats(("tools", "functions"), spec.tools.functions)
    yield from _find_repeats(("tools", "mcp_servers"), [server.server_id for server in spec.tools.mcp_servers])
    for index, server in enumerate(spec.tools.mcp_servers):
        yield from _find_repeats(("tools", "mcp_servers", index, "tools"), server.tools)
    for ref, path in paths_by_ref.items():
        # A function may be deployed after its agent, but must exist if a node uses it.
        if ref.source != "function" and isinstance(reason := offers.get_offer(ref), str):
            yield Issue(path, reason)
    for index, server in enumerate(spec.tools.mcp_servers):
        yield from _find_server_issues(("tools", "mcp_servers", index), server, offers)
    listed_keys = {ref.key for ref in paths_by_ref}
    for node_id, node in spec.nodes.items():
        seen_keys: set[ToolKey] = set()
        for path, ref in list_node_refs(node):
            where: Path = ("nodes", node_id, *path)
            if ref.key in seen_keys:
                yield Issue(where, f"{quote_name(ref.name)} is listed twice")
            elif ref.key not in listed_keys:
                yield Issue(where, f"{quote_name(ref.name)} is not listed in {_list_name(ref)}")
            elif isinstance(offer := offers.get_offer(ref), ToolOffer):
                server_override = _server_override(servers.get(ref.server_id or ""), ref.name)
                yield from _find_widening(where, ref, narrow_offer(offer, server_override))
            elif ref.source == "function":
                yield Issue(where, offer)
            seen_keys.add(ref.key)


def _find_argument_issues(
    spec: GraphSpec, offers: "_CachedOffers", unreadable_paths: AbstractSet[Path]
) -> Iterator[Issue]:
    for node_id, node in spec.nodes.items():
        path: Path = ("nodes", node_id, "args_template")
        if not isinstance(node, ToolNode | MapNode) or path in unreadable_paths:
            continue
        if isinstance(offer := offers.get_offer(node.tool_ref), ToolOffer):
            for issue in offer.find_argument_issues(node.args_template):
                yield Issue((*path, *issue.path), issue.message)


def _find_ask_issues(spec: GraphSpec, offers: "_CachedOffers") -> Iterator[Issue]:
    for node_id, node in spec.nodes.items():
        if isinstance(node, ToolNode | MapNode) and isinstance(offer := offers.get_offer(node.tool_ref), ToolOffer):
            for issue in find_ask_issues(node, offer.effect, offer.schema):
                yield Issue(("nodes", node_id, *issue.path), issue.message)


def _find_right_issues(spec: GraphSpec, offers: "_CachedOffers") -> Iterator[Issue]:
    for node_id, node in spec.nodes.items():
        if isinstance(node, ToolNode | MapNode):
            for issue in find_node_right_issues(node, offers):
                yield Issue(("nodes", node_id, *issue.path), issue.message)


def find_node_right_issues(node: ActingNode, offers: OfferSource) -> Iterator[Issue]:
    """Finds why a node may not lend the app's right to its call, by paths within the node."""
    if node.run_as is None:
        if node.edit:
            message = 'is for nodes with "run_as": "app": leave it out, and whoever approves may change all arguments'
            yield Issue(("edit",), message)
        return
    if node.tool_ref.source == "mcp":
        yield Issue(("run_as",), "leave it out: tool servers are called with the app's own credentials in any case")
    elif isinstance(offer := offers.get_offer(node.tool_ref), ToolOffer):
        if offer.find_right_issues is None:
            message = (
                f"{node.tool_ref.name} cannot act as the app: only tools that change rows, keys or files, or send, can "
                "(docs/graph-spec.md lists them); use one of these, or leave run_as out"
            )
            yield Issue(("run_as",), message)
        else:
            yield from offer.find_right_issues(node)
    yield from find_approver_issues(node)


class _CachedOffers:
    """Looks up each tool once, however many nodes use it."""

    def __init__(self, tools: OfferSource) -> None:
        self._tools = tools
        self._answers: dict[ToolKey, ToolOffer | str] = {}

    def get_offer(self, ref: ToolRef) -> ToolOffer | str:
        key = ref.key
        if key not in self._answers:
            self._answers[key] = self._tools.get_offer(ref)
        return self._answers[key]


def _list_refs(spec: GraphSpec) -> Iterator[tuple[ToolRef, Path]]:
    for index, name in enumerate(spec.tools.builtin):
        yield ToolRef(source="builtin", name=name), ("tools", "builtin", index)
    for index, name in enumerate(spec.tools.functions):
        yield ToolRef(source="function", name=name), ("tools", "functions", index)
    for place, server in enumerate(spec.tools.mcp_servers):
        for index, name in enumerate(server.tools):
            ref = ToolRef(source="mcp", server_id=server.server_id, name=name)
            yield ref, ("tools", "mcp_servers", place, "tools", index)


def _list_name(ref: ToolRef) -> str:
    if ref.source == "mcp":
        return f"the tools of {quote_name(ref.server_id or '')} in tools.mcp_servers"
    return f"tools.{'builtin' if ref.source == 'builtin' else 'functions'}"


def list_node_refs(node: Node) -> Iterator[tuple[Path, ToolRef]]:
    if isinstance(node, LlmNode):
        for index, ref in enumerate(node.tools):
            yield ("tools", index), ref
    elif isinstance(node, ToolNode | MapNode):
        yield ("tool_ref",), node.tool_ref


def _find_repeats(path: Path, names: Sequence[str]) -> Iterator[Issue]:
    seen_names: set[str] = set()
    for index, name in enumerate(names):
        if name in seen_names:
            yield Issue((*path, index), f"{quote_name(name)} is listed twice")
        seen_names.add(name)


def _find_server_issues(path: Path, server: ToolServer, offers: _CachedOffers) -> Iterator[Issue]:
    names = set(server.tools)
    for name, override in server.tool_overrides.items():
        where: Path = (*path, "tool_overrides", name)
        if name not in names:
            yield Issue(where, f"{quote_name(name)} is not one of the server's listed tools")
            continue
        offer = offers.get_offer(ToolRef(source="mcp", server_id=server.server_id, name=name))
        if isinstance(offer, ToolOffer):
            yield from _find_widening(where, override, offer)


def _server_override(server: ToolServer | None, name: str) -> Override:
    return server.tool_overrides.get(name, Override()) if server else Override()


def _find_widening(path: Path, override: Override, offer: ToolOffer) -> Iterator[Issue]:
    if override.mode_override == "read_only" and offer.mode == "read_write":
        yield Issue(
            (*path, "mode_override"),
            (
                "must not widen: the tool is read_write, so each call waits for approval, and no graph takes that away;"
                " leave the override out, or use a tool that only reads"
            ),
        )
    if override.exposed_to_override == "end_user" and offer.exposed_to == "developer_only":
        yield Issue(
            (*path, "exposed_to_override"),
            ("must not widen: the tool is developer_only, and no graph opens it to users; leave the override out"),
        )


# --- templates, conditions, schemas -----------------------------------------------------------------------------


def _find_text_issues(spec: GraphSpec, *, complete: bool) -> Iterator[Issue]:
    """Validates templates and conditions. complete: whether all keys that nodes write to the state are known."""
    before = writable_before(spec)
    written_names = frozenset[str]().union(*map(written_keys, spec.nodes.values()))
    for node_id, node in spec.nodes.items():
        keys = before[node_id]
        for path, text, roots in list_node_templates(node):
            where: Path = ("nodes", node_id, *path)
            try:
                template = Template(text)
            except TemplateInvalid as exc:
                yield Issue(where, str(exc))
                continue
            yield from _find_single_braces(where, template)
            if path == ("over",) and template.sole is None:
                yield Issue(where, "must be one placeholder that names a list, such as {{ state.rows }}")
            for name in dict.fromkeys(template.names):
                if name[0] not in roots:
                    yield Issue(where, _ELSEWHERE[name[0]])
                yield from _find_unwritten(where, name, keys, written_names) if complete else ()
    for index, edge in enumerate(spec.edges):
        if edge.when is None or edge.from_ not in spec.nodes:
            continue
        where = ("edges", index, "when")
        try:
            condition = Condition(edge.when)
        except RuleInvalid as exc:
            yield Issue((*where, *exc.path), str(exc))
            continue
        keys = before[edge.from_] | written_keys(spec.nodes[edge.from_])
        for name in dict.fromkeys(condition.names):
            yield from _find_unwritten(where, name, keys, written_names) if complete else ()


def _find_single_braces(path: Path, template: Template) -> Iterator[Issue]:
    if (single := template.single_brace) is not None:
        yield Issue(path, f"{single} is not replaced: a placeholder has two braces, {{{single}}}")


def list_node_templates(node: Node) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    """Yields the path and text of each template of a node, and with what its placeholders may begin."""
    match node:
        case LlmNode():
            yield ("system_prompt",), node.system_prompt, _RUN
            if node.input_template is not None:
                yield ("input_template",), node.input_template, _RUN
        case ToolNode():
            yield from ((path, text, _RUN) for path, text in _list_strings(node.args_template, ("args_template",)))
            yield from _ask_templates(node, _RUN)
        case MapNode():
            yield ("over",), node.over, _RUN
            roots = (*_RUN, "item")
            yield from ((path, text, roots) for path, text in _list_strings(node.args_template, ("args_template",)))
            yield from _ask_templates(node, roots)
        case AgentNode():
            yield from ((path, text, _RUN) for path, text in _list_strings(node.input_template, ("input_template",)))
        case EndNode():
            yield from ((path, text, _RUN) for path, text in _list_strings(node.output_template, ("output_template",)))


def _ask_templates(node: ActingNode, roots: tuple[str, ...]) -> Iterator[tuple[Path, str, tuple[str, ...]]]:
    if node.ask is not None:
        if node.ask.title is not None:
            yield ("ask", "title"), node.ask.title, (*roots, ARGUMENTS)
        for index, path in enumerate(node.ask.show):
            if parse_path(path) is not None:
                yield ("ask", "show", index), f"{{{{ {path} }}}}", (*roots, ARGUMENTS)


def _list_strings(tree: Any, path: Path) -> Iterator[tuple[Path, str]]:
    if isinstance(tree, str):
        yield path, tree
    for key, value in _list_children(tree):
        yield from _list_strings(value, (*path, key))


def _list_children(tree: Any) -> Iterable[tuple[str | int, Any]]:
    if isinstance(tree, dict):
        return tree.items()
    return enumerate(tree) if isinstance(tree, list) else ()


def _find_unwritten(
    path: Path, name: Sequence[str], keys: AbstractSet[str], written_names: AbstractSet[str]
) -> Iterator[Issue]:
    if len(name) < 2 or name[0] != "state" or name[1] in keys:
        return
    if name[1] in written_names:
        yield Issue(path, f"state.{_shorten_name(name[1])} is not written yet: no node that writes it comes before")
    else:
        matches = difflib.get_close_matches(name[1][:64], sorted(written_names)[:_MOST_COMPARED], 1, 0.75)
        suggestion = f"state.{matches[0]}" if matches else f"input.{name[1]}"
        yield Issue(path, f"no node writes state.{_shorten_name(name[1])}; did you mean {_shorten_name(suggestion)}?")


def _shorten_name(name: str) -> str:
    return name if len(name) <= 64 else f"{name[:63]}…"


def _find_schema_issues(spec: GraphSpec) -> Iterator[Issue]:
    values_left = MAX_SCHEMA_VALUES
    for node_id, node in spec.nodes.items():
        if not isinstance(node, LlmNode) or node.output_schema is None:
            continue
        where = ("nodes", node_id, "output_schema")
        yield from _find_reference_issues(where, node.output_schema)
        values_left -= count_values(node.output_schema)
        if values_left < 0:
            yield Issue(where, f"the schemas of a graph may have at most {MAX_SCHEMA_VALUES} values together")
        elif (error := find_schema_error(node.output_schema)) is not None:
            yield Issue((*where, *error[0]), error[1])


def _find_reference_issues(path: Path, schema: Any) -> Iterator[Issue]:
    """Yields references to other documents: whoever reads the schema would have to fetch them."""
    for key, value in _list_children(schema):
        if key in {"$ref", "$dynamicRef"} and isinstance(value, str) and not value.startswith("#"):
            yield Issue((*path, key), 'must refer to the schema itself, with "#"')
        yield from _find_reference_issues((*path, key), value)
