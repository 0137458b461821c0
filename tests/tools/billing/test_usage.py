"""Use by day, app, key and model."""

from datetime import timedelta
from typing import Any

import pytest
from sqlalchemy import insert

from baobab.tools.billing.tables import credit_usage
from baobab.tools.billing.tools.usage import MOST_ROWS
from baobab.tools.core.limits.credits import Usage
from tests.mcp_server.mcp_requests import call_tool
from tests.people import create_person, get_first_organisation
from tests.tools.ai.conftest import MINI, Installation

USAGE = "/dashboard/usage"
MINI_COST = 5850


async def list_usage(baobab: Installation, who: dict[str, str] | None = None, /, **query: str) -> list[Any]:
    answer = await baobab.client.get(USAGE, params=query, headers=who or baobab.owner)
    assert answer.status_code == 200, answer.text
    rows: list[Any] = answer.json()["usage"]
    return rows


async def settle_cost(baobab: Installation, cost: int, usage: Usage, **subject: Any) -> None:
    ours = await get_first_organisation(baobab)
    reservation = await baobab.credits.reserve(ours, 0, purpose="chat", ttl_seconds=60, **subject)
    await baobab.credits.settle(reservation, cost, usage)


async def test_use_is_told_by_what_is_asked_for(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    today = str(baobab.application.services.clock.now().date())
    await settle_cost(baobab, 5, Usage("m/one", 1, 2), app_id=app_id, key_id="key-1")
    await settle_cost(baobab, 7, Usage("m/two", 3, 4), app_id=app_id)
    await settle_cost(baobab, 11, Usage("m/two", 5, 6), key_id="key-1")
    await settle_cost(baobab, 13, Usage("m/two", 7, 8, byok=True), key_id="key-1")
    charged_row = {"byok": False, "requests": 3, "prompt_tokens": 9, "completion_tokens": 12, "cost_usd": 23e-9}
    own_row = {"byok": True, "requests": 1, "prompt_tokens": 7, "completion_tokens": 8, "cost_usd": 13e-9}
    assert (
        await list_usage(baobab)
        == await list_usage(baobab, by="day")
        == [{"day": today, **one} for one in (charged_row, own_row)]
    )
    models = await list_usage(baobab, by="model")
    assert [(row["model"], row["byok"], row["cost_usd"]) for row in models] == [
        ("m/one", False, 5e-9),
        ("m/two", False, 18e-9),
        ("m/two", True, 13e-9),
    ]
    both = await list_usage(baobab, by="key,app")
    assert {(row["app_id"], row["key_id"], row["byok"]): row["requests"] for row in both} == {
        (None, "key-1", False): 1,
        (None, "key-1", True): 1,
        (app_id, None, False): 1,
        (app_id, "key-1", False): 1,
    }
    assert [row["cost_usd"] for row in await list_usage(baobab, app_id=app_id)] == [12e-9]
    assert [row["cost_usd"] for row in await list_usage(baobab, key_id="key-1")] == [16e-9, 13e-9]
    over_mcp = (await call_tool(baobab, "billing_usage", {"by": ["key", "app"]}))["structuredContent"]
    assert over_mcp["usage"] == both


async def test_a_call_to_a_model_shows_up_with_its_exact_cost(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    await baobab.chat(MINI, path=f"/v1/{app_id}")
    await baobab.get_settled_balance()
    (row,) = await list_usage(baobab, by="app,model")
    assert (row["app_id"], row["model"], row["cost_usd"]) == (app_id, MINI, MINI_COST / 10**9)


async def test_only_the_days_that_are_asked_for_count(baobab: Installation) -> None:
    await settle_cost(baobab, 5, Usage("m"))
    today = baobab.application.services.clock.now().date()
    for first, last, row_count in ((0, 0, 1), (-40, -1, 0), (-1, 5, 1), (1, 2, 0), (-366, 0, 1)):
        days = {"startDate": str(today + timedelta(first)), "endDate": str(today + timedelta(last))}
        assert len(await list_usage(baobab, **days)) == row_count, days
    body = (await baobab.client.get(USAGE, headers=baobab.owner)).json()
    assert (body["startDate"], body["endDate"]) == (str(today - timedelta(30)), str(today))


async def test_nobody_sees_the_use_of_another_organisation(baobab: Installation) -> None:
    app_id = await baobab.create_app()
    await settle_cost(baobab, 5, Usage("m"), app_id=app_id)
    stranger = await create_person(baobab, "stranger")
    assert await list_usage(baobab, stranger.headers) == await list_usage(baobab, stranger.headers, app_id=app_id) == []


@pytest.mark.parametrize(
    "query",
    [
        {"startDate": "yesterday"},
        {"endDate": "0001-01-01"},
        {"startDate": "2027-02-01", "endDate": "2027-01-01"},
        {"startDate": "2025-01-01", "endDate": "2027-01-01"},
        {"by": "week"},
        {"by": ""},
        {"app_id": "todo"},
        {"meterType": "storage_bytes"},
    ],
)
async def test_what_cannot_be_asked_is_refused(baobab: Installation, query: dict[str, str]) -> None:
    answer = await baobab.client.get(USAGE, params=query, headers=baobab.owner)
    assert answer.status_code == 400
    assert answer.json()["error"]["remediation"]


async def test_more_than_one_answer_holds_is_refused_with_what_to_do(baobab: Installation) -> None:
    await settle_cost(baobab, 1, Usage("m"))
    services = baobab.application.services
    row = {"organisation_id": await get_first_organisation(baobab), "day": services.clock.now().date(), "byok": False}
    counts = {"requests": 1, "prompt_tokens": 1, "completion_tokens": 1, "cost": 1, "app_id": "", "key_id": ""}
    many = [{**row, **counts, "model": f"model-{number}"} for number in range(MOST_ROWS)]
    async with services.database.writing() as connection:
        await connection.execute(insert(credit_usage), many)
    answer = await baobab.client.get(USAGE, params={"by": "model"}, headers=baobab.owner)
    assert (answer.status_code, answer.json()["error"]["details"]) == (400, {"limit": MOST_ROWS})
    assert [row["requests"] for row in await list_usage(baobab, by="day")] == [MOST_ROWS + 1]
