"""Bytes of bodies that are being read or parsed in this process: one budget, of which nobody may take all."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from baobab.tools.core.errors import BusyWithBodies

FREE = 64 * 1024
"""Bytes of a body that are not counted: there are only so many connections."""


class BodyBudget:
    """in_all: bytes of all bodies at once; of_one: of one caller, or of one address without a credential."""

    def __init__(self, in_all: int = 256 * 2**20, of_one: int = 96 * 2**20, of_anonymous: int = 64 * 2**20) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._of_anonymous = of_anonymous
        self._held: Counter[str] = Counter()
        self._total = self._anonymous = 0

    @contextlib.contextmanager
    def hold(self, owner: str, size: int, *, anonymous: bool) -> Iterator[None]:
        """Room for a body of so many bytes, from before it is read until it was parsed; BusyWithBodies."""
        if (
            self._total + size > self._in_all
            or self._held[owner] + size > self._of_one
            or (anonymous and self._anonymous + size > self._of_anonymous)
        ):
            raise BusyWithBodies
        self._take(owner, size, anonymous)
        try:
            yield
        finally:
            self._take(owner, -size, anonymous)

    def _take(self, owner: str, size: int, anonymous: bool) -> None:
        self._total += size
        self._held[owner] += size
        if not self._held[owner]:
            del self._held[owner]
        if anonymous:
            self._anonymous += size


BODIES = BodyBudget()
