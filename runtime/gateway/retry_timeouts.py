"""The time limits of calls to a model's provider."""

from dataclasses import dataclass
from math import inf

LONGEST_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class RetryTimeouts:
    """Time limits in seconds; infinity means no limit.

    first: until the first byte of a stream. between: from one piece of a stream to the next. total: for the whole call
    with all its tries. An answer in one piece has only this limit, because it sends nothing until it is complete.
    """

    first: float = inf
    between: float = inf
    total: float = inf

    def tighten(self, other: "RetryTimeouts") -> "RetryTimeouts":
        """Returns the smaller of both limits, one by one."""
        if other is NO_TIMEOUTS:
            return self
        return RetryTimeouts(
            min(self.first, other.first), min(self.between, other.between), min(self.total, other.total)
        )

    def limit_total(self, seconds: float) -> "RetryTimeouts":
        """Returns the same limits with at most so many seconds in total."""
        return RetryTimeouts(self.first, self.between, min(self.total, seconds))


NO_TIMEOUTS = RetryTimeouts()
DEFAULT_TIMEOUTS = RetryTimeouts(first=600.0, between=600.0, total=1200.0)
"""A model may think for ten minutes and then write for ten minutes."""
