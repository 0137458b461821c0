"""Who decides about calls that wait: approve, reject, resume and cancel ask one rule."""

import asyncio
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser
from baobab.tools.core.errors import BaobabError
from tests.tools.agents.conftest import Agency, build_graph


def interrupt_graph(**node: Any) -> dict[str, Any]:
    ask = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "interrupt"},
        "args_template": {"reason": "May refund?", "data": {"amount": 500}},
        "output_key": "answer",
        **node,
    }
    end = {"type": "end", "output_template": "{{ state.answer.data.amount }}"}
    return build_graph({"ask": ask, "done": end}, ("ask", "done"), tools={"builtin": ["interrupt"]})


def write_graph(**node: Any) -> dict[str, Any]:
    put = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "kv_put"},
        "args_template": {"key": "k", "value": {"to": "Amina", "amount": 10}},
        **node,
    }
    end = {"type": "end", "output_template": "done"}
    return build_graph({"put": put, "done": end}, ("put", "done"), tools={"builtin": ["kv_put"]})


async def add_member(agency: Agency, name: str, role: str = "member") -> Account:
    account = await agency.harness.join(agency.owner.organisation_id, agency.owner, f"{name}@example.com", role)
    return Account(account.account_id, agency.owner.organisation_id)


async def get_pending(agency: Agency, run_id: str) -> dict[str, Any]:
    """The approval that a run waits for."""
    result = await agency.harness.call("approvals_list", agency.owner, status="pending")
    return next(row for row in result["approvals"] if row["run_id"] == run_id)


async def get_token(agency: Agency, run_id: str) -> str:
    payload = (await agency.list_events("a", run_id, "run_paused"))[-1]["payload"]
    text: str = payload["approval_token"]
    return text


async def try_call(agency: Agency, tool: str, by: Caller, **arguments: Any) -> str:
    """`ok`, or the code of the refusal."""
    try:
        await agency.harness.call(tool, by, **arguments)
    except BaobabError as error:
        return error.code
    return "ok"


async def test_a_plain_member_neither_decides_nor_rewrites_nor_cancels_an_owners_run(agency: Agency) -> None:
    await agency.create_agent("a", write_graph())
    run, mallory = await agency.run_agent("a"), await add_member(agency, "mallory")
    row, arguments = await get_pending(agency, run["id"]), {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    resume = {**arguments, "approval_token": await get_token(agency, run["id"]), "approved": True}
    codes = {
        "resume": await try_call(agency, "agents_runs_resume", mallory, **resume),
        "rewrite": await try_call(agency, "agents_runs_resume", mallory, **resume, arguments={"key": "k", "value": 1}),
        "cancel": await try_call(agency, "agents_runs_cancel", mallory, **arguments),
        "approve": await try_call(agency, "approvals_approve", mallory, approval_id=row["id"]),
        "reject": await try_call(agency, "approvals_reject", mallory, approval_id=row["id"]),
    }
    unseen = dict.fromkeys(("approve", "reject"), "APPROVAL_NOT_FOUND")
    assert codes == {**dict.fromkeys(("resume", "rewrite", "cancel"), "APPROVAL_OTHERS_DECIDE"), **unseen}
    result = await agency.harness.call("agents_runs_events_list", mallory, **arguments)
    pause = next(event["payload"] for event in result["events"] if event["type"] == "run_paused")
    assert "approval_token" not in pause
    assert pause["approvers"] == "starter"
    assert (await agency.get_run("a", run["id"]))["status"] == "paused"


async def test_a_customer_asks_and_staff_approve(agency: Agency) -> None:
    await agency.create_agent(
        "a", interrupt_graph(), visibility="public", safety_acknowledged=True, approvers={"role": "staff"}
    )
    ada, staff = agency.end_user("ada"), EndUser(agency.app_id, "sam", "staff")
    run = await agency.run_agent("a", ada)
    arguments = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    result = await agency.harness.call("agents_runs_events_list", ada, **arguments)
    assert not any("approval_token" in event["payload"] for event in result["events"])
    resume = {**arguments, "approval_token": await get_token(agency, run["id"]), "approved": True}
    for other in (ada, agency.end_user("bob"), EndUser(agency.app_id, "eve", "guest")):
        refusal = await try_call(agency, "agents_runs_resume", other, **resume)
        assert refusal in ("APPROVAL_OTHERS_DECIDE", "run_not_found"), other
    assert (await agency.harness.call("approvals_list", ada))["approvals"] == []
    (row,) = (await agency.harness.call("approvals_list", staff, status="pending"))["approvals"]
    answer = {"reason": "May refund?", "data": {"amount": 20}}
    await agency.harness.call("approvals_approve", staff, approval_id=row["id"], arguments=answer)
    assert (await agency.wait_for_run("a", run["id"]))["output"] == 20


@pytest.mark.parametrize(
    ("approvers", "who"),
    [
        ("starter", {"ada", "admin", "owner", "key"}),
        ("user", {"ada", "bob", "admin", "owner", "key"}),
        ("member", {"member", "admin", "owner", "key"}),
        ("admin", {"admin", "owner", "key"}),
        ({"role": "user"}, {"ada", "bob", "admin", "owner", "key"}),
    ],
)
async def test_the_approvers_of_a_node_and_admins_decide_and_nobody_else(
    agency: Agency, approvers: Any, who: set[str]
) -> None:
    # The node's own win over the agent's.
    await agency.create_agent("a", interrupt_graph(approvers=approvers), visibility="authenticated", approvers="admin")
    people: dict[str, Caller] = {
        "ada": agency.end_user("ada"),
        "bob": agency.end_user("bob"),
        "visitor": Anonymous(agency.app_id),
        "member": await add_member(agency, "member"),
        "admin": await add_member(agency, "admin", "admin"),
        "owner": agency.owner,
        "key": AppKey(agency.app_id, "some-key", agency.owner.account_id),
    }
    deciders = set()
    for name, person in people.items():
        run = await agency.run_agent("a", people["ada"])
        arguments = {"app_id": agency.app_id, "id": run["id"], "approval_token": await get_token(agency, run["id"])}
        if await try_call(agency, "agents_public_resume", person, **arguments, approved=True) == "ok":
            deciders.add(name)
    assert deciders == who


async def test_two_persons_are_two_accounts_however_many_keys_and_clicks(agency: Agency) -> None:
    await agency.create_agent("a", write_graph(), approvers={"persons": 2, "of": "admin"})
    run, second = await agency.run_agent("a"), await add_member(agency, "second", "admin")
    row = await get_pending(agency, run["id"])
    assert row["approvers"] == {"persons": 2, "of": "admin"}
    key = AppKey(agency.app_id, "some-key", agency.owner.account_id)
    decide = {"approval_id": row["id"]}
    assert await try_call(agency, "approvals_approve", agency.owner, **decide) == "ok"
    assert await try_call(agency, "approvals_approve", agency.owner, **decide) == "APPROVAL_NEEDS_ANOTHER"
    assert await try_call(agency, "approvals_approve", key, **decide) == "APPROVAL_NEEDS_ANOTHER"
    arguments = {**decide, "arguments": {"key": "k", "value": 2}}
    assert await try_call(agency, "approvals_approve", second, **arguments) == "APPROVAL_EDIT_NEEDS_ONE"
    assert (await agency.wait_for_run("a", run["id"]))["status"] == "paused"
    assert await agency.get_key("k") is None
    assert await try_call(agency, "approvals_approve", second, **decide) == "ok"
    assert (await agency.wait_for_run("a", run["id"]))["status"] == "completed"
    payload = (await agency.list_events("a", run["id"], "run_resumed"))[-1]["payload"]
    assert payload["agreed"] == [f"account:{agency.owner.account_id}", f"account:{second.account_id}"]


async def test_two_persons_who_approve_at_once_are_both_counted(agency: Agency) -> None:
    await agency.create_agent("a", write_graph(), approvers={"persons": 3, "of": "admin"})
    people = [agency.owner, *[await add_member(agency, name, "admin") for name in ("one", "two")]]
    for _ in range(3):
        run = await agency.run_agent("a")
        row = await get_pending(agency, run["id"])
        codes = await asyncio.gather(
            *(try_call(agency, "approvals_approve", one, approval_id=row["id"]) for one in people)
        )
        assert codes == ["ok", "ok", "ok"]
        assert (await agency.wait_for_run("a", run["id"]))["status"] == "completed"


async def test_approving_with_edits_records_what_was_really_done(agency: Agency) -> None:
    prompt = '/call kv_put {"key": "k", "value": {"to": "Amina", "amount": 10}}'
    tools = [{"source": "builtin", "name": "kv_put"}]
    think = {"type": "llm", "input_template": prompt, "output_key": "said", "tools": tools}
    end = {"type": "end", "output_template": "{{ state.said }}"}
    await agency.create_agent(
        "a", build_graph({"think": think, "done": end}, ("think", "done"), tools={"builtin": ["kv_put"]})
    )
    run = await agency.run_agent("a")
    row, arguments = await get_pending(agency, run["id"]), {"key": "k", "value": {"to": "Mallory", "amount": 9999}}
    run = await agency.decide("a", run["id"], arguments=arguments)
    assert run["status"] == "completed", run
    assert "Mallory" in run["output"]
    events = await agency.list_events("a", run["id"])
    resume_event = next(event for event in events if event["type"] == "run_resumed")
    end_event = next(event for event in events if event["type"] == "tool_call_end")
    assert resume_event["seq"] < end_event["seq"]
    assert end_event["payload"]["args"] == resume_event["payload"]["args"] == arguments
    decision = {name: resume_event["payload"][name] for name in ("call_id", "approval_id", "decision", "decided_by")}
    assert decision == {
        "call_id": end_event["payload"]["call_id"],
        "approval_id": row["id"],
        "decision": "edited",
        "decided_by": agency.owner.account_id,
    }
    detail = await agency.harness.call("approvals_get", agency.owner, approval_id=row["id"])
    assert detail["arguments"] == arguments
    assert "Mallory" in detail["approval"]["summary"]
    assert "Amina" in detail["approval"]["asked_summary"]
    audit = await agency.harness.call("audit_logs_list", agency.owner, app_id=agency.app_id)
    audit_entry = next(log for log in audit["logs"] if log["event_type"] == "agent.run.resume")
    assert "Mallory" in audit_entry["event_data"]["summary"]


async def start_configuring(agency: Agency, key: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run that waits to change the app's settings for models, and the approval that it waits for."""
    put = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "ai_config_update"},
        "args_template": {"byokKey": "{{ input.key }}", "maxTokensPerRequest": 10},
    }
    end = {"type": "end", "output_template": "done"}
    spec = build_graph({"put": put, "done": end}, ("put", "done"), tools={"builtin": ["ai_config_update"]})
    await agency.create_agent("a", spec)
    run = await agency.run_agent("a", input={"key": key})
    return run, await get_pending(agency, run["id"])


async def test_a_secret_that_is_left_hidden_in_an_edit_is_the_one_that_was_asked_with(agency: Agency) -> None:
    run, row = await start_configuring(agency, "sk-proj-SUPERSECRET0123456789")
    detail = await agency.harness.call("approvals_get", agency.owner, approval_id=row["id"])
    visible_arguments = {name: value for name, value in detail["arguments"].items() if name != "app_id"}
    assert visible_arguments == {"byokKey": "(hidden)", "maxTokensPerRequest": 10}
    run = await agency.decide("a", run["id"], arguments={**visible_arguments, "maxTokensPerRequest": 5})
    assert run["status"] == "completed", run
    config = (await agency.harness.call("ai_config", agency.owner, app_id=agency.app_id))["config"]
    assert (config["byokKey"], config["maxTokensPerRequest"]) == ("***6789", 5)
    payload = (await agency.list_events("a", run["id"], "run_resumed"))[-1]["payload"]
    assert payload["args"] == {"byokKey": "(hidden)", "maxTokensPerRequest": 5}
    detail = await agency.harness.call("approvals_get", agency.owner, approval_id=row["id"])
    assert "SUPERSECRET" not in str(detail["arguments"]) + detail["approval"]["summary"]


async def test_nothing_is_left_hidden_that_was_not_asked_with(agency: Agency) -> None:
    _, row = await start_configuring(agency, None)
    edit = {"byokKey": "(hidden)", "maxTokensPerRequest": 10}
    error = await agency.catch_refusal("approvals_approve", agency.owner, approval_id=row["id"], arguments=edit)
    assert error.code == "APPROVAL_HIDDEN_UNKNOWN"


async def test_a_refusal_is_told_with_its_reason(agency: Agency) -> None:
    await agency.create_agent("a", write_graph())
    run = await agency.run_agent("a")
    run = await agency.decide("a", run["id"], approves=False, reason="Not on a Friday.")
    payload = (await agency.list_events("a", run["id"], "run_resumed"))[-1]["payload"]
    assert (payload["decision"], payload["reason"]) == ("denied", "Not on a Friday.")


@pytest.mark.parametrize("tool", ["agents_runs_resume", "approvals_approve"])
async def test_the_app_of_a_call_is_not_edited(agency: Agency, tool: str) -> None:
    await agency.create_agent("a", write_graph())
    run = await agency.run_agent("a")
    arguments: dict[str, Any] = {"arguments": {"key": "k", "value": 1, "app_id": "app_000000000000"}}
    if tool == "approvals_approve":
        arguments["approval_id"] = (await get_pending(agency, run["id"]))["id"]
    else:
        arguments |= {"app_id": agency.app_id, "name": "a", "id": run["id"], "approved": True}
        arguments["approval_token"] = await get_token(agency, run["id"])
    error = await agency.catch_refusal(tool, agency.owner, **arguments)
    assert (error.status, "app_id" in error.message) == (400, True)
    assert await agency.get_key("k") is None


async def test_looking_through_a_graph_warns_where_whoever_asks_also_decides(agency: Agency) -> None:
    look: dict[str, Any] = {"app_id": agency.app_id, "name": "a", "graph_spec": interrupt_graph()}
    result = await agency.harness.call("agents_validate", agency.owner, **look, visibility="public")
    assert result["valid"] is True
    assert result["warnings"][0]["path"] == ["nodes", "ask", "tool_ref"]
    for more in ({"visibility": "private"}, {"visibility": "public", "approvers": "admin"}):
        assert "warnings" not in await agency.harness.call("agents_validate", agency.owner, **look, **more)
    arguments = {**look, "graph_spec": interrupt_graph(approvers="member")}
    assert "warnings" not in await agency.harness.call(
        "agents_validate", agency.owner, **arguments, visibility="public"
    )


async def test_nothing_that_a_run_of_a_revoked_key_asked_for_is_made(agency: Agency) -> None:
    await agency.create_agent("a", write_graph())
    key = await agency.harness.call("api_keys_create", agency.owner, name="leaked")
    holder = Account(agency.owner.account_id, agency.owner.organisation_id, key["key_id"])
    run = await agency.run_agent("a", by=holder)
    await agency.harness.call("api_keys_revoke", agency.owner, key_id=key["key_id"])
    await agency.decide("a", run["id"], approves=True, even_if_failing=True)
    ended_run = await agency.wait_for_end("a", run["id"])
    assert ended_run["status"] == "failed", ended_run
    assert "revoked" in ended_run["error"]["message"]
    assert await agency.get_key("k") is None
