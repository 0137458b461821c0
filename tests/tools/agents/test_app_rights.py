"""A node may lend the app's right to its call, which somebody else than whoever started the run must approve."""

from typing import Any

import pytest
from sqlalchemy import select

from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth.callers import Account, ActingApp, Anonymous, AppKey, Caller, EndUser, Limits
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError
from tests.jobs import run_due_jobs
from tests.tools.agents.conftest import Agency, build_graph

_ORDERS: dict[str, Any] = {
    "columns": {
        "id": {"type": "int", "primaryKey": True},
        "owner": {"type": "text"},
        "refunded": {"type": "int", "default": "0"},
    }
}
_POLICY = {"table_name": "orders", "policy_name": "own", "command": "SELECT", "role": "user"}
REFUND: dict[str, Any] = {
    "type": "tool",
    "tool_ref": {"source": "builtin", "name": "update_row"},
    "args_template": {"table": "orders", "id": "{{ input.order }}", "patch": {"refunded": "{{ input.amount }}"}},
    "output_key": "refund",
    "run_as": "app",
    "approvers": {"role": "staff"},
}


def refund_graph(**changes: Any) -> dict[str, Any]:
    end = {"type": "end", "output_template": "refunded"}
    node = {name: value for name, value in {**REFUND, **changes}.items() if value is not None}
    tool_name = node["tool_ref"]["name"]
    return build_graph({"refund": node, "done": end}, ("refund", "done"), tools={"builtin": [tool_name]})


@pytest.fixture
async def shop(agency: Agency) -> Agency:
    """Orders of two customers, who may read their own and write none, and the agent `refunds` for all of them."""
    call, app = agency.harness.call, agency.app_id
    await call("schema_apply", agency.owner, app_id=app, schema={"tables": {"orders": _ORDERS}})
    await call("rls_enable", agency.owner, app_id=app, table_name="orders")
    await call("rls_create_policy", agency.owner, app_id=app, **_POLICY, using_expression="owner = current_user_id()")
    for row in ({"id": 1, "owner": "ada"}, {"id": 2, "owner": "bob"}):
        await call("data_insert", agency.owner, app_id=app, table="orders", values=row)
    await agency.create_agent("refunds", refund_graph(), visibility="public", safety_acknowledged=True)
    return agency


def staff_of(shop: Agency) -> EndUser:
    return EndUser(shop.app_id, "sam", "staff")


async def list_refunds(shop: Agency) -> dict[int, int]:
    rows = await shop.harness.call("data_list", shop.owner, app_id=shop.app_id, table="orders")
    return {row["id"]: row["refunded"] for row in rows}


async def change_graph(shop: Agency, graph: dict[str, Any]) -> None:
    await shop.harness.call("agents_update", shop.owner, app_id=shop.app_id, name="refunds", graph_spec=graph)


async def get_waiting(shop: Agency, by: Caller) -> dict[str, Any]:
    (row,) = (await shop.harness.call("approvals_list", by, status="pending"))["approvals"]
    approval: dict[str, Any] = row
    return approval


async def ask_refund(shop: Agency, by: Caller | None = None, **body: Any) -> tuple[dict[str, Any], str]:
    """A run that waits for approval of its refund, and the id of the approval."""
    run = await shop.run_agent("refunds", by or shop.end_user("ada"), input={"order": "1", "amount": 20}, **body)
    assert run["status"] == "paused", run
    return run, (await get_waiting(shop, shop.owner))["id"]


async def list_audit(shop: Agency, event: str) -> list[Any]:
    query = select(audit_logs).where(audit_logs.c.event_type == event)
    async with shop.harness.services.database.reading() as connection:
        return list((await connection.execute(query)).all())


async def test_a_customer_asks_staff_approve_and_the_app_acts(shop: Agency) -> None:
    ada, sam = shop.end_user("ada"), staff_of(shop)
    refusal = await shop.catch_refusal(
        "data_update", ada, app_id=shop.app_id, table="orders", row_id="1", changes={"refunded": 20}
    )
    assert refusal.code == "ROW_NOT_FOUND" or refusal.status in (403, 404)
    run, approval_id = await ask_refund(shop)
    approval = await shop.harness.call("approvals_get", sam, approval_id=approval_id)
    assert (approval["approval"]["run_as"], approval["approval"]["node"]) == ("app", "refund")
    assert approval["approval"]["edit"] == []
    assert approval["arguments"] == {
        "app_id": shop.app_id,
        "table": "orders",
        "row_id": "1",
        "changes": {"refunded": 20},
    }
    assert "It uses the right of the app, not that of whoever asks." in approval["approval"]["summary"]
    assert approval["may_decide"] is True
    assert await list_refunds(shop) == {1: 0, 2: 0}
    await shop.harness.call("approvals_approve", sam, approval_id=approval_id)
    run = await shop.wait_for_run("refunds", run["id"])
    assert (run["status"], run["output"]) == ("completed", "refunded")
    assert await list_refunds(shop) == {1: 20, 2: 0}
    # Whose right it was stands in the events and in the audit log, where the call has a row of its own.
    pause, end = [
        (await shop.list_events("refunds", run["id"], type_))[-1]["payload"]
        for type_ in ("run_paused", "tool_call_end")
    ]
    assert (pause["run_as"], end["run_as"]) == ("app", "app")
    (write_row,) = [row for row in await list_audit(shop, "data.write") if "right" in row.event_data]
    right = {"of": "app", "agent": "refunds", "node": "refund", "run_id": run["id"]}
    right |= {"started_by": "user:ada", "approved_by": ["sam"]}
    assert (write_row.actor_type, write_row.event_data["right"]) == ("system", right)
    assert write_row.event_data["approval_id"] == approval_id
    (request_row,) = await list_audit(shop, "approval.request")
    assert (request_row.actor_type, request_row.actor_id) == ("app_user", "ada")


async def test_a_customer_sees_neither_the_row_nor_the_arguments_of_what_the_app_did(shop: Agency) -> None:
    ada = shop.end_user("ada")
    run = await shop.run_agent("refunds", ada, input={"order": "2", "amount": 20})
    approval_id = (await get_waiting(shop, shop.owner))["id"]
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=approval_id)
    await shop.wait_for_run("refunds", run["id"])
    answer = await shop.harness.call("agents_runs_events_list", ada, app_id=shop.app_id, name="refunds", id=run["id"])
    calls = [event["payload"] for event in answer["events"] if event["payload"].get("tool_name") == "update_row"]
    assert [payload.get("status") for payload in calls] == [None, None, "ok"]
    assert not any({"args", "result", "payload"} & payload.keys() - {"payload"} for payload in calls)
    assert "bob" not in str(answer["events"])
    run = await shop.run_agent("refunds", ada, input={"order": "77", "amount": 20})
    assert run["status"] == "paused", "nothing that the app may see is told before somebody has approved the call"
    approval_id = (await get_waiting(shop, shop.owner))["id"]
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=approval_id, even_if_failing=True)
    run = await shop.wait_for_run("refunds", run["id"])
    visible_run = await shop.harness.call("agents_runs_get", ada, app_id=shop.app_id, name="refunds", id=run["id"])
    assert visible_run["run"]["error"] == {"type": "tool_failed", "message": "A tool that the agent uses failed."}


async def _people(shop: Agency) -> dict[str, Caller]:
    organisation = shop.owner.organisation_id
    admin = await shop.harness.join(organisation, shop.owner, "admin@example.com", "admin")
    member = await shop.harness.join(organisation, shop.owner, "member@example.com", "member")
    key = await shop.harness.call(
        "api_keys_create", shop.owner, name="backend", key_scope="app", target_app_id=shop.app_id
    )
    return {
        "owner": shop.owner,
        "owner's key": Account(shop.owner.account_id, organisation, "key-of-owner"),
        "owner's app key": AppKey(shop.app_id, key["key_id"], shop.owner.account_id),
        "admin": Account(admin.account_id, organisation),
        "member": Account(member.account_id, organisation),
        "ada": shop.end_user("ada"),
        "ada, who is staff": EndUser(shop.app_id, "ada", "staff"),
        "sam": staff_of(shop),
        "visitor": Anonymous(shop.app_id),
    }


@pytest.mark.parametrize(
    ("starter", "body", "who"),
    [
        ("ada", {}, {"owner", "owner's key", "owner's app key", "admin", "sam"}),
        ("ada, who is staff", {}, {"owner", "owner's key", "owner's app key", "admin", "sam"}),
        ("sam", {}, {"owner", "owner's key", "owner's app key", "admin", "ada, who is staff"}),
        ("owner", {}, {"admin", "sam", "ada, who is staff"}),
        ("owner's app key", {}, {"admin", "sam", "ada, who is staff"}),
        ("admin", {}, {"owner", "owner's key", "owner's app key", "sam", "ada, who is staff"}),
        # Whoever has a run started for somebody else does not approve it either.
        ("owner", {"as": "ada"}, {"admin", "sam"}),
        ("owner's app key", {"as": "ada"}, {"owner", "owner's key", "admin", "sam"}),
    ],
)
async def test_whoever_started_a_run_never_approves_what_it_does_as_the_app(
    shop: Agency, starter: str, body: dict[str, str], who: set[str]
) -> None:
    people = await _people(shop)
    users = {"ada": "00000000-0000-4000-8000-00000000ada0"}
    if "as" in body:
        people["ada"] = EndUser(shop.app_id, users["ada"])
        people["ada, who is staff"] = EndUser(shop.app_id, users["ada"], "staff")
    arguments = {"caller_user_id": users[body["as"]]} if body else {}
    _, approval_id = await ask_refund(shop, people[starter], **arguments)
    may = set()
    for name, person in people.items():
        try:
            detail = await shop.harness.call("approvals_get", person, approval_id=approval_id)
        except BaobabError:
            continue
        may |= {name} if detail["may_decide"] else set()
    assert may == who
    for name in people.keys() - who:
        refusal = await shop.catch_refusal("approvals_approve", people[name], approval_id=approval_id)
        assert refusal.status in (401, 403, 404), name
    assert await list_refunds(shop) == {1: 0, 2: 0}


async def test_whoever_forks_a_visitors_run_does_not_approve_the_fork(shop: Agency) -> None:
    people = await _people(shop)
    start = await shop.harness.call(
        "agents_public_run", people["visitor"], app_id=shop.app_id, name="refunds", input={"order": "1", "amount": 5}
    )
    await shop.wait_for_run("refunds", start["run_id"])
    first = (await get_waiting(shop, shop.owner))["id"]
    await shop.harness.call("approvals_reject", shop.owner, approval_id=first)
    await shop.wait_for_run("refunds", start["run_id"])
    fork = await shop.harness.call(
        "agents_runs_fork",
        people["admin"],
        app_id=shop.app_id,
        name="refunds",
        id=start["run_id"],
        step=0,
        input={"order": "1", "amount": 500},
    )
    await shop.wait_for_run("refunds", fork["run_id"])
    second = (await get_waiting(shop, shop.owner))["id"]
    refusal = await shop.catch_refusal("approvals_approve", people["admin"], approval_id=second)
    assert refusal.code == "APPROVAL_OTHERS_DECIDE"
    assert "somebody else than who started the run" in refusal.message


_ISSUES: list[tuple[dict[str, Any], tuple[Any, ...], str]] = [
    ({"approvers": None}, ("approvers",), "is required by run_as"),
    ({"approvers": "starter"}, ("approvers",), "must exclude whoever starts the run"),
    ({"approvers": "user"}, ("approvers",), "must exclude whoever starts the run"),
    ({"approvers": {"role": "user"}}, ("approvers",), "must exclude whoever starts the run"),
    ({"approvers": {"persons": 2, "of": "user"}}, ("approvers",), "must exclude whoever starts the run"),
    (
        {"args_template": {**REFUND["args_template"], "table": "{{ input.table }}"}},
        ("args_template", "table"),
        "must be written in the graph",
    ),
    (
        {"args_template": {**REFUND["args_template"], "patch": "{{ input.patch }}"}},
        ("args_template", "patch"),
        "must be an object that names its columns",
    ),
    (
        {"args_template": {**REFUND["args_template"], "as_user": "ada"}},
        ("args_template", "as_user"),
        "cannot be given with run_as",
    ),
    ({"edit": ["table"]}, ("edit", 0), "is fixed by run_as"),
    ({"edit": ["patch"]}, ("edit", 0), "is not one value"),
    ({"edit": ["patch.paid"]}, ("edit", 0), "is not in args_template"),
    ({"run_as": None, "edit": ["patch.refunded"]}, ("edit",), 'is for nodes with "run_as": "app"'),
]


_REFUSED: dict[str, dict[str, Any]] = {
    "kv_get": {"key": "k"},
    "interrupt": {"reason": "?"},
    "rls_disable": {"table_name": "orders"},
    "config_pause": {"paused": True},
    "users_update": {"user_id": "00000000-0000-4000-8000-000000000001"},
    "schema_apply": {"document": {"tables": {}}},
    "data_batch": {"writes": []},
}


def _tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"tool_ref": {"source": "builtin", "name": name}, "args_template": arguments}


@pytest.mark.parametrize(
    ("changes", "path", "message"),
    [
        *_ISSUES,
        (
            _tool("kv_put", key="{{ input.key }}", value=1),
            ("args_template", "key"),
            "must begin with text of the graph",
        ),
        (
            _tool("data_update_many", table="orders", changes={"refunded": 1}, where={"id": "{{ input.id }}"}),
            ("args_template", "where", "id"),
            "must begin with an operator",
        ),
        (
            _tool("data_delete_many", table="orders", where={"or": "(id.eq.{{ input.id }})"}),
            ("args_template", "where", "or"),
            "must be written in the graph",
        ),
        (
            _tool("data_delete_many", table="orders", where={"id": "in.({{ input.ids }})"}),
            ("args_template", "where", "id"),
            "must begin with an operator for one value",
        ),
        (
            _tool("data_delete_many", table="orders", where="{{ input.where }}"),
            ("args_template", "where"),
            "must name its columns",
        ),
        (
            _tool("data_insert", table="orders", values="{{ input.rows }}"),
            ("args_template", "values"),
            "must be an object",
        ),
        *[(_tool(name, **arguments), ("run_as",), "cannot act as the app") for name, arguments in _REFUSED.items()],
    ],
)
async def test_a_node_that_acts_as_the_app_fixes_all_but_values(
    shop: Agency, changes: dict[str, Any], path: tuple[Any, ...], message: str
) -> None:
    graph = refund_graph(**changes)
    answer = await shop.harness.call("agents_validate", shop.owner, app_id=shop.app_id, name="_", graph_spec=graph)
    issues = {tuple(issue["path"]): issue["message"] for issue in answer["issues"]}
    assert message in issues[("nodes", "refund", *path)], issues
    refusal = await shop.catch_refusal("agents_create", shop.owner, app_id=shop.app_id, name="b", graph_spec=graph)
    assert refusal.code == "invalid_graph_spec"


async def test_every_tool_that_acts_as_the_app_changes_rows_keys_or_files_or_sends(shop: Agency) -> None:
    tools = [tool for tool in shop.harness.registry.tools.values() if tool.as_app is not None]
    assert {tool.toolset.name for tool in tools} == {"data", "kv", "files", "mail"}
    forbidden = (
        "rls_",
        "schema_",
        "config_",
        "agents_",
        "users_",
        "realtime_configure",
        "realtime_disable",
        "data_undo",
    )
    assert not [tool.name for tool in tools if tool.name.startswith(forbidden) or tool.grants]
    assert not [
        tool.name for tool in tools if tool.as_app and tool.widens.keys() & {*tool.as_app.literal, *tool.as_app.fills}
    ]


async def test_only_an_admin_without_a_limited_key_lets_a_node_act_as_the_app(shop: Agency) -> None:
    people = await _people(shop)
    narrow_key = Account(shop.owner.account_id, shop.owner.organisation_id, "k", Limits(approval="external"))
    for caller, code in ((narrow_key, "AUTH_KEY_LIMITED"), (people["member"], None), (people["ada"], None)):
        for name, graph in (("b", refund_graph()), ("c", refund_graph(approvers="admin"))):
            refusal = await shop.catch_refusal("agents_create", caller, app_id=shop.app_id, name=name, graph_spec=graph)
            assert refusal.code == code or (code is None and refusal.status == 403)
    free = Account(shop.owner.account_id, shop.owner.organisation_id, "k", Limits(toolsets=frozenset({"agents"})))
    change = {"app_id": shop.app_id, "name": "refunds"}
    for graph in (refund_graph(edit=["patch.refunded"]), refund_graph(run_as=None)):
        refusal = await shop.catch_refusal("agents_update", free, **change, graph_spec=graph)
        assert (refusal.code, refusal.details["argument"]) == ("AUTH_KEY_LIMITED", "graph_spec")
    await shop.harness.call("agents_update", shop.owner, **change, status="disabled")
    refusal = await shop.catch_refusal("agents_update", free, **change, status="active")
    assert (refusal.code, refusal.details["argument"]) == ("AUTH_KEY_LIMITED", "status")
    # What does not touch the node is still theirs to change.
    graph = refund_graph()
    graph["nodes"]["done"]["output_template"] = "thanks"
    await shop.harness.call("agents_update", free, **change, graph_spec=graph)
    agent = (await shop.harness.call("agents_get", shop.owner, **change))["agent"]
    assert agent["app_rights"]["refund"]["by"] == f"account:{shop.owner.account_id}"


@pytest.mark.parametrize("when", ["before it is proposed", "while it waits"])
@pytest.mark.parametrize("how", ["disabled", "node changed", "node gone", "deleted", "paused"])
async def test_the_right_is_lent_only_while_the_agent_has_the_node_and_is_active(
    shop: Agency, when: str, how: str
) -> None:
    agent_of_shop = {"app_id": shop.app_id, "name": "refunds"}

    def asking_graph(**changes: Any) -> dict[str, Any]:
        """Asks first, so that the call is proposed later than the run starts."""
        graph = refund_graph(**changes)
        if when == "before it is proposed":
            ask = {
                "type": "tool",
                "tool_ref": {"source": "builtin", "name": "interrupt"},
                "args_template": {"reason": "?"},
            }
            graph["nodes"]["ask"], graph["entry"] = ask, "ask"
            graph["edges"].append({"from": "ask", "to": "refund"})
            graph["tools"]["builtin"].append("interrupt")
        return graph

    async def withdraw() -> None:
        match how:
            case "disabled":
                await shop.harness.call("agents_update", shop.owner, **agent_of_shop, status="disabled")
            case "node changed":
                await shop.harness.call(
                    "agents_update", shop.owner, **agent_of_shop, graph_spec=refund_graph(approvers="admin")
                )
            case "node gone":
                await change_graph(shop, asking_graph(run_as=None))
            case "deleted":
                await shop.harness.call("agents_delete", shop.owner, **agent_of_shop)
            case "paused":
                await shop.harness.call("config_pause", shop.owner, app_id=shop.app_id, paused=True)

    if when == "while it waits":
        run, approval_id = await ask_refund(shop)
        await withdraw()
        detail = await shop.harness.call("approvals_get", shop.owner, approval_id=approval_id)
        assert detail["preview"].startswith("It would fail now:")
        refusal = await shop.catch_refusal("approvals_approve", shop.owner, approval_id=approval_id)
        assert refusal.code == "APPROVAL_WOULD_FAIL"
        await shop.harness.call("approvals_approve", shop.owner, approval_id=approval_id, even_if_failing=True)
        run = await shop.wait_for_run("refunds", run["id"])
    else:
        await change_graph(shop, asking_graph())
        run = await shop.run_agent("refunds", shop.end_user("ada"), input={"order": "1", "amount": 20})
        await withdraw()
        question = await get_waiting(shop, shop.owner)
        await shop.harness.call("approvals_approve", shop.owner, approval_id=question["id"])
        run = await shop.wait_for_run("refunds", run["id"])
    assert run["status"] == "failed", run
    if how == "paused":
        await shop.harness.call("config_pause", shop.owner, app_id=shop.app_id, paused=False)
    assert await list_refunds(shop) == {1: 0, 2: 0}


async def test_a_change_elsewhere_in_the_graph_withdraws_no_right(shop: Agency) -> None:
    run, approval_id = await ask_refund(shop)
    graph = refund_graph()
    graph["nodes"]["done"]["output_template"] = "thanks"
    await change_graph(shop, graph)
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=approval_id)
    run = await shop.wait_for_run("refunds", run["id"])
    assert (run["output"], await list_refunds(shop)) == ("refunded", {1: 20, 2: 0})


@pytest.mark.parametrize("by", ["sam", "owner"])
async def test_whoever_approves_changes_only_the_fields_that_the_node_lists(shop: Agency, by: str) -> None:
    graph = refund_graph(edit=["patch.refunded"])
    await change_graph(shop, graph)
    run, approval_id = await ask_refund(shop)
    decider = staff_of(shop) if by == "sam" else shop.owner
    approval = await get_waiting(shop, decider)
    assert approval["edit"] == ["changes.refunded"]
    base: dict[str, Any] = {"table": "orders", "row_id": "1", "changes": {"refunded": 20}}
    for wrong in (
        {**base, "row_id": "2"},
        {**base, "changes": {"refunded": 20, "owner": "sam"}},
        {**base, "changes": {}},
        {**base, "as_user": "bob"},
        {"table": "orders", "row_id": "1"},
        {**base, "app_id": "app_000000000002"},
    ):
        refusal = await shop.catch_refusal("approvals_approve", decider, approval_id=approval_id, arguments=wrong)
        assert (refusal.code, refusal.details["editable"]) == ("APPROVAL_FIELD_FIXED", ["changes.refunded"]), wrong
    changed_arguments = {**base, "changes": {"refunded": 8}}
    await shop.harness.call("approvals_approve", decider, approval_id=approval_id, arguments=changed_arguments)
    run = await shop.wait_for_run("refunds", run["id"])
    assert (run["status"], await list_refunds(shop)) == ("completed", {1: 8, 2: 0})


async def test_forks_and_items_of_a_map_ask_anew(shop: Agency) -> None:
    run, approval_id = await ask_refund(shop)
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=approval_id)
    await shop.wait_for_run("refunds", run["id"])
    await shop.harness.call(
        "data_update", shop.owner, app_id=shop.app_id, table="orders", row_id="1", changes={"refunded": 0}
    )
    fork = await shop.harness.call(
        "agents_runs_fork", shop.owner, app_id=shop.app_id, name="refunds", id=run["id"], step=0
    )
    fork_run = await shop.wait_for_run("refunds", fork["run_id"])
    assert (fork_run["status"], await list_refunds(shop)) == ("paused", {1: 0, 2: 0})
    await shop.harness.call("agents_runs_cancel", shop.owner, app_id=shop.app_id, name="refunds", id=fork["run_id"])
    template = {"table": "orders", "id": "{{ item }}", "patch": {"refunded": 1}}
    graph = refund_graph(type="map", over="{{ input.orders }}", args_template=template)
    await shop.create_agent("many", graph, visibility="authenticated")
    run = await shop.run_agent("many", shop.end_user("ada"), input={"orders": ["1", "2"]})
    rows = (await shop.harness.call("approvals_list", staff_of(shop), status="pending"))["approvals"]
    assert len(rows) == 2
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=rows[0]["id"])
    await shop.wait_for_run("many", run["id"])
    assert sorted((await list_refunds(shop)).values()) == [0, 1]
    refusal = await shop.catch_refusal("approvals_approve", staff_of(shop), approval_id=rows[0]["id"])
    assert refusal.code == "APPROVAL_ALREADY_DECIDED"


async def test_a_sub_agent_lends_the_right_of_the_app_to_the_same_caller_only_with_approval(shop: Agency) -> None:
    node = {"type": "agent", "agent": "refunds", "output_key": "out", "input_template": {"order": "2", "amount": 3}}
    graph = build_graph({"ask": node, "done": {"type": "end"}}, ("ask", "done"))
    await shop.create_agent("outer", graph, visibility="authenticated", approvers="user")
    run_id = await shop.start_run("outer", shop.end_user("ada"))
    while not (await shop.harness.call("approvals_list", shop.owner, status="pending"))["approvals"]:
        await run_due_jobs(shop.harness)
    approval = await get_waiting(shop, shop.owner)
    assert approval["approvers"] == {"role": "staff"}
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=approval["id"])
    await shop.wait_for_end("outer", run_id)
    assert await list_refunds(shop) == {1: 0, 2: 3}


async def test_the_app_itself_makes_no_call_that_nobody_approved(shop: Agency) -> None:
    caller = ActingApp(shop.app_id, "agent")
    arguments = {"app_id": shop.app_id, "table": "orders", "row_id": "1", "changes": {"refunded": 9}}
    with pytest.raises(RuntimeError, match="only in a call that somebody has approved"):
        await shop.harness.registry.call("data_update", arguments, caller, RequestContext("test", "r"))
    assert await list_refunds(shop) == {1: 0, 2: 0}


async def test_a_call_that_would_fail_is_not_approved_unless_somebody_wants_that(shop: Agency) -> None:
    insert = {"tool_ref": {"source": "builtin", "name": "data_insert"}, "run_as": None}
    graph = refund_graph(**insert, args_template={"table": "orders", "values": {"id": 3}})
    await shop.create_agent("adder", graph, visibility="authenticated")
    policy = {"app_id": shop.app_id, "table_name": "orders", "policy_name": "add"}
    opens = {"command": "INSERT", "role": "user", "with_check_expression": "true"}
    await shop.harness.call("rls_create_policy", shop.owner, **policy, **opens)
    run = await shop.run_agent("adder", shop.end_user("ada"))
    approval = await get_waiting(shop, staff_of(shop))
    await shop.harness.call("rls_drop_policy", shop.owner, **policy)
    detail = await shop.harness.call("approvals_get", shop.owner, approval_id=approval["id"])
    assert (detail["would_fail"], approval["run_as"]) == (True, None)
    token = (await shop.list_events("adder", run["id"], "run_paused"))[-1]["payload"]["approval_token"]
    resume = {"app_id": shop.app_id, "name": "adder", "id": run["id"], "approval_token": token, "approved": True}
    for tool, arguments in (("approvals_approve", {"approval_id": approval["id"]}), ("agents_runs_resume", resume)):
        refusal = await shop.catch_refusal(tool, staff_of(shop), **arguments)
        assert (refusal.code, refusal.status) == ("APPROVAL_WOULD_FAIL", 409)
        assert "lets users insert" in refusal.message, refusal.message
        assert "`even_if_failing`" in refusal.remedy
    assert (await get_waiting(shop, shop.owner))["id"] == approval["id"]
    await shop.harness.call("agents_runs_resume", staff_of(shop), **resume, even_if_failing=True)
    assert (await shop.wait_for_run("adder", run["id"]))["error"]["type"] == "tool_failed"
    assert await list_refunds(shop) == {1: 0, 2: 0}


async def test_a_run_of_a_key_that_must_ask_has_its_calls_as_the_app_approved_by_admins(shop: Agency) -> None:
    key = await shop.harness.call(
        "api_keys_create", shop.owner, name="asks", key_scope="app", target_app_id=shop.app_id, approval="write"
    )
    await shop.harness.call("api_keys_ask", shop.owner, key_id=key["key_id"], tool_name="agents_run", ask="never")
    limits = Limits(approval="write", never_ask=frozenset({"agents_run"}))
    caller = AppKey(shop.app_id, key["key_id"], shop.owner.account_id, limits)
    run = await shop.run_agent("refunds", caller, input={"order": "1", "amount": 20})
    approval = await get_waiting(shop, shop.owner)
    assert approval["approvers"] == "admin"
    assert (await shop.harness.call("approvals_list", staff_of(shop), status="pending"))["approvals"] == []
    admin = await shop.harness.join(shop.owner.organisation_id, shop.owner, "admin@example.com", "admin")
    refusal = await shop.catch_refusal("approvals_approve", shop.owner, approval_id=approval["id"])
    assert refusal.code == "APPROVAL_OTHERS_DECIDE", "the key is the owner's"
    assert refusal.details == {"approvers": "admin"}
    assert "start a run without your credential" in refusal.remedy
    decider = Account(admin.account_id, shop.owner.organisation_id)
    await shop.harness.call("approvals_approve", decider, approval_id=approval["id"])
    assert (await shop.wait_for_run("refunds", run["id"]))["status"] == "completed"
    assert await list_refunds(shop) == {1: 20, 2: 0}
