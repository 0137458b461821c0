"""A budget of bytes for the request bodies that this process reads and parses at the same time."""

import contextlib
from collections import Counter
from collections.abc import Iterator

from baobab.tools.core.errors import BusyWithBodies

FREE = 64 * 1024
"""The size in bytes up to which a body is not counted; the number of connections limits such bodies."""


class BodyBudget:
    """Room for request bodies, in bytes.

    in_all: of all bodies together. of_one: of one caller. of_anonymous: of all callers without a credential together.
    """

    def __init__(self, in_all: int = 256 * 2**20, of_one: int = 96 * 2**20, of_anonymous: int = 64 * 2**20) -> None:
        self._in_all = in_all
        self._of_one = of_one
        self._of_anonymous = of_anonymous
        self._bytes_by_caller: Counter[str] = Counter()
        self._total = self._anonymous = 0

    @contextlib.contextmanager
    def hold(self, owner: str, size: int, *, anonymous: bool) -> Iterator[None]:
        """Reserves room for a body while it is read and parsed. Raises BusyWithBodies.

        owner: the caller, or the network of an anonymous caller.
        """
        if (
            self._total + size > self._in_all
            or self._bytes_by_caller[owner] + size > self._of_one
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
        self._bytes_by_caller[owner] += size
        if not self._bytes_by_caller[owner]:
            del self._bytes_by_caller[owner]
        if anonymous:
            self._anonymous += size


BODIES = BodyBudget()
