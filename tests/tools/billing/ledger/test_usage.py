"""Usage: what was settled, by day, app, key and model."""

from datetime import timedelta

from baobab.tools.core.limits.credits import Usage
from tests.tools.billing.ledger.conftest import Bank

APP, OTHER, KEY = "app_000000000001", "app_000000000002", "9a6c0000-0000-0000-0000-000000000001"
MINI, LARGE = "openai/gpt-4o-mini", "anthropic/claude"
DAY = 24 * 3600


async def create_used_bank(bank: Bank) -> str:
    ours = await bank.create_organisation("enterprise")
    await bank.spend(ours, 1, Usage(MINI, 10, 1), app_id=APP, key_id=KEY)
    await bank.spend(ours, 2, Usage(MINI, 20, 2), app_id=OTHER)
    bank.clock.advance(DAY)
    await bank.spend(ours, 4, Usage(MINI, 40, 4, requests=3), app_id=APP)
    await bank.spend(ours, 8, Usage(LARGE, 80, 8), key_id=KEY)
    return ours


async def test_usage_is_summed_by_model_over_a_range_of_days(bank: Bank) -> None:
    ours = await create_used_bank(bank)
    today = bank.clock.now().date()
    yesterday = today - timedelta(days=1)

    async def sums(*days: object, **filters: str) -> list[tuple[object, ...]]:
        rows = await bank.credits.usage(ours, *days, **filters)  # type: ignore[arg-type]
        return [(row.model, row.requests, row.prompt_tokens, row.completion_tokens, row.cost) for row in rows]

    assert await sums(yesterday, today) == [(LARGE, 1, 80, 8, 8), (MINI, 5, 70, 7, 7)]
    assert await sums(yesterday, yesterday) == [(MINI, 2, 30, 3, 3)]
    assert await sums(yesterday, today, app_id=APP) == [(MINI, 4, 50, 5, 5)]
    assert await sums(yesterday, today, key_id=KEY) == [(LARGE, 1, 80, 8, 8), (MINI, 1, 10, 1, 1)]
    assert await sums(today + timedelta(days=1), today + timedelta(days=9)) == []


async def test_usage_is_split_by_the_parts_that_are_asked_for(bank: Bank) -> None:
    ours = await create_used_bank(bank)
    today = bank.clock.now().date()
    yesterday = today - timedelta(days=1)
    by_day = await bank.credits.usage(ours, yesterday, today, by=["day"])
    assert [(row.day, row.model, row.cost) for row in by_day] == [(yesterday, None, 3), (today, None, 12)]
    by_app = await bank.credits.usage(ours, yesterday, today, by=["app_id"])
    assert [(row.app_id, row.requests) for row in by_app] == [("", 1), (APP, 4), (OTHER, 1)]
    (everything,) = await bank.credits.usage(ours, yesterday, today, by=[])
    assert (everything.requests, everything.cost, everything.key_id) == (6, 15, None)


async def test_what_was_released_is_no_usage(bank: Bank) -> None:
    ours, today = await bank.create_organisation(), bank.clock.now().date()
    await bank.credits.release(await bank.reserve(ours, 5, app_id=APP))
    assert await bank.credits.usage(ours, today, today) == []
