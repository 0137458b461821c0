"""The values that an evaluation sees, the limits of its cost, and its errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from baobab.runtime.work_budget import Budget, OverBudget

MAX_VISITED = 250_000
"""The most values of the data that operations may visit; `_CHARACTERS` characters of a text count as one."""
MAX_BYTES = 16_000_000
"""The most bytes of texts and lists that operations may create."""
_CHARACTERS = 64


class RuleError(Exception):
    """A rule is invalid or failed. The text says why, without the values."""


class RuleInvalid(RuleError):
    """The rule is invalid. `path` leads to the part that is wrong."""

    def __init__(self, path: Sequence[str | int], message: str) -> None:
        super().__init__(message)
        self.path = tuple(path)


class RuleFailed(RuleError):
    """The rule cannot be evaluated with these values, such as a sum of texts."""


class EvaluationContext:
    """The values that rules see. Rules that are evaluated together share one budget of values and bytes."""

    __slots__ = ("_budget", "values")

    def __init__(self, values: Any, budget: Budget | None = None) -> None:
        self.values = values
        self._budget = Budget(MAX_VISITED, MAX_BYTES) if budget is None else budget

    def within(self, values: Any) -> EvaluationContext:
        """Returns the context of a rule that sees other values, such as an item of a list."""
        return EvaluationContext(values, self._budget)

    def visit(self, values: Sequence[Any]) -> None:
        """Counts the values that an operation is about to visit. Raises RuleFailed if the limit is exceeded."""
        waiting = [values]
        while waiting:
            items = waiting.pop()
            steps = len(items)
            for item in items:
                if isinstance(item, str):
                    steps += len(item) // _CHARACTERS
                elif isinstance(item, list):
                    waiting.append(item)
                elif isinstance(item, Mapping):
                    waiting.append(list(item.values()))
            self.spend(steps)

    def spend(self, steps: int = 0, made_bytes: int = 0) -> None:
        """Counts steps and bytes that are about to be spent. Raises RuleFailed if a limit is exceeded."""
        try:
            self._budget.spend(steps, made_bytes)
        except OverBudget as exc:
            if self._budget.steps < 0:
                raise RuleFailed(f"the rules would visit more than {MAX_VISITED} values") from exc
            raise RuleFailed(f"the rules would make more than {MAX_BYTES} bytes") from exc
