"""The errors of credits and budgets, and their descriptions."""

from baobab.tools.billing.ledger.budgets import Budget
from baobab.tools.billing.ledger.terms import Balance
from baobab.tools.core import Conflict, NotFound
from baobab.tools.core.limits.credits import BudgetExhausted, CreditsExhausted
from baobab.tools.core.limits.money import usd

_REASONS = {False: "spent", True: "set_aside"}
_FIGURES = "details.reserved_usd is what is reserved."


class TopUpConflict(Conflict):
    code = "TOP_UP_CONFLICT"
    summary = "A top-up of this reference was made with another amount."
    remediation = "Use a reference of its own for each payment."


class NoCreditAccount(NotFound):
    summary = "There is no such organisation."


def describe_exhausted_credits(balance: Balance, amount: int) -> CreditsExhausted:
    """Returns the error for an amount that the balance does not allow: what there is, and whether calls under way hold
    it.
    """
    fits = balance.available is not None and balance.available + balance.reserved_nanos >= amount
    details = {"exhausted": "credits", "reason": _REASONS[fits], "required_usd": usd(amount), **balance.as_details()}
    if not fits:
        return CreditsExhausted(details=details)
    return CreditsExhausted(
        "The organisation's credits are reserved for calls that are running, so this one does not fit.",
        remediation=f"Send it again when some of them have ended, ask for fewer tokens, or top up. {_FIGURES}",
        details=details,
    )


def describe_exhausted_budget(budget: Budget, amount: int) -> BudgetExhausted:
    """Returns the error for an amount that a budget does not allow: what is left, and what calls in progress hold."""
    fits = budget.spent_nanos + amount <= budget.most
    details = {
        "exhausted": "budget",
        "reason": _REASONS[fits],
        "required_usd": usd(amount),
        "budget": budget.as_details(),
    }
    subject = f"The {'daily' if budget.period == 'day' else 'monthly'} budget of this {budget.subject}"
    if not fits:
        return BudgetExhausted(budget, f"{subject} does not have enough left for this call.", details=details)
    return BudgetExhausted(
        budget,
        f"{subject} is reserved for calls that are running, so this one does not fit.",
        remediation="Send it again when some of them have ended, ask for fewer tokens, or have an admin or owner of the"
        " organisation raise the budget. details.budget says what is spent and what is reserved.",
        details=details,
    )
