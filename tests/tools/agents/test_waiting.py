"""Runs that call more than a limit lets them: they wait within their time, and hold nothing meanwhile."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from baobab import composition
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from baobab.settings import load_settings
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.call import Call
from baobab.tools.core.limits.limits import PerAddress
from baobab.tools.core.toolset import Toolset
from baobab.tools.core.types import AppId
from tests.backends import prepare_data, release_data
from tests.clock import FixedClock
from tests.jobs import run_due_jobs
from tests.runtime.gateway.upstream import start_upstream
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.conftest import ToolHarness

WINDOW_SECONDS = 60


def scarce_toolset() -> Toolset:
    tools = Toolset("scarce", "A tool that is good once a minute.", base="/v1/{app_id}/scarce")

    @tools.tool("GET /one", access=EVERYBODY, effect="read", limit=PerAddress(1, WINDOW_SECONDS, per_app=True))
    async def scarce_one(call: Call, app_id: AppId) -> dict[str, bool]:
        """Answer."""
        return {"answered": True}

    return tools


@pytest.fixture
async def harness(tmp_path: Path) -> AsyncIterator[ToolHarness]:
    clock = FixedClock()
    settings = load_settings({**prepare_data(tmp_path), "BAOBAB_EGRESS_ALLOW": "127.0.0.1/32"}, data=tmp_path)
    async with composition.open_application(settings, clock=clock, further=[scarce_toolset()]) as application:
        yield ToolHarness(application.services, application.registry, clock, tmp_path)
    release_data(tmp_path)


def calling_twice(**limits: int) -> dict[str, Any]:
    """A graph that calls the scarce tool two times, one after the other."""
    call = {"type": "tool", "tool_ref": {"source": "builtin", "name": "scarce_one"}, "output_key": "found"}
    nodes = {"one": call, "two": call, "done": {"type": "end", "output_template": "{{ state.found.answered }}"}}
    spec = build_graph(nodes, ("one", "two"), ("two", "done"), tools={"builtin": ["scarce_one"]})
    return {**spec, "limits": limits} if limits else spec


async def start_waiting_run(agency: Agency, name: str) -> dict[str, Any]:
    """A new run, when it rests until a limit lets it go on."""
    run_id = await agency.start_run(name)
    await run_due_jobs(agency.harness)
    run = await agency.get_run(name, run_id)
    assert (run["status"], run["finished_at"]) == ("running", None), run
    return run


async def test_a_call_that_a_limit_refuses_is_made_when_it_lets_it(agency: Agency) -> None:
    await agency.create_agent("a", calling_twice())
    run = await start_waiting_run(agency, "a")
    agency.harness.clock.advance(WINDOW_SECONDS + 1)
    run = await agency.wait_for_end("a", run["id"])
    assert (run["status"], run["output"]) == ("completed", True), run
    events = await agency.list_events("a", run["id"])
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
    assert [event["type"] for event in events].count("tool_call_start") == 2


async def test_a_run_that_waits_for_a_limit_is_cancelled_at_once(agency: Agency) -> None:
    await agency.create_agent("a", calling_twice())
    run = await start_waiting_run(agency, "a")
    arguments = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    assert (await agency.harness.call("agents_runs_cancel", agency.owner, **arguments))["status"] == "cancelled"
    agency.harness.clock.advance(WINDOW_SECONDS + 1)
    await run_due_jobs(agency.harness)
    assert (await agency.list_events("a", run["id"]))[-1]["type"] == "run_cancelled"


async def test_a_wait_that_is_longer_than_the_run_may_take_is_not_begun(agency: Agency) -> None:
    await agency.create_agent("a", calling_twice(timeout_seconds=30))
    run = await agency.run_agent("a")
    assert (run["status"], run["error"]["type"]) == ("failed", "tool_failed"), run
    payload = (await agency.list_events("a", run["id"], "tool_call_end"))[-1]["payload"]
    assert payload["error"]["code"] == "QUOTA_RATE_LIMIT"


async def test_waits_count_as_time_of_the_run(agency: Agency) -> None:
    spec = calling_twice(timeout_seconds=100)
    spec["nodes"]["three"] = spec["nodes"]["one"]
    spec["edges"] = [{"from": "one", "to": "two"}, {"from": "two", "to": "three"}, {"from": "three", "to": "done"}]
    await agency.create_agent("a", spec)
    run = await start_waiting_run(agency, "a")
    agency.harness.clock.advance(WINDOW_SECONDS + 1)
    run = await agency.wait_for_end("a", run["id"])
    assert (run["status"], run["error"]["type"]) == ("failed", "tool_failed"), run
    assert len(await agency.list_events("a", run["id"], "tool_call_end")) == 3


async def test_a_call_beside_one_that_waits_for_a_person_waits_for_its_limit(agency: Agency) -> None:
    names = ["scarce_one", "interrupt"]
    prompt = '/call scarce_one {}\n/call scarce_one {}\n/call interrupt {"reason": "Go on?"}\n/say Done.'
    tools = [{"source": "builtin", "name": name} for name in names]
    think = {"type": "llm", "input_template": prompt, "output_key": "said", "tools": tools}
    end = {"type": "end", "output_template": "{{ state.said }}"}
    await agency.create_agent(
        "a", build_graph({"think": think, "done": end}, ("think", "done"), tools={"builtin": names})
    )
    run = await agency.run_agent("a")
    assert run["status"] == "paused", run
    agency.harness.clock.advance(WINDOW_SECONDS + 1)
    run = await agency.wait_for_run("a", run["id"])
    assert run["status"] == "paused"
    assert len(await agency.list_events("a", run["id"], "tool_call_end")) == 2
    run = await agency.decide("a", run["id"])
    assert run["status"] == "completed", run
    assert len(await agency.list_events("a", run["id"], "tool_call_start")) == 3


async def test_what_does_not_fit_among_the_calls_that_wait_for_people_waits_for_room(agency: Agency) -> None:
    ask: dict[str, Any] = {"type": "map", "over": "{{ input.items }}", "output_key": "asked"}
    ask |= {"tool_ref": {"source": "builtin", "name": "interrupt"}, "args_template": {"reason": "{{ item }}"}}
    end = {"type": "end", "output_template": "{{ state.asked }}"}
    spec = build_graph({"ask": ask, "done": end}, ("ask", "done"), tools={"builtin": ["interrupt"]})
    await agency.create_agent("a", {**spec, "limits": {"max_tool_calls": 500, "timeout_seconds": 3600}})
    run = await agency.run_agent("a", input={"items": [f"item {number}" for number in range(102)]})
    arguments = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    events = await agency.list_events("a", run["id"], "run_paused")
    assert (run["status"], len(events)) == ("paused", 100), run
    for event in events[:2]:
        token = event["payload"]["approval_token"]
        await agency.harness.call("agents_runs_resume", agency.owner, **arguments, approval_token=token, approved=True)
    run = await agency.wait_for_run("a", run["id"])
    assert (run["status"], len(await agency.list_events("a", run["id"], "run_paused"))) == ("paused", 102), run
    await agency.harness.call("agents_runs_cancel", agency.owner, **arguments)


@pytest.mark.parametrize("recovers", [True, False])
async def test_a_model_that_takes_no_more_requests_is_asked_again_while_there_is_time(
    agency: Agency, recovers: bool
) -> None:
    async with start_upstream() as fake:
        gateway, provider = agency.harness.services.part(Gateway), build_own_server("lab", f"{fake.url}/v1", "key")
        gateway.add_provider(provider, [build_model("429:40")])
        say = {"type": "llm", "input_template": "Hello.", "output_key": "said"}
        spec = build_graph({"say": say, "done": {"type": "end", "output_template": "ok"}}, ("say", "done"))
        await agency.create_agent("a", {**spec, "limits": {"timeout_seconds": 100}}, default_model="lab/m")
        run = await start_waiting_run(agency, "a")
        request_count = len(fake.requests)
        if recovers:
            gateway.add_provider(provider, [build_model("ok")])
        for _ in range(3):
            agency.harness.clock.advance(41)
            await run_due_jobs(agency.harness)
        run = await agency.get_run("a", run["id"])
        if recovers:
            assert (run["status"], len(fake.requests)) == ("completed", request_count + 1), run
        else:
            assert (run["status"], run["error"]["type"], len(fake.requests)) == (
                "failed",
                "model_failed",
                request_count * 3,
            )


def build_model(name: str) -> Model:
    """`lab/m`, whose provider behaves as the name says."""
    return Model(
        id="lab/m",
        name=name,
        modality="chat",
        price=Price(prompt=1, completion=1),
        context_window=8192,
        max_output=64,
        litellm=f"lab/{name}",
        provider="lab",
        features=frozenset(("streaming", "tools")),
    )
