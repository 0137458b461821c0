"""Tools that refuse, as something that a graph can decide about."""

import json
from typing import Any

import pytest

from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.tools.agents.conftest import Agency, build_graph

GET = {"source": "builtin", "name": "kv_get"}
KV = {"tools": {"builtin": ["kv_get", "kv_put", "interrupt"]}}


def load_example(heading: str) -> dict[str, Any]:
    """The example in a section of the page about graphs."""
    (block,) = find_blocks((ROOT / "docs/graph-spec.md").read_text(), "json", below=heading)
    spec: dict[str, Any] = json.loads(block)
    return spec


@pytest.mark.parametrize(
    ("run_input", "status", "output"),
    [
        ({"email": "stranger@example.com", "amount": 10}, "completed", {"granted": False}),
        ({"email": "amina@example.com"}, "completed", {"granted": False}),
        ({"email": "amina@example.com", "amount": 10}, "completed", {"granted": True, "member": 7}),
        ({"email": "amina@example.com", "amount": 10, "fee": 95}, "paused", None),
        ({"email": "guest@example.com", "amount": 10}, "paused", None),
    ],
)
async def test_the_documented_example_of_conditions_does_what_the_page_says(
    agency: Agency, run_input: dict[str, Any], status: str, output: Any
) -> None:
    await agency.put_key("member:amina@example.com", {"id": 7, "role": "member"})
    await agency.put_key("member:guest@example.com", {"id": 8, "role": "guest"})
    await agency.create_agent("refunds", load_example("Conditions"))
    run = await agency.run_agent("refunds", input=run_input)
    assert (run["status"], run["output"]) == (status, output), run["error"]
    if status == "paused":
        run = await agency.decide("refunds", run["id"])
        assert run["output"]["granted"] is True, run["error"]


@pytest.mark.parametrize(("amount", "output"), [(99, "granted"), (100, "not granted")])
async def test_the_documented_example_decides_by_the_input_alone(agency: Agency, amount: int, output: str) -> None:
    await agency.create_agent("amounts", load_example("Decide by the input"))
    run = await agency.run_agent("amounts", input={"amount": amount})
    assert (run["status"], run["output"]) == ("completed", output), run["error"]


async def test_an_item_of_a_map_that_fails_leaves_the_others_their_results(agency: Agency) -> None:
    await agency.put_key("a", 1)
    await agency.put_key("c", 3)
    node = {
        "type": "map",
        "over": "{{ input.keys }}",
        "tool_ref": GET,
        "args_template": {"key": "{{ item }}"},
        "output_key": "found",
        "on_error": "tell",
    }
    end = {"type": "end", "output_template": "{{ state.found }}"}
    await agency.create_agent("each", build_graph({"each": node, "done": end}, ("each", "done"), **KV))
    run = await agency.run_agent("each", input={"keys": ["a", "b", "c"]})
    assert run["status"] == "completed", run["error"]
    first, second, third = run["output"]
    assert [first, third] == [{"value": 1}, {"value": 3}]
    assert second["error"]["code"] == "not_found"
    ends = await agency.list_events("each", run["id"], "tool_call_end")
    assert sorted(end["payload"]["status"] for end in ends) == ["error", "ok", "ok"]


async def test_an_item_of_a_map_that_is_denied_leaves_the_others_their_results(agency: Agency) -> None:
    node = {
        "type": "map",
        "over": "{{ input.questions }}",
        "tool_ref": {"source": "builtin", "name": "interrupt"},
        "args_template": {"reason": "{{ item }}"},
        "output_key": "answers",
        "on_denied": "tell",
    }
    end = {"type": "end", "output_template": "{{ state.answers }}"}
    await agency.create_agent("each", build_graph({"each": node, "done": end}, ("each", "done"), **KV))
    run = await agency.run_agent("each", input={"questions": ["One?", "Two?"]})
    await agency.decide("each", run["id"], approves=False, index=0)
    run = await agency.decide("each", run["id"], index=1)
    assert run["status"] == "completed", run["error"]
    assert sum("error" in answer for answer in run["output"]) == 1


async def test_a_run_below_that_fails_is_something_to_decide_about(agency: Agency) -> None:
    get = {"type": "tool", "tool_ref": GET, "args_template": {"key": "nothing"}}
    await agency.create_agent("below", build_graph({"get": get, "done": {"type": "end"}}, ("get", "done"), **KV))
    ask = {"type": "agent", "agent": "below", "output_key": "told", "on_error": "tell"}
    end = {"type": "end", "output_template": "{{ state.told.error.code }}"}
    await agency.create_agent("above", build_graph({"ask": ask, "done": end}, ("ask", "done")))
    run = await agency.wait_for_end("above", await agency.start_run("above"))
    assert (run["status"], run["output"]) == ("completed", "tool_failed"), run["error"]
    assert run["tainted"] is True
