"""Many at once, in one process and in several, of which some are killed."""

import asyncio
import sys
from asyncio.subprocess import PIPE, Process
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from sqlalchemy import select, text

from baobab.storage.clock import Ids
from baobab.storage.sql.database import DatabaseUnavailable
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.tables import credit_reservations
from baobab.tools.core.limits.credits import CreditsExhausted, Reservation, Usage
from baobab.tools.core.limits.money import USD
from tests.clock import FixedClock
from tests.tools.billing.ledger.conftest import USAGE, Bank

TIMEOUT_SECONDS = 180.0


class TickingClock(FixedClock):
    """A second passes whenever it is asked."""

    def now(self) -> datetime:
        self.advance(1)
        return super().now()


@asynccontextmanager
async def start_spender(bank: Bank, *arguments: object) -> AsyncIterator[Process]:
    """A process that has said that it is ready."""
    command = (sys.executable, "-m", "tests.tools.billing.ledger.spender", bank.url, *map(str, arguments))
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
    try:
        assert await read_line(process) == ["ready"]
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


async def read_line(process: Process) -> list[str]:
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_SECONDS):
        return (await process.stdout.readline()).decode().split()


def start_spenders(*processes: Process) -> None:
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"\n")


async def test_of_many_at_once_exactly_those_are_granted_that_fit(bank: Bank) -> None:
    ours, theirs = await bank.create_organisation(), await bank.create_organisation()

    async def try_reserve(organisation_id: str) -> bool:
        try:
            await bank.reserve(organisation_id, USD // 20)
        except CreditsExhausted:
            return False
        return True

    answers = await asyncio.gather(*[try_reserve(whose) for _ in range(400) for whose in (ours, theirs)])
    assert (sum(answers[::2]), sum(answers[1::2])) == (100, 100)
    assert await bank.get_available(ours) == await bank.get_available(theirs) == 0


async def test_what_is_asked_at_once_shares_a_transaction(bank: Bank) -> None:
    ours = await bank.create_organisation()
    await bank.reserve(ours, 1)
    credits_ = Credits(bank.database, TickingClock(), Ids())
    calls = [credits_.reserve(ours, 1, purpose="together", ttl_seconds=60) for _ in range(64)]
    await asyncio.gather(*calls)
    await credits_.close()
    query = select(credit_reservations.c.created_at).where(credit_reservations.c.purpose == "together")
    async with bank.database.reading() as connection:
        times = (await connection.execute(query)).scalars().all()
    assert len(times) == 64
    assert len(set(times)) == 1


async def test_two_processes_together_grant_exactly_what_fits(bank: Bank) -> None:
    ours = await bank.create_organisation()
    arguments = ("grab", 200, USD // 20, ours)
    async with start_spender(bank, *arguments) as one, start_spender(bank, *arguments) as two:
        start_spenders(one, two)
        (_, first), (_, second) = await read_line(one), await read_line(two)
    assert int(first) + int(second) == 100
    assert await bank.get_available(ours) == 0
    await bank.check_sums(ours)


async def test_processes_that_use_the_same_organisations_in_any_order_all_get_on(bank: Bank) -> None:
    every = [await bank.create_organisation("enterprise") for _ in range(8)]
    for organisation_id in every:
        await bank.credits.set_budget(organisation_id, "app", "app_0", "day", 1000 * USD)
    # Half of them in the other order, and more than one transaction can hold.
    async with (
        start_spender(bank, "churn", 32, *every) as one,
        start_spender(bank, "churn", 32, *reversed(every)) as two,
    ):
        start_spenders(one, two)
        for process in (one, two):
            for _ in range(200):
                assert (await read_line(process))[0] in ("settling", "settled")
        for _ in range(10):
            await asyncio.gather(*[bank.spend(organisation_id, 5, key_id="key") for organisation_id in every])
    for organisation_id in every:
        await bank.check_sums(organisation_id)


async def test_killed_at_any_moment_nothing_is_lost_and_nothing_counted_twice(bank: Bank) -> None:
    every = [await bank.create_organisation("enterprise") for _ in range(3)]
    for organisation_id in every:
        await bank.credits.set_budget(organisation_id, "key", "key", "month", 1000 * USD)
    costs: dict[str, tuple[str, int]] = {}
    settled_ids: set[str] = set()
    for until in (1, 50, 133):
        async with start_spender(bank, "churn", 16, *every) as process:
            start_spenders(process)
            settled_count = 0
            while words := await read_line(process):
                if words[0] == "settling":
                    costs[words[1]] = (words[2], int(words[3]))
                elif len(words) == 2:
                    settled_ids.add(words[1])
                    settled_count += 1
                    if settled_count == until:
                        process.kill()
    assert len(settled_ids) >= 184
    await check_charged_once(bank, every, {name: costs[name] for name in settled_ids}, exactly=False)
    # Whoever has not heard settles again, before or after the sweeper.
    unheard = sorted(costs.keys() - settled_ids)
    half = len(unheard) // 2
    await settle_all(bank, {name: costs[name] for name in unheard[:half]})
    bank.clock.advance(61)
    await bank.credits.sweep()
    await settle_all(bank, {name: costs[name] for name in unheard[half:]})
    await settle_all(bank, costs)
    await check_charged_once(bank, every, costs, exactly=True)
    for organisation_id in every:
        assert (await bank.credits.balance(organisation_id)).reserved_nanos == 0
        await bank.check_sums(organisation_id)


async def settle_all(bank: Bank, costs: dict[str, tuple[str, int]]) -> None:
    settling = [
        bank.credits.settle(Reservation(name, organisation_id, 1000), cost, Usage("m", 1, 1))
        for name, (organisation_id, cost) in costs.items()
    ]
    await asyncio.gather(*settling)


async def check_charged_once(bank: Bank, every: list[str], costs: dict[str, tuple[str, int]], *, exactly: bool) -> None:
    expected_costs: dict[str, int] = defaultdict(int)
    for organisation_id, cost in costs.values():
        expected_costs[organisation_id] += cost
    today = bank.clock.now().date()
    for organisation_id in every:
        (usage,) = await bank.credits.usage(organisation_id, today, today)
        assert usage.cost == expected_costs[organisation_id] or (
            not exactly and usage.cost > expected_costs[organisation_id]
        )


async def test_a_transaction_that_fails_fails_for_all_it_was_for_and_for_nobody_after(bank: Bank) -> None:
    ours = await bank.create_organisation()
    reservation = await bank.reserve(ours, 1 * USD)
    # So many at once that the next ones share a transaction, too.
    await asyncio.gather(*(bank.reserve(ours, 0) for _ in range(20)))
    await rename_table(bank, "credit_usage", "somewhere_else")
    calls = [bank.credits.settle(reservation, 1, USAGE), bank.reserve(ours, 1), bank.credits.top_up(ours, 1, "p")]
    answers = await asyncio.gather(*calls, return_exceptions=True)
    assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 3
    assert len({id(answer) for answer in answers}) == 3
    await rename_table(bank, "somewhere_else", "credit_usage")
    assert await bank.get_available(ours) == 4 * USD
    await bank.credits.settle(reservation, 1, USAGE)
    assert await bank.get_available(ours) == 5 * USD - 1
    await bank.check_sums(ours)


async def rename_table(bank: Bank, table: str, name: str) -> None:
    async with bank.database.writing() as connection:
        await connection.execute(text(f"ALTER TABLE {table} RENAME TO {name}"))
