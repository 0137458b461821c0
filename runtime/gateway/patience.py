"""How long a model's provider is waited for."""

from dataclasses import dataclass
from math import inf

LONGEST_SECONDS = 7200.0


@dataclass(frozen=True, slots=True)
class Patience:
    """Bounds in seconds; infinity is no bound.

    first: until the first byte of a stream. between: from one piece of a stream to the next. total: for all of a call,
    every try of it included; an answer in one piece has this bound alone, for it is silent until it is done.
    """

    first: float = inf
    between: float = inf
    total: float = inf

    def within(self, other: "Patience") -> "Patience":
        """The tighter of both, bound by bound."""
        if other is NO_BOUNDS:
            return self
        return Patience(min(self.first, other.first), min(self.between, other.between), min(self.total, other.total))

    def limited_to(self, seconds: float) -> "Patience":
        """The same, with so many seconds in all."""
        return Patience(self.first, self.between, min(self.total, seconds))


NO_BOUNDS = Patience()
USUAL = Patience(first=600.0, between=600.0, total=1200.0)
"""A model may think for ten minutes, and then has as long to write."""
