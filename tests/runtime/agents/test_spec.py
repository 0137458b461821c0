"""Which graphs are valid, and the errors of those that are not. Examples come from docs/graph-spec.md."""

import copy
import json
import math
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from baobab.runtime.agents.spec.issue import MAX_ISSUES, Issue
from baobab.runtime.agents.spec.spec import GraphSpec, LlmNode, Override, ToolRef, graph_schema
from baobab.runtime.agents.spec.validation import ToolOffer, narrow_offer, validate_graph
from tests.docs.blocks import find_blocks

PAGE = (Path(__file__).parents[3] / "docs/graph-spec.md").read_text()
EXAMPLES = [json.loads(block) for block in find_blocks(PAGE, "json")]

Path_ = tuple[str | int, ...]


OFFERS = {
    "kv_exists": ToolOffer("read_only", "end_user"),
    "kv_get": ToolOffer("read_only", "end_user"),
    "kv_put": ToolOffer("read_write", "developer_only"),
    "interrupt": ToolOffer("read_only", "end_user"),
    "send-reminder": ToolOffer("read_write", "end_user"),
    "pay-out": ToolOffer("read_write", "end_user"),
    "find_person": ToolOffer("read_only", "end_user"),
    "export": ToolOffer("read_only", "end_user"),
    "data_update": ToolOffer("read_write", "end_user", effect="write"),
    "update_row": ToolOffer("read_write", "developer_only", find_right_issues=lambda _node: ()),
}


class FakeOffers:
    """The tools of an app; what is asked for is written down."""

    def __init__(self) -> None:
        self.requested_names: list[str] = []

    def get_offer(self, ref: ToolRef) -> ToolOffer | str:
        self.requested_names.append(ref.name)
        return OFFERS.get(ref.name, f"there is no tool {ref.name}")


def build_graph(
    *edges: tuple[str, str] | tuple[str, str, dict[str, Any]],
    nodes: dict[str, Any] | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """What `nodes` does not say is an llm node that writes its own name, or an end; the first edge leaves the entry."""
    default_nodes: dict[str, Any] = {}
    for name in dict.fromkeys(name for edge in edges for name in edge[:2]):
        default_nodes[name] = {"type": "end"} if name.startswith("end") else {"type": "llm", "output_key": name}
    return {
        "spec_version": 1,
        "entry": edges[0][0] if edges else "end",
        "nodes": {**default_nodes, **(nodes or {})},
        "edges": [{"from": edge[0], "to": edge[1], **({"when": edge[2]} if len(edge) > 2 else {})} for edge in edges],
        **fields,
    }


def list_issues(value: Any) -> list[tuple[Path_, str]]:
    return [(issue.path, issue.message) for issue in validate_graph(value, FakeOffers())[1]]


def change_graph(path: Sequence[str | int], value: Any) -> dict[str, Any]:
    """A graph of all kinds of nodes that is right, but for one value."""
    spec = copy.deepcopy(ALL_KINDS)
    part: Any = spec
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return spec


WIDER_MODE = (
    "must not widen: the tool is read_write, so each call waits for approval, and no graph takes that away; "
    "leave the override out, or use a tool that only reads"
)
WIDER_EXPOSURE = "must not widen: the tool is developer_only, and no graph opens it to users; leave the override out"

IF = {"==": [{"var": "input.x"}, 1]}
ALL_KINDS = build_graph(
    ("ask", "call"),
    ("call", "each"),
    ("each", "other"),
    ("other", "end"),
    nodes={
        "ask": {
            "type": "llm",
            "output_key": "ask",
            "tools": [{"source": "mcp", "server_id": "crm", "name": "export"}],
        },
        "call": {"type": "tool", "tool_ref": {"source": "builtin", "name": "kv_put"}, "args_template": {"key": "k"}},
        "each": {
            "type": "map",
            "over": "{{ input.rows }}",
            "tool_ref": {"source": "function", "name": "pay-out"},
            "output_key": "paid",
        },
        "other": {"type": "agent", "agent": "clerk", "output_key": "told"},
        "end": {"type": "end", "output_template": "{{ state.told }}"},
    },
    tools={
        "builtin": ["kv_put"],
        "functions": ["pay-out"],
        "mcp_servers": [{"server_id": "crm", "tools": ["export", "find_person"]}],
    },
)


@pytest.mark.parametrize("spec", EXAMPLES, ids=lambda spec: "-".join(spec["nodes"]))
def test_every_example_of_the_page_is_right(spec: dict[str, Any]) -> None:
    graph, issues = validate_graph(spec, FakeOffers())
    assert issues == []
    assert graph is not None
    assert graph.entry == spec["entry"]


def test_the_page_has_every_field_of_every_node_in_an_example() -> None:
    nodes = [node for spec in EXAMPLES for node in spec["nodes"].values()]
    assert {node["type"] for node in nodes} == {"llm", "tool", "map", "agent", "end"}
    used_fields = {field for node in nodes if node["type"] == "llm" for field in node}
    assert used_fields == set(LlmNode.model_fields)


def test_what_a_graph_leaves_out_has_the_documented_defaults() -> None:
    spec, issues = validate_graph(build_graph(nodes={"end": {"type": "end"}}), FakeOffers())
    assert (spec is not None, issues) == (True, [])
    assert spec is not None
    assert spec.limits.model_dump() == {
        "max_steps": 50,
        "max_tool_calls": 50,
        "max_parallel_tools": 4,
        "timeout_seconds": 300,
        "human_timeout_seconds": 86_400,
        "heartbeat_seconds": 5,
        "checkpoint_every_node": True,
    }
    assert spec.tools.model_dump() == {"builtin": [], "mcp_servers": [], "functions": []}
    assert spec.nodes["end"].model_dump() == {"type": "end", "output_template": "{{ state }}"}


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("spec_version",), 2, "must be 1"),
        (("spec_version",), True, "must be 1"),
        (("spec_version",), "2", "must be 1"),
        (("entry",), 5, "must be text"),
        (("more",), 1, f"is not a field here; the fields are {', '.join(GraphSpec.model_fields)}"),
        (("nodes", "ask", "more"), 1, f"is not a field here; the fields are {', '.join(LlmNode.model_fields)}"),
        (("nodes", "ask", "output_key"), "a-b", "must be a name: letters, digits and _, no digit first"),
        (("nodes", "ask", "output_key"), "k" * 65, "must have at most 64 characters"),
        (("nodes", "ask", "temperature"), 2.5, "must be at most 2"),
        (("nodes", "ask", "temperature"), "hot", "must be a number"),
        (("nodes", "ask", "max_tokens"), 1.5, "must be a whole number"),
        (("nodes", "ask", "max_tokens"), 0, "must be at least 1"),
        (("nodes", "ask", "on_denied"), "stop", "must be 'fail' or 'tell'"),
        (("nodes", "ask", "remembers"), "yes", "must be true or false"),
        (("nodes", "ask", "system_prompt"), "x" * 100_001, "must have at most 100000 characters"),
        (("nodes", "ask", "output_schema"), [], "must be an object"),
        (("nodes", "ask", "tools"), {}, "must be a list"),
        (("nodes", "ask", "tools", 0, "source"), "web", "must be 'builtin', 'function' or 'mcp'"),
        (("nodes", "ask", "tools", 0), {"source": "mcp", "name": "x"}, "a tool of source mcp needs a server_id"),
        (
            ("nodes", "call", "tool_ref"),
            {"source": "builtin", "server_id": "crm", "name": "kv_put"},
            "only a tool of source mcp has a server_id",
        ),
        (("nodes", "call", "args_template"), {str(i): 1 for i in range(101)}, "must have at most 100 entries"),
        (("nodes", "other", "agent"), "No", "must be the name of an agent: lower-case letters, digits, - and _"),
        (("nodes", "end", "type"), "stop", "must be llm, tool, map, agent or end"),
        (("nodes", "end"), {}, "needs a type: llm, tool, map, agent or end"),
        (("nodes", "end"), None, "must be an object"),
        (("nodes", ""), {"type": "end"}, "must have at least 1 character"),
        (("nodes", "a\tb"), {"type": "end"}, "must not hold control characters"),
        (("nodes", "n" * 65), {"type": "end"}, "must have at most 64 characters"),
        (("edges", 0), "x", "must be an object"),
        (("edges", 0), {"from": "ask"}, None),
        (("edges", 0, "when"), True, "must be an object"),
        (("tools", "mcp_servers", 0, "tool_overrides"), {"export": {"mode_override": "none"}}, None),
        (("tools", "mcp_servers", 0, "tool_overrides"), {"a\nb": {}}, None),
        (("limits",), {"max_steps": 201}, None),
    ],
)
def test_a_field_that_is_not_right_is_named_with_its_path(path: Path_, value: Any, message: str | None) -> None:
    ((where, issue_text),) = list_issues(change_graph(path, value))
    assert where[: len(path)] == path
    assert message is None or (where, issue_text) == (path, message)


@pytest.mark.parametrize(
    ("field", "least", "most"),
    [
        ("max_steps", 1, 200),
        ("max_tool_calls", 0, 500),
        ("max_parallel_tools", 1, 16),
        ("timeout_seconds", 5, 3600),
        ("human_timeout_seconds", 60, 604_800),
        ("heartbeat_seconds", 1, 60),
    ],
)
def test_limits_end_where_the_page_says(field: str, least: int, most: int) -> None:
    for value in (least, most):
        assert list_issues(change_graph(("limits",), {field: value})) == []
    assert list_issues(change_graph(("limits",), {field: least - 1})) == [
        (("limits", field), f"must be at least {least}")
    ]
    assert list_issues(change_graph(("limits",), {field: most + 1})) == [(("limits", field), f"must be at most {most}")]


def test_a_node_may_have_any_name_also_one_of_a_type_or_a_field() -> None:
    names = ["llm", "nodes", "a:b", "ünï cödé", "🌳", "type", "__start__", "[key]", "x.y"]
    chain = [*pairwise(names), (names[-1], "end")]
    spec = build_graph(*chain, nodes={name: {"type": "llm", "output_key": "k"} for name in names})
    assert list_issues(spec) == []
    spec["nodes"]["llm"]["llm"] = 1
    spec["nodes"]["[key]"]["x"] = 1
    assert list_issues(spec) == [
        (("nodes", "llm", "llm"), f"is not a field here; the fields are {', '.join(LlmNode.model_fields)}"),
        (("nodes", "[key]", "x"), f"is not a field here; the fields are {', '.join(LlmNode.model_fields)}"),
    ]


# --- edges ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("spec", "expected_issues"),
    [
        (build_graph(("a", "end"), entry="b"), [(("entry",), 'there is no node "b"')]),
        (
            build_graph(("a", "end"), ("a", "b", IF), nodes={"b": {"type": "end"}}),
            [(("edges", 1), 'is never taken: an edge without when leaves "a" before it')],
        ),
        (build_graph(("a", "end", IF), ("a", "end", IF)), [(("edges", 1), "is listed twice")]),
        (build_graph(("a", "end"), ("end", "a")), [(("edges", 1, "from"), '"end" is an end: nothing follows it')]),
        (
            build_graph(("a", "end"), ("b", "end")),
            [(("nodes", "b"), 'cannot be reached from the entry "a"')],
        ),
        (
            build_graph(("a", "b", IF), ("a", "end")),
            [(("nodes", "b"), "no edge leaves it, and it is not of type end")],
        ),
        (
            build_graph(("a", "b"), nodes={"b": {"type": "llm", "output_key": "b"}}),
            [
                (("nodes",), "there is no node of type end"),
                (("nodes", "b"), "no edge leaves it, and it is not of type end"),
            ],
        ),
        (
            {**build_graph(("a", "end")), "edges": [{"from": "a", "to": "z"}, {"from": "y", "to": "end"}]},
            [
                (("entry",), "no node of type end can be reached from here"),
                (("edges", 0, "to"), 'there is no node "z"'),
                (("edges", 1, "from"), 'there is no node "y"'),
                (("nodes", "end"), 'cannot be reached from the entry "a"'),
            ],
        ),
    ],
)
def test_edges_must_lead_from_the_entry_to_an_end(
    spec: dict[str, Any], expected_issues: list[tuple[Path_, str]]
) -> None:
    assert list_issues(spec) == expected_issues


@pytest.mark.parametrize(
    "edges",
    [
        [("a", "b"), ("b", "a", IF), ("b", "end")],
        [("a", "a", IF), ("a", "end")],
        [("a", "b"), ("b", "c"), ("c", "a", IF), ("c", "b", IF), ("c", "end", IF)],
        [("a", "b", IF), ("a", "c"), ("b", "a"), ("c", "b", IF), ("c", "end")],
    ],
)
def test_a_cycle_that_can_be_left_is_allowed(edges: list[Any]) -> None:
    assert list_issues(build_graph(*edges)) == []


@pytest.mark.parametrize(
    ("edges", "at", "cycle"),
    [
        ([("a", "a", IF), ("e", "end")], "a", '"a" -> "a"'),
        ([("a", "b"), ("b", "c"), ("c", "b", IF), ("e", "end")], "b", '"b" -> "c" -> "b"'),
        ([("a", "end", IF), ("a", "b"), ("b", "c"), ("c", "d"), ("d", "b")], "b", '"b" -> "c" -> "d" -> "b"'),
    ],
)
def test_a_cycle_that_cannot_be_left_is_named(edges: list[Any], at: str, cycle: str) -> None:
    expected_issue = (("nodes", at), f"the cycle {cycle} is never left: no edge of it leads to an end")
    assert [issue for issue in list_issues(build_graph(*edges)) if "cycle" in issue[1]] == [expected_issue]


# --- tools ------------------------------------------------------------------------------------------------------

CRM = ("tools", "mcp_servers", 0)


@pytest.mark.parametrize(
    ("path", "value", "expected_issue"),
    [
        (("tools", "builtin"), ["kv_put", "fly"], (("tools", "builtin", 1), "there is no tool fly")),
        (("tools", "builtin"), ["kv_put", "kv_put"], (("tools", "builtin", 1), '"kv_put" is listed twice')),
        (("tools", "builtin"), [], (("nodes", "call", "tool_ref"), '"kv_put" is not listed in tools.builtin')),
        (("tools", "functions"), [], (("nodes", "each", "tool_ref"), '"pay-out" is not listed in tools.functions')),
        (
            (*CRM, "tools"),
            ["find_person"],
            (("nodes", "ask", "tools", 0), '"export" is not listed in the tools of "crm" in tools.mcp_servers'),
        ),
        (
            ("nodes", "ask", "tools"),
            [{"source": "mcp", "server_id": "crm", "name": "export"}] * 2,
            (("nodes", "ask", "tools", 1), '"export" is listed twice'),
        ),
        ((*CRM, "tools"), ["export", "gone"], ((*CRM, "tools", 1), "there is no tool gone")),
        (
            (*CRM, "tool_overrides"),
            {"gone": {"mode_override": "read_write"}},
            ((*CRM, "tool_overrides", "gone"), '"gone" is not one of the server\'s listed tools'),
        ),
        (
            ("nodes", "call", "tool_ref", "mode_override"),
            "read_only",
            (("nodes", "call", "tool_ref", "mode_override"), WIDER_MODE),
        ),
        (
            ("nodes", "call", "tool_ref", "exposed_to_override"),
            "end_user",
            (("nodes", "call", "tool_ref", "exposed_to_override"), WIDER_EXPOSURE),
        ),
    ],
)
def test_tools_are_listed_there_and_only_narrowed(path: Path_, value: Any, expected_issue: tuple[Path_, str]) -> None:
    assert list_issues(change_graph(path, value)) == [expected_issue]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodes", "ask", "tools", 0, "mode_override"), "read_write"),
        (("nodes", "ask", "tools", 0, "exposed_to_override"), "developer_only"),
        (("nodes", "call", "tool_ref", "mode_override"), "read_write"),
        (
            (*CRM, "tool_overrides"),
            {"export": {"mode_override": "read_write", "exposed_to_override": "developer_only"}},
        ),
    ],
)
def test_an_override_may_narrow_or_say_what_is_so_already(path: Path_, value: Any) -> None:
    assert list_issues(change_graph(path, value)) == []


def test_a_reference_cannot_take_back_what_its_server_narrowed() -> None:
    spec = change_graph((*CRM, "tool_overrides"), {"export": {"mode_override": "read_write"}})
    spec["nodes"]["ask"]["tools"][0]["mode_override"] = "read_only"
    where = ("nodes", "ask", "tools", 0, "mode_override")
    assert list_issues(spec) == [(where, WIDER_MODE)]


def test_a_function_need_not_be_there_before_a_node_uses_it() -> None:
    assert list_issues(build_graph(("a", "end"), tools={"functions": ["later"]})) == []
    spec = change_graph(("tools", "functions"), ["later"])
    spec["nodes"]["each"]["tool_ref"]["name"] = "later"
    assert list_issues(spec) == [(("nodes", "each", "tool_ref"), "there is no tool later")]


def test_each_tool_is_asked_about_once() -> None:
    refs = [{"source": "builtin", "name": name} for name in ("kv_get", "kv_put")]
    names = [f"n{index}" for index in range(50)]
    nodes = {name: {"type": "llm", "output_key": "k", "tools": refs} for name in names}
    chain = [*pairwise(names), (names[-1], "end")]
    shelf = FakeOffers()
    assert validate_graph(build_graph(*chain, nodes=nodes, tools={"builtin": ["kv_get", "kv_put"]}), shelf)[1] == []
    assert sorted(shelf.requested_names) == ["kv_get", "kv_put"]


def test_of_several_overrides_the_narrowest_counts() -> None:
    offer = ToolOffer("read_only", "end_user")
    assert narrow_offer(offer, Override()) == offer
    override = Override(exposed_to_override="developer_only")
    assert narrow_offer(offer, Override(mode_override="read_write"), override) == ToolOffer(
        "read_write", "developer_only"
    )
    assert narrow_offer(ToolOffer("read_write", "developer_only"), Override()) == ToolOffer(
        "read_write", "developer_only"
    )


# --- templates and conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "where", "message"),
    [
        (("nodes", "ask", "input_template"), "{{ states.x }}", (), "{{ at character 1 does not begin a placeholder"),
        (("nodes", "ask", "system_prompt"), "a {{ state.x", (), "{{ at character 3 does not begin a placeholder"),
        (
            ("nodes", "ask", "input_template"),
            "{{ state.nobody }}",
            (),
            "no node writes state.nobody; did you mean input.nobody?",
        ),
        (("nodes", "ask", "input_template"), "{{ state.paid }}", (), "state.paid is not written yet"),
        (("nodes", "ask", "input_template"), "{{ item }}", (), "item is only available in the args_template of a map"),
        (("nodes", "call", "args_template"), {"a": [1, {"b": "{{ item.x }}"}]}, ("a", 1, "b"), "item is only"),
        (("nodes", "each", "over"), "{{ item }}", (), "item is only available in the args_template of a map"),
        (("nodes", "each", "over"), "rows: {{ input.rows }}", (), "must be one placeholder that names a list"),
        (("nodes", "each", "args_template"), {"a": "{{ state.told }}"}, ("a",), "state.told is not written yet"),
        (("nodes", "other", "input_template"), {"a": "{{ state.x }}"}, ("a",), "no node writes state.x"),
        (("nodes", "end", "output_template"), {"a": ["{{ x }}"]}, ("a", 0), "{{ at character 1 does not begin"),
        (("nodes", "ask", "output_schema"), {"$ref": "http://x.test"}, ("$ref",), "must refer to the schema itself"),
        (("edges", 0, "when"), {"run": ["rm"]}, ("run",), "there is no such operation; there are var, missing, "),
        (("edges", 0, "when"), {"!": [{"==": [1]}]}, ("!", 0, "=="), "takes 2 arguments, not 1"),
        (("edges", 0, "when"), {"!": {"var": "item.x"}}, ("!", "var"), 'a name begins with "state" or "input"'),
        (("edges", 0, "when"), {"!": {"var": "state.told"}}, (), "state.told is not written yet"),
        (("edges", 0, "when"), {}, (), "an operation is an object with one key"),
    ],
)
def test_templates_and_conditions_are_read_before_they_are_needed(
    path: Path_, value: Any, where: Path_, message: str
) -> None:
    ((at, issue_text),) = list_issues(change_graph(path, value))
    assert at == (*path, *where)
    assert issue_text.startswith(message)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("nodes", "each", "args_template"), {"a": "{{ item }}", "b": {"c": "{{ item.x.0 }} {{ state.ask.y }}"}}),
        (("nodes", "ask", "input_template"), "{{ input.anything.at.all }} {{ state }}"),
        (("nodes", "ask", "output_schema"), {"$defs": {"a": {}}, "properties": {"x": {"$ref": "#/$defs/a"}}}),
        (("edges", 0, "when"), {"!": {"var": "state.ask"}}),
        (("nodes", "end", "output_template"), [1, None, {"a": "{{ state.paid }}"}]),
    ],
)
def test_what_may_be_there_may_be_named(path: Path_, value: Any) -> None:
    assert list_issues(change_graph(path, value)) == []


def test_a_key_that_one_way_writes_may_be_named_after_the_ways_meet() -> None:
    spec = build_graph(("a", "b", IF), ("a", "c"), ("b", "d"), ("c", "d"), ("d", "end"))
    spec["nodes"]["d"]["input_template"] = "{{ state.b }}"
    assert list_issues(spec) == []
    spec["nodes"]["c"]["input_template"] = "{{ state.b }}"
    assert list_issues(spec) == [
        (("nodes", "c", "input_template"), "state.b is not written yet: no node that writes it comes before")
    ]


def test_in_a_cycle_a_node_may_name_what_is_written_later() -> None:
    spec = build_graph(("a", "b"), ("b", "a", IF), ("b", "end"))
    spec["nodes"]["a"]["input_template"] = "{{ state.b }}"
    assert list_issues(spec) == []


# --- hostile ----------------------------------------------------------------------------------------------------


def nest_list(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "path", "message"),
    [
        (nest_list(5000), (0,) * 33, "must be nested at most 32 deep"),
        (build_graph(nodes={f"n{index}": {"type": "end"} for index in range(201)}), ("nodes",), "at most 200 entries"),
        (build_graph(nodes={f"n{index}": {"type": "end"} for index in range(10_000)}), (), "at most 20000 values"),
        ([0] * 1_000_000, (), "at most 20000 values"),
        (dict.fromkeys(map(str, range(1_000_000))), (), "at most 20000 values"),
        ({"entry": "x" * 1_000_001}, (), "at most 1000000 characters"),
        ({"x" * 1_000_001: 1}, (), "at most 1000000 characters"),
        ({"a": {"x" * 257: 1}}, ("a",), "must have keys of at most 256 characters"),
        ({"a": ["b\x00"]}, ("a", 0), "must not hold the character NUL"),
        ({"a": {"\x00": 1}}, ("a",), "must not hold the character NUL"),
        ({"a": {"\ud800": 1}}, ("a",), "half of a pair of surrogates"),
        ({"a": "\udfff"}, ("a",), "half of a pair of surrogates"),
        ({"a": math.nan}, ("a",), "must be a finite number"),
        ({"a": 10**400}, ("a",), "must be a number of at most 64 bits"),
        ({"a": b"x"}, ("a",), "must be JSON"),
        ({"a": {1: 2}}, ("a",), "must have text as its keys"),
        (None, (), "must be an object"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_graph_at_all_is_refused_with_one_issue(value: Any, path: Path_, message: str) -> None:
    ((where, issue_text),) = list_issues(value)
    assert where == path
    assert message in issue_text


def test_a_long_name_is_cut_in_messages() -> None:
    spec = change_graph(("nodes", "ask", "input_template"), "{{ state." + "x" * 90_000 + " }}")
    ((_, issue_text),) = list_issues(spec)
    assert len(issue_text) < 200


def test_there_are_at_most_a_hundred_issues_in_the_same_order_each_time() -> None:
    spec = build_graph(*[(f"n{index}", "end") for index in range(199)])
    assert len(list_issues(spec)) == MAX_ISSUES
    assert list_issues(spec) == list_issues(json.loads(json.dumps(spec)))
    assert (
        len(list_issues(change_graph(("nodes", "end"), {"type": "end", **{f"x{index}": 1 for index in range(500)}})))
        == 100
    )


ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
WHERE = st.sampled_from(
    [
        *[(key,) for key in ALL_KINDS],
        *[("nodes", name) for name in ALL_KINDS["nodes"]],
        *[("nodes", name, field) for name, node in ALL_KINDS["nodes"].items() for field in node],
        *[("nodes", "ask", field) for field in LlmNode.model_fields],
        ("nodes", "ask", "tools", 0),
        ("nodes", "each", "args_template"),
        *[("edges", index) for index in range(4)],
        ("edges", 1, "when"),
        ("limits",),
        *[("tools", key) for key in ("builtin", "functions", "mcp_servers")],
        (*CRM, "tool_overrides"),
    ]
)


@given(ANY_JSON)
def test_any_json_gets_issues_and_never_an_exception(value: Any) -> None:
    assert validate_graph(value, FakeOffers())[1]


@given(WHERE, ANY_JSON)
@settings(max_examples=200)
def test_any_json_within_a_graph_gets_issues_or_none_and_never_an_exception(path: Path_, value: Any) -> None:
    spec, issues = validate_graph(change_graph(path, value), FakeOffers())
    assert (spec is None) == bool(issues)
    for issue in issues:
        assert isinstance(issue, Issue)
        assert not any(word in issue.message for word in ("pydantic", "Input", "http"))
        json.dumps([issue.path, issue.message], ensure_ascii=False).encode()


# --- the nearest name ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "hint"),
    [
        (("nodes", "ask", "type"), "LLM", 'did you mean "llm"?'),
        (("nodes", "ask", "input_template"), "{{ state.question }}", "did you mean input.question?"),
        (("nodes", "end", "output_template"), "{{ state.tolld }}", "did you mean state.told?"),
        (("nodes", "ask", "system_prompt"), "Hello {input.name}!", "a placeholder has two braces, {{input.name}}"),
    ],
)
def test_what_was_probably_meant_is_told(path: Path_, value: Any, hint: str) -> None:
    assert any(hint in message for _, message in list_issues(change_graph(path, value)))


@pytest.mark.parametrize("text", ['{"input.x": 1}', "{{ input.x }}", '{{ "{{" }} input.x }}', "a { b }", "{inputs}"])
def test_braces_that_are_no_slip_are_left_alone(text: str) -> None:
    assert list_issues(change_graph(("nodes", "ask", "system_prompt"), text)) == []


@pytest.mark.parametrize("version", [1, "1"])
def test_the_version_is_a_number_or_a_text(version: Any) -> None:
    assert list_issues(change_graph(("spec_version",), version)) == []


def test_every_field_of_the_schema_that_is_not_plain_says_what_it_is() -> None:
    schema = graph_schema()
    assert "$ref" not in json.dumps(schema)
    for field, about in schema["properties"].items():
        assert "description" in about or field in ("spec_version", "limits"), field
