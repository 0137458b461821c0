"""What an app's calls have used: by model, in dollars, between two days."""

from datetime import timedelta

import pytest

from tests.tools.ai.conftest import MINI, Installation

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_use_is_summed_by_model(world: Installation) -> None:
    app_id, other = await world.create_app(), await world.create_app()
    for model in (MINI, MINI, "baobab/echo"):
        await world.chat(model, path=f"/v1/{app_id}")
    await world.chat(MINI, path=f"/v1/{other}")
    await world.chat(MINI)
    body = {"input": ["one", "two"], "model": "text-embedding-3-small"}
    await world.client.post(f"/v1/{app_id}/embeddings", json=body, headers=world.owner)
    await world.get_settled_balance()
    usage = (await world.client.get(f"/v1/{app_id}/ai/usage", headers=world.owner)).json()
    mini, small = usage["byModel"][MINI], usage["byModel"]["openai/text-embedding-3-small"]
    assert mini == {"tokens": 36, "cost": pytest.approx(2 * 5850 / 10**9), "requests": 2}
    assert small == {"tokens": 22, "cost": pytest.approx(22 * 20 / 10**9), "requests": 1}
    assert usage["byModel"]["baobab/echo"]["cost"] == 0
    assert usage["totalRequests"] == 4
    assert usage["totalCost"] == pytest.approx((2 * 5850 + 22 * 20) / 10**9)
    assert usage["totalTokens"] == sum(model["tokens"] for model in usage["byModel"].values())


async def test_only_the_days_that_are_asked_for_count(world: Installation) -> None:
    app_id = await world.create_app()
    await world.chat(path=f"/v1/{app_id}")
    await world.get_settled_balance()
    today = world.application.services.clock.now().date()
    for first, last, requests in ((0, 0, 1), (-40, -1, 0), (-1, 5, 1), (1, 2, 0)):
        days = {"startDate": str(today + timedelta(first)), "endDate": str(today + timedelta(last))}
        usage = await world.client.get(f"/v1/{app_id}/ai/usage", params=days, headers=world.owner)
        assert usage.json()["totalRequests"] == requests, days


@pytest.mark.parametrize(
    "days",
    [{"startDate": "yesterday"}, {"endDate": "0001-01-01"}, {"startDate": "2027-02-01", "endDate": "2027-01-01"}],
)
async def test_days_that_are_none_are_refused(world: Installation, days: dict[str, str]) -> None:
    app_id = await world.create_app()
    answer = await world.client.get(f"/v1/{app_id}/ai/usage", params=days, headers=world.owner)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
