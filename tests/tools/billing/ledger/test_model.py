"""Programs of everything that may happen, several things at once, against a model that does them one by one."""

import asyncio
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import pytest

from baobab.tools.billing.ledger.budgets import BudgetPeriod, BudgetSubject
from baobab.tools.billing.ledger.credits import LATE, REMEMBERED
from baobab.tools.billing.ledger.errors import TopUpConflict
from baobab.tools.billing.ledger.terms import TERMS, Balance
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted, Reservation, UnknownReservation, Usage
from baobab.tools.core.limits.money import USD
from tests.clock import FixedClock
from tests.tools.billing.ledger.conftest import Bank

APPS, KEYS = ("app_1", "app_2"), ("key_1", None)
SUBJECTS: tuple[tuple[BudgetSubject, str, BudgetPeriod], ...] = (
    ("app", "app_1", "day"),
    ("app", "app_2", "month"),
    ("key", "key_1", "month"),
)
DAY = 24 * 3600
Step = tuple[Any, ...]


def generate_steps(chance: random.Random, length: int) -> Iterator[list[Step]]:
    """Groups of steps that are taken at once, and steps that are taken alone."""
    for _ in range(length):
        kind = chance.choices(["together", "pass", "sweep", "floor", "plan", "budget"], [12, 4, 2, 1, 1, 3])[0]
        match kind:
            case "together":
                yield [_random_step(chance) for _ in range(chance.randint(1, 8))]
            case "pass":
                yield [("pass", chance.choice([30, 100, DAY, 20 * DAY]))]
            case "sweep":
                yield [("sweep",)]
            case "floor":
                yield [("floor", -chance.randint(0, 3) * USD)]
            case "plan":
                yield [("plan", chance.choice(["playground", "launch", "launch", "certified", "enterprise"]))]
            case _:
                yield [("budget", chance.choice(SUBJECTS), chance.choice([None, 1, 2, 3, 5, 8]))]


def _random_step(chance: random.Random) -> Step:
    match chance.choices(["reserve", "settle", "release", "top_up"], [6, 5, 2, 1])[0]:
        case "reserve":
            amount = chance.randint(0, 2) * USD
            return "reserve", amount, chance.choice(APPS), chance.choice(KEYS), chance.randint(1, 200)
        case "settle":
            return "settle", chance.randint(0, 8), chance.randint(0, 2) * USD, chance.random() < 0.2
        case "release":
            return "release", chance.randint(0, 8)
        case _:
            return "top_up", chance.randint(1, 3) * USD, chance.randint(0, 8)


@dataclass
class ModelReservation:
    app: str
    key: str | None
    amount: int
    expires: float
    state: str = "open"
    ended_at: float = 0
    charges: list[tuple[date, int]] = field(default_factory=list)


@dataclass
class Model:
    """One organisation, without locks, groups, rows or sums that are kept."""

    clock: FixedClock
    plan: str = "launch"
    floor: int = 0
    credits: int = 0
    allowance_used: int = 0
    once_used: int = 0
    month: date = date.min
    top_ups: dict[int, int] = field(default_factory=dict)
    budgets: dict[tuple[str, str, str], int] = field(default_factory=dict)
    every: list[ModelReservation] = field(default_factory=list)
    usage: dict[tuple[str, bool], list[int]] = field(default_factory=dict)

    @property
    def allowance_left(self) -> int | None:
        terms, month = TERMS[self.plan], self.clock.now().date().replace(day=1)
        if month != self.month:
            self.month, self.allowance_used = month, 0
        used_amount = self.once_used if terms.once else self.allowance_used
        return None if terms.allowance is None else max(0, terms.allowance - used_amount)

    @property
    def balance(self) -> Balance:
        return Balance(self.allowance_left, self.credits, _sum_open(self.every), self.floor)

    def sum_budget(self, subject: str, subject_id: str, period: str) -> tuple[int, int]:
        """What a budget's subject has spent in this period, and has reserved."""
        today = self.clock.now().date()
        since = today if period == "day" else today.replace(day=1)
        mine = [each for each in self.every if subject_id == (each.app if subject == "app" else each.key)]
        return sum(cost for each in mine for day, cost in each.charges if day >= since), _sum_open(mine)

    def reserve(self, amount: int, app: str, key: str | None, ttl: int) -> str:
        available = self.balance.available
        if amount and available is not None and available < amount:
            return "CreditsExhausted"
        for (subject, subject_id, period), most in self.budgets.items():
            if subject_id == (app if subject == "app" else key):
                spent_sum, reserved_sum = self.sum_budget(subject, subject_id, period)
                if amount and spent_sum + reserved_sum + amount > most:
                    return "BudgetExhausted"
        self.every.append(ModelReservation(app, key, amount, self.clock.time() + ttl))
        return "reserved"

    def settle(self, number: int, cost: int, byok: bool) -> str:
        reservation = self.every[number]
        if reservation.state == "settled":
            return "settled"
        if reservation.state == "forgotten":
            return "UnknownReservation"
        reservation.state, reservation.ended_at = "settled", self.clock.time()
        charge = 0 if byok else cost
        allowance_left = self.allowance_left
        from_allowance = charge if allowance_left is None else min(allowance_left, charge)
        if TERMS[self.plan].once:
            self.once_used += from_allowance
        else:
            self.allowance_used += from_allowance
        self.credits -= charge - from_allowance
        reservation.charges.append((self.clock.now().date(), charge))
        counts = self.usage.setdefault((reservation.app, byok), [0, 0])
        counts[0] += 1
        counts[1] += cost
        return "settled"

    def release(self, number: int) -> str:
        reservation = self.every[number]
        if reservation.state == "open":
            reservation.state, reservation.ended_at = "released", self.clock.time()
        return "released"

    def top_up(self, amount: int, reference: int) -> str:
        if reference not in self.top_ups:
            self.top_ups[reference] = amount
            self.credits += amount
        return "topped up" if self.top_ups[reference] == amount else "TopUpConflict"

    def sweep(self) -> None:
        now = self.clock.time()
        for number, reservation in enumerate(self.every):
            if reservation.state == "open" and reservation.expires <= now:
                self.release(number)
            kept_time = {"settled": REMEMBERED, "released": LATE}.get(reservation.state)
            if kept_time is not None and now - reservation.ended_at > kept_time.total_seconds():
                reservation.state = "forgotten"


def _pick_latest(number: int, reservation_count: int) -> int:
    """The index of one of the latest reservations: the older ones have mostly ended."""
    return max(0, reservation_count - 1 - number)


def _sum_open(every: list[ModelReservation]) -> int:
    return sum(each.amount for each in every if each.state == "open")


class ModelRunner:
    def __init__(self, bank: Bank, organisation_id: str) -> None:
        self.bank = bank
        self.ours = organisation_id
        self.model = Model(bank.clock)
        self.reservations: list[Reservation] = []

    async def run(self, steps: Iterator[list[Step]]) -> None:
        for group in steps:
            if group[0][0] in ("reserve", "settle", "release", "top_up"):
                # What is not reserved yet cannot be settled: numbers are of those before this group.
                reservation_count = len(self.reservations)
                possible = [step for step in group if reservation_count or step[0] in ("reserve", "top_up")]
                happened_steps = await asyncio.gather(*[self.run_step(reservation_count, *step) for step in possible])
                assert happened_steps == [self.expected_answer(reservation_count, *step) for step in possible]
            else:
                await self.run_alone(*group[0])
            assert await self.bank.credits.balance(self.ours) == self.model.balance
            for budget in await self.bank.credits.budgets(self.ours):
                subject = (budget.subject, budget.subject_id, budget.period)
                assert (budget.spent_nanos, budget.reserved_nanos) == self.model.sum_budget(*subject)
        await self.compare_usage()

    async def run_step(self, reservation_count: int, what: str, *arguments: Any) -> str:
        credits_ = self.bank.credits
        try:
            match what:
                case "reserve":
                    amount, app, key, ttl = arguments
                    reservation = await self.bank.reserve(self.ours, amount, ttl, app_id=app, key_id=key)
                    self.reservations.append(reservation)
                    return "reserved"
                case "settle":
                    number, cost, byok = arguments
                    usage = Usage("m", 1, 1, byok=byok)
                    await credits_.settle(self.reservations[_pick_latest(number, reservation_count)], cost, usage)
                    return "settled"
                case "release":
                    await credits_.release(self.reservations[_pick_latest(arguments[0], reservation_count)])
                    return "released"
                case _:
                    await credits_.top_up(self.ours, arguments[0], f"payment {arguments[1]}")
                    return "topped up"
        except (BudgetExhausted, CreditsExhausted, TopUpConflict, UnknownReservation) as refusal:
            return type(refusal).__name__

    def expected_answer(self, reservation_count: int, what: str, *arguments: Any) -> str:
        if what in ("settle", "release"):
            arguments = (_pick_latest(arguments[0], reservation_count), *arguments[1:])
        method: Callable[..., str] = getattr(self.model, what)
        return method(*arguments)

    async def run_alone(self, what: str, *arguments: Any) -> None:
        credits_ = self.bank.credits
        match what:
            case "pass":
                self.bank.clock.advance(arguments[0])
            case "sweep":
                await credits_.sweep()
                self.model.sweep()
            case "floor":
                await credits_.set_terms(self.ours, floor=arguments[0])
                self.model.floor = arguments[0]
            case "plan":
                await self.bank.change_plan(self.ours, arguments[0])
                self.model.plan = arguments[0]
            case "budget":
                subject: tuple[BudgetSubject, str, BudgetPeriod] = arguments[0]
                most: int | None = arguments[1]
                if most is None:
                    assert await credits_.delete_budget(self.ours, *subject) == (subject in self.model.budgets)
                    self.model.budgets.pop(subject, None)
                else:
                    await credits_.set_budget(self.ours, *subject, most=most * USD)
                    self.model.budgets[subject] = most * USD

    async def compare_usage(self) -> None:
        rows = await self.bank.credits.usage(self.ours, date(2027, 1, 1), date(2100, 1, 1), by=["app_id"])
        counts = {(row.app_id, row.byok): [row.requests, row.cost] for row in rows}
        assert counts == self.model.usage


@pytest.mark.parametrize("seed", range(6))
async def test_any_program_does_what_the_model_does(bank: Bank, seed: int) -> None:
    ours = await bank.create_organisation()
    await ModelRunner(bank, ours).run(generate_steps(random.Random(seed), 120))
