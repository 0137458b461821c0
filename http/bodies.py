"""Bytes of bodies that are being read or parsed in this process: one budget, of which nobody may take all."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from baobab.tools.core.errors import BusyWithBodies

FREE = 64 * 1024
"""Bytes of a body that are not counted: there are only so many connections."""


class BodyBudget:
    """in_all: bytes of all bodies at once; of_one: of one caller, or of one address without a credential."""

    def __init__(self, in_all: int = 256 * 2**20, of_one: int = 96 * 2**20, of_strangers: int = 64 * 2**20) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._of_strangers = of_strangers
        self._held: Counter[str] = Counter()
        self._total = self._strangers = 0

    @contextlib.contextmanager
    def hold(self, whose: str, size: int, *, stranger: bool) -> Iterator[None]:
        """Room for a body of so many bytes, from before it is read until it was parsed; BusyWithBodies."""
        if (
            self._total + size > self._in_all
            or self._held[whose] + size > self._of_one
            or (stranger and self._strangers + size > self._of_strangers)
        ):
            raise BusyWithBodies
        self._take(whose, size, stranger)
        try:
            yield
        finally:
            self._take(whose, -size, stranger)

    def _take(self, whose: str, size: int, stranger: bool) -> None:
        self._total += size
        self._held[whose] += size
        if not self._held[whose]:
            del self._held[whose]
        if stranger:
            self._strangers += size


BODIES = BodyBudget()
