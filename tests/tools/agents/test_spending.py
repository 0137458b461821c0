"""What runs of agents cost: what their budgets hold, and that a run's cost is all that was charged for it."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.model import Model, Price
from baobab.runtime.gateway.providers import build_own_server
from baobab.tools.core.limits.credits import Spender, Usage
from tests.jobs import run_due_jobs
from tests.runtime.gateway.upstream import Upstream, start_upstream
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_subagents import SAY, agent_graph, get_child_run

# A tenth of a cent for each token: an answer has 18 of them.
PRICE = Price(prompt=10**12, completion=10**12)
ANSWER_USD = 0.018
ASK_FIRST = build_graph(
    {
        "first": {"type": "llm", "input_template": "Hello", "output_key": "first"},
        "ask": {
            "type": "tool",
            "tool_ref": {"source": "builtin", "name": "interrupt"},
            "args_template": {"reason": "?"},
        },
        "say": {"type": "llm", "input_template": "Hello", "output_key": "answer"},
        "done": {"type": "end", "output_template": "{{ state.answer }}"},
    },
    ("first", "ask"),
    ("ask", "say"),
    ("say", "done"),
    tools={"builtin": ["interrupt"]},
)


@pytest.fixture
async def fake(agency: Agency) -> AsyncIterator[Upstream]:
    """A provider whose model `lab/ok` costs PRICE."""
    async with start_upstream() as server:
        features = frozenset(("streaming", "tools"))
        names = {"id": "lab/ok", "name": "ok", "litellm": "lab/ok", "provider": "lab"}
        model = Model(**names, modality="chat", price=PRICE, context_window=8192, max_output=64, features=features)
        agency.harness.services.part(Gateway).add_provider(build_own_server("lab", f"{server.url}/v1", "key"), [model])
        yield server


async def get_spent(agency: Agency, name: str) -> float:
    result = await agency.harness.call("agents_runs_list", agency.owner, app_id=agency.app_id, name=name)
    total: float = sum(run["usage"]["cost_usd"] for run in result["runs"])
    return total


async def get_spent_today(agency: Agency, name: str) -> float:
    answer = await agency.harness.call("agents_get", agency.owner, app_id=agency.app_id, name=name)
    return float(answer["spent_today_usd"])


async def test_many_starts_at_once_never_pass_the_budget_of_the_day(agency: Agency, fake: Upstream) -> None:
    await agency.create_agent("say", SAY, default_model="lab/ok", daily_budget_usd=0.2)
    runs = await asyncio.gather(*(agency.start_run("say", input={"name": str(n)}) for n in range(20)))
    ends = [await agency.wait_for_end("say", run_id) for run_id in runs]
    completed_runs = [run for run in ends if run["status"] == "completed"]
    assert 1 <= len(completed_runs) < 20
    assert {run["error"]["type"] for run in ends if run not in completed_runs} == {"daily_budget_usd"}
    assert len(fake.requests) == len(completed_runs)
    assert await get_spent(agency, "say") == pytest.approx(len(completed_runs) * ANSWER_USD)
    assert await get_spent(agency, "say") <= 0.2
    assert await get_spent_today(agency, "say") == pytest.approx(await get_spent(agency, "say"))
    agency.harness.clock.advance(86_400)
    assert await get_spent_today(agency, "say") == 0
    assert (await agency.run_agent("say", input={"name": "Ada"}))["status"] == "completed"


@pytest.mark.usefixtures("fake")
async def test_a_budget_that_is_used_up_takes_no_more_runs_until_tomorrow(agency: Agency) -> None:
    await agency.create_agent("say", SAY, default_model="lab/ok")
    assert (await agency.run_agent("say", input={"name": "Ada"}))["status"] == "completed"
    # What was spent before it was bounded counts.
    arguments: dict[str, Any] = {"app_id": agency.app_id, "name": "say", "daily_budget_usd": ANSWER_USD}
    await agency.harness.call("agents_update", agency.owner, **arguments)
    refusal = await agency.catch_refusal(
        "agents_run", agency.owner, app_id=agency.app_id, name="say", input={"name": "Bob"}
    )
    assert (refusal.status, refusal.details["limit"]) == (429, "daily_budget_usd")
    assert (refusal.details["current"], refusal.details["max"]) == (ANSWER_USD, ANSWER_USD)
    agency.harness.clock.advance(86_400)
    run_id = await agency.start_run("say", input={"name": "Bob"})
    # It is taken, and the model's answer might cost more than all of the day.
    assert (await agency.wait_for_end("say", run_id))["error"]["type"] == "daily_budget_usd"


@pytest.mark.usefixtures("fake")
async def test_runs_below_spend_the_budget_of_those_above(agency: Agency) -> None:
    await agency.create_agent("speaker", SAY, default_model="lab/ok")
    await agency.create_agent("boss", agent_graph("speaker", name="Ada"), daily_budget_usd=0.01)
    run = await agency.wait_for_end("boss", await agency.start_run("boss"))
    assert run["error"]["type"] == "daily_budget_usd"
    assert (await get_child_run(agency, "speaker", run["id"]))["usage"]["cost_usd"] == 0
    await agency.harness.call("agents_update", agency.owner, app_id=agency.app_id, name="boss", daily_budget_usd=0.5)
    run = await agency.wait_for_end("boss", await agency.start_run("boss"))
    assert (run["status"], run["usage"]["cost_usd"]) == ("completed", ANSWER_USD)


@pytest.mark.usefixtures("fake")
async def test_what_was_charged_before_a_process_died_is_in_the_cost_of_its_run(agency: Agency) -> None:
    await agency.create_agent("asks", ASK_FIRST, default_model="lab/ok")
    run = await agency.run_agent("asks")
    assert (run["status"], run["usage"]["cost_usd"]) == ("paused", ANSWER_USD), run["error"]
    # As it is left by a process that dies when the model has answered: charged, and not written down in the run.
    credits_, organisation = agency.harness.services.credits, agency.owner.organisation_id
    spender = Spender(run["id"], ((run["agent_id"], None),))
    reservation = await credits_.reserve(organisation, 10**8, purpose="ai.chat", ttl_seconds=60, spender=spender)
    await credits_.settle(reservation, 7_000_000, Usage("lab/ok", 4, 3))
    run = await agency.decide("asks", run["id"])
    assert run["status"] == "completed", run
    assert run["usage"]["cost_usd"] == pytest.approx(2 * ANSWER_USD + 0.007)
    await run_due_jobs(agency.harness)
