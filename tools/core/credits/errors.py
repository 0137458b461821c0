"""What credits refuse."""

from baobab.tools.core.credits.budgets import Budget
from baobab.tools.core.credits.terms import Balance, usd
from baobab.tools.core.errors import BaobabError, Conflict, NotFound

_REASONS = {False: "spent", True: "set_aside"}
_FIGURES = "details.reserved_usd is what is set aside."


class CreditsExhausted(BaobabError):
    """The organisation has not enough; the details tell what it has, in dollars."""

    code = "INSUFFICIENT_CREDITS"
    status = 402
    summary = "The organisation's credits do not suffice."
    remediation = "Top up, or wait for the next month's allowance; details.available_usd is what is left."

    def __init__(self, balance: Balance, amount: int) -> None:
        fits = balance.available is not None and balance.available + balance.reserved >= amount
        told = {"exhausted": "credits", "reason": _REASONS[fits], "required_usd": usd(amount), **balance.told()}
        if fits:
            super().__init__(
                "The organisation's credits are set aside for calls under way: this one does not fit beside them.",
                remediation=f"Send it again when some of them have ended, ask for fewer tokens, or top up. {_FIGURES}",
                details=told,
            )
        else:
            super().__init__(details=told)
        self.balance = balance


class BudgetExhausted(BaobabError):
    """A budget of the app or the key does not allow it, whatever the organisation has."""

    code = "BUDGET_EXHAUSTED"
    status = 402
    summary = "A budget is spent."
    remediation = (
        "Ask for fewer tokens, wait until details.budget.resets_at, or have an owner of the organisation raise the"
        " budget."
    )

    def __init__(self, budget: Budget, amount: int) -> None:
        fits = budget.spent + amount <= budget.most
        told = {"exhausted": "budget", "reason": _REASONS[fits], "required_usd": usd(amount), "budget": budget.told()}
        whose = f"The {budget.period}'s budget of this {budget.subject}"
        if fits:
            super().__init__(
                f"{whose} is set aside for calls under way: this one does not fit beside them.",
                remediation="Send it again when some of them have ended, ask for fewer tokens, or have an owner of the"
                " organisation raise the budget. details.budget says what is spent and what is set aside.",
                details=told,
            )
        else:
            super().__init__(f"{whose} has not enough left for this call.", details=told)
        self.budget = budget


class TopUpConflict(Conflict):
    code = "TOP_UP_CONFLICT"
    summary = "A top-up of this reference was made with another amount."
    remediation = "Use a reference of its own for each payment."


class NoCreditAccount(NotFound):
    summary = "There is no such organisation."


class UnknownReservation(Exception):
    """Never made by this organisation, or ended so long ago that it has been forgotten."""
