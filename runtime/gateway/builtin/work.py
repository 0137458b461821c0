"""The thread in which the built-in models do what takes long: one for a process, and a short line before it."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from baobab.tools.errors import Unavailable

T = TypeVar("T")

_MOST_WAITING = 8


class Line:
    """One request is worked on, and `most_waiting` more may wait. Those inside take turns, a piece of work each."""

    def __init__(self, most_waiting: int = _MOST_WAITING) -> None:
        # More threads would take the processors from those who only wait for the network.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="built-in-models")
        self._places = 1 + most_waiting

    @property
    def full(self) -> bool:
        return not self._places

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request, for all that it does in turn; Unavailable where there is none."""
        if self.full:
            raise Unavailable("The built-in models have too much to do.")
        self._places -= 1
        try:
            yield
        finally:
            self._places += 1

    async def in_turn(self, work: Callable[[], T]) -> T:
        """The result of a piece of work. Whoever is cancelled before its turn comes has nothing done."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)


LINE = Line()
