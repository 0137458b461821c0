"""Who decides about calls that wait: approve, reject, resume and cancel ask one rule."""

import asyncio
from typing import Any

import pytest

from baobab.tools.core.auth.callers import Account, Anonymous, AppKey, Caller, EndUser
from baobab.tools.core.errors import BaobabError
from tests.tools.agents.conftest import Agency, graph


def asking(**node: Any) -> dict[str, Any]:
    ask = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "interrupt"},
        "args_template": {"reason": "May refund?", "data": {"amount": 500}},
        "output_key": "answer",
        **node,
    }
    done = {"type": "end", "output_template": "{{ state.answer.data.amount }}"}
    return graph({"ask": ask, "done": done}, ("ask", "done"), tools={"builtin": ["interrupt"]})


def writing(**node: Any) -> dict[str, Any]:
    put = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "kv_put"},
        "args_template": {"key": "k", "value": {"to": "Amina", "amount": 10}},
        **node,
    }
    done = {"type": "end", "output_template": "done"}
    return graph({"put": put, "done": done}, ("put", "done"), tools={"builtin": ["kv_put"]})


async def member(agency: Agency, name: str, role: str = "member") -> Account:
    account = await agency.house.join(agency.owner.organisation_id, agency.owner, f"{name}@example.com", role)
    return Account(account.account_id, agency.owner.organisation_id)


async def waiting(agency: Agency, run_id: str) -> dict[str, Any]:
    """The approval that a run waits for."""
    found = await agency.house.use("approvals_list", agency.owner, status="pending")
    return next(row for row in found["approvals"] if row["run_id"] == run_id)


async def token(agency: Agency, run_id: str) -> str:
    paused = (await agency.events("a", run_id, "run_paused"))[-1]["payload"]
    text: str = paused["approval_token"]
    return text


async def outcome(agency: Agency, tool: str, by: Caller, **arguments: Any) -> str:
    """`ok`, or the code of the refusal."""
    try:
        await agency.house.use(tool, by, **arguments)
    except BaobabError as error:
        return error.code
    return "ok"


async def test_a_plain_member_neither_decides_nor_rewrites_nor_cancels_an_owners_run(agency: Agency) -> None:
    await agency.agent("a", writing())
    run, mallory = await agency.run("a"), await member(agency, "mallory")
    row, named = await waiting(agency, run["id"]), {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    resume = {**named, "approval_token": await token(agency, run["id"]), "approved": True}
    codes = {
        "resume": await outcome(agency, "agents_runs_resume", mallory, **resume),
        "rewrite": await outcome(agency, "agents_runs_resume", mallory, **resume, arguments={"key": "k", "value": 1}),
        "cancel": await outcome(agency, "agents_runs_cancel", mallory, **named),
        "approve": await outcome(agency, "approvals_approve", mallory, approval_id=row["id"]),
        "reject": await outcome(agency, "approvals_reject", mallory, approval_id=row["id"]),
    }
    unseen = dict.fromkeys(("approve", "reject"), "APPROVAL_NOT_FOUND")
    assert codes == {**dict.fromkeys(("resume", "rewrite", "cancel"), "APPROVAL_OTHERS_DECIDE"), **unseen}
    told = await agency.house.use("agents_runs_events_list", mallory, **named)
    paused = next(event["payload"] for event in told["events"] if event["type"] == "run_paused")
    assert "approval_token" not in paused
    assert paused["approvers"] == "starter"
    assert (await agency.read("a", run["id"]))["status"] == "paused"


async def test_a_customer_asks_and_staff_approve(agency: Agency) -> None:
    await agency.agent("a", asking(), visibility="public", safety_acknowledged=True, approvers={"role": "staff"})
    ada, staff = agency.user("ada"), EndUser(agency.app_id, "sam", "staff")
    run = await agency.run("a", ada)
    named = {"app_id": agency.app_id, "name": "a", "id": run["id"]}
    told = await agency.house.use("agents_runs_events_list", ada, **named)
    assert not any("approval_token" in event["payload"] for event in told["events"])
    resume = {**named, "approval_token": await token(agency, run["id"]), "approved": True}
    for other in (ada, agency.user("bob"), EndUser(agency.app_id, "eve", "guest")):
        refused = await outcome(agency, "agents_runs_resume", other, **resume)
        assert refused in ("APPROVAL_OTHERS_DECIDE", "run_not_found"), other
    assert (await agency.house.use("approvals_list", ada))["approvals"] == []
    (row,) = (await agency.house.use("approvals_list", staff, status="pending"))["approvals"]
    answer = {"reason": "May refund?", "data": {"amount": 20}}
    await agency.house.use("approvals_approve", staff, approval_id=row["id"], arguments=answer)
    assert (await agency.rests("a", run["id"]))["output"] == 20


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
    await agency.agent("a", asking(approvers=approvers), visibility="authenticated", approvers="admin")
    people: dict[str, Caller] = {
        "ada": agency.user("ada"),
        "bob": agency.user("bob"),
        "visitor": Anonymous(agency.app_id),
        "member": await member(agency, "member"),
        "admin": await member(agency, "admin", "admin"),
        "owner": agency.owner,
        "key": AppKey(agency.app_id, "some-key", agency.owner.account_id),
    }
    decided = set()
    for name, person in people.items():
        run = await agency.run("a", people["ada"])
        arguments = {"app_id": agency.app_id, "id": run["id"], "approval_token": await token(agency, run["id"])}
        if await outcome(agency, "agents_public_resume", person, **arguments, approved=True) == "ok":
            decided.add(name)
    assert decided == who


async def test_two_persons_are_two_accounts_however_many_keys_and_clicks(agency: Agency) -> None:
    await agency.agent("a", writing(), approvers={"persons": 2, "of": "admin"})
    run, second = await agency.run("a"), await member(agency, "second", "admin")
    row = await waiting(agency, run["id"])
    assert row["approvers"] == {"persons": 2, "of": "admin"}
    key = AppKey(agency.app_id, "some-key", agency.owner.account_id)
    decide = {"approval_id": row["id"]}
    assert await outcome(agency, "approvals_approve", agency.owner, **decide) == "ok"
    assert await outcome(agency, "approvals_approve", agency.owner, **decide) == "APPROVAL_NEEDS_ANOTHER"
    assert await outcome(agency, "approvals_approve", key, **decide) == "APPROVAL_NEEDS_ANOTHER"
    edited = {**decide, "arguments": {"key": "k", "value": 2}}
    assert await outcome(agency, "approvals_approve", second, **edited) == "APPROVAL_EDIT_NEEDS_ONE"
    assert (await agency.rests("a", run["id"]))["status"] == "paused"
    assert await agency.get("k") is None
    assert await outcome(agency, "approvals_approve", second, **decide) == "ok"
    assert (await agency.rests("a", run["id"]))["status"] == "completed"
    resumed = (await agency.events("a", run["id"], "run_resumed"))[-1]["payload"]
    assert resumed["agreed"] == [f"account:{agency.owner.account_id}", f"account:{second.account_id}"]


async def test_two_persons_who_approve_at_once_are_both_counted(agency: Agency) -> None:
    await agency.agent("a", writing(), approvers={"persons": 3, "of": "admin"})
    people = [agency.owner, *[await member(agency, name, "admin") for name in ("one", "two")]]
    for _ in range(3):
        run = await agency.run("a")
        row = await waiting(agency, run["id"])
        told = await asyncio.gather(
            *(outcome(agency, "approvals_approve", one, approval_id=row["id"]) for one in people)
        )
        assert told == ["ok", "ok", "ok"]
        assert (await agency.rests("a", run["id"]))["status"] == "completed"


async def test_approving_with_edits_records_what_was_really_done(agency: Agency) -> None:
    prompt = '/call kv_put {"key": "k", "value": {"to": "Amina", "amount": 10}}'
    tools = [{"source": "builtin", "name": "kv_put"}]
    think = {"type": "llm", "input_template": prompt, "output_key": "said", "tools": tools}
    done = {"type": "end", "output_template": "{{ state.said }}"}
    await agency.agent("a", graph({"think": think, "done": done}, ("think", "done"), tools={"builtin": ["kv_put"]}))
    run = await agency.run("a")
    row, used = await waiting(agency, run["id"]), {"key": "k", "value": {"to": "Mallory", "amount": 9999}}
    run = await agency.decide("a", run["id"], arguments=used)
    assert run["status"] == "completed", run
    assert "Mallory" in run["output"]
    events = await agency.events("a", run["id"])
    resumed = next(event for event in events if event["type"] == "run_resumed")
    ended = next(event for event in events if event["type"] == "tool_call_end")
    assert resumed["seq"] < ended["seq"]
    assert ended["payload"]["args"] == resumed["payload"]["args"] == used
    told = {name: resumed["payload"][name] for name in ("call_id", "approval_id", "decision", "decided_by")}
    assert told == {
        "call_id": ended["payload"]["call_id"],
        "approval_id": row["id"],
        "decision": "edited",
        "decided_by": agency.owner.account_id,
    }
    detail = await agency.house.use("approvals_get", agency.owner, approval_id=row["id"])
    assert detail["arguments"] == used
    assert "Mallory" in detail["approval"]["summary"]
    assert "Amina" in detail["approval"]["asked_summary"]
    audit = await agency.house.use("audit_logs_list", agency.owner, app_id=agency.app_id)
    noted = next(log for log in audit["logs"] if log["event_type"] == "agent.run.resume")
    assert "Mallory" in noted["event_data"]["summary"]


async def configuring(agency: Agency, key: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A run that waits to change the app's settings for models, and the approval that it waits for."""
    put = {
        "type": "tool",
        "tool_ref": {"source": "builtin", "name": "ai_config_update"},
        "args_template": {"byokKey": "{{ input.key }}", "maxTokensPerRequest": 10},
    }
    done = {"type": "end", "output_template": "done"}
    spec = graph({"put": put, "done": done}, ("put", "done"), tools={"builtin": ["ai_config_update"]})
    await agency.agent("a", spec)
    run = await agency.run("a", input={"key": key})
    return run, await waiting(agency, run["id"])


async def test_a_secret_that_is_left_hidden_in_an_edit_is_the_one_that_was_asked_with(agency: Agency) -> None:
    run, row = await configuring(agency, "sk-proj-SUPERSECRET0123456789")
    detail = await agency.house.use("approvals_get", agency.owner, approval_id=row["id"])
    seen = {name: value for name, value in detail["arguments"].items() if name != "app_id"}
    assert seen == {"byokKey": "(hidden)", "maxTokensPerRequest": 10}
    run = await agency.decide("a", run["id"], arguments={**seen, "maxTokensPerRequest": 5})
    assert run["status"] == "completed", run
    config = (await agency.house.use("ai_config", agency.owner, app_id=agency.app_id))["config"]
    assert (config["byokKey"], config["maxTokensPerRequest"]) == ("***6789", 5)
    resumed = (await agency.events("a", run["id"], "run_resumed"))[-1]["payload"]
    assert resumed["args"] == {"byokKey": "(hidden)", "maxTokensPerRequest": 5}
    detail = await agency.house.use("approvals_get", agency.owner, approval_id=row["id"])
    assert "SUPERSECRET" not in str(detail["arguments"]) + detail["approval"]["summary"]


async def test_nothing_is_left_hidden_that_was_not_asked_with(agency: Agency) -> None:
    _, row = await configuring(agency, None)
    edit = {"byokKey": "(hidden)", "maxTokensPerRequest": 10}
    error = await agency.refused("approvals_approve", agency.owner, approval_id=row["id"], arguments=edit)
    assert error.code == "APPROVAL_HIDDEN_UNKNOWN"


async def test_a_refusal_is_told_with_its_reason(agency: Agency) -> None:
    await agency.agent("a", writing())
    run = await agency.run("a")
    run = await agency.decide("a", run["id"], approved=False, reason="Not on a Friday.")
    resumed = (await agency.events("a", run["id"], "run_resumed"))[-1]["payload"]
    assert (resumed["decision"], resumed["reason"]) == ("denied", "Not on a Friday.")


@pytest.mark.parametrize("door", ["agents_runs_resume", "approvals_approve"])
async def test_the_app_of_a_call_is_not_edited(agency: Agency, door: str) -> None:
    await agency.agent("a", writing())
    run = await agency.run("a")
    given: dict[str, Any] = {"arguments": {"key": "k", "value": 1, "app_id": "app_000000000000"}}
    if door == "approvals_approve":
        given["approval_id"] = (await waiting(agency, run["id"]))["id"]
    else:
        given |= {"app_id": agency.app_id, "name": "a", "id": run["id"], "approved": True}
        given["approval_token"] = await token(agency, run["id"])
    error = await agency.refused(door, agency.owner, **given)
    assert (error.status, "app_id" in error.message) == (400, True)
    assert await agency.get("k") is None


async def test_looking_through_a_graph_warns_where_whoever_asks_also_decides(agency: Agency) -> None:
    look: dict[str, Any] = {"app_id": agency.app_id, "name": "a", "graph_spec": asking()}
    told = await agency.house.use("agents_validate", agency.owner, **look, visibility="public")
    assert told["valid"] is True
    assert told["warnings"][0]["path"] == ["nodes", "ask", "tool_ref"]
    for more in ({"visibility": "private"}, {"visibility": "public", "approvers": "admin"}):
        assert "warnings" not in await agency.house.use("agents_validate", agency.owner, **look, **more)
    named = {**look, "graph_spec": asking(approvers="member")}
    assert "warnings" not in await agency.house.use("agents_validate", agency.owner, **named, visibility="public")
