"""The ledger: the accounts that one transaction of credits has locked, with what it reads and changes."""

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from datetime import date, datetime
from typing import Any

from baobab.storage.sql.statements import Statements
from baobab.tools.billing.ledger.account import Account, terms_of
from baobab.tools.billing.ledger.budgets import Budget, BudgetSubject
from baobab.tools.core.limits.credits import Usage

# All transactions lock in the same order, so they cannot deadlock.
_LOCKED = """
    SELECT locked.organisation_id, month, allowance_used, once_used, credits, reserved, allowance, floor, plan
    FROM credit_accounts locked JOIN organisations ON organisations.id = locked.organisation_id
    WHERE locked.organisation_id IN ? ORDER BY locked.organisation_id FOR NO KEY UPDATE OF locked"""
_HELD = """
    SELECT id, organisation_id, app_id, key_id, amount, cost, ended_at IS NULL, expires_at <= ?, run_id, agent_ids
    FROM credit_reservations WHERE id IN ?"""
_BUDGETS = """
    SELECT organisation_id, subject, subject_id, period, most, since, spent, reserved
    FROM credit_budgets WHERE organisation_id IN ? AND subject_id IN ?"""
_TOPPED_UP = """
    SELECT organisation_id, reference, amount FROM credit_top_ups WHERE organisation_id IN ? AND reference IN ?"""
# The id is new, unless a later attempt makes the reservation of one before it again.
_ADD_RESERVATION = """
    INSERT INTO credit_reservations
        (id, organisation_id, app_id, key_id, purpose, amount, created_at, expires_at, run_id, agent_ids)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET
        app_id = excluded.app_id, key_id = excluded.key_id, purpose = excluded.purpose, amount = excluded.amount,
        created_at = excluded.created_at, expires_at = excluded.expires_at, run_id = excluded.run_id,
        agent_ids = excluded.agent_ids, ended_at = NULL"""
_END_RESERVATION = "UPDATE credit_reservations SET cost = ?, ended_at = ? WHERE id = ?"
_ADD_TOP_UP = "INSERT INTO credit_top_ups (organisation_id, reference, amount, created_at) VALUES (?, ?, ?, ?)"
_ADD_USAGE = """
    INSERT INTO credit_usage
        (organisation_id, day, app_id, key_id, model, byok, requests, prompt_tokens, completion_tokens, cost)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (organisation_id, day, app_id, key_id, model, byok) DO UPDATE SET
        requests = credit_usage.requests + excluded.requests,
        prompt_tokens = credit_usage.prompt_tokens + excluded.prompt_tokens,
        completion_tokens = credit_usage.completion_tokens + excluded.completion_tokens,
        cost = credit_usage.cost + excluded.cost"""
_SAVE_ACCOUNT = """
    UPDATE credit_accounts SET month = ?, allowance_used = ?, once_used = ?, credits = ?, reserved = ?
    WHERE organisation_id = ?"""
_SAVE_AGENT_BUDGET = """
    INSERT INTO credit_budgets (organisation_id, subject, subject_id, period, most, since, spent, reserved)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (organisation_id, subject, subject_id, period) DO UPDATE SET
        most = excluded.most, since = excluded.since, spent = excluded.spent, reserved = excluded.reserved"""
_SAVE_BUDGET = """
    UPDATE credit_budgets SET since = ?, spent = ?, reserved = ?
    WHERE organisation_id = ? AND subject = ? AND subject_id = ? AND period = ?"""


@dataclass(slots=True)
class ReservationRow:
    """The row of a reservation."""

    id: str
    organisation_id: str
    app_id: str | None
    key_id: str | None
    amount: int
    cost: int | None = None
    is_open: bool = True
    is_overdue: bool = False
    """Whether its time is over, open or not."""
    run_id: str | None = None
    agent_ids: str | None = None
    """The ids of the agents whose runs it is for, separated by spaces."""

    @property
    def subjects(self) -> list[tuple[BudgetSubject, str]]:
        """The app, key and agents whose budgets it counts against."""
        subjects: list[tuple[BudgetSubject, str | None]] = [("app", self.app_id), ("key", self.key_id)]
        agents: list[tuple[BudgetSubject, str]] = [("agent", agent_id) for agent_id in (self.agent_ids or "").split()]
        return [(subject, id_) for subject, id_ in subjects if id_] + agents


class Ledger:
    """Holds the locks of its accounts and collects changes, which `save` writes."""

    def __init__(self, statements: Statements) -> None:
        self._statements = statements
        self.now: datetime
        self.today: date
        self.accounts: dict[str, Account] = {}
        self.reservations: dict[str, ReservationRow] = {}
        self.topped_up: dict[tuple[str, str], int] = {}
        self._budgets: dict[tuple[str, str], list[Budget]] = {}
        self._new_reservations: list[tuple[Any, ...]] = []
        self._ended_reservations: dict[str, ReservationRow] = {}
        self._new_top_ups: list[tuple[Any, ...]] = []
        self._usage: dict[tuple[Any, ...], list[int]] = {}

    def lock(self, organisation_ids: Iterable[str], now: Callable[[], datetime]) -> None:
        """Locks the accounts that exist. now: called for the time after the locks are held, not before the wait."""
        balance_rows = self._statements.rows(_LOCKED, sorted(set(organisation_ids)))
        self.now = now()
        self.today = self.now.date()
        for org_id, month, allowance_used, once_used, money, reserved_nanos, allowance, floor, plan in balance_rows:
            terms = terms_of(plan, allowance, floor)
            account = Account(org_id, terms, _day(month), allowance_used, once_used, money, reserved_nanos)
            account.roll(self.today)
            self.accounts[org_id] = account

    def read(self, reservations: list[str], references: list[str], subjects: set[str]) -> None:
        """Reads the rows that the operations need. It comes after the locks, so that nobody changes the rows."""
        rows = self._statements.rows
        if reservations:
            for row in rows(_HELD, self.now, reservations):
                reservation = ReservationRow(*row)
                self.reservations[reservation.id] = reservation
                subjects.update(subject_id for _, subject_id in reservation.subjects)
        accounts = list(self.accounts)
        if references:
            topped_up = rows(_TOPPED_UP, accounts, references)
            self.topped_up = {(organisation_id, reference): amount for organisation_id, reference, amount in topped_up}
        if subjects:
            for organisation_id, subject, subject_id, period, most, since, *sums in rows(
                _BUDGETS, accounts, sorted(subjects)
            ):
                budget = Budget(organisation_id, subject, subject_id, period, most, _day(since), *sums)
                budget.roll(self.today)
                self._budgets.setdefault((organisation_id, subject_id), []).append(budget)

    def budgets(self, reservation: ReservationRow) -> list[Budget]:
        """Returns the budgets that a reservation counts against."""
        if not self._budgets:
            return []
        matching_budgets = []
        for subject, subject_id in reservation.subjects:
            subject_budgets = self._budgets.get((reservation.organisation_id, subject_id), ())
            matching_budgets += [budget for budget in subject_budgets if budget.subject == subject]
        return matching_budgets

    def bound_agent(self, organisation_id: str, agent_id: str, most: int) -> None:
        """Sets the daily budget of an agent, with its present limit."""
        budgets = self._budgets.setdefault((organisation_id, agent_id), [])
        budget = next((agent_budget for agent_budget in budgets if agent_budget.subject == "agent"), None)
        if budget is None:
            budget = Budget(organisation_id, "agent", agent_id, "day", most, self.today, 0, 0)
            budgets.append(budget)
        budget.most = most

    def hold(self, reservation: ReservationRow, purpose: str, until: datetime) -> None:
        """Adds a reservation: to the reserved money of the account and of its budgets."""
        self.accounts[reservation.organisation_id].reserved_nanos += reservation.amount
        for budget in self.budgets(reservation):
            budget.reserved_nanos += reservation.amount
        self.reservations[reservation.id] = reservation
        self._ended_reservations.pop(reservation.id, None)
        payer = (reservation.id, reservation.organisation_id, reservation.app_id, reservation.key_id)
        self._new_reservations.append(
            (*payer, purpose, reservation.amount, self.now, until, reservation.run_id, reservation.agent_ids)
        )

    def end(self, reservation: ReservationRow, cost: int | None) -> None:
        """Releases what is reserved, unless that was done before, and charges the cost, if there is one."""
        account = self.accounts[reservation.organisation_id]
        budgets = self.budgets(reservation)
        if reservation.is_open:
            account.reserved_nanos -= reservation.amount
            for budget in budgets:
                budget.reserved_nanos -= reservation.amount
        if cost is not None:
            account.debit(cost)
            for budget in budgets:
                budget.spent_nanos += cost
        reservation.cost, reservation.is_open = cost, False
        self._ended_reservations[reservation.id] = reservation

    def top_up(self, organisation_id: str, amount: int, reference: str) -> None:
        self.accounts[organisation_id].credits += amount
        self.topped_up[organisation_id, reference] = amount
        self._new_top_ups.append((organisation_id, reference, amount, self.now))

    def count(self, reservation: ReservationRow, usage: Usage, cost: int) -> None:
        usage_key = (
            reservation.organisation_id,
            self.today,
            reservation.app_id or "",
            reservation.key_id or "",
            usage.model,
            usage.byok,
        )
        counts = self._usage.setdefault(usage_key, [0, 0, 0, 0])
        counts[0] += usage.requests
        counts[1] += usage.prompt_tokens
        counts[2] += usage.completion_tokens
        counts[3] += cost

    def save(self) -> None:
        execute_many = self._statements.execute_many
        if self._new_reservations:
            execute_many(_ADD_RESERVATION, self._new_reservations)
        if self._ended_reservations:
            execute_many(
                _END_RESERVATION,
                [(reservation.cost, self.now, reservation.id) for reservation in self._ended_reservations.values()],
            )
        if self._new_top_ups:
            execute_many(_ADD_TOP_UP, self._new_top_ups)
        if self._usage:
            execute_many(_ADD_USAGE, [(*usage_key, *counts) for usage_key, counts in self._usage.items()])
        if self._new_reservations or self._ended_reservations or self._new_top_ups:
            execute_many(_SAVE_ACCOUNT, map(_account_row, self.accounts.values()))
            budgets = [budget for subject_budgets in self._budgets.values() for budget in subject_budgets]
            if budget_rows := [_budget_row(budget) for budget in budgets if budget.subject != "agent"]:
                execute_many(_SAVE_BUDGET, budget_rows)
            # Budgets of agents are created here; those of apps and keys exist already.
            if agent_budgets := [astuple(budget) for budget in budgets if budget.subject == "agent"]:
                execute_many(_SAVE_AGENT_BUDGET, agent_budgets)


def _account_row(account: Account) -> tuple[Any, ...]:
    money = (account.allowance_used, account.once_used, account.credits, account.reserved_nanos)
    return (account.month, *money, account.organisation_id)


def _budget_row(budget: Budget) -> tuple[Any, ...]:
    name = (budget.organisation_id, budget.subject, budget.subject_id, budget.period)
    return (budget.since, budget.spent_nanos, budget.reserved_nanos, *name)


def _day(day: date | str) -> date:
    """Returns the date that a database column holds; SQLite stores it as text."""
    return date.fromisoformat(day) if isinstance(day, str) else day
