"""Credits on a database of their own, with a clock that stands still."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, insert, select, update

from baobab.storage.clock import Ids
from baobab.storage.sql.database import Database
from baobab.storage.sql.databases import database_at
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.billing.tables import (
    credit_accounts,
    credit_budgets,
    credit_reservations,
    credit_top_ups,
    credit_usage,
)
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.limits.credits import Reservation, Usage
from tests.backends import database_url, release_data
from tests.clock import FixedClock

USAGE = Usage("baobab/echo", 10, 20)


@dataclass
class Bank:
    database: Database
    credits: Credits
    clock: FixedClock
    url: str

    async def create_organisation(self, plan: str = "launch") -> str:
        new_id = Ids().uuid()
        row = {"id": new_id, "name": "Engines", "personal": False, "plan": plan, "created_at": self.clock.now()}
        async with self.database.writing() as connection:
            await connection.execute(insert(organisations), row)
        return new_id

    async def change_plan(self, organisation_id: str, plan: str) -> None:
        async with self.database.writing() as connection:
            statement = update(organisations).where(organisations.c.id == organisation_id).values(plan=plan)
            await connection.execute(statement)

    async def reserve(self, organisation_id: str, amount: int, ttl_seconds: float = 60, **subject: Any) -> Reservation:
        options = {"purpose": "chat", "ttl_seconds": ttl_seconds, **subject}
        return await self.credits.reserve(organisation_id, amount, **options)

    async def spend(self, organisation_id: str, cost: int, usage: Usage = USAGE, **subject: Any) -> None:
        await self.credits.settle(await self.reserve(organisation_id, cost, **subject), cost, usage)

    async def get_available(self, organisation_id: str) -> int | None:
        return (await self.credits.balance(organisation_id)).available

    async def check_sums(self, organisation_id: str) -> None:
        """What is kept as sums is the sum of what it is about. Within one month, and with the plan's terms."""
        async with self.database.reading() as connection:

            async def one(value: Any, table: Any, *where: Any) -> int:
                query = select(func.coalesce(func.sum(value), 0)).where(
                    table.c.organisation_id == organisation_id, *where
                )
                return int((await connection.execute(query)).scalar_one())

            mine = credit_accounts.c.organisation_id == organisation_id
            account = (await connection.execute(select(credit_accounts).where(mine))).one()
            columns = credit_reservations.c
            still_open = columns.ended_at.is_(None)
            charged_sum = await one(columns.cost, credit_reservations)
            assert account.reserved == await one(columns.amount, credit_reservations, still_open)
            assert charged_sum == await one(credit_usage.c.cost, credit_usage, credit_usage.c.byok.is_(False))
            assert account.allowance_used + account.once_used - account.credits == charged_sum - await one(
                credit_top_ups.c.amount, credit_top_ups
            )
            budgets = select(credit_budgets).where(credit_budgets.c.organisation_id == organisation_id)
            for budget in (await connection.execute(budgets)).all():
                of = {"app": columns.app_id, "key": columns.key_id, "agent": columns.agent_ids}
                subject = of[budget.subject].contains(budget.subject_id)
                assert budget.reserved == await one(columns.amount, credit_reservations, still_open, subject)
                assert budget.spent == await one(columns.cost, credit_reservations, subject)


@pytest.fixture
async def bank(tmp_path: Path) -> AsyncIterator[Bank]:
    url = database_url(tmp_path)
    database, clock = database_at(url), FixedClock()
    await database.open()
    credits_ = Credits(database, clock, Ids())
    yield Bank(database, credits_, clock, url)
    await credits_.close()
    await database.close()
    release_data(tmp_path)
