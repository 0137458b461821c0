"""Budgets over the API: who may set them, and that they bound what is spent."""

from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text

from baobab.tools.billing.tools.budgets import MOST
from baobab.tools.core.audit import audit_logs
from tests import jobs
from tests.mcp_server.mcp_requests import call_tool
from tests.people import create_key, create_person, get_first_organisation
from tests.tools.ai.conftest import MINI, Installation

BUDGETS = "/dashboard/billing/budgets"


async def put_budget(
    baobab: Installation, place: str, most: Any, by: dict[str, str] | None = None, **query: str
) -> httpx.Response:
    body = {"most_usd": most}
    return await baobab.client.put(f"{BUDGETS}/{place}", json=body, params=query, headers=by or baobab.owner)


async def list_budgets(baobab: Installation, by: dict[str, str] | None = None, **query: str) -> list[Any]:
    answer = await baobab.client.get(BUDGETS, params=query, headers=by or baobab.owner)
    budgets: list[Any] = answer.json()["budgets"]
    return budgets


async def create_gateway_key(baobab: Installation) -> tuple[str, dict[str, str]]:
    body = {"name": "agent", "scopes": ["ai:gateway"]}
    created_body = (await baobab.client.post("/api-keys", json=body, headers=baobab.owner)).json()
    return created_body["key_id"], {"authorization": f"Bearer {created_body['key']}"}


@pytest.mark.parametrize("subject", ["app", "key"])
async def test_a_budget_refuses_a_call_before_any_provider_is_asked(baobab: Installation, subject: str) -> None:
    app_id = await baobab.create_app()
    key_id, agent = await create_gateway_key(baobab)
    place, mine = (f"app/{app_id}/day", {"path": f"/v1/{app_id}"}) if subject == "app" else (f"key/{key_id}/day", {})
    by = None if subject == "app" else agent
    response = await put_budget(baobab, place, "0.000005")
    assert response.status_code == 200, response.text
    refusal = await baobab.chat(by=by, **mine)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (402, "insufficient_credits")
    assert refusal.json()["error"]["budget"]["limit_usd"] == 0.000005
    assert not baobab.fake.requests
    assert (await put_budget(baobab, place, 1)).status_code == 200
    assert (await baobab.chat(by=by, **mine)).status_code == 200
    gone_response = await baobab.client.delete(f"{BUDGETS}/{place}", headers=baobab.owner)
    assert gone_response.json() == {"deleted": True}
    assert await list_budgets(baobab) == []


async def test_calls_that_a_budget_refused_are_counted_in_the_audit_log(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    await put_budget(baobab, f"app/{app_id}/day", "0.000005")
    for _ in range(3):
        assert (await baobab.chat(path=f"/v1/{app_id}")).status_code == 402
    response = await baobab.client.get(
        f"/v1/{app_id}/audit-logs", params={"event_type": "ai.call_failed"}, headers=baobab.owner
    )
    rows = response.json()["logs"]
    assert sum(row["event_data"]["count"] for row in rows) == 3
    for row in rows:
        assert (row["category"], row["success"], row["event_data"]["code"]) == ("ai", False, "BUDGET_EXHAUSTED")
        assert "budget" in row["error_message"]


async def test_a_new_budget_counts_what_was_spent_before(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    await baobab.chat(MINI, path=f"/v1/{app_id}")
    await baobab.get_settled_balance()
    now = baobab.application.services.clock.now()
    budget = (await put_budget(baobab, f"app/{app_id}/day", 2)).json()["budget"]
    assert budget == {
        "subject": "app",
        "subject_id": app_id,
        "period": "day",
        "limit_usd": 2.0,
        "spent_usd": 0.00000585,
        "reserved_usd": 0.0,
        "resets_at": f"{now + timedelta(days=1):%Y-%m-%d}T00:00:00Z",
    }


async def test_what_is_set_over_mcp_is_listed_over_rest(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    arguments = {"subject": "app", "subject_id": app_id, "period": "month", "most_usd": 0.1}
    set_ = (await call_tool(baobab, "billing_set_budget", arguments))["structuredContent"]["budget"]
    arguments["most_usd"] = "0.3"
    again = (await call_tool(baobab, "billing_set_budget", arguments))["structuredContent"]["budget"]
    assert (set_["limit_usd"], again["limit_usd"]) == (0.1, 0.3)
    assert await list_budgets(baobab) == [again]
    assert (await call_tool(baobab, "billing_budgets"))["structuredContent"] == {"total": 1, "budgets": [again]}
    assert (await baobab.client.get("/dashboard/billing", headers=baobab.owner)).json()["budgets"] == [again]
    del arguments["most_usd"]
    assert not (await call_tool(baobab, "billing_delete_budget", arguments))["isError"]
    assert (await call_tool(baobab, "billing_delete_budget", arguments))["isError"]


async def test_members_look_and_admins_set(baobab: Installation) -> None:
    ours, app_id = await get_first_organisation(baobab), await baobab.create_app()
    member, admin = [await create_person(baobab, role, role=role) for role in ("member", "admin")]
    place = f"app/{app_id}/day"
    refusal = await put_budget(baobab, place, 1, member.headers, org_id=ours)
    assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_INSUFFICIENT_PERMISSIONS")
    assert (await put_budget(baobab, place, 1, admin.headers, org_id=ours)).status_code == 200
    header = {**admin.headers, "x-organization-id": ours}
    assert (await put_budget(baobab, place, 2, header)).status_code == 200
    assert [budget["limit_usd"] for budget in await list_budgets(baobab, member.headers, org_id=ours)] == [2.0]
    path, query = f"{BUDGETS}/{place}", {"org_id": ours}
    assert (await baobab.client.delete(path, params=query, headers=member.headers)).status_code == 403
    assert (await baobab.client.delete(path, params=query, headers=admin.headers)).status_code == 200


async def test_two_organisations_are_strangers(baobab: Installation) -> None:
    ours, app_id = await get_first_organisation(baobab), await baobab.create_app()
    key_id, _ = await create_gateway_key(baobab)
    stranger = await create_person(baobab, "stranger")
    their_key = await create_key(baobab, stranger.headers)
    await put_budget(baobab, f"app/{app_id}/day", 1)
    for by in (stranger.headers, their_key):
        for place in (f"app/{app_id}/day", f"key/{key_id}/day", "app/app_000000000000/day"):
            answer = await put_budget(baobab, place, 0, by)
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "RESOURCE_NOT_FOUND")
            assert (await put_budget(baobab, place, 0, by, org_id=ours)).status_code == 403
            assert (await baobab.client.delete(f"{BUDGETS}/{place}", headers=by)).status_code == 404
        assert await list_budgets(baobab, by) == []
    assert [budget["limit_usd"] for budget in await list_budgets(baobab)] == [1.0]


async def test_a_revoked_key_gets_no_budget_and_what_it_had_can_be_deleted(baobab: Installation) -> None:
    key_id, _ = await create_gateway_key(baobab)
    place = f"key/{key_id}/month"
    assert (await put_budget(baobab, place, 1)).status_code == 200
    await baobab.client.delete(f"/api-keys/{key_id}", headers=baobab.owner)
    assert (await put_budget(baobab, place, 2)).status_code == 404
    assert (await baobab.client.delete(f"{BUDGETS}/{place}", headers=baobab.owner)).status_code == 200
    assert (await baobab.client.delete(f"{BUDGETS}/{place}", headers=baobab.owner)).status_code == 404


async def test_the_budgets_of_an_app_go_with_it(baobab: Installation) -> None:
    app_id, other = await baobab.create_app(), await baobab.create_app()
    for place in (f"app/{app_id}/day", f"app/{app_id}/month", f"app/{other}/day"):
        assert (await put_budget(baobab, place, 1)).status_code == 200
    await baobab.client.delete(f"/apps/{app_id}", headers=baobab.owner)
    await jobs.run_due_jobs(baobab.application)
    assert [budget["subject_id"] for budget in await list_budgets(baobab)] == [other]


async def test_a_key_with_limits_does_not_choose_what_it_may_spend(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    for limits in ({"toolsets": ["billing"]}, {"approval": "destructive"}, {"read_only": True}):
        agent = await create_key(baobab, **limits)
        refusal = await put_budget(baobab, f"app/{app_id}/day", 1, agent)
        assert (refusal.status_code, refusal.json()["error"]["code"]) == (403, "AUTH_KEY_LIMITED")
        assert await list_budgets(baobab, agent) == []


async def test_keys_of_an_app_and_its_users_are_not_admitted(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    _, agent = await create_gateway_key(baobab)
    of_app = await create_key(baobab, key_scope="app", target_app_id=app_id)
    for by in (agent, of_app, await baobab.user_headers(app_id, "somebody")):
        for path in (BUDGETS, "/dashboard/billing", "/dashboard/usage"):
            assert (await baobab.client.get(path, headers=by)).status_code == 403
        assert (await put_budget(baobab, f"app/{app_id}/day", 1, by)).status_code == 403


async def test_who_set_and_deleted_a_budget_is_written_down(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    place = f"app/{app_id}/day"
    await put_budget(baobab, place, 0.123456789)
    await baobab.client.delete(f"{BUDGETS}/{place}", headers=baobab.owner)
    logs = await baobab.client.get(f"/v1/{app_id}/audit-logs", params={"resource_type": "budget"}, headers=baobab.owner)
    delete_log, set_log = logs.json()["logs"]
    assert (set_log["event_type"], set_log["resource_id"]) == ("billing.budget.set", place)
    assert set_log["event_data"]["most_usd"] == "0.123456789"
    assert (delete_log["event_type"], delete_log["action"]) == ("billing.budget.delete", "delete")
    rows = audit_logs
    async with baobab.application.services.database.reading() as connection:
        result = await connection.execute(select(rows.c.organisation_id).where(rows.c.resource_id == place))
    assert set(result.scalars()) == {await get_first_organisation(baobab)}


@pytest.mark.parametrize("there", [False, True])
async def test_a_budget_changes_with_its_row_in_the_trail_or_not_at_all(baobab: Installation, *, there: bool) -> None:
    place = f"app/{await baobab.create_app()}/day"
    if there:
        await put_budget(baobab, place, 1)
    before = await list_budgets(baobab)
    await rename_table(baobab, "audit_logs", "somewhere_else")
    assert (await put_budget(baobab, place, 2)).status_code == 503
    if there:
        response = await baobab.client.delete(f"{BUDGETS}/{place}", headers=baobab.owner)
        assert response.status_code == 503
    await rename_table(baobab, "somewhere_else", "audit_logs")
    assert await list_budgets(baobab) == before
    assert (await put_budget(baobab, place, 2)).status_code == 200


async def rename_table(baobab: Installation, table: str, name: str) -> None:
    async with baobab.application.services.database.writing() as connection:
        await connection.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))


async def test_a_key_with_a_budget_hands_out_nothing_that_could_spend_without_it(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    created_body = (await baobab.client.post("/api-keys", json={"name": "agent"}, headers=baobab.owner)).json()
    agent, place = {"authorization": f"Bearer {created_body['key']}"}, f"key/{created_body['key_id']}/day"

    async def try_changes() -> list[httpx.Response]:
        ask = baobab.client.request
        bodies: list[dict[str, Any]] = [{"scopes": ["*"]}, {"scopes": ["ai:gateway"]}, {"read_only": True}]
        bodies.append({"key_scope": "app", "target_app_id": app_id})
        return [
            *[await ask("POST", "/api-keys", json={"name": "other", **body}, headers=agent) for body in bodies],
            await ask("PATCH", f"/api-keys/{created_body['key_id']}", json={"name": "own"}, headers=agent),
            await ask("POST", f"/v1/{app_id}/kv/_rotate_key", headers=agent),
            await put_budget(baobab, f"app/{app_id}/day", 1000, agent),
            await ask("DELETE", f"{BUDGETS}/app/{app_id}/day", headers=agent),
            await put_budget(baobab, place, 1000, agent),
        ]

    assert (await baobab.client.get("/api-keys", headers=agent)).status_code == 200
    await put_budget(baobab, place, 1)
    refusal = await try_changes()
    assert {answer.status_code for answer in refusal} == {403}
    assert all("A key with a budget" in answer.text for answer in refusal)
    assert refusal[0].json()["error"]["code"] == "AUTH_KEY_LIMITED"
    # What it may do otherwise, it may still.
    assert (await baobab.client.get("/api-keys", headers=agent)).status_code == 200
    assert (await baobab.chat(by=agent)).status_code == 200
    await baobab.client.delete(f"{BUDGETS}/{place}", headers=baobab.owner)
    assert {answer.status_code for answer in await try_changes()} == {200, 201}


async def test_there_are_so_many_budgets_and_no_more(baobab: Installation) -> None:
    ours, app_id, full = await get_first_organisation(baobab), await baobab.create_app(), await baobab.create_app()
    for number in range(MOST - 1):
        await baobab.credits.set_budget(ours, "key", f"gone-{number}", "day", 1)
    assert (await put_budget(baobab, f"app/{app_id}/day", 1)).status_code == 200
    refusal = await put_budget(baobab, f"app/{full}/day", 1)
    assert (refusal.status_code, refusal.json()["error"]["details"]) == (409, {"limit": MOST})
    assert (await put_budget(baobab, f"app/{app_id}/day", 2)).status_code == 200
