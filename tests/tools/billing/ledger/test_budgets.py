"""Budgets of apps and keys, by day and by month in UTC."""

from datetime import UTC, datetime

import pytest

from baobab.tools.core.limits.credits import BudgetExhausted, Spender, Usage
from baobab.tools.core.limits.money import USD
from tests.tools.billing.ledger.conftest import USAGE, Bank

APP, OTHER, KEY = "app_000000000001", "app_000000000002", "9a6c0000-0000-0000-0000-000000000001"
DAY = 24 * 3600


async def test_a_budget_refuses_what_would_pass_it_and_names_itself(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.set_budget(ours, "app", APP, "day", 2 * USD)
    await bank.spend(ours, 1 * USD, app_id=APP)
    await bank.reserve(ours, USD // 2, app_id=APP)
    with pytest.raises(BudgetExhausted) as refusal:
        await bank.reserve(ours, USD // 2 + 1, app_id=APP)
    assert (refusal.value.status, refusal.value.code) == (402, "BUDGET_EXHAUSTED")
    assert refusal.value.details == {
        "exhausted": "budget",
        "reason": "set_aside",
        "required_usd": 0.500000001,
        "budget": {
            "subject": "app",
            "subject_id": APP,
            "period": "day",
            "limit_usd": 2.0,
            "spent_usd": 1.0,
            "reserved_usd": 0.5,
            "resets_at": "2027-01-16T00:00:00+00:00",
        },
    }
    await bank.reserve(ours, USD // 2, app_id=APP)
    await bank.check_sums(ours)


async def test_every_budget_that_a_call_counts_against_must_allow_it(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.set_budget(ours, "app", APP, "month", 3 * USD)
    await bank.credits.set_budget(ours, "key", KEY, "day", 1 * USD)
    await bank.spend(ours, 1 * USD, app_id=APP, key_id=KEY)
    with pytest.raises(BudgetExhausted) as refusal:
        await bank.reserve(ours, 1, app_id=APP, key_id=KEY)
    budget = refusal.value.details["budget"]
    assert (budget["subject"], budget["period"]) == ("key", "day")
    await bank.spend(ours, 2 * USD, app_id=APP)
    with pytest.raises(BudgetExhausted) as refusal:
        await bank.reserve(ours, 1, app_id=APP)
    assert refusal.value.budget.subject == "app"
    await bank.reserve(ours, 1 * USD, app_id=OTHER)
    await bank.check_sums(ours)


@pytest.mark.parametrize(
    ("period", "last"),
    [("day", datetime(2027, 1, 15, 23, 59, 59, tzinfo=UTC)), ("month", datetime(2027, 1, 31, 23, 59, 59, tzinfo=UTC))],
)
async def test_a_budget_begins_anew_with_its_period(bank: Bank, period: str, last: datetime) -> None:
    ours = await bank.create_organisation("certified")
    await bank.credits.set_budget(ours, "app", APP, period, 1 * USD)  # type: ignore[arg-type]
    await bank.spend(ours, 1 * USD, app_id=APP)
    bank.clock.advance(last.timestamp() - bank.clock.time())
    with pytest.raises(BudgetExhausted):
        await bank.reserve(ours, 1, app_id=APP)
    bank.clock.advance(1)
    (budget,) = await bank.credits.budgets(ours)
    assert (budget.spent_nanos, budget.since) == (0, bank.clock.now().date())
    await bank.spend(ours, 1 * USD, app_id=APP)
    with pytest.raises(BudgetExhausted):
        await bank.reserve(ours, 1, app_id=APP)


async def test_a_new_budget_counts_what_this_period_has_spent_already_and_what_is_reserved(bank: Bank) -> None:
    ours = await bank.create_organisation("enterprise")
    await bank.spend(ours, 1 * USD, app_id=APP, key_id=KEY)
    bank.clock.advance(DAY)
    await bank.spend(ours, 2 * USD, app_id=APP)
    await bank.spend(ours, 4 * USD, app_id=OTHER)
    await bank.reserve(ours, 8 * USD, app_id=APP)
    day = await bank.credits.set_budget(ours, "app", APP, "day", 20 * USD)
    month = await bank.credits.set_budget(ours, "app", APP, "month", 20 * USD)
    assert (day.spent_nanos, day.reserved_nanos) == (2 * USD, 8 * USD)
    assert (month.spent_nanos, month.reserved_nanos) == (3 * USD, 8 * USD)
    assert (await bank.credits.set_budget(ours, "key", KEY, "month", 0)).spent_nanos == 1 * USD


async def test_a_budget_that_is_changed_keeps_what_was_spent_and_a_deleted_one_bounds_nothing(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.set_budget(ours, "app", APP, "day", 1 * USD)
    open_one = await bank.reserve(ours, 1 * USD, app_id=APP)
    await bank.credits.set_budget(ours, "app", APP, "day", 2 * USD)
    await bank.credits.settle(open_one, 1 * USD, USAGE)
    (budget,) = await bank.credits.budgets(ours, "app", APP)
    assert (budget.most, budget.spent_nanos, budget.reserved_nanos) == (2 * USD, 1 * USD, 0)
    assert await bank.credits.delete_budget(ours, "app", APP, "day")
    assert not await bank.credits.delete_budget(ours, "app", APP, "day")
    await bank.spend(ours, 4 * USD, app_id=APP)
    assert await bank.credits.budgets(ours) == []


async def test_a_customers_own_key_spends_no_budget(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.set_budget(ours, "app", APP, "day", 0)
    own = Usage("openai/gpt-4o-mini", 1, 1, byok=True)
    await bank.credits.settle(await bank.reserve(ours, 0, app_id=APP), 1 * USD, own)
    assert (await bank.credits.set_budget(ours, "app", APP, "day", 0)).spent_nanos == 0
    await bank.check_sums(ours)


async def test_a_settlement_beyond_the_budget_is_counted_in_full(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.set_budget(ours, "key", KEY, "day", 1 * USD)
    reservation = await bank.reserve(ours, 1, key_id=KEY)
    bank.clock.advance(3600)
    await bank.credits.sweep()
    await bank.credits.settle(reservation, 3 * USD, USAGE)
    (budget,) = await bank.credits.budgets(ours, "key")
    assert (budget.spent_nanos, budget.reserved_nanos) == (3 * USD, 0)
    await bank.check_sums(ours)


def _build_spender(run: str, *agents: tuple[str, int | None]) -> Spender:
    return Spender(run, agents)


async def test_runs_spend_the_budgets_of_all_agents_that_they_are_for(bank: Bank) -> None:
    ours = await bank.create_organisation()
    inner, both = _build_spender("run-1", ("inner", None)), _build_spender("run-2", ("inner", None), ("outer", 2 * USD))
    await bank.spend(ours, 1 * USD, spender=inner)
    reservation = await bank.reserve(ours, 1 * USD, spender=both)
    with pytest.raises(BudgetExhausted) as refusal:
        await bank.reserve(ours, 1 * USD + 1, spender=both)
    refused_budget = refusal.value.details["budget"]
    assert (refused_budget["subject"], refused_budget["subject_id"]) == ("agent", "outer")
    # An agent that was not bounded has spent all the same, and another bound is in force at once.
    with pytest.raises(BudgetExhausted):
        await bank.reserve(ours, 1, spender=_build_spender("run-3", ("inner", 2 * USD)))
    await bank.check_sums(ours)
    await bank.credits.settle(reservation, USD // 2, USAGE)
    for agent, spent_nanos in (("inner", 3 * USD // 2), ("outer", USD // 2)):
        budget = await bank.credits.agent_budget(ours, agent)
        assert budget is not None
        assert (budget.spent_nanos, budget.reserved_nanos) == (spent_nanos, 0)
    assert [await bank.credits.run_cost(run) for run in ("run-1", "run-2", "run-3")] == [1 * USD, USD // 2, 0]
    # They are the agents' own affair, and in no list of what an organisation has set.
    assert await bank.credits.budgets(ours) == []
    await bank.check_sums(ours)


async def test_what_runs_have_cost_is_known_for_a_month_and_idle_agents_leave_no_budget(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.spend(ours, 1 * USD, spender=_build_spender("run", ("agent", 1 * USD)))
    bank.clock.advance(DAY)
    # A new day.
    await bank.spend(ours, 1 * USD, spender=_build_spender("run", ("agent", 1 * USD)))
    bank.clock.advance(5 * DAY)
    await bank.credits.sweep()
    assert await bank.credits.agent_budget(ours, "agent") is None
    assert await bank.credits.run_cost("run") == 2 * USD
    bank.clock.advance(40 * DAY)
    await bank.credits.sweep()
    assert await bank.credits.run_cost("run") == 0
