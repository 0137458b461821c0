"""Without an approval of that very call, a run writes nothing that its caller could not write."""

from typing import Any

import pytest
from sqlalchemy import select

from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth.callers import Anonymous, Caller, EndUser
from baobab.tools.core.errors import BaobabError
from tests.tools.agents.conftest import Agency
from tests.tools.agents.test_app_rights import refund_graph, shop, staff_of

__all__ = ["shop"]

WRITES: dict[str, dict[str, Any]] = {
    "update_row": {"table": "orders", "id": "1", "patch": {"refunded": 9}},
    "insert_row": {"table": "orders", "values": {"id": 3, "owner": "ada"}},
    "delete_row": {"table": "orders", "id": "1"},
    "data_update_many": {"table": "orders", "changes": {"refunded": 9}, "where": {"id": "eq.2"}},
    "data_delete_many": {"table": "orders", "where": {"id": "gt.0"}},
    "kv_put": {"key": "refunds:1", "value": 9},
    "kv_cas": {"key": "refunds:0", "expected": 1, "next": 9},
    "kv_incr": {"key": "refunds:0"},
    "kv_decr": {"key": "refunds:0"},
    "kv_delete": {"key": "refunds:0"},
    "files_put": {"filename": "refunds.txt", "contentType": "text/plain", "content": "9"},
    "files_write_named": {"key": "refunds.txt", "content_base64": "OQ=="},
    "files_delete": {"object_id": "OBJECT"},
}
UNSTORED = {"realtime_broadcast", "mail_send"}
"""What acts as the app and leaves no row, key or file that could be compared."""


async def take_snapshot(shop: Agency) -> Any:
    call, app = shop.harness.call, shop.app_id
    rows = await call("data_list", shop.owner, app_id=app, table="orders")
    keys = await call("kv_scan", shop.owner, app_id=app)
    values = {key: await call("kv_get", shop.owner, app_id=app, key=key) for key in sorted(keys["keys"])}
    files = await call("files_list", shop.owner, app_id=app)
    return [sorted(map(str, rows)), str(values), sorted(map(str, files))]


async def decide_nothing(shop: Agency, approval: dict[str, Any], starter: Caller) -> None:
    """Leaves it waiting."""


async def reject(shop: Agency, approval: dict[str, Any], starter: Caller) -> None:
    await shop.harness.call("approvals_reject", staff_of(shop), approval_id=approval["id"])


async def expire(shop: Agency, approval: dict[str, Any], starter: Caller) -> None:
    shop.harness.clock.advance(100_000)
    await shop.run_maintenance()


async def cancel(shop: Agency, approval: dict[str, Any], starter: Caller) -> None:
    await shop.harness.call("agents_runs_cancel", shop.owner, app_id=shop.app_id, name="a", id=approval["run_id"])


async def approve_oneself(shop: Agency, approval: dict[str, Any], starter: Caller) -> None:
    """Everybody tries who may not approve: the starter, also as staff, other users and strangers."""
    others: list[Caller] = [starter, shop.end_user("bob"), EndUser(shop.app_id, "bob", "clerk"), Anonymous(shop.app_id)]
    if isinstance(starter, EndUser):
        others.append(EndUser(shop.app_id, starter.user_id, "staff"))
    for other in others:
        with pytest.raises(BaobabError):
            await shop.harness.call("approvals_approve", other, approval_id=approval["id"], even_if_failing=True)


async def approve_after_withdrawal(shop: Agency, approval: dict[str, Any], starter: Caller) -> None:
    await shop.harness.call("agents_update", shop.owner, app_id=shop.app_id, name="a", status="disabled")
    await shop.harness.call("approvals_approve", staff_of(shop), approval_id=approval["id"], even_if_failing=True)


OUTCOMES = (decide_nothing, reject, expire, cancel, approve_oneself, approve_after_withdrawal)


async def test_every_tool_that_acts_as_the_app_is_tried(shop: Agency) -> None:
    registry = shop.harness.registry
    registrations = [registry.find_for_graphs(name) for name in WRITES]
    tool_names = {registration[0].name for registration in registrations if registration is not None}
    assert tool_names | UNSTORED == {tool.name for tool in registry.tools.values() if tool.as_app is not None}


@pytest.mark.parametrize("outcome", OUTCOMES, ids=lambda outcome: outcome.__name__)
@pytest.mark.parametrize("starter", ["user", "visitor"])
async def test_nothing_is_written_that_nobody_approved(shop: Agency, starter: str, outcome: Any) -> None:
    call, app = shop.harness.call, shop.app_id
    await call("kv_put", shop.owner, app_id=app, key="refunds:0", value=1)
    file = await call("files_put", shop.owner, app_id=app, filename="f.txt", contentType="text/plain", content="f")
    caller: Caller = shop.end_user("ada") if starter == "user" else Anonymous(app)
    before = await take_snapshot(shop)
    for tool, template in WRITES.items():
        arguments = {name: file["id"] if value == "OBJECT" else value for name, value in template.items()}
        graph = refund_graph(tool_ref={"source": "builtin", "name": tool}, args_template=arguments)
        await shop.create_agent("a", graph, visibility="public", safety_acknowledged=True)
        if starter == "user":
            run_id = await shop.start_run("a", caller)
        else:
            run_id = (await call("agents_public_run", caller, app_id=app, name="a", input={}))["run_id"]
        run = await shop.wait_for_run("a", run_id)
        assert run["status"] == "paused", (tool, run)
        waiting = (await call("approvals_list", staff_of(shop), status="pending"))["approvals"]
        (approval,) = [row for row in waiting if row["run_id"] == run_id]
        await outcome(shop, approval, caller)
        if outcome is not decide_nothing and outcome is not approve_oneself:
            await shop.wait_for_run("a", run_id)
        await call("agents_delete", shop.owner, app_id=app, name="a")
        shop.harness.clock.advance(61)
    assert await take_snapshot(shop) == before


@pytest.mark.parametrize("tool", WRITES)
async def test_every_such_call_is_made_once_somebody_has_approved_it(shop: Agency, tool: str) -> None:
    call, app = shop.harness.call, shop.app_id
    await call("kv_put", shop.owner, app_id=app, key="refunds:0", value=1)
    file = await call("files_put", shop.owner, app_id=app, filename="f.txt", contentType="text/plain", content="f")
    before = await take_snapshot(shop)
    arguments = {name: file["id"] if value == "OBJECT" else value for name, value in WRITES[tool].items()}
    graph = refund_graph(tool_ref={"source": "builtin", "name": tool}, args_template=arguments)
    await shop.create_agent("a", graph, visibility="authenticated")
    run = await shop.run_agent("a", shop.end_user("ada"))
    (approval,) = (await call("approvals_list", staff_of(shop), status="pending"))["approvals"]
    await call("approvals_approve", staff_of(shop), approval_id=approval["id"])
    run = await shop.wait_for_run("a", run["id"])
    assert run["status"] == "completed", run
    assert await take_snapshot(shop) != before
    query = select(audit_logs.c.event_data).where(audit_logs.c.actor_type == "system")
    async with shop.harness.services.database.reading() as connection:
        (written_data,) = (await connection.execute(query)).scalars()
    assert written_data["right"]["approved_by"] == ["sam"]
