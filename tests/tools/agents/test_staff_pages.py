"""What a page of one's own shows to whoever decides about a call of a run, and what it hides from others."""

from typing import Any

import pytest

from baobab.tools.core.auth.callers import Caller, EndUser
from tests.tools.agents.conftest import Agency, build_graph

ECHO = "[baobab/echo, the built-in model]"
SCHEMA = {"type": "object", "properties": {"amount": {"type": "number"}}, "required": ["amount"]}


def triage_graph() -> dict[str, Any]:
    """Two models answer, of which the output names one; then staff are asked."""
    thoughts = {"type": "llm", "input_template": "/say The order is late.", "output_key": "thoughts"}
    letter = {"type": "llm", "input_template": "/say Dear customer.", "output_key": "letter"}
    arguments = {"reason": "Refund order {{ input.order }}?", "data": {"limit": 50}, "answer_schema": SCHEMA}
    ref = {"source": "builtin", "name": "interrupt"}
    ask = {"type": "tool", "tool_ref": ref, "args_template": arguments, "output_key": "answer"}
    end = {"type": "end", "output_template": {"letter": "{{ state.letter }}", "paid": "{{ state.answer.data.amount }}"}}
    nodes = {"think": thoughts, "write": letter, "ask": ask, "done": end}
    edges = [("think", "write"), ("write", "ask"), ("ask", "done")]
    return build_graph(nodes, *edges, tools={"builtin": ["interrupt"]})


async def start_triage(agency: Agency, approvers: Any, **run_input: Any) -> str:
    """Starts a run of the customer ada. Returns its id."""
    await agency.create_agent("triage", triage_graph(), visibility="authenticated", approvers=approvers)
    run = await agency.run_agent("triage", agency.end_user("ada"), input={"order": 7, **run_input})
    assert run["status"] == "paused", run
    run_id: str = run["id"]
    return run_id


async def read_waiting(agency: Agency, reader: Caller) -> dict[str, Any]:
    (row,) = (await agency.harness.call("approvals_list", reader, status="pending"))["approvals"]
    assert isinstance(row, dict)
    return row


async def test_a_user_with_the_role_finds_all_that_an_answer_takes_and_answers_with_data_alone(agency: Agency) -> None:
    run_id = await start_triage(agency, {"role": "staff"})
    staff = EndUser(agency.app_id, "sam", "staff")
    listed_approval = await read_waiting(agency, staff)
    question = {"reason": "Refund order 7?", "data": {"limit": 50}, "answer_schema": SCHEMA}
    assert (listed_approval["question"], listed_approval["arguments"]) == (
        question,
        {"app_id": agency.app_id, **question},
    )
    assert listed_approval["run"] == {"id": run_id, "agent": "triage", "input": {"order": 7}}
    assert listed_approval["may_decide"] is True
    details = await agency.harness.call("approvals_get", staff, approval_id=listed_approval["id"])
    assert (details["approval"]["question"], details["arguments"]) == (question, listed_approval["arguments"])
    assert details["approval"]["run"] == {
        **listed_approval["run"],
        "answers": {"thoughts": f"{ECHO} The order is late.", "letter": f"{ECHO} Dear customer."},
    }
    await agency.harness.call("approvals_approve", staff, approval_id=listed_approval["id"], data={"amount": 20})
    assert (await agency.wait_for_run("triage", run_id))["output"] == {"letter": f"{ECHO} Dear customer.", "paid": 20}


async def test_the_words_about_a_question_do_not_say_that_it_changes_what_is_stored(agency: Agency) -> None:
    await start_triage(agency, "admin")
    summary = (await read_waiting(agency, agency.owner))["summary"]
    assert "It changes what is stored" not in summary
    assert "The run goes on with the answer" in summary


@pytest.mark.parametrize(("approvers", "name"), [("starter", "ada"), ("user", "bob")])
async def test_a_user_without_a_named_role_sees_the_answers_of_the_output_only(
    agency: Agency, approvers: str, name: str
) -> None:
    await start_triage(agency, approvers)
    row = await read_waiting(agency, agency.end_user(name))
    details = await agency.harness.call("approvals_get", agency.end_user(name), approval_id=row["id"])
    assert details["approval"]["run"]["answers"] == {"letter": f"{ECHO} Dear customer."}


async def test_those_who_may_not_decide_find_nothing(agency: Agency) -> None:
    await start_triage(agency, {"role": "staff"})
    row = await read_waiting(agency, agency.owner)
    for stranger in (agency.end_user("ada"), EndUser(agency.app_id, "eve", "guest")):
        assert (await agency.harness.call("approvals_list", stranger))["approvals"] == []
        refusal = await agency.catch_refusal("approvals_get", stranger, approval_id=row["id"])
        assert refusal.status == 404


async def test_lists_leave_out_what_is_long_and_reading_one_shows_it(agency: Agency) -> None:
    text = "x" * 3000
    await start_triage(agency, {"role": "staff"}, text=text)
    row = await read_waiting(agency, agency.owner)
    assert row["run"]["input"] is None
    details = await agency.harness.call("approvals_get", agency.owner, approval_id=row["id"])
    assert details["approval"]["run"]["input"] == {"order": 7, "text": text}
    assert "answers" in details["approval"]["run"]


async def test_an_approval_of_a_deleted_run_says_which_run_it_was(agency: Agency) -> None:
    run_id = await start_triage(agency, "admin")
    row = await read_waiting(agency, agency.owner)
    arguments = {"app_id": agency.app_id, "name": "triage", "id": run_id}
    await agency.harness.call("agents_runs_cancel", agency.owner, **arguments)
    rejected_approval = await agency.harness.call("approvals_get", agency.owner, approval_id=row["id"])
    assert rejected_approval["approval"]["status"] == "rejected"
    assert rejected_approval["approval"]["question"] is None
    assert rejected_approval["approval"]["run"]["input"] == {"order": 7}
