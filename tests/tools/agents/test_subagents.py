"""Agents that run agents: a run as a step of another."""

from typing import Any

import pytest

from baobab.tools.core.auth.callers import Anonymous
from tests.jobs import settled, unfinished
from tests.tools.agents.conftest import Agency, graph

TOOLS = {"tools": {"builtin": ["kv_get", "kv_put", "interrupt"]}}
DONE = {"type": "end", "output_template": "{{ state.answer }}"}
SAY = graph(
    {"say": {"type": "llm", "input_template": "/say Hello {{ input.name }}.", "output_key": "answer"}, "done": DONE},
    ("say", "done"),
)


def running(agent: str, **given: Any) -> dict[str, Any]:
    """A graph that runs an agent and returns what that returns."""
    node = {"type": "agent", "agent": agent, "input_template": given, "output_key": "answer"}
    return graph({"run": node, "done": DONE}, ("run", "done"))


def using(tool: str, **arguments: Any) -> dict[str, Any]:
    """A graph that calls one tool and returns its result."""
    ref = {"source": "builtin", "name": tool}
    node = {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}
    return graph({"use": node, "done": DONE}, ("use", "done"), **TOOLS)


async def below(agency: Agency, agent: str, run_id: str) -> dict[str, Any]:
    """The run of an agent that is a step of another run."""
    listed = await agency.house.use("agents_runs_list", agency.owner, app_id=agency.app_id, name=agent)
    (found,) = [run for run in listed["runs"] if run["parent_run_id"] == run_id]
    return dict(found)


async def test_an_agent_runs_another_and_goes_on_with_its_output(agency: Agency) -> None:
    await agency.agent("speaker", SAY)
    await agency.agent("boss", running("speaker", name="{{ input.who }}"))
    run = await agency.ended("boss", await agency.start("boss", input={"who": "Ada"}))
    assert run["status"] == "completed", run
    assert run["output"].endswith("Hello Ada.")
    child = await below(agency, "speaker", run["id"])
    assert child["input"] == {"name": "Ada"}
    assert child["caller_kind"] == run["caller_kind"]
    (start,) = await agency.events("boss", run["id"], "tool_call_start")
    (end,) = await agency.events("boss", run["id"], "tool_call_end")
    assert (start["payload"]["tool_source"], start["payload"]["tool_name"]) == ("agent", "speaker")
    assert end["payload"]["result"] == run["output"]
    assert await unfinished(agency.house) == []


async def test_what_a_run_below_used_is_counted_above(agency: Agency) -> None:
    await agency.agent("speaker", SAY)
    await agency.agent("middle", running("speaker", name="Ada"))
    await agency.agent("top", running("middle"))
    run = await agency.ended("top", await agency.start("top"))
    assert run["status"] == "completed", run
    child = await below(agency, "middle", run["id"])
    grandchild = await below(agency, "speaker", child["id"])
    assert grandchild["usage"]["output_tokens"] > 0
    assert run["usage"] == child["usage"] == grandchild["usage"]


async def test_taint_goes_down_with_the_input_and_up_with_the_output(agency: Agency) -> None:
    await agency.put("note", "text of a stranger")
    await agency.agent("reader", using("kv_get", key="note"))
    await agency.agent("boss", running("reader"))
    run = await agency.ended("boss", await agency.start("boss"))
    assert run["tainted"] is True
    await agency.agent("speaker", SAY)
    two = graph(
        {
            "read": {**running("reader")["nodes"]["run"], "output_key": "note"},
            "run": running("speaker", name="{{ state.note.value }}")["nodes"]["run"],
            "done": DONE,
        },
        ("read", "run"),
        ("run", "done"),
    )
    await agency.agent("two", two)
    run = await agency.ended("two", await agency.start("two"))
    assert (await below(agency, "speaker", run["id"]))["tainted"] is True


@pytest.mark.parametrize("where", ["writer", "top"])
async def test_a_call_that_waits_below_is_told_above_and_decided_at_either(agency: Agency, where: str) -> None:
    await agency.agent("writer", using("kv_put", key="note", value="{{ input.text }}"))
    await agency.agent("middle", running("writer", text="hello"))
    await agency.agent("top", running("middle"))
    run_id = await agency.start("top")
    await settled(agency.house)
    run = await agency.read("top", run_id)
    assert run["status"] == "running"
    (told,) = await agency.events("top", run_id, "run_paused")
    paused = told["payload"]
    assert (paused["agent"], paused["tool_name"]) == ("writer", "kv_put")
    middle, writer = run["waiting_for"]
    assert (middle["agent"], middle["status"], middle["decisions"]) == ("middle", "running", [])
    assert (writer["run_id"], writer["agent"], writer["status"]) == (paused["run_id"], "writer", "paused")
    (decision,) = writer["decisions"]
    assert (decision["approval_id"], decision["approvers"]) == (paused["approval_id"], paused["approvers"])
    body = {"approval_token": paused["approval_token"], "approved": True}
    named = {"app_id": agency.app_id, "name": where, "id": {"writer": paused["run_id"], "top": run_id}[where]}
    await agency.house.use("agents_runs_resume", agency.owner, **named, **body)
    run = await agency.ended("top", run_id)
    assert run["status"] == "completed", run
    assert (await agency.get("note"), run["waiting_for"]) == ('"hello"', [])
    events = await agency.events("top", run_id)
    (resumed,) = [event["payload"] for event in events if event["type"] == "run_resumed"]
    assert (resumed["run_id"], resumed["agent"], resumed["decision"]) == (paused["run_id"], "writer", "approved")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))


async def test_a_visitor_answers_what_a_private_part_of_the_agent_asks(agency: Agency) -> None:
    await agency.agent("asker", using("interrupt", reason="Go on?"))
    await agency.agent("open", running("asker"), visibility="public", safety_acknowledged=True)
    visitor, named = Anonymous(agency.app_id), {"app_id": agency.app_id}
    begun = await agency.house.use("agents_public_run", visitor, **named, name="open", input={})
    await settled(agency.house)
    named["id"] = begun["run_id"]
    listed = await agency.house.use("agents_public_events_list", visitor, **named)
    (token,) = [event["payload"]["approval_token"] for event in listed["events"] if event["type"] == "run_paused"]
    body = {"approval_token": token, "approved": True}
    stranger = await agency.house.use("agents_public_run", visitor, app_id=agency.app_id, name="open", input={})
    refused = await agency.refused("agents_public_resume", visitor, **named | {"id": stranger["run_id"]}, **body)
    assert refused.status == 409
    assert (await agency.house.use("agents_public_resume", visitor, **named, **body))["status"] == "running"
    assert (await agency.ended("open", begun["run_id"]))["status"] == "completed"


async def test_a_run_below_that_fails_fails_the_one_above(agency: Agency) -> None:
    await agency.agent("asker", using("interrupt", reason="Go on?"))
    await agency.agent("boss", running("asker"))
    run_id = await agency.start("boss")
    await settled(agency.house)
    child = await below(agency, "asker", run_id)
    await agency.decide("asker", child["id"], approved=False, reason="No.")
    run = await agency.ended("boss", run_id)
    assert run["status"] == "failed"
    assert run["error"] == {"type": "approval_denied", "message": "asker: No."}


async def test_cancelling_a_run_cancels_those_below_it(agency: Agency) -> None:
    await agency.agent("asker", using("interrupt", reason="Go on?"))
    await agency.agent("middle", running("asker"))
    await agency.agent("top", running("middle"))
    run_id = await agency.start("top")
    await settled(agency.house)
    middle = await below(agency, "middle", run_id)
    asker = await below(agency, "asker", middle["id"])
    named = {"app_id": agency.app_id, "name": "top", "id": run_id}
    assert (await agency.house.use("agents_runs_cancel", agency.owner, **named))["status"] == "cancelled"
    await settled(agency.house)
    statuses = [await agency.read(name, run["id"]) for name, run in (("middle", middle), ("asker", asker))]
    assert [run["status"] for run in statuses] == ["cancelled", "cancelled"]
    assert await unfinished(agency.house) == []


async def test_a_run_whose_step_is_cancelled_fails(agency: Agency) -> None:
    await agency.agent("asker", using("interrupt", reason="Go on?"))
    await agency.agent("boss", running("asker"))
    run_id = await agency.start("boss")
    await settled(agency.house)
    child = await below(agency, "asker", run_id)
    await agency.house.use("agents_runs_cancel", agency.owner, app_id=agency.app_id, name="asker", id=child["id"])
    run = await agency.ended("boss", run_id)
    assert run["error"] == {"type": "cancelled", "message": "asker: the run was cancelled"}


async def test_agents_run_agents_five_deep_at_most(agency: Agency) -> None:
    again = graph(
        {
            "check": {
                "type": "tool",
                "tool_ref": {"source": "builtin", "name": "kv_get"},
                "args_template": {"key": "n"},
                "output_key": "n",
            },
            "run": running("again")["nodes"]["run"],
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
    await agency.put("n", 1)
    await agency.agent("again", again)
    run = await agency.ended("again", await agency.start("again"))
    assert run["error"]["type"] == "too_deep"
    await agency.put("n", 0)
    run = await agency.ended("again", await agency.start("again"))
    assert run["output"] == "stopped"


async def test_a_run_below_is_one_of_the_tool_calls(agency: Agency) -> None:
    await agency.agent("speaker", SAY)
    await agency.agent("boss", running("speaker", name="Ada") | {"limits": {"max_tool_calls": 0}})
    run = await agency.ended("boss", await agency.start("boss"))
    assert run["error"]["type"] == "max_tool_calls"


async def test_a_private_agent_is_a_part_of_an_open_one_and_its_run_stays_hidden(agency: Agency) -> None:
    await agency.agent("secret", SAY)
    await agency.agent("open", running("secret", name="Ada"), visibility="authenticated")
    ada = agency.user("ada")
    run = await agency.ended("open", await agency.start("open", ada))
    assert (run["status"], run["caller_user_id"]) == ("completed", "ada"), run
    hidden = {"app_id": agency.app_id, "name": "secret", "id": (await below(agency, "secret", run["id"]))["id"]}
    assert (await agency.refused("agents_runs_get", ada, **hidden)).status == 403
    changed = {"app_id": agency.app_id, "name": "secret", "visibility": "authenticated"}
    await agency.house.use("agents_update", agency.owner, **changed)
    run = await agency.ended("open", await agency.start("open", ada, input={"n": 2}))
    assert run["status"] == "completed", run
    child = await below(agency, "secret", run["id"])
    seen = {"app_id": agency.app_id, "name": "secret", "id": child["id"]}
    assert (await agency.house.use("agents_runs_get", ada, **seen))["run"]["caller_user_id"] == "ada"
    assert (await agency.refused("agents_runs_get", agency.user("bob"), **seen)).code == "run_not_found"


async def test_an_agent_without_budget_is_not_run_as_a_step(agency: Agency) -> None:
    await agency.agent("poor", SAY, daily_budget_usd=0)
    await agency.agent("boss", running("poor", name="Ada"))
    run = await agency.ended("boss", await agency.start("boss"))
    assert run["error"]["type"] == "daily_budget_usd"


async def test_a_step_of_another_run_is_no_earlier_start_of_the_agent(agency: Agency) -> None:
    await agency.agent("speaker", SAY, dedupe_window_seconds=60)
    await agency.agent("boss", running("speaker", name="Ada"))
    await agency.ended("boss", await agency.start("boss"))
    run = await agency.ended("speaker", await agency.start("speaker", input={"name": "Bob"}))
    assert run["output"].endswith("Hello Bob.")


async def test_validation_names_agents_that_are_not_there_and_those_that_run_themselves_for_ever(
    agency: Agency,
) -> None:
    async def issues(name: str, spec: dict[str, Any]) -> list[dict[str, Any]]:
        found = await agency.house.use(
            "agents_validate", agency.owner, app_id=agency.app_id, name=name, graph_spec=spec
        )
        return list(found.get("issues", []))

    path = ["nodes", "run", "agent"]
    assert await issues("a", running("nobody")) == [{"path": path, "message": "there is no agent nobody"}]
    (issue,) = await issues("a", running("a"))
    assert issue["path"] == path
    assert "itself" in issue["message"]
    by_chance = running("a")
    by_chance["nodes"]["say"] = {"type": "llm", "output_key": "answer"}
    by_chance["entry"] = "say"
    by_chance["edges"] += [
        {"from": "say", "to": "run", "when": {"==": [{"var": "input.more"}, True]}},
        {"from": "say", "to": "done"},
    ]
    assert await issues("a", by_chance) == []
    refused = await agency.refused(
        "agents_create", agency.owner, app_id=agency.app_id, name="a", graph_spec=running("a")
    )
    assert refused.code == "invalid_graph_spec"
