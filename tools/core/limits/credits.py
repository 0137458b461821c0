"""Credits as the framework, the engines and the other domains see them; `tools/billing/` keeps the accounts.

Whoever is about to spend reserves first and settles after. All money is integer nano-dollars.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any, Protocol

from sqlalchemy import ColumnElement

from baobab.storage.sql.database import Execute, Unit
from baobab.tools.core.errors import BaobabError

_LARGEST = 10**12
_LONGEST_MODEL = 200


@dataclass(frozen=True, slots=True)
class Spender:
    """The run of an agent for which something is spent.

    agents: the ids of its agent, and of those in whose runs it is a step; and what the runs of each may cost in a day
    (UTC), in nano-dollars. None for no bound.
    """

    run_id: str
    agents: tuple[tuple[str, int | None], ...]


@dataclass(frozen=True, slots=True)
class Reservation:
    """Money set aside, in nano-dollars. A job that outlives its process keeps these three beside its own row."""

    id: str
    organisation_id: str
    amount: int


@dataclass(frozen=True, slots=True)
class Usage:
    """byok: the provider was paid by the customer; what it cost is counted and not charged. ValueError."""

    model: str
    prompt_tokens: int = 0
    completion_tokens: int = 0
    requests: int = 1
    byok: bool = False

    def __post_init__(self) -> None:
        # Here, where one caller hears of it: in the database it would undo what others do in the same transaction.
        if not all(0 <= count <= _LARGEST for count in (self.prompt_tokens, self.completion_tokens, self.requests)):
            raise ValueError("counts are between 0 and 10**12")
        if not self.model or len(self.model) > _LONGEST_MODEL or "\0" in self.model:
            raise ValueError(f"a model's id has 1 to {_LONGEST_MODEL} characters and no NUL")


@dataclass(frozen=True, slots=True)
class UsageLine:
    """A sum of usage. A part that was not asked for is None; the id of no app or no key is the empty string."""

    day: date | None
    app_id: str | None
    key_id: str | None
    model: str | None
    byok: bool
    requests: int
    prompt_tokens: int
    completion_tokens: int
    cost: int
    """Nano-dollars: charged, or with `byok` not."""


class Budget(Protocol):
    """The most that an app, a key or an agent may spend in a day or a month, as other domains than billing see it."""

    @property
    def subject(self) -> str:
        """`app`, `key` or `agent`."""
        ...

    @property
    def spent_nanos(self) -> int:
        """Nano-dollars, in this day or month (UTC)."""
        ...


class CreditsExhausted(BaobabError):
    """The organisation has not enough; the details tell what it has, in dollars."""

    code = "INSUFFICIENT_CREDITS"
    status = 402
    summary = "The organisation does not have enough credits for this call."
    remediation = (
        "Ask for fewer tokens, wait for the next month if the plan has an allowance, or have the operator top up."
        " What is left is in details.available_usd."
    )


class BudgetExhausted(BaobabError):
    """A budget of the app, the key or the agent does not allow it, whatever the organisation has."""

    code = "BUDGET_EXHAUSTED"
    status = 402
    summary = "A budget is spent."
    remediation = (
        "Ask for fewer tokens, wait until details.budget.resets_at, or have an admin or owner of the organisation raise"
        " the budget."
    )

    def __init__(
        self, budget: Budget, message: str, *, remediation: str | None = None, details: Mapping[str, Any]
    ) -> None:
        super().__init__(message, remediation=remediation, details=details)
        self.budget = budget


class UnknownReservation(Exception):
    """Never made by this organisation, or ended so long ago that it has been forgotten."""


class Credits(Protocol):
    """The port to the ledger.

    Every method may raise DatabaseUnavailable. It is then safe to settle or release again; a reservation whose answer
    was lost is given back when its time is over.
    """

    @property
    def has_budget_column(self) -> ColumnElement[bool]:
        """A column to select beside those of `api_keys`: whether the key has a budget."""
        ...

    async def open_account(self, execute: Execute, organisation: Mapping[str, Any]) -> None:
        """Opens the account of a new organisation, in the transaction that creates it. organisation: its row."""
        ...

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
        """Reserves an amount. Raises CreditsExhausted or BudgetExhausted (both 402), or NotFound for no organisation.

        amount: in nano-dollars; 0 if nothing will be charged (a free model, the customer's own key), never refused.
        least: the smallest amount that is of use, if less than `amount` will do: then at most a quarter of what is left
            in the balance and in each budget is reserved, and never less than this.
        ttl_seconds: after how long the amount is given back; a later settlement is still charged.
        spender: the run of an agent that spends it; the amount counts against the daily budgets of its agents.
        """
        ...

    def for_attempt(self, token: str) -> "Credits":
        """Returns credits for one attempt at work that may be repeated, which charge for it once.

        Each reservation of the attempt stands for the same one of an earlier attempt with this token: what that has
        settled is not charged again, and what it has left open is held once. An attempt makes its reservations in the
        order of those before it.
        """
        ...

    async def extend(self, reservation: Reservation, ttl_seconds: float) -> None:
        """Extends a reservation to `ttl_seconds` from now. Does nothing if it has ended."""
        ...

    async def settle(
        self,
        reservation: Reservation,
        cost: int,
        usage: Usage,
        *,
        capped: bool = False,
        unit: Unit | None = None,
    ) -> int:
        """Charges the cost, gives back the rest and counts the usage: once, however often it is called. Returns what
        was charged.

        cost: in nano-dollars; may exceed the reservation and the balance, which then is negative. With `usage.byok` it
        is counted and not charged. Raises UnknownReservation.
        capped: charge no more than the reservation and what is left in the balance and in each budget.
        unit: a transaction of the credits' database that the charge becomes part of.
        """
        ...

    async def release(self, reservation: Reservation) -> None:
        """Gives everything back. Does nothing if the reservation was released or settled before."""
        ...

    async def agent_budget(self, organisation_id: str, agent_id: str) -> Budget | None:
        """Returns what the runs of an agent have cost today (UTC); None if they have cost nothing for days."""
        ...

    async def run_cost(self, run_id: str) -> int:
        """Returns what the calls of an agent's run cost, in nano-dollars, without those of its child runs."""
        ...

    async def usage(
        self, organisation_id: str, first: date, last: date, *, app_id: str | None = None
    ) -> list[UsageLine]:
        """Returns what was settled in the days (UTC) from `first` to `last`, both included, by model."""
        ...
