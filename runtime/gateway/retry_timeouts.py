"""How long a model's provider is waited for."""

from dataclasses import dataclass
from math import inf

LONGEST_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class RetryTimeouts:
    """Bounds in seconds; infinity is no bound.

    first: until the first byte of a stream. between: from one piece of a stream to the next. total: for all of a call,
    every try of it included; an answer in one piece has this bound alone, for it is silent until it is done.
    """

    first: float = inf
    between: float = inf
    total: float = inf

    def tighten(self, other: "RetryTimeouts") -> "RetryTimeouts":
        """The tighter of both, bound by bound."""
        if other is NO_TIMEOUTS:
            return self
        return RetryTimeouts(
            min(self.first, other.first), min(self.between, other.between), min(self.total, other.total)
        )

    def limit_total(self, seconds: float) -> "RetryTimeouts":
        """The same, with so many seconds in all."""
        return RetryTimeouts(self.first, self.between, min(self.total, seconds))


NO_TIMEOUTS = RetryTimeouts()
DEFAULT_TIMEOUTS = RetryTimeouts(first=600.0, between=600.0, total=1200.0)
"""A model may think for ten minutes, and then has as long to write."""
