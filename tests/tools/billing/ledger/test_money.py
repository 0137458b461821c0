"""Money: what is reserved, settled, given back and topped up."""

import asyncio
from datetime import UTC, datetime

import pytest

from baobab.tools.billing.ledger.credits import LATE, REMEMBERED, Credits
from baobab.tools.billing.ledger.errors import NoCreditAccount, TopUpConflict
from baobab.tools.core.limits.credits import CreditsExhausted, Reservation, UnknownReservation, Usage
from baobab.tools.core.limits.money import MOST, USD
from tests.tools.billing.ledger.conftest import USAGE, Bank

MONTH = 31 * 24 * 3600


async def test_an_organisation_begins_with_the_allowance_of_its_plan(bank: Bank) -> None:
    for plan, expected_usd in (("playground", 1), ("launch", 5), ("certified", 15)):
        assert await bank.get_available(await bank.create_organisation(plan)) == expected_usd * USD


async def test_a_reservation_sets_aside_and_its_settlement_gives_back_the_rest(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 3 * USD)
    assert await bank.get_available(ours) == 2 * USD
    await bank.credits.settle(reservation, 1, USAGE)
    balance = await bank.credits.balance(ours)
    assert (balance.available, balance.reserved_nanos) == (5 * USD - 1, 0)


async def test_what_does_not_fit_is_refused_and_the_answer_says_what_there_is(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.top_up(ours, 2 * USD, "payment 1")
    await bank.reserve(ours, 6 * USD)
    with pytest.raises(CreditsExhausted) as refusal:
        await bank.reserve(ours, 1 * USD + 1)
    assert (refusal.value.status, refusal.value.code) == (402, "INSUFFICIENT_CREDITS")
    assert refusal.value.details == {
        "exhausted": "credits",
        "reason": "set_aside",
        "required_usd": 1.000000001,
        "balance_usd": 7.0,
        "credit_floor_usd": 0.0,
        "available_usd": 1.0,
        "monthly_allowance_usd": 5.0,
        "credits_usd": 2.0,
        "reserved_usd": 6.0,
        "auto_refill_enabled": False,
        "auto_refill_amount_usd": None,
        "auto_refill_last_failure": None,
    }
    await bank.reserve(ours, 1 * USD)


async def test_the_allowance_is_used_before_what_was_topped_up(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.top_up(ours, 10 * USD, "payment 1")
    await bank.spend(ours, 4 * USD)
    balance = await bank.credits.balance(ours)
    assert (balance.allowance, balance.credits) == (1 * USD, 10 * USD)
    await bank.spend(ours, 4 * USD)
    balance = await bank.credits.balance(ours)
    assert (balance.allowance, balance.credits) == (0, 7 * USD)


async def test_what_was_used_beyond_the_floor_is_owed(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.settle(await bank.reserve(ours, 1), 8 * USD, USAGE)
    assert await bank.get_available(ours) == -3 * USD
    with pytest.raises(CreditsExhausted) as refusal:
        await bank.reserve(ours, 1)
    assert refusal.value.details["available_usd"] == 0.0
    assert (await bank.credits.top_up(ours, 4 * USD, "payment 1")).available == 1 * USD


async def test_extended_credit_may_be_used_down_to_its_floor(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.set_terms(ours, floor=-10 * USD)
    await bank.spend(ours, 15 * USD)
    with pytest.raises(CreditsExhausted) as refusal:
        await bank.reserve(ours, 1)
    assert refusal.value.details["credit_floor_usd"] == -10.0
    assert refusal.value.details["balance_usd"] == -10.0


async def test_terms_of_its_own_go_before_those_of_the_plan(bank: Bank) -> None:
    ours = await bank.create_organisation("enterprise")
    assert await bank.get_available(ours) is None
    await bank.credits.set_terms(ours, allowance=100 * USD)
    assert await bank.get_available(ours) == 100 * USD
    await bank.credits.set_terms(ours)
    await bank.spend(ours, 1000 * USD)
    assert await bank.get_available(ours) is None


async def test_the_allowance_begins_anew_with_the_month_and_is_not_carried_over(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.top_up(ours, 1 * USD, "payment 1")
    await bank.spend(ours, 2 * USD)
    until = datetime(2027, 2, 1, tzinfo=UTC).timestamp()
    bank.clock.advance(until - bank.clock.time() - 1)
    assert await bank.get_available(ours) == 4 * USD
    bank.clock.advance(1)
    assert await bank.get_available(ours) == 6 * USD
    await bank.spend(ours, 5 * USD)
    assert await bank.get_available(ours) == 1 * USD


async def test_a_reservation_of_one_month_is_charged_to_the_month_that_settles_it(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 5 * USD)
    bank.clock.advance(MONTH)
    assert await bank.get_available(ours) == 0
    await bank.credits.settle(reservation, 2 * USD, USAGE)
    assert await bank.get_available(ours) == 3 * USD


async def test_an_allowance_that_is_given_once_does_not_come_again(bank: Bank) -> None:
    ours = await bank.create_organisation("playground")
    await bank.spend(ours, 1 * USD)
    bank.clock.advance(MONTH)
    assert await bank.get_available(ours) == 0
    await bank.change_plan(ours, "launch")
    await bank.spend(ours, 2 * USD)
    await bank.change_plan(ours, "playground")
    assert await bank.get_available(ours) == 0
    await bank.change_plan(ours, "launch")
    assert await bank.get_available(ours) == 3 * USD


async def test_a_clock_that_is_behind_does_not_bring_the_last_month_back(bank: Bank) -> None:
    ours = await bank.create_organisation()
    bank.clock.advance(MONTH)
    await bank.spend(ours, 2 * USD)
    bank.clock.advance(-MONTH)
    await bank.spend(ours, 1 * USD)
    bank.clock.advance(MONTH)
    assert await bank.get_available(ours) == 2 * USD


async def test_to_settle_twice_is_to_settle_once(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 2 * USD)
    await asyncio.gather(*[bank.credits.settle(reservation, cost * USD, USAGE) for cost in (1, 2, 3)])
    await bank.credits.settle(reservation, 2 * USD, USAGE)
    await bank.credits.release(reservation)
    assert await bank.get_available(ours) == 4 * USD
    (usage,) = await bank.credits.usage(ours, bank.clock.now().date(), bank.clock.now().date())
    assert (usage.requests, usage.cost) == (1, 1 * USD)


async def test_a_released_reservation_charges_nothing(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 2 * USD)
    await bank.credits.release(reservation)
    await bank.credits.release(reservation)
    assert await bank.get_available(ours) == 5 * USD


async def test_the_sweeper_gives_back_what_is_past_its_time_and_nothing_else(bank: Bank) -> None:
    ours = await bank.create_organisation()
    short, long = await bank.reserve(ours, 1 * USD, ttl_seconds=60), await bank.reserve(ours, 2 * USD, ttl_seconds=61)
    assert await bank.credits.sweep() == 0
    bank.clock.advance(60)
    assert await bank.credits.sweep() == 1
    assert await bank.get_available(ours) == 3 * USD
    assert await bank.credits.sweep() == 0
    await bank.credits.release(long)
    await bank.credits.release(short)
    assert await bank.get_available(ours) == 5 * USD


async def test_what_is_settled_after_the_sweeper_came_is_charged_exactly_once(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 1 * USD)
    bank.clock.advance(61)
    await bank.credits.sweep()
    for _ in range(2):
        await bank.credits.settle(reservation, 2 * USD, USAGE)
        await bank.credits.sweep()
    balance = await bank.credits.balance(ours)
    assert (balance.available, balance.reserved_nanos) == (3 * USD, 0)


async def test_old_reservations_are_forgotten_but_those_that_may_still_be_settled(bank: Bank) -> None:
    ours = await bank.create_organisation()
    settled_reservation, late = await bank.reserve(ours, 1), await bank.reserve(ours, 1)
    await bank.credits.settle(settled_reservation, 1, USAGE)
    await bank.credits.release(late)
    bank.clock.advance(REMEMBERED.total_seconds() + 1)
    await bank.credits.sweep()
    with pytest.raises(UnknownReservation):
        await bank.credits.settle(settled_reservation, 1, USAGE)
    await bank.credits.settle(late, 1, USAGE)
    never = await bank.reserve(ours, 1)
    await bank.credits.release(never)
    bank.clock.advance(LATE.total_seconds() + 1)
    await bank.credits.sweep()
    with pytest.raises(UnknownReservation):
        await bank.credits.settle(never, 1, USAGE)


async def test_a_top_up_counts_once_for_its_reference(bank: Bank) -> None:
    ours, theirs = await bank.create_organisation(), await bank.create_organisation()
    every = await asyncio.gather(*[bank.credits.top_up(ours, 3 * USD, "payment 1") for _ in range(5)])
    assert {balance.credits for balance in every} == {3 * USD}
    assert (await bank.credits.top_up(ours, 3 * USD, "payment 1")).credits == 3 * USD
    assert (await bank.credits.top_up(theirs, 2 * USD, "payment 1")).credits == 2 * USD
    with pytest.raises(TopUpConflict):
        await bank.credits.top_up(ours, 4 * USD, "payment 1")
    assert (await bank.credits.balance(ours)).credits == 3 * USD


async def test_what_costs_nothing_is_never_refused(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.credits.settle(await bank.reserve(ours, 1), 50 * USD, USAGE)
    await bank.credits.settle(await bank.reserve(ours, 0), 0, USAGE)
    assert await bank.get_available(ours) == -45 * USD


async def test_a_customers_own_key_is_counted_and_not_charged(bank: Bank) -> None:
    ours, today = await bank.create_organisation(), bank.clock.now().date()
    own = Usage("openai/gpt-4o-mini", 100, 50, byok=True)
    await bank.credits.settle(await bank.reserve(ours, 1 * USD), 2 * USD, own)
    assert await bank.get_available(ours) == 5 * USD
    (usage,) = await bank.credits.usage(ours, today, today)
    assert (usage.byok, usage.cost, usage.prompt_tokens, usage.completion_tokens) == (True, 2 * USD, 100, 50)


async def test_organisations_do_not_touch_each_other(bank: Bank) -> None:
    ours, theirs = await bank.create_organisation(), await bank.create_organisation()
    reservation = await bank.reserve(ours, 5 * USD)
    foreign = Reservation(reservation.id, theirs, reservation.amount)
    await bank.credits.release(foreign)
    with pytest.raises(UnknownReservation):
        await bank.credits.settle(foreign, 1, USAGE)
    assert await bank.get_available(ours) == 0
    assert await bank.get_available(theirs) == 5 * USD


async def test_an_unknown_organisation_has_no_account(bank: Bank) -> None:
    nobody = "00000000-0000-0000-0000-000000000000"
    for call in (
        bank.reserve(nobody, 1),
        bank.credits.balance(nobody),
        bank.credits.top_up(nobody, 1, "payment 1"),
        bank.credits.set_terms(nobody, floor=0),
        bank.credits.set_budget(nobody, "app", "app_000000000001", "day", 1),
    ):
        with pytest.raises(NoCreditAccount):
            await call
    await bank.credits.release(Reservation("00000000-0000-0000-0000-000000000001", nobody, 1))


async def test_what_is_no_amount_is_refused_before_it_hurts_others(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 1)
    for wrong in (
        bank.reserve(ours, -1),
        bank.reserve(ours, MOST + 1),
        bank.reserve(ours, 1, ttl_seconds=0),
        bank.reserve(ours, 1, app_id="a" * 37),
        bank.reserve(ours, 1, key_id="\0"),
        bank.credits.settle(reservation, -1, USAGE),
        bank.credits.top_up(ours, 0, "payment 1"),
        bank.credits.top_up(ours, 1, "p" * 201),
        bank.credits.set_terms(ours, floor=1),
        bank.credits.set_budget(ours, "key", "k", "day", -1),
    ):
        with pytest.raises(ValueError, match=r"amount|characters|top-up|lasts"):
            await wrong
    for model, tokens in (("", 1), ("m" * 201, 1), ("\0", 1), ("m", -1), ("m", 10**13)):
        with pytest.raises(ValueError, match=r"model|counts"):
            Usage(model, tokens)


async def test_what_a_caller_who_left_had_reserved_comes_back(bank: Bank) -> None:
    ours = await bank.create_organisation()
    leaving = [asyncio.create_task(bank.reserve(ours, 1 * USD)) for _ in range(3)]
    # Their transaction is under way.
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for task in leaving:
        task.cancel()
    await asyncio.wait(leaving)
    await bank.credits.release(await bank.reserve(ours, 1))
    await bank.credits.close()
    assert await bank.get_available(ours) == 5 * USD
    await bank.check_sums(ours)


async def test_what_was_reserved_in_the_moment_in_which_its_caller_leaves_comes_back(bank: Bank) -> None:
    ours = await bank.create_organisation()
    # In whichever turn of the loop it is: before the transaction, in it, and when the outcome is there, but not heard.
    for turns in range(12):
        # Nothing else is under way.
        await bank.credits.release(await bank.reserve(ours, 1))
        leaving = asyncio.create_task(bank.reserve(ours, USD // 10))
        for _ in range(turns):
            await asyncio.sleep(0)
        leaving.cancel()
        await asyncio.wait([leaving])
        if not leaving.cancelled():
            await bank.credits.release(leaving.result())
    await bank.credits.release(await bank.reserve(ours, 1))
    await bank.credits.close()
    assert await bank.get_available(ours) == 5 * USD
    await bank.check_sums(ours)


async def test_credits_work_on_after_another_has_closed_theirs(bank: Bank) -> None:
    ours = await bank.create_organisation()
    other = Credits(bank.database, bank.clock, bank.credits._ids)
    reservation = await other.reserve(ours, 2 * USD, purpose="chat", ttl_seconds=60)
    await other.close()
    await bank.credits.settle(reservation, 1 * USD, USAGE)
    assert await bank.get_available(ours) == 4 * USD
