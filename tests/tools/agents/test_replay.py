"""Replay: an ended run once more, from its record."""

import asyncio
from typing import Any

from click.testing import CliRunner, Result

from baobab.cli import main
from baobab.cli.work.replays import replay
from baobab.tools.core.errors import BaobabError
from tests.backends import prepare_data
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_subagents import agent_graph, tool_graph

NAMES = ["kv_get", "kv_put", "kv_incr", "interrupt"]
KV = {"tools": {"builtin": NAMES}}
REFS = [{"source": "builtin", "name": name} for name in NAMES]
DONE = {"type": "end", "output_template": "{{ state.answer }}"}


def model_graph(prompt: str, **more: Any) -> dict[str, Any]:
    node = {"type": "llm", "input_template": prompt, "output_key": "answer", "tools": REFS, **more}
    return build_graph({"think": node, "done": DONE}, ("think", "done"), **KV)


COUNT = '/call kv_get {"key": "a"}\n/call kv_incr {"key": "visits"}\n/then kv_get {"key": "b"}\n/say It is done.'


async def replay_run(agency: Agency, run: dict[str, Any], *, present: bool = False) -> tuple[list[str], bool]:
    return await replay(agency.harness.services, run["id"], agency.app_id, present=present)


async def run_counter(agency: Agency) -> dict[str, Any]:
    """A run whose model reads and counts side by side, after a person agreed, and then reads what is not there."""
    await agency.put_key("a", "first")
    await agency.create_agent("counter", model_graph(COUNT))
    run = await agency.decide("counter", (await agency.run_agent("counter"))["id"])
    assert run["status"] == "completed", run
    return run


async def test_a_replay_is_the_same_and_nothing_fires(agency: Agency) -> None:
    run = await run_counter(agency)
    await agency.put_key("a", "changed since")
    lines, same = await replay_run(agency, run)
    assert same, lines
    assert await agency.get_key("visits") == "1"
    assert lines[0] == f"run {run['id']} of counter, completed"
    assert all(line.startswith("  ") for line in lines[1:-1])
    assert sum("tool_call_end" in line for line in lines) == 3
    assert await agency.get_run("counter", run["id"]) == run


async def test_a_graph_that_does_the_same_is_no_regression(agency: Agency) -> None:
    run = await run_counter(agency)
    spec = model_graph(COUNT)
    spec["nodes"]["think"]["system_prompt"] = "In other words."
    await agency.harness.call("agents_update", agency.owner, app_id=agency.app_id, name="counter", graph_spec=spec)
    lines, same = await replay_run(agency, run, present=True)
    assert same, lines


async def test_a_graph_that_does_something_else_differs(agency: Agency) -> None:
    run = await run_counter(agency)
    spec = model_graph(COUNT)
    spec["nodes"]["done"] = {"type": "end", "output_template": {"answer": "{{ state.answer }}"}}
    await agency.harness.call("agents_update", agency.owner, app_id=agency.app_id, name="counter", graph_spec=spec)
    lines, same = await replay_run(agency, run, present=True)
    assert not same
    assert [line[:9] for line in lines[1:] if not line.startswith("  ")][:2] == ["- run_end", "+ run_end"]


async def test_a_graph_that_calls_another_tool_differs_where_it_does(agency: Agency) -> None:
    await agency.put_key("a", 1)
    await agency.create_agent("user", tool_graph("kv_get", key="a"))
    run = await agency.run_agent("user")
    spec = tool_graph("kv_incr", key="a")
    spec["tools"] = KV["tools"]
    await agency.harness.call("agents_update", agency.owner, app_id=agency.app_id, name="user", graph_spec=spec)
    lines, same = await replay_run(agency, run, present=True)
    assert not same
    assert any(line.startswith("+ tool_call_start") and "kv_incr" in line for line in lines)
    assert await agency.get_key("a") == "1"


async def test_runs_that_did_not_end_well_are_replayed_as_far_as_they_got(agency: Agency) -> None:
    await agency.create_agent("missing", tool_graph("kv_get", key="nothing"))
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    agent = await agency.run_agent("missing")
    decision = await agency.decide("asker", (await agency.run_agent("asker"))["id"], approves=False, reason="No.")
    waiting = await agency.run_agent("asker")
    arguments = {"app_id": agency.app_id, "name": "asker", "id": waiting["id"]}
    await agency.harness.call("agents_runs_cancel", agency.owner, **arguments)
    cancelled_run = await agency.get_run("asker", waiting["id"])
    assert [run["status"] for run in (agent, decision, cancelled_run)] == ["failed", "failed", "cancelled"]
    for run in (agent, decision, cancelled_run):
        lines, same = await replay_run(agency, run)
        assert same, lines


async def test_structured_answers_conditions_maps_and_agents_are_replayed(agency: Agency) -> None:
    await agency.create_agent("speaker", model_graph("/say Hello {{ input.name }}."))
    schema = {"type": "object", "properties": {"score": {"type": "integer"}}, "required": ["score"]}
    nodes = {
        "judge": {"type": "llm", "input_template": '{"score": 9}', "output_schema": schema, "output_key": "verdict"},
        "each": {
            "type": "map",
            "over": "{{ input.keys }}",
            "tool_ref": REFS[0],
            "args_template": {"key": "{{ item }}"},
            "output_key": "found",
        },
        "run": agent_graph("speaker", name="Ada")["nodes"]["run"],
        "done": {"type": "end", "output_template": "{{ state }}"},
    }
    spec = build_graph(nodes, ("each", "run"), ("run", "done"), **KV)
    good = {">=": [{"var": "state.verdict.score"}, 9]}
    spec["edges"] += [{"from": "judge", "to": "each", "when": good}, {"from": "judge", "to": "done"}]
    for key in ("a", "b"):
        await agency.put_key(key, key)
    await agency.create_agent("all", spec)
    run = await agency.wait_for_end("all", await agency.start_run("all", input={"keys": ["a", "b"]}))
    assert run["output"]["verdict"] == {"score": 9}, run
    lines, same = await replay_run(agency, run)
    assert same, lines


async def test_a_fork_is_replayed_from_where_it_began(agency: Agency) -> None:
    run = await run_counter(agency)
    arguments = {"app_id": agency.app_id, "name": "counter", "id": run["id"]}
    result = await agency.harness.call("agents_runs_fork", agency.owner, **arguments)
    lines, same = await replay_run(agency, await agency.wait_for_run("counter", result["run_id"]))
    assert same, lines


async def test_a_fork_that_began_with_results_of_its_step_is_replayed_with_them(agency: Agency) -> None:
    await agency.create_agent(
        "both", model_graph('/call kv_incr {"key": "visits"}\n/call interrupt {"reason": "Go on?"}')
    )
    run = await agency.run_agent("both")
    tools = [event["payload"]["tool_name"] for event in await agency.list_events("both", run["id"], "run_paused")]
    await agency.decide("both", run["id"], index=tools.index("kv_incr"))
    arguments = {"app_id": agency.app_id, "name": "both", "id": run["id"]}
    result = await agency.harness.call("agents_runs_fork", agency.owner, **arguments)
    await agency.wait_for_run("both", result["run_id"])
    fork = await agency.decide("both", result["run_id"])
    assert fork["status"] == "completed", fork
    await agency.decide("both", run["id"], index=tools.index("interrupt"))
    lines, same = await replay_run(agency, fork)
    assert same, lines


async def test_what_cannot_be_replayed_is_said(agency: Agency) -> None:
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    await agency.put_key("large", "x" * 70_000)
    await agency.create_agent("reader", tool_graph("kv_get", key="large"))
    runs = [await agency.run_agent("asker"), await agency.run_agent("reader"), {"id": "no-such-run"}]
    codes = [(await get_refusal(agency, run)) for run in runs]
    assert codes == ["run_not_replayable", "run_not_replayable", "run_not_found"]


async def get_refusal(agency: Agency, run: dict[str, Any]) -> str:
    try:
        await replay_run(agency, run)
    except BaobabError as refusal:
        return refusal.code
    return "nothing"


async def run_replay(agency: Agency, *arguments: str) -> Result:
    """The command line, beside the open installation."""
    data = agency.harness.data
    environment = {**prepare_data(data), "BAOBAB_DATA": str(data)}
    return await asyncio.to_thread(CliRunner().invoke, main, ["replay", *arguments], env=environment)


async def test_the_command_ends_with_1_where_a_replay_differs(agency: Agency) -> None:
    run = await run_counter(agency)
    assert (await run_replay(agency, run["id"])).exit_code == 0
    spec = model_graph(COUNT)
    spec["nodes"]["done"] = {"type": "end", "output_template": "something else"}
    await agency.harness.call("agents_update", agency.owner, app_id=agency.app_id, name="counter", graph_spec=spec)
    differs = await run_replay(agency, run["id"], "--agent")
    assert (differs.exit_code, differs.output.splitlines()[-1]) == (1, "The replay differs.")
    assert (await run_replay(agency, run["id"], "--app", "app_000000000009")).exit_code == 1
    assert "no such run" in (await run_replay(agency, "nowhere")).output
