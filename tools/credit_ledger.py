"""What one transaction of credits has locked, read and changed."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import date, datetime
from functools import cache
from typing import Any

from sqlalchemy import Connection, bindparam, insert, select, update

from baobab.tools.credit_account import Account, terms_of
from baobab.tools.credit_budgets import Budget
from baobab.tools.credit_rows import (
    credit_accounts,
    credit_budgets,
    credit_reservations,
    credit_top_ups,
    credit_usage,
    inserting,
)
from baobab.tools.credit_usage import Usage
from baobab.tools.platform_tables import organisations

_LOCKED = (
    select(
        credit_accounts.c.organisation_id,
        credit_accounts.c.month,
        credit_accounts.c.allowance_used,
        credit_accounts.c.once_used,
        credit_accounts.c.credits,
        credit_accounts.c.reserved,
        credit_accounts.c.allowance,
        credit_accounts.c.floor,
        organisations.c.plan,
    )
    .join(organisations, organisations.c.id == credit_accounts.c.organisation_id)
    .where(credit_accounts.c.organisation_id.in_(bindparam("organisations", expanding=True)))
    # Everybody locks in one order, so nobody waits in a circle.
    .order_by(credit_accounts.c.organisation_id)
    .with_for_update(of=credit_accounts, key_share=True)
)
_HELD = select(
    credit_reservations.c.id,
    credit_reservations.c.organisation_id,
    credit_reservations.c.app_id,
    credit_reservations.c.key_id,
    credit_reservations.c.amount,
    credit_reservations.c.cost,
    credit_reservations.c.expires_at,
    credit_reservations.c.ended_at,
).where(credit_reservations.c.id.in_(bindparam("ids", expanding=True)))
_BUDGETS = select(credit_budgets).where(
    credit_budgets.c.organisation_id.in_(bindparam("organisations", expanding=True)),
    credit_budgets.c.subject_id.in_(bindparam("subjects", expanding=True)),
)
_TOPPED_UP = select(credit_top_ups.c.organisation_id, credit_top_ups.c.reference, credit_top_ups.c.amount).where(
    credit_top_ups.c.organisation_id.in_(bindparam("organisations", expanding=True)),
    credit_top_ups.c.reference.in_(bindparam("references", expanding=True)),
)
_SAVE_ACCOUNT = (
    update(credit_accounts)
    .where(credit_accounts.c.organisation_id == bindparam("of_organisation"))
    .values(
        {name: bindparam(f"new_{name}") for name in ("month", "allowance_used", "once_used", "credits", "reserved")}
    )
)
_END = (
    update(credit_reservations)
    .where(credit_reservations.c.id == bindparam("of_id"))
    .values(cost=bindparam("new_cost"), ended_at=bindparam("new_ended_at"))
)
_SAVE_BUDGET = (
    update(credit_budgets)
    .where(
        credit_budgets.c.organisation_id == bindparam("of_organisation"),
        credit_budgets.c.subject == bindparam("of_subject"),
        credit_budgets.c.subject_id == bindparam("of_subject_id"),
        credit_budgets.c.period == bindparam("of_period"),
    )
    .values({name: bindparam(f"new_{name}") for name in ("since", "spent", "reserved")})
)
_COUNTED = ("requests", "prompt_tokens", "completion_tokens", "cost")


@cache
def _adding_usage(dialect: str) -> Any:
    # Made once: to make it costs more than to execute it.
    adding = inserting(dialect, credit_usage)
    return adding.on_conflict_do_update(
        index_elements=list(credit_usage.primary_key),
        set_={name: credit_usage.c[name] + adding.excluded[name] for name in _COUNTED},
    )


@dataclass(slots=True)
class Held:
    """A reservation, as its row says."""

    id: str
    organisation_id: str
    app_id: str | None
    key_id: str | None
    amount: int
    cost: int | None
    expires_at: datetime
    ended_at: datetime | None


class Ledger:
    """Holds the locks of its accounts; what is changed in it is written by `save`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.now: datetime
        self.today: date
        self.accounts: dict[str, Account] = {}
        self.held: dict[str, Held] = {}
        self.topped_up: dict[tuple[str, str], int] = {}
        self._budgets: dict[tuple[str, str], list[Budget]] = {}
        self._reserved: list[dict[str, Any]] = []
        self._ended: dict[str, Held] = {}
        self._new_top_ups: list[dict[str, Any]] = []
        self._usage: dict[tuple[Any, ...], list[int]] = {}

    def lock(self, organisation_ids: Iterable[str], now: Callable[[], datetime]) -> None:
        """Lock the accounts that are there; `now` is asked for the time when that is done, not before it waits."""
        rows = self._connection.execute(_LOCKED, {"organisations": sorted(set(organisation_ids))})
        found = rows.all()
        self.now = now()
        self.today = self.now.date()
        for organisation_id, month, used, once_used, money, reserved, allowance, floor, plan in found:
            terms = terms_of(plan, allowance, floor)
            account = Account(organisation_id, terms, month, used, once_used, money, reserved)
            account.roll(self.today)
            self.accounts[organisation_id] = account

    def read(self, reservations: list[str], references: list[str], subjects: set[str]) -> None:
        """Read what the operations will look at: after the locks, so nobody changes it before they have."""
        if reservations:
            for row in self._connection.execute(_HELD, {"ids": reservations}):
                self.held[row.id] = Held(*row)
                subjects.update(part for part in (row.app_id, row.key_id) if part)
        accounts = list(self.accounts)
        if references:
            rows = self._connection.execute(_TOPPED_UP, {"organisations": accounts, "references": references})
            self.topped_up = {(organisation_id, reference): amount for organisation_id, reference, amount in rows}
        if subjects:
            asked = {"organisations": accounts, "subjects": sorted(subjects)}
            for row in self._connection.execute(_BUDGETS, asked):
                budget = Budget(*row)
                budget.roll(self.today)
                self._budgets.setdefault((budget.organisation_id, budget.subject_id), []).append(budget)

    def budgets(self, organisation_id: str, app_id: str | None, key_id: str | None) -> list[Budget]:
        if not self._budgets:
            return []
        found = []
        for subject, subject_id in (("app", app_id), ("key", key_id)):
            if subject_id:
                every = self._budgets.get((organisation_id, subject_id), ())
                found += [budget for budget in every if budget.subject == subject]
        return found

    def hold(self, held: Held, purpose: str) -> None:
        """Add a reservation: to the account's reserved money and to that of the budgets it counts against."""
        self.accounts[held.organisation_id].reserved += held.amount
        for budget in self.budgets(held.organisation_id, held.app_id, held.key_id):
            budget.reserved += held.amount
        self._reserved.append(
            {
                "id": held.id,
                "organisation_id": held.organisation_id,
                "app_id": held.app_id,
                "key_id": held.key_id,
                "purpose": purpose,
                "amount": held.amount,
                "created_at": self.now,
                "expires_at": held.expires_at,
            }
        )

    def end(self, held: Held, cost: int | None) -> None:
        """Give back what is reserved, unless that was done before, and charge what it cost, if it did."""
        account = self.accounts[held.organisation_id]
        budgets = self.budgets(held.organisation_id, held.app_id, held.key_id)
        if held.ended_at is None:
            account.reserved -= held.amount
            for budget in budgets:
                budget.reserved -= held.amount
        if cost is not None:
            account.debit(cost)
            for budget in budgets:
                budget.spent += cost
        held.cost, held.ended_at = cost, self.now
        self._ended[held.id] = held

    def top_up(self, organisation_id: str, amount: int, reference: str) -> None:
        self.accounts[organisation_id].credits += amount
        self.topped_up[organisation_id, reference] = amount
        row = {"organisation_id": organisation_id, "reference": reference, "amount": amount, "created_at": self.now}
        self._new_top_ups.append(row)

    def count(self, held: Held, usage: Usage, cost: int) -> None:
        place = (held.organisation_id, self.today, held.app_id or "", held.key_id or "", usage.model, usage.byok)
        counts = self._usage.setdefault(place, [0, 0, 0, 0])
        counts[0] += usage.requests
        counts[1] += usage.prompt_tokens
        counts[2] += usage.completion_tokens
        counts[3] += cost

    def save(self) -> None:
        execute = self._connection.execute
        if self._reserved:
            execute(insert(credit_reservations), self._reserved)
        if self._ended:
            ended = self._ended.values()
            rows = [{"of_id": held.id, "new_cost": held.cost, "new_ended_at": held.ended_at} for held in ended]
            execute(_END, rows)
        if self._new_top_ups:
            execute(insert(credit_top_ups), self._new_top_ups)
        if self._usage:
            self._save_usage()
        if self._reserved or self._ended or self._new_top_ups:
            execute(_SAVE_ACCOUNT, [_account_row(account) for account in self.accounts.values()])
            if budgets := [_budget_row(budget) for each in self._budgets.values() for budget in each]:
                execute(_SAVE_BUDGET, budgets)

    def _save_usage(self) -> None:
        names = [*credit_usage.primary_key.columns.keys(), *_COUNTED]
        rows = [dict(zip(names, (*place, *counts), strict=True)) for place, counts in self._usage.items()]
        self._connection.execute(_adding_usage(self._connection.dialect.name), rows)


def _account_row(account: Account) -> dict[str, Any]:
    return {
        "of_organisation": account.organisation_id,
        "new_month": account.month,
        "new_allowance_used": account.used,
        "new_once_used": account.once_used,
        "new_credits": account.credits,
        "new_reserved": account.reserved,
    }


def _budget_row(budget: Budget) -> dict[str, Any]:
    return {
        "of_organisation": budget.organisation_id,
        "of_subject": budget.subject,
        "of_subject_id": budget.subject_id,
        "of_period": budget.period,
        "new_since": budget.since,
        "new_spent": budget.spent,
        "new_reserved": budget.reserved,
    }
