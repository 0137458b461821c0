"""A question may announce the write that follows it: whoever answers approves exactly that call."""

from typing import Any

import pytest
from sqlalchemy import select

from baobab.tools.approvals.tables import approvals
from baobab.tools.core.auth.callers import Caller, EndUser
from tests.tools.agents.conftest import Agency, build_graph
from tests.tools.agents.test_app_rights import REFUND, get_waiting, list_refunds, shop, staff_of

__all__ = ["shop"]

ASK: dict[str, Any] = {
    "type": "tool",
    "tool_ref": {"source": "builtin", "name": "interrupt"},
    "args_template": {
        "reason": "How much of order {{ input.order }}?",
        "answer_schema": {
            "type": "object",
            "properties": {"amount": {"type": "integer"}},
            "required": ["amount"],
        },
    },
    "output_key": "answer",
    "approvers": {"role": "staff"},
    "then": "refund",
}
WRITE: dict[str, Any] = {
    **REFUND,
    "args_template": {
        "table": "orders",
        "id": "{{ input.order }}",
        "patch": {"refunded": "{{ state.answer.data.amount }}"},
    },
}


def asking_graph(ask: dict[str, Any] | None = None, write: dict[str, Any] | None = None) -> dict[str, Any]:
    nodes = {"ask": {**ASK, **(ask or {})}, "refund": {**WRITE, **(write or {})}, "done": {"type": "end"}}
    tools = {"builtin": ["interrupt", *dict.fromkeys([nodes["refund"]["tool_ref"]["name"]])]}
    return build_graph(nodes, ("ask", "refund"), ("refund", "done"), tools=tools)


async def start_asking(shop: Agency, graph: dict[str, Any], by: Caller | None = None) -> tuple[dict[str, Any], str]:
    await shop.create_agent("asker", graph, visibility="authenticated")
    run = await shop.run_agent("asker", by or shop.end_user("ada"), input={"order": "1"})
    assert run["status"] == "paused", run
    return run, (await get_waiting(shop, shop.owner))["id"]


async def test_one_answer_approves_the_write_that_the_question_announces(shop: Agency) -> None:
    sam = staff_of(shop)
    run, question = await start_asking(shop, asking_graph())
    then = (await shop.harness.call("approvals_get", sam, approval_id=question))["then"]
    assert then["arguments"] == {
        "app_id": shop.app_id,
        "table": "orders",
        "row_id": "1",
        "changes": {"refunded": None},
    }
    assert (then["node"], then["tool"], then["open"]) == ("refund", "data_update", ["changes.refunded"])
    assert (then["run_as"], then["may_consent"], then["approvers"]) == ("app", True, {"role": "staff"})
    await shop.harness.call("approvals_approve", sam, approval_id=question, data={"amount": 8})
    run = await shop.wait_for_run("asker", run["id"])
    while (
        run["status"] == "paused"
        and not (await shop.harness.call("approvals_list", shop.owner, status="pending"))["approvals"]
    ):
        run = await shop.wait_for_run("asker", run["id"])
    assert run["status"] == "completed", run
    assert await list_refunds(shop) == {1: 8, 2: 0}
    rows = (await shop.harness.call("approvals_list", shop.owner))["approvals"]
    write = next(row for row in rows if row["tool"] == "data_update")
    assert (write["status"], write["decided_by"], write["run_as"]) == ("executed", "sam", "app")


async def settle(shop: Agency, run_id: str) -> dict[str, Any]:
    """The run, when it has ended or waits for somebody."""
    while True:
        run = await shop.wait_for_run("asker", run_id)
        pending = (await shop.harness.call("approvals_list", shop.owner, status="pending"))["approvals"]
        if run["status"] != "paused" or pending:
            return run


async def read_rows(shop: Agency) -> list[Any]:
    async with shop.harness.services.database.reading() as connection:
        return list((await connection.execute(select(approvals).order_by(approvals.c.created_at))).all())


@pytest.mark.parametrize(
    ("ask", "write", "by"),
    [
        # Whoever may answer, and may not decide about the write.
        ({"approvers": "user"}, {}, "bob"),
        ({"approvers": "starter"}, {}, "ada"),
        ({"approvers": {"role": "clerk"}}, {}, "clerk"),
        # The starter, who is staff, may answer and never approve what the app does.
        ({}, {}, "ada, who is staff"),
    ],
)
async def test_an_answer_of_somebody_who_may_not_decide_about_the_write_approves_nothing(
    shop: Agency, ask: dict[str, Any], write: dict[str, Any], by: str
) -> None:
    people: dict[str, Caller] = {
        "bob": shop.end_user("bob"),
        "ada": shop.end_user("ada"),
        "clerk": EndUser(shop.app_id, "kim", "clerk"),
        "ada, who is staff": EndUser(shop.app_id, "ada", "staff"),
    }
    run, question = await start_asking(shop, asking_graph(ask, write))
    then = (await shop.harness.call("approvals_get", people[by], approval_id=question))["then"]
    assert (then["may_consent"], then["arguments"]) == (False, None)
    await shop.harness.call("approvals_approve", people[by], approval_id=question, data={"amount": 8})
    run = await settle(shop, run["id"])
    assert (run["status"], await list_refunds(shop)) == ("paused", {1: 0, 2: 0})
    waiting = await get_waiting(shop, staff_of(shop))
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=waiting["id"])
    await settle(shop, run["id"])
    assert await list_refunds(shop) == {1: 8, 2: 0}


async def test_a_step_between_the_answer_and_the_write_makes_the_write_wait_again(shop: Agency) -> None:
    graph = asking_graph()
    think = {"type": "llm", "input_template": "hello", "output_key": "thought"}
    graph["nodes"]["think"] = think
    graph["edges"] = [
        {"from": "ask", "to": "think", "when": {"==": [{"var": "state.answer.data.amount"}, 8]}},
        {"from": "ask", "to": "refund"},
        {"from": "think", "to": "refund"},
        {"from": "refund", "to": "done"},
    ]
    run, question = await start_asking(shop, graph)
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=question, data={"amount": 8})
    run = await settle(shop, run["id"])
    assert (run["status"], await list_refunds(shop)) == ("paused", {1: 0, 2: 0})


async def test_an_answer_approves_one_call_of_one_run(shop: Agency) -> None:
    run, question = await start_asking(shop, asking_graph())
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=question, data={"amount": 8})
    await settle(shop, run["id"])
    assert [row.consent for row in await read_rows(shop)] == [None, None], "it is used up"
    assert [row.announced for row in await read_rows(shop)] == [None, None]
    fork = await shop.harness.call(
        "agents_runs_fork", shop.owner, app_id=shop.app_id, name="asker", id=run["id"], step=1
    )
    fork_run = await settle(shop, fork["run_id"])
    assert fork_run["status"] == "paused"
    assert (await get_waiting(shop, shop.owner))["tool"] == "data_update"


async def test_an_answer_that_does_not_fill_the_write_or_lets_it_fail_is_refused(shop: Agency) -> None:
    graph = asking_graph({"args_template": {"reason": "How much?"}})
    run, question = await start_asking(shop, graph)
    wrong_answers: list[dict[str, Any]] = [{"data": {"sum": 8}}, {}]
    for wrong in wrong_answers:
        refusal = await shop.catch_refusal("approvals_approve", staff_of(shop), approval_id=question, **wrong)
        assert (refusal.status, "does not fill the call of refund" in refusal.message) == (400, True)
    call, order = shop.harness.call, {"app_id": shop.app_id, "table": "orders", "row_id": "1"}
    await call("data_delete", shop.owner, **order)
    answer = {"approval_id": question, "data": {"amount": 3}}
    refusal = await shop.catch_refusal("approvals_approve", staff_of(shop), **answer)
    # Values of their own tell a user nothing about rows that are not theirs.
    assert (refusal.code, "code" in (refusal.details or {})) == ("APPROVAL_WOULD_FAIL", False)
    await call("data_insert", shop.owner, app_id=shop.app_id, table="orders", values={"id": 1, "owner": "ada"})
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=question, data={"amount": 3})
    run = await settle(shop, run["id"])
    assert (run["status"], await list_refunds(shop)) == ("completed", {1: 3, 2: 0})


async def test_a_rejected_question_approves_nothing(shop: Agency) -> None:
    write = {"args_template": {**WRITE["args_template"], "patch": {"refunded": 5}}}
    run, question = await start_asking(shop, asking_graph({"on_denied": "tell"}, write))
    await shop.harness.call("approvals_reject", staff_of(shop), approval_id=question)
    run = await settle(shop, run["id"])
    assert (run["status"], await list_refunds(shop)) == ("paused", {1: 0, 2: 0})


async def test_the_right_of_the_starter_does_for_a_write_that_borrows_none(shop: Agency) -> None:
    put = {"tool_ref": {"source": "builtin", "name": "kv_put"}, "run_as": None, "approvers": "admin"}
    put |= {"args_template": {"key": "refunds:{{ input.order }}", "value": "{{ state.answer.data }}"}}
    graph = asking_graph({"approvers": "admin"}, {name: value for name, value in put.items() if value is not None})
    del graph["nodes"]["refund"]["run_as"]
    run, question = await start_asking(shop, graph, shop.owner)
    await shop.harness.call("approvals_approve", shop.owner, approval_id=question, data={"amount": 8})
    run = await settle(shop, run["id"])
    assert run["status"] == "completed", run
    assert await shop.get_key("refunds:1") == '{"amount":8}'


@pytest.mark.parametrize(
    ("node", "changes", "message"),
    [
        ("ask", {"then": "nowhere"}, "must name a node of type tool"),
        ("ask", {"then": "ask"}, "must name a node of type tool"),
        ("ask", {"then": "done"}, "must name a node of type tool"),
        ("ask", {"output_key": None}, "needs an output_key"),
        ("refund", {"then": "ask"}, "is for questions"),
        ("refund", {"approvers": {"persons": 2, "of": {"role": "staff"}}}, "which several people must give"),
    ],
)
async def test_what_no_answer_could_approve_is_refused_when_the_graph_is_saved(
    shop: Agency, node: str, changes: dict[str, Any], message: str
) -> None:
    graph = asking_graph()
    graph["nodes"][node] = {
        name: value for name, value in {**graph["nodes"][node], **changes}.items() if value is not None
    }
    answer = await shop.harness.call("agents_validate", shop.owner, app_id=shop.app_id, name="_", graph_spec=graph)
    assert any(message in issue["message"] for issue in answer["issues"]), answer


async def test_a_write_that_does_not_come_next_cannot_be_announced(shop: Agency) -> None:
    graph = asking_graph()
    graph["nodes"]["wait"] = {**ASK, "output_key": "more"}
    graph["edges"] = [
        {"from": "ask", "to": "wait"},
        {"from": "wait", "to": "refund"},
        {"from": "refund", "to": "done"},
    ]
    answer = await shop.harness.call("agents_validate", shop.owner, app_id=shop.app_id, name="_", graph_spec=graph)
    assert [issue["path"] for issue in answer["issues"]] == [["nodes", "ask", "then"]]
    assert "no edge leads from" in answer["issues"][0]["message"]
