"""The operations of credits, each on one organisation's account; many of them share one transaction."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar

from baobab.tools.billing.ledger.errors import (
    NoCreditAccount,
    TopUpConflict,
    describe_exhausted_budget,
    describe_exhausted_credits,
)
from baobab.tools.billing.ledger.ledger import Ledger, ReservationRow
from baobab.tools.billing.ledger.terms import Balance
from baobab.tools.core.limits.credits import Reservation, Spender, UnknownReservation, Usage
from baobab.tools.core.limits.money import MOST

_SHARES = 4
"""The largest part of what is left that one call may reserve if it names no limit of its own."""


class Operation(ABC):
    """One change to an account. A ledger applies many of them, in the order in which they were requested."""

    __slots__ = ()
    organisation_id: str
    durable: ClassVar[bool] = False
    """Whether it must be on the disk before its caller gets the result (docs/decisions/0019-credits-durability.md)."""

    @abstractmethod
    def apply(self, ledger: Ledger) -> Any:
        """Changes the ledger, or raises and leaves it unchanged."""

    def undo(self, result: Any) -> "Operation | None":
        """Returns the operation that undoes this one if its caller has gone; None if nothing needs to be undone."""
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
    least: int | None = None
    """The smallest amount that is of use, if less than `amount` will do."""
    spender: Spender | None = None
    is_repeatable: bool = False
    """Whether an earlier attempt at the same work may have made this reservation. If it has settled it, the work is
    paid; if not, the reservation is made anew.
    """

    def apply(self, ledger: Ledger) -> Reservation:
        account = ledger.accounts.get(self.organisation_id)
        if account is None:
            raise NoCreditAccount
        earlier = ledger.reservations.get(self.id)
        if earlier is not None and earlier.cost is not None:
            return Reservation(self.id, self.organisation_id, earlier.amount)
        if earlier is not None and earlier.is_open:
            # Also if this attempt is refused: nothing comes of the earlier one any more.
            ledger.end(earlier, None)
        amount = self.amount
        reservation = ReservationRow(self.id, self.organisation_id, self.app_id, self.key_id, amount)
        if self.spender is not None:
            reservation.run_id, reservation.agent_ids = (
                self.spender.run_id,
                " ".join(id_ for id_, _ in self.spender.agents),
            )
        # A reservation of nothing is never refused.
        if amount:
            for agent_id, most in self.spender.agents if self.spender else ():
                ledger.bound_agent(self.organisation_id, agent_id, MOST if most is None else most)
            balance, budgets = account.balance, ledger.budgets(reservation)
            if self.least is not None:
                room_left = [budget.most - budget.spent_nanos - budget.reserved_nanos for budget in budgets]
                room_left += [] if balance.available is None else [balance.available]
                # Leaves credits for other calls.
                amount = max(self.least, min([amount, *(room // _SHARES for room in room_left)]))
            if balance.available is not None and balance.available < amount:
                raise describe_exhausted_credits(balance, amount)
            for budget in budgets:
                if not budget.fits(amount):
                    raise describe_exhausted_budget(budget, amount)
        reservation.amount = amount
        ledger.hold(reservation, self.purpose, ledger.now + self.ttl)
        return Reservation(self.id, self.organisation_id, amount)

    def undo(self, result: Reservation) -> Operation:
        return Release(result.id, self.organisation_id)


@dataclass(frozen=True, slots=True)
class Settle(Operation):
    reservation_id: str
    organisation_id: str
    cost: int
    usage: Usage
    capped: bool = False
    """Whether no more is charged than what is left in the balance and in each budget, with what is reserved."""

    def apply(self, ledger: Ledger) -> int:
        """Returns what was charged, or counted: now, or when it was settled before."""
        reservation = ledger.reservations.get(self.reservation_id)
        if (
            reservation is None
            or reservation.organisation_id not in ledger.accounts
            or reservation.organisation_id != self.organisation_id
        ):
            raise UnknownReservation(self.reservation_id)
        if reservation.cost is not None:
            return reservation.cost
        cost = self.cost
        if self.capped:
            available = ledger.accounts[self.organisation_id].balance.available
            rooms = [each.most - each.spent_nanos - each.reserved_nanos for each in ledger.budgets(reservation)]
            rooms += [] if available is None else [available]
            held_amount = reservation.amount if reservation.is_open else 0
            cost = min([cost, *(max(0, room + held_amount) for room in rooms)])
        ledger.end(reservation, 0 if self.usage.byok else cost)
        ledger.count(reservation, self.usage, cost)
        return cost


@dataclass(frozen=True, slots=True)
class Release(Operation):
    reservation_id: str
    organisation_id: str
    only_overdue: bool = False
    """Whether only a reservation whose time is over is released."""

    def apply(self, ledger: Ledger) -> bool:
        """Returns whether the reservation was open."""
        reservation = ledger.reservations.get(self.reservation_id)
        if reservation is None or not reservation.is_open or reservation.organisation_id != self.organisation_id:
            return False
        if self.only_overdue and not reservation.is_overdue:
            return False
        ledger.end(reservation, None)
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
