"""Programs of everything that may happen, several things at once, against a model that does them one by one."""

import asyncio
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from baobab.storage.clock import Ids
from baobab.storage.databases import database_at
from baobab.tools.credit_errors import BudgetExhausted, CreditsExhausted, TopUpConflict
from baobab.tools.credit_terms import TERMS, USD
from baobab.tools.credit_usage import Usage
from baobab.tools.credits import Credits, Reservation
from tests.clock import FixedClock
from tests.columns import address, end
from tests.tools.credits.conftest import Bank

APPS, KEYS = ("app_1", "app_2"), ("key_1", None)
SUBJECTS = (("app", "app_1", "day"), ("app", "app_2", "month"), ("key", "key_1", "month"))
dollars = st.integers(0, 4).map(lambda number: number * USD)
numbers = st.integers(0, 30)

together = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), dollars, st.sampled_from(APPS), st.sampled_from(KEYS), st.integers(1, 200)),
        st.tuples(st.just("settle"), numbers, dollars, st.booleans()),
        st.tuples(st.just("release"), numbers),
        st.tuples(st.just("top_up"), st.integers(1, 3).map(lambda number: number * USD), st.integers(0, 5)),
    ),
    min_size=1,
    max_size=8,
)
alone = st.one_of(
    st.tuples(st.just("pass"), st.sampled_from([30, 100, 24 * 3600, 20 * 24 * 3600])),
    st.tuples(st.just("sweep")),
    st.tuples(st.just("floor"), st.integers(0, 3).map(lambda number: -number * USD)),
    st.tuples(st.just("plan"), st.sampled_from(sorted(TERMS))),
    st.tuples(st.just("budget"), st.sampled_from(SUBJECTS), st.none() | dollars),
)
Step = tuple[Any, ...]
programs = st.lists(together | alone.map(lambda step: [step]), max_size=12)


@dataclass
class Spent:
    app: str
    key: str | None
    amount: int
    expires: float
    state: str = "open"
    charged: list[tuple[date, int]] = field(default_factory=list)


@dataclass
class Model:
    """One organisation, without locks, groups, rows or sums that are kept."""

    clock: FixedClock
    plan: str = "launch"
    floor: int = 0
    credits: int = 0
    used: int = 0
    once_used: int = 0
    month: date = date.min
    top_ups: dict[int, int] = field(default_factory=dict)
    budgets: dict[tuple[str, str, str], int] = field(default_factory=dict)
    every: list[Spent] = field(default_factory=list)
    usage: dict[tuple[str, bool], list[int]] = field(default_factory=dict)

    @property
    def left(self) -> int | None:
        terms, month = TERMS[self.plan], self.clock.now().date().replace(day=1)
        if month != self.month:
            self.month, self.used = month, 0
        used = self.once_used if terms.once else self.used
        return None if terms.allowance is None else max(0, terms.allowance - used)

    @property
    def available(self) -> int | None:
        left = self.left
        open_ones = sum(spent.amount for spent in self.every if spent.state == "open")
        return None if left is None else left + self.credits - self.floor - open_ones

    def reserve(self, amount: int, app: str, key: str | None, ttl: int) -> str:
        if amount and self.available is not None and self.available < amount:
            return "CreditsExhausted"
        if amount and any(self._passes(*budget, most, amount, app, key) for budget, most in self.budgets.items()):
            return "BudgetExhausted"
        self.every.append(Spent(app, key, amount, self.clock.time() + ttl))
        return "reserved"

    def _passes(
        self, subject: str, subject_id: str, period: str, most: int, amount: int, app: str, key: str | None
    ) -> bool:
        if subject_id != (app if subject == "app" else key):
            return False
        today = self.clock.now().date()
        since = today if period == "day" else today.replace(day=1)
        mine = [spent for spent in self.every if subject_id == (spent.app if subject == "app" else spent.key)]
        open_ones = sum(spent.amount for spent in mine if spent.state == "open")
        charged = sum(cost for spent in mine for day, cost in spent.charged if day >= since)
        return charged + open_ones + amount > most

    def settle(self, number: int, cost: int, byok: bool) -> str:
        spent = self.every[number]
        if spent.state == "settled":
            return "settled"
        spent.state = "settled"
        charged = 0 if byok else cost
        left = self.left
        allowed = charged if left is None else min(left, charged)
        if TERMS[self.plan].once:
            self.once_used += allowed
        else:
            self.used += allowed
        self.credits -= charged - allowed
        spent.charged.append((self.clock.now().date(), charged))
        counts = self.usage.setdefault((spent.app, byok), [0, 0])
        counts[0] += 1
        counts[1] += cost
        return "settled"

    def release(self, number: int) -> str:
        if self.every[number].state == "open":
            self.every[number].state = "released"
        return "released"

    def top_up(self, amount: int, reference: int) -> str:
        if reference not in self.top_ups:
            self.top_ups[reference] = amount
            self.credits += amount
        return "topped up" if self.top_ups[reference] == amount else "TopUpConflict"

    def sweep(self) -> None:
        for spent in self.every:
            if spent.state == "open" and spent.expires <= self.clock.time():
                spent.state = "released"


class Program:
    def __init__(self, bank: Bank, organisation_id: str) -> None:
        self.bank = bank
        self.ours = organisation_id
        self.model = Model(bank.clock)
        self.reservations: list[Reservation] = []

    async def run(self, steps: list[list[Step]]) -> None:
        for group in steps:
            if group[0][0] in ("reserve", "settle", "release", "top_up"):
                # What is not reserved yet cannot be settled: numbers are of those before this group.
                known = len(self.reservations)
                possible = [step for step in group if known or step[0] in ("reserve", "top_up")]
                happened = await asyncio.gather(*[self.do(known, *step) for step in possible])
                assert happened == [self.expected(known, *step) for step in possible]
            else:
                await self.alone(*group[0])
            assert await self.bank.available(self.ours) == self.model.available
        await self.compare_usage()

    async def do(self, known: int, what: str, *given: Any) -> str:
        credits_ = self.bank.credits
        try:
            match what:
                case "reserve":
                    amount, app, key, ttl = given
                    made = await self.bank.reserve(self.ours, amount, ttl, app_id=app, key_id=key)
                    self.reservations.append(made)
                    return "reserved"
                case "settle":
                    number, cost, byok = given
                    usage = Usage("m", 1, 1, byok=byok)
                    await credits_.settle(self.reservations[number % known], cost, usage)
                    return "settled"
                case "release":
                    await credits_.release(self.reservations[given[0] % known])
                    return "released"
                case _:
                    await credits_.top_up(self.ours, given[0], f"payment {given[1]}")
                    return "topped up"
        except (BudgetExhausted, CreditsExhausted, TopUpConflict) as refused:
            return type(refused).__name__

    def expected(self, known: int, what: str, *given: Any) -> str:
        if what in ("settle", "release"):
            given = (given[0] % known, *given[1:])
        done: Callable[..., str] = getattr(self.model, what)
        return done(*given)

    async def alone(self, what: str, *given: Any) -> None:
        credits_ = self.bank.credits
        match what:
            case "pass":
                self.bank.clock.advance(given[0])
            case "sweep":
                await credits_.sweep()
                self.model.sweep()
            case "floor":
                await credits_.set_terms(self.ours, floor=given[0])
                self.model.floor = given[0]
            case "plan":
                await self.bank.change_plan(self.ours, given[0])
                self.model.plan = given[0]
            case "budget":
                subject, most = given
                if most is None:
                    assert await credits_.delete_budget(self.ours, *subject) == (subject in self.model.budgets)
                    self.model.budgets.pop(subject, None)
                else:
                    await credits_.set_budget(self.ours, *subject, most)
                    self.model.budgets[subject] = most

    async def compare_usage(self) -> None:
        used = await self.bank.credits.usage(self.ours, date(2027, 1, 1), date(2100, 1, 1), by=["app_id"])
        found = {(row.app_id, row.byok): [row.requests, row.cost] for row in used}
        assert found == self.model.usage


def test_any_program_does_what_the_model_does() -> None:
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory() as folder:
        url = address(Path(folder))
        database, clock = database_at(url), FixedClock()
        credits_ = Credits(database, clock, Ids())
        bank = Bank(database, credits_, clock, url)

        @settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
        @given(programs)
        def holds(steps: list[list[Step]]) -> None:
            organisation_id = runner.run(bank.organisation())
            runner.run(Program(bank, organisation_id).run(steps))

        runner.run(database.open())
        try:
            holds()
        finally:
            runner.run(credits_.close())
            runner.run(database.close())
            end(Path(folder))
