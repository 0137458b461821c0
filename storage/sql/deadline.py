"""The moment by which a statement of an app's file must have ended.

SQLite itself asks only between the steps of its machine whether to stop, and a call of a function is one step, however
long it takes. So each function asks too, before it begins and within its loops.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Check = Callable[[], None]
"""A function that raises DeadlinePassed once the running statement must end."""


class DeadlinePassed(Exception):
    """A function was stopped. SQLite fails the statement that has called it."""


class Deadline:
    """The deadline of one connection, for the statements that follow it."""

    def __init__(self) -> None:
        self._ends_at = self._calls_end_at = float("inf")
        self.has_stopped_a_call = False
        """Whether what the running statement answers is wrong, or missing."""
        self.stops_comparisons = False
        """Whether comparisons may be stopped too. In a transaction that writes, a wrong one could end in an index."""

    def set(self, seconds: float | None) -> None:
        """Sets how long the next statements may take together; None for no limit."""
        self._ends_at = self._calls_end_at = float("inf") if seconds is None else time.monotonic() + seconds
        self.has_stopped_a_call = False

    def set_for_calls(self, seconds: float) -> None:
        """Sets an earlier end for the functions that they call."""
        self._calls_end_at = min(self._ends_at, time.monotonic() + seconds)

    def pull(self) -> None:
        """Ends what runs, in any thread."""
        self._ends_at = self._calls_end_at = float("-inf")

    @contextmanager
    def narrow(self, seconds: float) -> Iterator[None]:
        """Sets an earlier end for the statements of a block that only read, and for their comparisons too."""
        before = self._ends_at, self._calls_end_at, self.stops_comparisons
        self._ends_at = min(self._ends_at, time.monotonic() + seconds)
        self._calls_end_at = min(self._calls_end_at, self._ends_at)
        self.stops_comparisons = True
        try:
            yield
        finally:
            # What was pulled meanwhile stays so.
            if self._ends_at != float("-inf"):
                self._ends_at, self._calls_end_at = before[:2]
            self.stops_comparisons = before[2]

    @property
    def has_passed(self) -> bool:
        return time.monotonic() > self._ends_at

    def check(self) -> None:
        """Raises DeadlinePassed in a function that must end."""
        if time.monotonic() > self._calls_end_at:
            self.has_stopped_a_call = True
            raise DeadlinePassed
