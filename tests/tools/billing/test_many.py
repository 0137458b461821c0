"""Budgets when many call at once, and when their day or month ends."""

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.backends import release_data
from tests.clock import FixedClock
from tests.conftest import Baobab
from tests.installation import open_installation
from tests.people import get_first_organisation
from tests.runtime.gateway.upstream import Upstream, start_upstream
from tests.servers import TIMEOUT_SECONDS
from tests.tools.ai.conftest import HELLO, MINI, VENDOR_KEY, Installation
from tests.tools.ai.test_metering import start_gate
from tests.tools.billing.test_budgets import BUDGETS, create_gateway_key, list_budgets, put_budget

CALLS = 96
FITTING = 7
ANSWER, FEW = 1000, 100
SET_ASIDE = ANSWER * 600 + 4800
"""What a call may cost, in nano-dollars: its answer's tokens, and 32 of the prompt at the most."""
COST = 11 * 150 + 7 * 600
NANOS = 10**9


@pytest.fixture
def settings() -> dict[str, str]:
    return {"BAOBAB_PLAN": "enterprise"}


@pytest.mark.parametrize("period", ["day", "month"])
@pytest.mark.parametrize("subject", ["app", "key"])
async def test_of_many_at_once_those_pass_who_fit_into_the_budget_and_no_provider_hears_of_others(
    baobab: Installation, subject: str, period: str
) -> None:
    app_id = await baobab.create_app()
    key_id, agent = await create_gateway_key(baobab)
    mine: Any = {"path": f"/v1/{app_id}"} if subject == "app" else {"by": agent}
    place = f"{subject}/{app_id if subject == 'app' else key_id}/{period}"
    limit = FITTING * SET_ASIDE
    await put_budget(baobab, place, f"0.{limit:09d}")
    async with start_gate() as (gate_event, requests, url):
        model = baobab.add_model("gate", server="gate", url=url)
        calls = [asyncio.create_task(baobab.chat(model, max_tokens=ANSWER, **mine)) for _ in range(CALLS)]
        refusals = []
        async with asyncio.timeout(TIMEOUT_SECONDS):
            for finished_call in asyncio.as_completed(calls):
                refusals.append(await finished_call)
                if len(refusals) == CALLS - FITTING:
                    # The others wait for their answers.
                    break
        (budget,) = await list_budgets(baobab)
        assert 0 < budget["reserved_usd"] <= budget["limit_usd"]
        gate_event.set()
        answers = await asyncio.gather(*calls)
    assert {answer.status_code for answer in refusals} == {402}
    assert {answer.json()["error"]["budget"]["period"] for answer in refusals} == {period}
    assert [answer.status_code for answer in answers].count(200) == FITTING == len(requests)
    await baobab.get_settled_balance()
    (budget,) = await list_budgets(baobab)
    assert (budget["spent_usd"], budget["reserved_usd"]) == (FITTING * COST / NANOS, 0)


async def test_calls_one_after_the_other_spend_all_of_a_budget_and_no_more(baobab: Installation) -> None:
    key_id, agent = await create_gateway_key(baobab)
    # So many at once, as often as any of them still fits. A day may end in between.
    limit = 4 * (FEW * 600 + 4800)
    await put_budget(baobab, f"key/{key_id}/month", f"0.{limit:09d}")
    answered_count = 0
    while True:
        answers = await asyncio.gather(*[baobab.chat(by=agent, max_tokens=FEW) for _ in range(CALLS)])
        now = [answer.status_code for answer in answers].count(200)
        answered_count += now
        await baobab.get_settled_balance()
        (budget,) = await list_budgets(baobab)
        assert budget["spent_usd"] == answered_count * COST / NANOS <= budget["limit_usd"]
        if now == 0:
            break
    assert len(baobab.fake.requests) == answered_count


@pytest.fixture
async def fake() -> AsyncIterator[Upstream]:
    async with start_upstream() as upstream:
        yield upstream


@pytest.fixture
async def month_end(tmp_path: Path, fake: Upstream) -> AsyncIterator[tuple[Baobab, FixedClock]]:
    """An installation in the last second of a month, UTC."""
    clock = FixedClock(datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC).timestamp())
    environment = {"OPENAI_API_KEY": VENDOR_KEY, "OPENAI_BASE_URL": f"{fake.url}/v1"}
    parts = {"clock": clock, "environment": environment}
    async with open_installation(tmp_path / "data", {"BAOBAB_AI_PROBE": "false"}, **parts) as installation:
        yield installation, clock
    release_data(tmp_path / "data")


@pytest.mark.parametrize("period", ["day", "month"])
async def test_a_budget_begins_anew_at_midnight_in_utc(
    month_end: tuple[Baobab, FixedClock], fake: Upstream, period: str
) -> None:
    baobab, clock = month_end
    app_id = await baobab.create_app()
    place: dict[str, Any] = {"json": {"most_usd": f"0.{SET_ASIDE:09d}"}, "headers": baobab.owner}
    response = await baobab.client.put(f"{BUDGETS}/app/{app_id}/{period}", **place)
    assert response.json()["budget"]["resets_at"] == "2027-02-01T00:00:00Z"

    async def call() -> int:
        body = {"model": MINI, "messages": HELLO, "max_tokens": ANSWER}
        return (await baobab.client.post(f"/v1/{app_id}/chat/completions", json=body, headers=baobab.owner)).status_code

    async def budget() -> Any:
        answer = await baobab.client.get(BUDGETS, headers=baobab.owner)
        return answer.json()["budgets"][0]

    assert [await call(), await call()] == [200, 402]
    clock.advance(0.999)
    assert await call() == 402
    clock.advance(0.001)
    assert (await budget())["spent_usd"] == 0
    assert await call() == 200
    assert (await budget())["spent_usd"] == COST / NANOS
    assert await call() == 402
    assert len(fake.requests) == 2
    today = clock.now().date()
    (usage,) = await baobab.application.services.credits.usage(await get_first_organisation(baobab), today, today)
    assert usage.cost == COST
