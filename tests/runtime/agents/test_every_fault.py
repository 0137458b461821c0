"""Whoever sends a wrong graph is told every fault of it at once, and none that it has not."""

import copy
from typing import Any

import pytest

from baobab.runtime.agents.spec.spec import ToolRef
from baobab.runtime.agents.spec.validation import ToolOffer, validate_graph

Path = tuple[str | int, ...]

SOUND: dict[str, Any] = {
    "spec_version": 1,
    "entry": "ask",
    "nodes": {
        "ask": {"type": "llm", "output_key": "answer", "tools": [{"source": "builtin", "name": "kv_get"}]},
        "end": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    "edges": [{"from": "ask", "to": "end"}],
    "tools": {"builtin": ["kv_get"]},
}


class FakeOffers:
    def get_offer(self, ref: ToolRef) -> ToolOffer | str:
        return ToolOffer("read_only", "end_user") if ref.name == "kv_get" else f"there is no tool {ref.name}"


def list_issues(graph: Any) -> dict[Path, str]:
    return {issue.path: issue.message for issue in validate_graph(graph, FakeOffers())[1]}


def test_every_fault_is_said_at_once() -> None:
    spec = {
        "spec_version": "1",
        "entry": "aks",
        "nodes": {
            "ask": {"type": "llm", "promt": "x", "output_key": "answer", "input_template": "Say {input.x}"},
            "call": {"type": "tool", "output_key": "found"},
            "done": {"type": "end", "output_template": "{{ state.anser }} {{ state.x"},
        },
        "edges": [{"from": "ask", "to": "call", "wen": {}}, {"from": "call", "to": "done"}],
        "limts": {},
    }
    issues = list_issues(spec)
    assert "did you mean" in issues["limts",] or "limits" in issues["limts",]
    assert "system_prompt" in issues["nodes", "ask", "promt"]
    assert issues["nodes", "call", "tool_ref"] == "is required"
    assert 'did you mean "when"?' in issues["edges", 0, "wen"]
    assert 'did you mean "ask"?' in issues["entry",]
    assert "{{input.x}}" in issues["nodes", "ask", "input_template"]
    assert "does not begin a placeholder" in issues["nodes", "done", "output_template"]


@pytest.mark.parametrize(
    ("broken_part", "where"),
    [
        ({"entry": ...}, ("entry",)),
        ({"entry": 7}, ("entry",)),
        ({"spec_version": ...}, ("spec_version",)),
        ({"edges": [{"from": "ask"}]}, ("edges", 0, "to")),
        ({"edges": [7]}, ("edges", 0)),
        ({"edges": [{"from": "ask", "to": "end", "when": 7}, {"from": "ask", "to": "end"}]}, ("edges", 0, "when")),
        ({"edges": {}}, ("edges",)),
        ({"tools": {"builtin": [7]}}, ("tools", "builtin", 0)),
        ({"limits": {"max_steps": 0}}, ("limits", "max_steps")),
    ],
    ids=str,
)
def test_one_broken_part_hides_no_other_and_makes_nothing_up(broken_part: dict[str, Any], where: Path) -> None:
    graph = {name: value for name, value in (copy.deepcopy(SOUND) | broken_part).items() if value is not ...}
    assert list(list_issues(graph)) == [where]
    graph["nodes"]["end"] = {"type": "end", "output_template": "{{ state."}
    graph["nodes"]["ask"]["temprature"] = 1
    assert set(list_issues(graph)) == {where, ("nodes", "end", "output_template"), ("nodes", "ask", "temprature")}


def test_null_for_what_may_be_left_out_of_a_graph_leaves_it_out() -> None:
    graph = copy.deepcopy(SOUND) | {"limits": {"max_steps": None, "timeout_seconds": 60}}
    graph["nodes"]["ask"] |= {"system_prompt": None, "on_denied": None, "model": None}
    graph["edges"][0]["when"] = None
    spec, issues = validate_graph(graph, FakeOffers())
    assert issues == []
    assert spec is not None
    assert spec.limits.max_steps == 50
    assert list_issues(graph | {"entry": None}) == {("entry",): "must be text"}


def test_the_schemas_of_a_graph_are_bounded_together() -> None:
    graph = copy.deepcopy(SOUND)
    graph["nodes"]["ask"]["output_schema"] = {"allOf": [{}] * 5000}
    assert "values together" in list_issues(graph)["nodes", "ask", "output_schema"]
