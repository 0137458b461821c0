"""Agents that run agents: a run as a step of another."""

from typing import Any

import pytest

from baobab.tools.core.auth.callers import Anonymous
from baobab.tools.core.context import RequestContext
from tests.jobs import list_unfinished_jobs, run_due_jobs
from tests.tools.agents.conftest import Agency, build_graph

TOOLS = {"tools": {"builtin": ["kv_get", "kv_put", "interrupt"]}}
DONE = {"type": "end", "output_template": "{{ state.answer }}"}
SAY = build_graph(
    {"say": {"type": "llm", "input_template": "/say Hello {{ input.name }}.", "output_key": "answer"}, "done": DONE},
    ("say", "done"),
)


def agent_graph(agent: str, **input_template: Any) -> dict[str, Any]:
    """A graph that runs an agent and returns what that returns."""
    node = {"type": "agent", "agent": agent, "input_template": input_template, "output_key": "answer"}
    return build_graph({"run": node, "done": DONE}, ("run", "done"))


def tool_graph(tool: str, **arguments: Any) -> dict[str, Any]:
    """A graph that calls one tool and returns its result."""
    ref = {"source": "builtin", "name": tool}
    node = {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}
    return build_graph({"use": node, "done": DONE}, ("use", "done"), **TOOLS)


async def get_child_run(agency: Agency, agent: str, run_id: str) -> dict[str, Any]:
    """The run of an agent that is a step of another run."""
    result = await agency.harness.call("agents_runs_list", agency.owner, app_id=agency.app_id, name=agent)
    (child_run,) = [run for run in result["runs"] if run["parent_run_id"] == run_id]
    return dict(child_run)


async def test_an_agent_runs_another_and_goes_on_with_its_output(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY)
    await agency.create_agent("boss", agent_graph("speaker", name="{{ input.who }}"))
    run = await agency.wait_for_end("boss", await agency.start_run("boss", input={"who": "Ada"}))
    assert run["status"] == "completed", run
    assert run["output"].endswith("Hello Ada.")
    child = await get_child_run(agency, "speaker", run["id"])
    assert child["input"] == {"name": "Ada"}
    assert child["caller_kind"] == run["caller_kind"]
    (start,) = await agency.list_events("boss", run["id"], "tool_call_start")
    (end,) = await agency.list_events("boss", run["id"], "tool_call_end")
    assert (start["payload"]["tool_source"], start["payload"]["tool_name"]) == ("agent", "speaker")
    assert end["payload"]["result"] == run["output"]
    assert await list_unfinished_jobs(agency.harness) == []


async def test_a_field_that_a_run_needs_and_nothing_gives_is_named_beforehand(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY)
    harness, app_id, graph = agency.harness, agency.app_id, agent_graph("speaker", nam="Ada")
    which: dict[str, Any] = {"app_id": app_id, "name": "boss", "graph_spec": graph}
    answer = await harness.call("agents_create", agency.owner, **which)
    message = 'gives no "name", without which a run ends at the node "say" of the agent speaker'
    assert answer["warnings"] == [{"path": ["nodes", "run", "input_template"], "message": message}]
    validity = await harness.call("agents_validate", agency.owner, app_id=app_id, name="_", graph_spec=graph)
    assert validity == {"valid": True, "warnings": answer["warnings"]}
    which |= {"name": "other", "graph_spec": agent_graph("speaker", name="Ada")}
    assert "warnings" not in await harness.call("agents_create", agency.owner, **which)
    tool, arguments = harness.registry.find("agents_run"), {"app_id": app_id, "name": "speaker", "input": {}}
    run, call = await harness.registry.run(tool, arguments, agency.owner, RequestContext("test", "request"))
    assert call.warnings == ['The input has no "name": a run that comes to the node "say" ends there.']
    assert (await agency.wait_for_end("speaker", run["run_id"]))["status"] == "failed"


async def test_what_a_run_below_used_is_counted_above(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY)
    await agency.create_agent("middle", agent_graph("speaker", name="Ada"))
    await agency.create_agent("top", agent_graph("middle"))
    run = await agency.wait_for_end("top", await agency.start_run("top"))
    assert run["status"] == "completed", run
    child = await get_child_run(agency, "middle", run["id"])
    grandchild = await get_child_run(agency, "speaker", child["id"])
    assert grandchild["usage"]["output_tokens"] > 0
    assert run["usage"] == child["usage"] == grandchild["usage"]


async def test_taint_goes_down_with_the_input_and_up_with_the_output(agency: Agency) -> None:
    await agency.put_key("note", "text of a stranger")
    await agency.create_agent("reader", tool_graph("kv_get", key="note"))
    await agency.create_agent("boss", agent_graph("reader"))
    run = await agency.wait_for_end("boss", await agency.start_run("boss"))
    assert run["tainted"] is True
    await agency.create_agent("speaker", SAY)
    two = build_graph(
        {
            "read": {**agent_graph("reader")["nodes"]["run"], "output_key": "note"},
            "run": agent_graph("speaker", name="{{ state.note.value }}")["nodes"]["run"],
            "done": DONE,
        },
        ("read", "run"),
        ("run", "done"),
    )
    await agency.create_agent("two", two)
    run = await agency.wait_for_end("two", await agency.start_run("two"))
    assert (await get_child_run(agency, "speaker", run["id"]))["tainted"] is True


@pytest.mark.parametrize("where", ["writer", "top"])
async def test_a_call_that_waits_below_is_told_above_and_decided_at_either(agency: Agency, where: str) -> None:
    await agency.create_agent("writer", tool_graph("kv_put", key="note", value="{{ input.text }}"))
    await agency.create_agent("middle", agent_graph("writer", text="hello"))
    await agency.create_agent("top", agent_graph("middle"))
    run_id = await agency.start_run("top")
    await run_due_jobs(agency.harness)
    run = await agency.get_run("top", run_id)
    assert run["status"] == "running"
    (pause_event,) = await agency.list_events("top", run_id, "run_paused")
    payload = pause_event["payload"]
    assert (payload["agent"], payload["tool_name"]) == ("writer", "kv_put")
    middle, writer = run["waiting_for"]
    assert (middle["agent"], middle["status"], middle["decisions"]) == ("middle", "running", [])
    assert (writer["run_id"], writer["agent"], writer["status"]) == (payload["run_id"], "writer", "paused")
    (decision,) = writer["decisions"]
    assert (decision["approval_id"], decision["approvers"]) == (payload["approval_id"], payload["approvers"])
    body = {"approval_token": payload["approval_token"], "approved": True}
    arguments = {"app_id": agency.app_id, "name": where, "id": {"writer": payload["run_id"], "top": run_id}[where]}
    await agency.harness.call("agents_runs_resume", agency.owner, **arguments, **body)
    run = await agency.wait_for_end("top", run_id)
    assert run["status"] == "completed", run
    assert (await agency.get_key("note"), run["waiting_for"]) == ('"hello"', [])
    events = await agency.list_events("top", run_id)
    (resume,) = [event["payload"] for event in events if event["type"] == "run_resumed"]
    assert (resume["run_id"], resume["agent"], resume["decision"]) == (payload["run_id"], "writer", "approved")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_a_visitor_answers_what_a_private_part_of_the_agent_asks(agency: Agency) -> None:
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    await agency.create_agent("open", agent_graph("asker"), visibility="public", safety_acknowledged=True)
    visitor, arguments = Anonymous(agency.app_id), {"app_id": agency.app_id}
    result = await agency.harness.call("agents_public_run", visitor, **arguments, name="open", input={})
    await run_due_jobs(agency.harness)
    arguments["id"] = result["run_id"]
    listed_result = await agency.harness.call("agents_public_events_list", visitor, **arguments)
    (token,) = [
        event["payload"]["approval_token"] for event in listed_result["events"] if event["type"] == "run_paused"
    ]
    body = {"approval_token": token, "approved": True}
    stranger = await agency.harness.call("agents_public_run", visitor, app_id=agency.app_id, name="open", input={})
    refusal = await agency.catch_refusal(
        "agents_public_resume", visitor, **arguments | {"id": stranger["run_id"]}, **body
    )
    assert refusal.status == 409
    assert (await agency.harness.call("agents_public_resume", visitor, **arguments, **body))["status"] == "running"
    assert (await agency.wait_for_end("open", result["run_id"]))["status"] == "completed"


async def test_a_run_below_that_fails_fails_the_one_above(agency: Agency) -> None:
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    await agency.create_agent("boss", agent_graph("asker"))
    run_id = await agency.start_run("boss")
    await run_due_jobs(agency.harness)
    child = await get_child_run(agency, "asker", run_id)
    await agency.decide("asker", child["id"], approves=False, reason="No.")
    run = await agency.wait_for_end("boss", run_id)
    assert run["status"] == "failed"
    assert run["error"] == {"type": "approval_denied", "message": "asker: No."}


async def test_cancelling_a_run_cancels_those_below_it(agency: Agency) -> None:
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    await agency.create_agent("middle", agent_graph("asker"))
    await agency.create_agent("top", agent_graph("middle"))
    run_id = await agency.start_run("top")
    await run_due_jobs(agency.harness)
    middle = await get_child_run(agency, "middle", run_id)
    asker = await get_child_run(agency, "asker", middle["id"])
    arguments = {"app_id": agency.app_id, "name": "top", "id": run_id}
    assert (await agency.harness.call("agents_runs_cancel", agency.owner, **arguments))["status"] == "cancelled"
    await run_due_jobs(agency.harness)
    statuses = [await agency.get_run(name, run["id"]) for name, run in (("middle", middle), ("asker", asker))]
    assert [run["status"] for run in statuses] == ["cancelled", "cancelled"]
    assert await list_unfinished_jobs(agency.harness) == []


async def test_a_run_whose_step_is_cancelled_fails(agency: Agency) -> None:
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    await agency.create_agent("boss", agent_graph("asker"))
    run_id = await agency.start_run("boss")
    await run_due_jobs(agency.harness)
    child = await get_child_run(agency, "asker", run_id)
    await agency.harness.call("agents_runs_cancel", agency.owner, app_id=agency.app_id, name="asker", id=child["id"])
    run = await agency.wait_for_end("boss", run_id)
    assert run["error"] == {"type": "cancelled", "message": "asker: the run was cancelled"}


async def test_agents_run_agents_five_deep_at_most(agency: Agency) -> None:
    again = build_graph(
        {
            "check": {
                "type": "tool",
                "tool_ref": {"source": "builtin", "name": "kv_get"},
                "args_template": {"key": "n"},
                "output_key": "n",
            },
            "run": agent_graph("again")["nodes"]["run"],
            "stop": {"type": "end", "output_template": "stopped"},
            "done": DONE,
        },
        ("run", "done"),
        **TOOLS,
    )
    again["edges"] += [
        {"from": "check", "to": "stop", "when": {"==": [{"var": "state.n.value"}, 0]}},
        {"from": "check", "to": "run"},
    ]
    await agency.put_key("n", 1)
    await agency.create_agent("again", again)
    run = await agency.wait_for_end("again", await agency.start_run("again"))
    assert run["error"]["type"] == "too_deep"
    await agency.put_key("n", 0)
    run = await agency.wait_for_end("again", await agency.start_run("again"))
    assert run["output"] == "stopped"


async def test_a_run_below_is_one_of_the_tool_calls(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY)
    await agency.create_agent("boss", agent_graph("speaker", name="Ada") | {"limits": {"max_tool_calls": 0}})
    run = await agency.wait_for_end("boss", await agency.start_run("boss"))
    assert run["error"]["type"] == "max_tool_calls"


async def test_a_private_agent_is_a_part_of_an_open_one_and_its_run_stays_hidden(agency: Agency) -> None:
    await agency.create_agent("secret", SAY)
    await agency.create_agent("open", agent_graph("secret", name="Ada"), visibility="authenticated")
    ada = agency.end_user("ada")
    run = await agency.wait_for_end("open", await agency.start_run("open", ada))
    assert (run["status"], run["caller_user_id"]) == ("completed", "ada"), run
    arguments = {
        "app_id": agency.app_id,
        "name": "secret",
        "id": (await get_child_run(agency, "secret", run["id"]))["id"],
    }
    assert (await agency.catch_refusal("agents_runs_get", ada, **arguments)).status == 403
    changed_arguments = {"app_id": agency.app_id, "name": "secret", "visibility": "authenticated"}
    await agency.harness.call("agents_update", agency.owner, **changed_arguments)
    run = await agency.wait_for_end("open", await agency.start_run("open", ada, input={"n": 2}))
    assert run["status"] == "completed", run
    child = await get_child_run(agency, "secret", run["id"])
    seen_arguments = {"app_id": agency.app_id, "name": "secret", "id": child["id"]}
    assert (await agency.harness.call("agents_runs_get", ada, **seen_arguments))["run"]["caller_user_id"] == "ada"
    assert (
        await agency.catch_refusal("agents_runs_get", agency.end_user("bob"), **seen_arguments)
    ).code == "run_not_found"


async def test_an_agent_without_budget_is_not_run_as_a_step(agency: Agency) -> None:
    await agency.create_agent("poor", SAY, daily_budget_usd=0)
    await agency.create_agent("boss", agent_graph("poor", name="Ada"))
    run = await agency.wait_for_end("boss", await agency.start_run("boss"))
    assert run["error"]["type"] == "daily_budget_usd"


async def test_a_step_of_another_run_is_no_earlier_start_of_the_agent(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY, dedupe_window_seconds=60)
    await agency.create_agent("boss", agent_graph("speaker", name="Ada"))
    await agency.wait_for_end("boss", await agency.start_run("boss"))
    run = await agency.wait_for_end("speaker", await agency.start_run("speaker", input={"name": "Bob"}))
    assert run["output"].endswith("Hello Bob.")


async def test_validation_names_agents_that_are_not_there_and_those_that_run_themselves_for_ever(
    agency: Agency,
) -> None:
    async def issues(name: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
        result = await agency.harness.call(
            "agents_validate", agency.owner, app_id=agency.app_id, name=name, graph_spec=spec
        )
        return list(result.get("issues", []))

    path = ["nodes", "run", "agent"]
    assert await issues("a", agent_graph("nobody")) == [{"path": path, "message": "there is no agent nobody"}]
    (issue,) = await issues("a", agent_graph("a"))
    assert issue["path"] == path
    assert "itself" in issue["message"]
    by_chance = agent_graph("a")
    by_chance["nodes"]["say"] = {"type": "llm", "output_key": "answer"}
    by_chance["entry"] = "say"
    by_chance["edges"] += [
        {"from": "say", "to": "run", "when": {"==": [{"var": "input.more"}, True]}},
        {"from": "say", "to": "done"},
    ]
    assert await issues("a", by_chance) == []
    refusal = await agency.catch_refusal(
        "agents_create", agency.owner, app_id=agency.app_id, name="a", graph_spec=agent_graph("a")
    )
    assert refusal.code == "invalid_graph_spec"


@pytest.mark.parametrize("approves", [True, False])
async def test_the_duration_of_a_call_of_an_agent_is_that_of_its_run(agency: Agency, approves: bool) -> None:
    await agency.create_agent("asker", tool_graph("interrupt", reason="Go on?"))
    await agency.create_agent("boss", agent_graph("asker"))
    run_id = await agency.start_run("boss")
    await run_due_jobs(agency.harness)
    agency.harness.clock.advance(20)
    (pause,) = await agency.list_events("boss", run_id, "run_paused")
    body = {"approval_token": pause["payload"]["approval_token"], "approved": approves}
    await agency.harness.call("agents_runs_resume", agency.owner, app_id=agency.app_id, name="boss", id=run_id, **body)
    await agency.wait_for_end("boss", run_id)
    child = await get_child_run(agency, "asker", run_id)
    (end,) = await agency.list_events("boss", run_id, "tool_call_end")
    took = (child["finished_at"] - child["created_at"]).total_seconds()
    assert took >= 20
    assert end["payload"]["duration_ms"] == round(took * 1000)


async def test_runs_of_all_agents_are_listed_by_time(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY)
    run_ids, moments = [], []
    for _ in range(3):
        moments.append(agency.harness.clock.now())
        run_ids.append(await agency.start_run("speaker", input={"name": "Ada"}))
        agency.harness.clock.advance(60)

    async def list_ids(**bounds: Any) -> list[str]:
        arguments = {"app_id": agency.app_id, "name": "_", **bounds}
        result = await agency.harness.call("agents_runs_list", agency.owner, **arguments)
        return [run["id"] for run in result["runs"]][::-1]

    assert await list_ids() == run_ids
    assert await list_ids(**{"from": moments[1].isoformat()}) == run_ids[1:]
    assert await list_ids(to=moments[2].isoformat()) == run_ids[:2]
    assert await list_ids(**{"from": moments[1].isoformat()}, to=moments[2].isoformat()) == [run_ids[1]]
