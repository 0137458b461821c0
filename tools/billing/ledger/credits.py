"""Credits: the balance of an organisation, what is reserved for work under way, and what was used.

A caller reserves money before it spends and settles afterwards. So concurrent calls together never spend more than the
balance, and a process that dies leaves only a reservation, which `sweep` releases. docs/credits.md explains credits to
users.
"""

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from datetime import date, timedelta
from typing import Any, TypeVar
from uuid import UUID, uuid5

from sqlalchemy import Row, Select, delete, func, insert, select, update

from baobab.storage.clock import Clock, Ids
from baobab.storage.sql.database import Database, Execute, Unit
from baobab.storage.sql.statements import Statements
from baobab.tools.billing.ledger.account import Account, terms_of
from baobab.tools.billing.ledger.budgets import Budget, BudgetPeriod, BudgetSubject, first_day
from baobab.tools.billing.ledger.errors import NoCreditAccount
from baobab.tools.billing.ledger.ledger import Ledger
from baobab.tools.billing.ledger.operations import Release, Reserve, Settle, TopUp
from baobab.tools.billing.ledger.terms import TERMS, Balance
from baobab.tools.billing.ledger.usage import UsagePart, read_usage
from baobab.tools.billing.ledger.writer import CreditWriter
from baobab.tools.billing.tables import HAS_BUDGET, credit_accounts, credit_budgets, credit_reservations
from baobab.tools.core.auth.tables import organisations
from baobab.tools.core.limits.credits import Reservation, Spender, Usage, UsageLine
from baobab.tools.core.limits.money import MOST

T = TypeVar("T")

REMEMBERED = timedelta(days=3)
"""How long a settled reservation is kept, so that settling it again has no effect."""
LATE = timedelta(days=35)
"""How long a released reservation can still be settled, and how long the cost of an agent's run is kept."""
_ROUND = 500
_OF_ATTEMPT = UUID("5d1a7b0c-3f0e-4c57-8f57-9a4a3d1c2e60")

_SET_TERMS = "UPDATE credit_accounts SET allowance = ?, floor = ? WHERE organisation_id = ?"
_SET_BUDGET = """
    INSERT INTO credit_budgets (organisation_id, subject, subject_id, period, most, since, spent, reserved)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (organisation_id, subject, subject_id, period) DO UPDATE SET
        most = excluded.most, since = excluded.since, spent = excluded.spent, reserved = excluded.reserved"""
_SPENT = """
    SELECT coalesce(sum(cost), 0) FROM credit_usage
    WHERE organisation_id = ? AND day >= ? AND CASE ? WHEN 'app' THEN app_id ELSE key_id END = ? AND NOT byok"""
_RESERVED = """
    SELECT coalesce(sum(amount), 0) FROM credit_reservations
    WHERE organisation_id = ? AND ended_at IS NULL AND CASE ? WHEN 'app' THEN app_id ELSE key_id END = ?"""


class _AttemptIds:
    """The ids of an attempt's reservations: the first one, the second and so on.

    That of a released one is used again: whether a first provider failed must not decide which reservation pays for
    the answer of the second.
    """

    def __init__(self, token: str) -> None:
        self._token = token
        self._taken: set[str] = set()

    def take(self) -> str:
        """Returns the first id that is not in use."""
        ids = (str(uuid5(_OF_ATTEMPT, f"{self._token}:{number}")) for number in itertools.count())
        id_ = next(each for each in ids if each not in self._taken)
        self._taken.add(id_)
        return id_

    def give_back(self, id_: str) -> None:
        self._taken.discard(id_)


class Credits:
    """The credits of all organisations.

    Amounts are integer nano-dollars, at most a million dollars; any other amount raises ValueError. Every method may
    raise DatabaseUnavailable. Settling, releasing or topping up again is then safe; a reservation that nobody knows of
    is released when it expires.

    unit: a transaction that the change becomes part of. It then holds the write lock, and must not call another method
    here that writes before it is committed.
    """

    has_budget_column = HAS_BUDGET

    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids
        self._writer = CreditWriter(database, clock)
        self._attempt: _AttemptIds | None = None

    def for_attempt(self, token: str) -> "Credits":
        """Returns these credits for one attempt at work that may be repeated, which charge for it once.

        Its reservations have the ids of those of an earlier attempt with this token, in their order.
        """
        view = copy.copy(self)
        view._attempt = _AttemptIds(token)  # noqa: SLF001 - a copy of ourselves
        return view

    async def close(self) -> None:
        """Waits until all operations that were requested before are finished."""
        await self._writer.close()

    async def open_account(self, execute: Execute, organisation: Mapping[str, Any]) -> None:
        """Creates the credit account of a shared organisation, without an allowance, in the caller's transaction.

        organisation: its row. The account of a personal organisation is created when it is first needed.
        """
        if organisation["personal"] or TERMS[organisation["plan"]].allowance is None:
            return
        # Only personal organisations have an allowance: anybody could create more organisations to get more of it.
        zeros = dict.fromkeys(("allowance_used", "once_used", "credits", "reserved", "allowance"), 0)
        month = first_day("month", organisation["created_at"].date())
        await execute(insert(credit_accounts), {"organisation_id": organisation["id"], "month": month, **zeros})

    async def reserve(
        self,
        organisation_id: str,
        amount: int,
        *,
        app_id: str | None = None,
        key_id: str | None = None,
        purpose: str,
        ttl_seconds: float,
        least: int | None = None,
        spender: Spender | None = None,
    ) -> Reservation:
        """Reserves money. Raises CreditsExhausted, BudgetExhausted (both 402) or NoCreditAccount (404).

        amount: 0 if nothing will be charged (a free model, the customer's own key); that is never refused.
        least: the smallest amount that is of use, if less than `amount` will do. What is reserved is then at most a
            quarter of what is left in the balance and in each budget, and never less than this.
        ttl_seconds: how long until `sweep` releases it. A reservation that is settled later is still charged.
        spender: the run of an agent that it is for; it counts against the day's budgets of its agents.
        """
        _require_amount(amount)
        for text, length in ((organisation_id, 36), (app_id or "", 36), (key_id or "", 36), (purpose, 40)):
            _require_text(text, length)
        if ttl_seconds <= 0:
            raise ValueError("a reservation lasts longer than no time")
        ttl, attempt = timedelta(seconds=ttl_seconds), self._attempt
        id_ = self._ids.uuid() if attempt is None else attempt.take()
        operation = Reserve(
            id_, organisation_id, amount, app_id, key_id, purpose, ttl, least, spender, is_repeatable=bool(attempt)
        )
        try:
            reservation: Reservation = await self._writer.execute(operation)
        except BaseException:
            if attempt is not None:
                attempt.give_back(id_)
            raise
        return reservation

    async def extend(self, reservation: Reservation, ttl_seconds: float) -> None:
        """Makes a reservation expire `ttl_seconds` from now; does nothing if it has ended."""
        columns = credit_reservations.c
        is_open = (columns.id == reservation.id, columns.ended_at.is_(None))
        until = self._clock.now() + timedelta(seconds=ttl_seconds)
        async with self._database.writing(lock=None) as connection:
            await connection.execute(update(credit_reservations).where(*is_open).values(expires_at=until))

    async def settle(
        self,
        reservation: Reservation,
        cost: int,
        usage: Usage,
        *,
        capped: bool = False,
        unit: Unit | None = None,
    ) -> int:
        """Charges the cost, releases the rest, counts the usage and returns what was charged; has no effect when it is
        called again.

        cost: may be more than was reserved; the balance may become negative unless it is `capped`. With `usage.byok` it
            is counted, not charged. Raises UnknownReservation.
        """
        _require_amount(cost)
        operation = Settle(reservation.id, reservation.organisation_id, cost, usage, capped)

        def settle_reservation(_: Statements, ledger: Ledger) -> int:
            ledger.read([reservation.id], [], set())
            charged_nanos = operation.apply(ledger)
            ledger.save()
            return charged_nanos

        if unit is not None:
            return await self._writer.run_in_unit(unit, reservation.organisation_id, settle_reservation)
        charge: int = await self._writer.execute(operation)
        return charge

    async def release(self, reservation: Reservation) -> None:
        """Releases the whole reservation; does nothing if it was released or settled before."""
        await self._writer.execute(Release(reservation.id, reservation.organisation_id))
        if self._attempt is not None:
            self._attempt.give_back(reservation.id)

    async def sweep(self) -> int:
        """Releases expired reservations, deletes those that ended long ago, and returns how many were released."""
        released_count = 0
        columns = credit_reservations.c
        while True:
            due_query = (
                select(columns.id, columns.organisation_id)
                .where(columns.ended_at.is_(None), columns.expires_at <= self._clock.now())
                .order_by(columns.expires_at)
                .limit(_ROUND)
            )
            async with self._database.reading() as connection:
                rows = (await connection.execute(due_query)).all()
            ending = [Release(row.id, row.organisation_id, only_overdue=True) for row in rows]
            were_open: list[bool] = await self._writer.execute_all(ending)
            released_count += sum(were_open)
            if len(rows) < _ROUND:
                break
        await self._forget()
        return released_count

    async def account(self, organisation_id: str) -> Account:
        """Returns an organisation's terms and what it has used of them this month. Raises NoCreditAccount (404)."""
        query = (
            select(organisations.c.plan, credit_accounts)
            .join(credit_accounts, credit_accounts.c.organisation_id == organisations.c.id, isouter=True)
            .where(organisations.c.id == organisation_id)
        )
        async with self._database.reading() as connection:
            row = (await connection.execute(query)).one_or_none()
        if row is None:
            raise NoCreditAccount
        terms, today = terms_of(row.plan, row.allowance, row.floor), self._clock.now().date()
        if row.organisation_id is None:
            return Account(organisation_id, terms, first_day("month", today), 0, 0, 0, 0)
        account = Account(
            organisation_id, terms, row.month, row.allowance_used, row.once_used, row.credits, row.reserved
        )
        account.roll(today)
        return account

    async def balance(self, organisation_id: str) -> Balance:
        """Returns an organisation's balance. Raises NoCreditAccount (404)."""
        return (await self.account(organisation_id)).balance

    async def top_up(self, organisation_id: str, amount: int, reference: str, *, unit: Unit | None = None) -> Balance:
        """Adds money, once for each reference. Raises TopUpConflict (409) or NoCreditAccount (404).

        reference: the name of the payment, up to 200 characters.
        """
        _require_amount(amount)
        if not amount:
            raise ValueError("a top-up of nothing")
        _require_text(reference, 200)
        operation = TopUp(organisation_id, amount, reference)

        def add_top_up(_: Statements, ledger: Ledger) -> Balance:
            ledger.read([], [reference], set())
            balance_after = operation.apply(ledger)
            ledger.save()
            return balance_after

        balance: Balance
        if unit is None:
            balance = await self._writer.execute(operation)
        else:
            balance = await self._writer.run_in_unit(unit, organisation_id, add_top_up)
        return balance

    async def set_terms(
        self,
        organisation_id: str,
        *,
        allowance: int | None = None,
        floor: int | None = None,
        unit: Unit | None = None,
    ) -> None:
        """Sets an organisation's own terms in place of its plan's. Raises NoCreditAccount (404).

        allowance: of each month; None: that of the plan.
        floor: the lowest balance, at most 0; None: that of the plan.
        """
        _require_amount(allowance or 0)
        _require_amount(-(floor or 0))

        def save_terms(statements: Statements, ledger: Ledger) -> None:
            _require_account(ledger, organisation_id)
            statements.rows(_SET_TERMS, allowance, floor, organisation_id)

        await self._run_locked(organisation_id, save_terms, unit)

    async def set_budget(
        self,
        organisation_id: str,
        subject: BudgetSubject,
        subject_id: str,
        period: BudgetPeriod,
        most: int,
        *,
        unit: Unit | None = None,
    ) -> Budget:
        """Limits what an app or a key may spend in each day or month, including what it has spent in the current one.

        Raises NoCreditAccount (404). The caller has checked that the app or the key belongs to the organisation.
        """
        _require_amount(most)
        _require_text(subject_id, 36)

        def save_budget(statements: Statements, ledger: Ledger) -> Budget:
            _require_account(ledger, organisation_id)
            since = first_day(period, ledger.today)
            ((spent_nanos,),) = statements.rows(_SPENT, organisation_id, since, subject, subject_id)
            ((reserved_nanos,),) = statements.rows(_RESERVED, organisation_id, subject, subject_id)
            # Postgres adds up 64-bit integers into a decimal.
            budget = Budget(
                organisation_id, subject, subject_id, period, most, since, int(spent_nanos), int(reserved_nanos)
            )
            statements.rows(_SET_BUDGET, *astuple(budget))
            return budget

        return await self._run_locked(organisation_id, save_budget, unit)

    async def delete_budget(
        self,
        organisation_id: str,
        subject: BudgetSubject,
        subject_id: str,
        period: BudgetPeriod,
        *,
        unit: Unit | None = None,
    ) -> bool:
        """Deletes a budget and returns whether there was one."""
        columns = credit_budgets.c
        statement = delete(credit_budgets).where(
            columns.organisation_id == organisation_id,
            columns.subject == subject,
            columns.subject_id == subject_id,
            columns.period == period,
        )
        if unit is not None:
            return bool((await unit.execute(statement)).rowcount)
        async with self._database.writing(lock=None) as connection:
            return bool((await connection.execute(statement)).rowcount)

    async def budgets(
        self,
        organisation_id: str,
        subject: BudgetSubject | None = None,
        subject_id: str | None = None,
        *,
        unit: Unit | None = None,
    ) -> list[Budget]:
        """Lists the budgets of an organisation's apps and keys, or those of one subject, as of today."""
        query = select(credit_budgets).where(credit_budgets.c.organisation_id == organisation_id)
        if subject is None:
            query = query.where(credit_budgets.c.subject != "agent")
        else:
            query = query.where(credit_budgets.c.subject == subject)
        if subject_id is not None:
            query = query.where(credit_budgets.c.subject_id == subject_id)
        query = query.order_by(*credit_budgets.primary_key)
        budgets = [Budget(*row) for row in await self._rows(query, unit)]
        for budget in budgets:
            budget.roll(self._clock.now().date())
        return budgets

    async def agent_budget(self, organisation_id: str, agent_id: str) -> Budget | None:
        """Returns an agent's daily budget with what its runs have cost today; None if they cost nothing for days."""
        return next(iter(await self.budgets(organisation_id, "agent", agent_id)), None)

    async def run_cost(self, run_id: str) -> int:
        """Returns what was charged for the calls of an agent's run, without those of its child runs."""
        columns = credit_reservations.c
        query = select(func.coalesce(func.sum(columns.cost), 0)).where(columns.run_id == run_id)
        async with self._database.reading() as connection:
            return int((await connection.execute(query)).scalar_one())

    async def usage(
        self,
        organisation_id: str,
        first: date,
        last: date,
        *,
        app_id: str | None = None,
        key_id: str | None = None,
        by: Sequence[UsagePart] = ("model",),
        most: int | None = None,
    ) -> list[UsageLine]:
        """Returns what was settled in the days (UTC) from `first` to `last`, both included, in at most `most` rows."""
        async with self._database.reading() as connection:
            return await read_usage(
                connection, organisation_id, first, last, app_id=app_id, key_id=key_id, by=by, most=most
            )

    async def _rows(self, query: Select[*tuple[Any, ...]], unit: Unit | None) -> Sequence[Row[*tuple[Any, ...]]]:
        if unit is not None:
            return (await unit.execute(query)).all()
        async with self._database.reading() as connection:
            return (await connection.execute(query)).all()

    async def _run_locked(self, organisation_id: str, work: Callable[[Statements, Ledger], T], unit: Unit | None) -> T:
        if unit is not None:
            return await self._writer.run_in_unit(unit, organisation_id, work)
        return await self._writer.run_locked({organisation_id}, work)

    async def _forget(self) -> None:
        now, columns = self._clock.now(), credit_reservations.c
        # The cost of a run is reported while the run lives.
        is_settled = (columns.cost == 0) | (columns.cost.is_not(None) & columns.run_id.is_(None))
        is_late = columns.ended_at < now - LATE
        old_ids = select(columns.id).where(columns.ended_at < now - REMEMBERED, is_settled | is_late).limit(_ROUND)
        while True:
            async with self._database.writing(lock=None) as connection:
                result = await connection.execute(
                    delete(credit_reservations).where(columns.id.in_(old_ids), is_settled | is_late)
                )
            if result.rowcount < _ROUND:
                break
        budgets = credit_budgets.c
        is_idle = (budgets.subject == "agent", budgets.reserved == 0, budgets.since < now.date() - REMEMBERED)
        async with self._database.writing(lock=None) as connection:
            await connection.execute(delete(credit_budgets).where(*is_idle))


def _require_account(ledger: Ledger, organisation_id: str) -> None:
    if organisation_id not in ledger.accounts:
        raise NoCreditAccount


def _require_amount(amount: int) -> None:
    if not 0 <= amount <= MOST:
        raise ValueError(f"an amount is between 0 and {MOST} nano-dollars")


def _require_text(text: str, most: int) -> None:
    # In the database it would undo what others do in the same transaction.
    if len(text) > most or "\0" in text:
        raise ValueError(f"at most {most} characters and no NUL")
