"""Agents of a linked app search the memory and propose, as agents and after a person has agreed."""

from typing import Any

import pytest

from baobab.tools.core.auth.callers import AppKey, Caller
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.substrate.checker import find_faults
from tests.tools.substrate.conftest import Substrate

TITLE = "We pay the printer on Mondays"


def name_tool(name: str) -> dict[str, Any]:
    return {"source": "builtin", "name": name}


def build_proposing(capability: str = "record_learning", **further: Any) -> dict[str, Any]:
    payload = {"title": "Found: {{ state.found.results.0.title }}", "description": "An agent has read it."}
    proposal = {"capability": capability, "payload": payload, **further}
    nodes: dict[str, Any] = {
        "search": {
            "type": "tool",
            "tool_ref": name_tool("substrate_search_memory"),
            "args_template": {"q": "printer"},
            "output_key": "found",
        },
        "propose": {
            "type": "tool",
            "tool_ref": name_tool("substrate_propose"),
            "args_template": proposal,
            "output_key": "made",
        },
        "done": {"type": "end", "output_template": "{{ state.made }}"},
    }
    tool_names = ["substrate_search_memory", "substrate_propose"]
    return build_graph(nodes, ("search", "propose"), ("propose", "done"), tools={"builtin": tool_names})


@pytest.fixture
async def agency(substrate: Substrate) -> Agency:
    """An app of the organisation, which is linked to its substrate, and whose memory holds a decision."""
    harness, owner = substrate.harness, substrate.owner
    await substrate.do("record_decision", title=TITLE, kind="operational")
    agency = Agency(harness, owner, await harness.create_app_row(owner.organisation_id))
    await harness.call("apps_link_substrate", owner, app_id=agency.app_id)
    return agency


async def test_a_run_searches_and_proposes_and_the_ledger_names_it(agency: Agency, substrate: Substrate) -> None:
    await agency.create_agent("clerk", build_proposing())
    run = await agency.run_agent("clerk")
    assert run["status"] == "paused", run
    (before,) = (await substrate.call("actions"))["actions"]
    assert before["capability"] == "record_decision"
    decision = await agency.decide("clerk", run["id"])
    assert decision["status"] == "completed", decision
    action = await substrate.call("action", action_id=decision["output"]["action_id"])
    assert (action["status"], action["payload"]["title"]) == ("executed", f"Found: {TITLE}")
    assert (action["proposed_by_kind"], action["proposed_by"]) == ("agent", f"run:{run['id']}")
    assert (action["source_app_id"], action["from_strangers"]) == (agency.app_id, True)
    assert len((await substrate.call("actions"))["actions"]) == 2
    assert await find_faults(substrate.harness.services.database, substrate.owner.organisation_id) == []


async def test_what_the_policy_holds_waits_in_the_ledger_too(agency: Agency, substrate: Substrate) -> None:
    await substrate.do(
        "record_principle",
        title="Ask before you note",
        applies_to={"capability": "record_learning"},
        constraint_spec={"type": "require_approval", "params": {}},
    )
    await agency.create_agent("clerk", build_proposing())
    run = await agency.decide("clerk", (await agency.run_agent("clerk"))["id"])
    assert (run["status"], run["output"]["requires_approval"]) == ("completed", True)
    result = await substrate.call("approve", action_id=run["output"]["action_id"])
    assert (result["status"], result["proposed_by"]) == ("executed", f"run:{run['id']}")


async def test_what_a_person_denies_is_not_proposed(agency: Agency, substrate: Substrate) -> None:
    await agency.create_agent("clerk", build_proposing())
    run = await agency.decide("clerk", (await agency.run_agent("clerk"))["id"], approves=False)
    assert (run["status"], run["error"]["type"]) == ("failed", "approval_denied")
    assert len((await substrate.call("actions"))["actions"]) == 1


async def test_a_person_may_change_what_a_run_proposes(agency: Agency, substrate: Substrate) -> None:
    await agency.create_agent("clerk", build_proposing())
    run = await agency.run_agent("clerk")
    arguments = {"capability": "record_learning", "payload": {"title": "In other words", "description": "So."}}
    decision = await agency.decide("clerk", run["id"], arguments=arguments)
    action = await substrate.call("action", action_id=decision["output"]["action_id"])
    assert (action["payload"]["title"], action["proposed_by"]) == ("In other words", f"run:{run['id']}")


async def test_not_even_an_approved_run_of_an_owner_skips_the_policy(agency: Agency, substrate: Substrate) -> None:
    await agency.create_agent("clerk", build_proposing(dangerously_skip_approval=True))
    run = await agency.decide("clerk", (await agency.run_agent("clerk"))["id"])
    assert run["status"] == "failed", run
    assert len((await substrate.call("actions"))["actions"]) == 1


async def test_an_app_that_is_not_linked_reads_nothing(agency: Agency, substrate: Substrate) -> None:
    await substrate.harness.call("apps_unlink_substrate", substrate.owner, app_id=agency.app_id)
    await agency.create_agent("clerk", build_proposing())
    run = await agency.run_agent("clerk")
    assert run["status"] == "failed", run
    assert "not linked" in run["error"]["message"]


async def test_a_key_of_the_app_opens_no_substrate(agency: Agency) -> None:
    await agency.create_agent("clerk", build_proposing())
    result = await agency.harness.call(
        "api_keys_create", agency.owner, name="k", key_scope="app", target_app_id=agency.app_id
    )
    key: Caller = await agency.harness.authenticate(result["key"])
    assert isinstance(key, AppKey)
    run = await agency.run_agent("clerk", key)
    assert run["status"] == "failed", run
    assert "may not use substrate_search_memory" in run["error"]["message"]


async def test_tools_that_decide_are_not_for_agents(agency: Agency) -> None:
    spec = build_graph(
        {
            "approve": {
                "type": "tool",
                "tool_ref": name_tool("substrate_approve"),
                "args_template": {"action_id": "act_" + "0" * 26},
            },
            "done": {"type": "end"},
        },
        ("approve", "done"),
        tools={"builtin": ["substrate_approve"]},
    )
    refusal = await agency.catch_refusal(
        "agents_create", agency.owner, app_id=agency.app_id, name="judge", graph_spec=spec
    )
    assert "there is no tool substrate_approve that an agent can call" in repr(refusal.details), refusal.details
