"""The operations of credits, each on one organisation's account; many of them share one transaction."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from baobab.tools.credit_errors import (
    BudgetExhausted,
    CreditsExhausted,
    NoCreditAccount,
    TopUpConflict,
    UnknownReservation,
)
from baobab.tools.credit_ledger import Held, Ledger
from baobab.tools.credit_terms import Balance
from baobab.tools.credit_usage import Usage


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money set aside, in nano-dollars. A job that outlives its process keeps these three beside its own row."""

    id: str
    organisation_id: str
    amount: int


class Operation(ABC):
    """What is to be done; many of them are done by one ledger, in the order in which they were asked."""

    __slots__ = ()
    organisation_id: str
    durable: ClassVar[bool] = False
    """Whether the disk must have it before anybody is told (docs/decisions/0019-credits-durability.md)."""

    @abstractmethod
    def apply(self, ledger: Ledger) -> Any:
        """Change the ledger, or raise and leave it as it was."""

    def undo(self, result: Any) -> "Operation | None":
        """What makes up for it when nobody waits for its result any more; None: it is right as it is."""
        return None


@dataclass(frozen=True, slots=True)
class Reserve(Operation):
    id: str
    organisation_id: str
    amount: int
    app_id: str | None
    key_id: str | None
    purpose: str
    ttl: timedelta

    def apply(self, ledger: Ledger) -> Reservation:
        account = ledger.accounts.get(self.organisation_id)
        if account is None:
            raise NoCreditAccount
        # What costs nothing is refused to nobody.
        if self.amount:
            balance = account.balance
            if balance.available is not None and balance.available < self.amount:
                raise CreditsExhausted(balance, self.amount)
            for budget in ledger.budgets(self.organisation_id, self.app_id, self.key_id):
                if not budget.fits(self.amount):
                    raise BudgetExhausted(budget, self.amount)
        held = Held(self.id, self.organisation_id, self.app_id, self.key_id, self.amount)
        ledger.hold(held, self.purpose, ledger.now + self.ttl)
        return Reservation(self.id, self.organisation_id, self.amount)

    def undo(self, result: Reservation) -> Operation:
        return Release(result.id, self.organisation_id)


@dataclass(frozen=True, slots=True)
class Settle(Operation):
    reservation_id: str
    organisation_id: str
    cost: int
    usage: Usage

    def apply(self, ledger: Ledger) -> None:
        held = ledger.held.get(self.reservation_id)
        if held is None or held.organisation_id not in ledger.accounts or held.organisation_id != self.organisation_id:
            raise UnknownReservation(self.reservation_id)
        if held.cost is not None:
            return
        ledger.end(held, 0 if self.usage.byok else self.cost)
        ledger.count(held, self.usage, self.cost)


@dataclass(frozen=True, slots=True)
class Release(Operation):
    reservation_id: str
    organisation_id: str
    expired: bool = False
    """Only if it is past its time."""

    def apply(self, ledger: Ledger) -> bool:
        """Whether it was open until now."""
        held = ledger.held.get(self.reservation_id)
        if held is None or not held.is_open or held.organisation_id != self.organisation_id:
            return False
        if self.expired and not held.is_overdue:
            return False
        ledger.end(held, None)
        return True


@dataclass(frozen=True, slots=True)
class TopUp(Operation):
    durable = True
    organisation_id: str
    amount: int
    reference: str

    def apply(self, ledger: Ledger) -> Balance:
        account = ledger.accounts.get(self.organisation_id)
        if account is None:
            raise NoCreditAccount
        before = ledger.topped_up.get((self.organisation_id, self.reference))
        if before is None:
            ledger.top_up(self.organisation_id, self.amount, self.reference)
        elif before != self.amount:
            raise TopUpConflict
        return account.balance
