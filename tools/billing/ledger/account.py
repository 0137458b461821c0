"""The account of one organisation: its terms, and what it has used of them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date

from baobab.storage.sql.statements import Statements
from baobab.tools.billing.ledger.terms import TERMS, Balance, Terms

_OPEN = """
    INSERT INTO credit_accounts (organisation_id, month, allowance_used, once_used, credits, reserved)
    SELECT id, ?, 0, 0, 0, 0 FROM organisations WHERE id IN ? ORDER BY id
    ON CONFLICT DO NOTHING"""


@dataclass(slots=True)
class Account:
    """The money of one organisation, as in its row."""

    organisation_id: str
    terms: Terms
    month: date
    allowance_used: int
    """The part of this month's allowance that was used."""
    once_used: int
    """The part that was used of an allowance that is given only once."""
    credits: int
    reserved_nanos: int

    def roll(self, today: date) -> None:
        """Begins the month of this day; never an earlier one, for another machine's clock may be ahead."""
        month = today.replace(day=1)
        if month > self.month:
            self.month, self.allowance_used = month, 0

    @property
    def balance(self) -> Balance:
        allowance = self.terms.allowance
        used_allowance = self.once_used if self.terms.once else self.allowance_used
        allowance_left = None if allowance is None else max(0, allowance - used_allowance)
        return Balance(allowance_left, self.credits, self.reserved_nanos, self.terms.floor)

    def debit(self, cost: int) -> None:
        """Charges an amount: to the allowance, then to the top-ups, whose balance may become negative."""
        allowance_left = self.balance.allowance
        from_allowance = cost if allowance_left is None else min(allowance_left, cost)
        if self.terms.once:
            self.once_used += from_allowance
        else:
            self.allowance_used += from_allowance
        self.credits -= cost - from_allowance


def open_accounts(statements: Statements, organisation_ids: Iterable[str], month: date) -> None:
    """Creates the accounts of organisations that have none yet.

    In a transaction of its own: one that holds locks may not wait for another that is just making the same account.
    """
    statements.rows(_OPEN, month, sorted(organisation_ids))


def terms_of(plan: str, allowance: int | None, floor: int | None) -> Terms:
    """Returns the terms of a plan, or an organisation's own if it has them."""
    terms = TERMS[plan]
    if allowance is None and floor is None:
        return terms
    return Terms(
        terms.allowance if allowance is None else allowance,
        terms.once and allowance is None,
        terms.floor if floor is None else floor,
    )
