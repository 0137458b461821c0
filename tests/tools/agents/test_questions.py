"""Questions of runs: who answers them, with what, and how often."""

import asyncio
from typing import Any

import pytest

from baobab.tools.core.auth.callers import EndUser
from baobab.tools.core.errors import BaobabError
from tests.tools.agents.conftest import Agency, build_graph

SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}


def question_graph(**question: Any) -> dict[str, Any]:
    """A graph that asks how much to refund, and ends with the answer."""
    arguments = {"reason": "May refund order {{ input.order }}?", **question}
    ref = {"source": "builtin", "name": "interrupt"}
    ask = {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}
    end = {"type": "end", "output_template": "{{ state.answer.data }}"}
    return build_graph({"ask": ask, "done": end}, ("ask", "done"), tools={"builtin": ["interrupt"]})


async def ask_question(agency: Agency, **question: Any) -> tuple[str, str, str]:
    """Starts a run of a customer that asks staff. Returns the run's id, its approval's id and its token."""
    settings = {"visibility": "authenticated", "approvers": {"role": "staff"}}
    await agency.create_agent("refunds", question_graph(**question), **settings)
    run = await agency.run_agent("refunds", agency.end_user("ada"), input={"order": 7})
    payload = (await agency.list_events("refunds", run["id"], "run_paused"))[-1]["payload"]
    return run["id"], payload["approval_id"], payload["approval_token"]


def get_staff(agency: Agency, name: str = "sam") -> EndUser:
    return EndUser(agency.app_id, name, "staff")


def resume_arguments(agency: Agency, run_id: str, token: str) -> dict[str, Any]:
    return {"app_id": agency.app_id, "name": "refunds", "id": run_id, "approval_token": token, "approved": True}


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"data": {"amount": "many"}},
        {"arguments": {"reason": "May refund order 7?"}},
        {"arguments": {"reason": "May refund order 7?", "data": {}, "answer_schema": {}}},
    ],
)
@pytest.mark.parametrize("way", ["approve", "resume", "public resume"])
async def test_an_answer_that_does_not_match_the_schema_is_refused_and_the_question_keeps_waiting(
    agency: Agency, way: str, answer: dict[str, Any]
) -> None:
    run_id, approval_id, token = await ask_question(agency, answer_schema=SCHEMA)
    arguments = resume_arguments(agency, run_id, token)
    if way == "public resume":
        del arguments["name"]
    tool, arguments = {
        "approve": ("approvals_approve", {"approval_id": approval_id}),
        "resume": ("agents_runs_resume", arguments),
        "public resume": ("agents_public_resume", arguments),
    }[way]
    for decider in (get_staff(agency), agency.owner):
        refusal = await agency.catch_refusal(tool, decider, **arguments, **answer)
        assert (refusal.status, "`answer_schema`" in refusal.message) == (400, True), refusal
    assert (await agency.wait_for_run("refunds", run_id))["status"] == "paused"
    await agency.harness.call(tool, get_staff(agency), **arguments, data={"amount": 5})
    assert (await agency.wait_for_run("refunds", run_id))["output"] == {"amount": 5}


async def test_proposed_data_that_match_the_schema_are_an_answer(agency: Agency) -> None:
    run_id, approval_id, _ = await ask_question(agency, answer_schema=SCHEMA, data={"amount": 3})
    await agency.harness.call("approvals_approve", get_staff(agency), approval_id=approval_id)
    assert (await agency.wait_for_run("refunds", run_id))["output"] == {"amount": 3}


async def test_a_question_of_two_persons_is_not_agreed_to_without_an_answer(agency: Agency) -> None:
    settings = {"visibility": "authenticated", "approvers": {"persons": 2, "of": {"role": "staff"}}}
    await agency.create_agent("refunds", question_graph(answer_schema=SCHEMA), **settings)
    run = await agency.run_agent("refunds", agency.end_user("ada"), input={"order": 7})
    payload = (await agency.list_events("refunds", run["id"], "run_paused"))[-1]["payload"]
    decision = {"approval_id": payload["approval_id"]}
    assert (await agency.catch_refusal("approvals_approve", get_staff(agency), **decision)).status == 400
    assert (await agency.harness.call("approvals_get", agency.owner, **decision))["approval"]["agreed"] == []


@pytest.mark.parametrize("more", [{}, {"data": {"amount": 9}}, {"arguments": {"data": {"amount": 9}}}])
@pytest.mark.parametrize("tool", ["approvals_approve", "approvals_reject", "agents_runs_resume"])
async def test_a_second_decision_is_refused_and_says_who_made_the_first(
    agency: Agency, tool: str, more: dict[str, Any]
) -> None:
    run_id, approval_id, token = await ask_question(agency, answer_schema=SCHEMA)
    first, second = get_staff(agency), get_staff(agency, "tim")
    await agency.harness.call("approvals_approve", first, approval_id=approval_id, data={"amount": 5})
    arguments: dict[str, Any] = {"approval_id": approval_id}
    if tool == "agents_runs_resume":
        arguments = resume_arguments(agency, run_id, token)
    if tool == "approvals_reject":
        more = {"reason": "Too late."}
    for has_ended in (False, True):
        if has_ended:
            assert (await agency.wait_for_run("refunds", run_id))["output"] == {"amount": 5}
        refusal = await agency.catch_refusal(tool, second, **arguments, **more)
        assert (refusal.status, refusal.code) == (409, "APPROVAL_ALREADY_DECIDED")
        assert refusal.details["decided_by"] == "sam"
        assert "already approved by the app's user sam" in refusal.message
    stranger = await agency.catch_refusal(tool, agency.end_user("eve"), **arguments, **more)
    assert stranger.status in (403, 404)
    assert "sam" not in stranger.message


async def test_of_two_answers_at_once_one_counts_and_the_other_is_a_conflict(agency: Agency) -> None:
    run_id, approval_id, token = await ask_question(agency, answer_schema=SCHEMA)

    async def try_answer(amount: int) -> str:
        decider, data = get_staff(agency, f"staff-{amount}"), {"amount": amount}
        try:
            if amount % 2:
                await agency.harness.call("approvals_approve", decider, approval_id=approval_id, data=data)
            else:
                arguments = resume_arguments(agency, run_id, token)
                await agency.harness.call("agents_runs_resume", decider, **arguments, data=data)
        except BaobabError as error:
            return error.code
        return f"amount {amount}"

    answers = await asyncio.gather(*(try_answer(amount) for amount in range(6)))
    (counted_answer,) = [answer for answer in answers if answer.startswith("amount")]
    assert {answer for answer in answers if answer != counted_answer} == {"APPROVAL_ALREADY_DECIDED"}
    output = (await agency.wait_for_run("refunds", run_id))["output"]
    assert f"amount {output['amount']}" == counted_answer


async def test_data_answer_questions_only(agency: Agency) -> None:
    put = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "kv_put"},
        "args_template": {"key": "k", "value": 1},
    }
    graph = build_graph({"put": put, "done": {"type": "end"}}, ("put", "done"), tools={"builtin": ["kv_put"]})
    await agency.create_agent("refunds", graph)
    run = await agency.run_agent("refunds")
    payload = (await agency.list_events("refunds", run["id"], "run_paused"))[-1]["payload"]
    arguments = {"approval_id": payload["approval_id"], "data": {"value": 2}}
    refusal = await agency.catch_refusal("approvals_approve", agency.owner, **arguments)
    assert (refusal.status, "kv_put" in refusal.message) == (400, True)
    assert (await agency.get_run("refunds", run["id"]))["status"] == "paused"
