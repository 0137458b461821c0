"""Threads that callers share in turns: a caller with much to do delays itself and nobody else."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from baobab.tools.core.errors import Unavailable
from baobab.tools.core.tenancy import current_tenant

T = TypeVar("T")


class Turns:
    """Threads for work of one kind; who asks is whoever the call that is under way is for (`current_tenant`).

    Each may have `most_waiting` requests inside, all together `most_inside`; Unavailable for more. Pieces of work are
    done in turns, one of each caller. Used on one event loop at a time.
    """

    def __init__(self, name: str, *, threads: int = 1, most_waiting: int = 8, most_inside: int = 256) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._most_waiting = most_waiting
        self._most_inside = most_inside
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def full(self, caller: str) -> bool:
        """Whether this caller would be refused."""
        full = sum(self._inside.values()) >= self._most_inside
        return full or self._inside.get(caller, 0) > self._most_waiting

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place for one request, for all that it does in turn; Unavailable where there is none."""
        caller = current_tenant()
        if self.full(caller):
            raise Unavailable(f"There is too much to do for {self._name} at the moment.")
        self._inside[caller] = self._inside.get(caller, 0) + 1
        try:
            yield
        finally:
            self._inside[caller] -= 1
            if not self._inside[caller]:
                del self._inside[caller]

    async def run(self, work: Callable[[], T]) -> T:
        """The result of a piece of work. Whoever is cancelled before its turn comes has nothing done."""
        await self._turn(current_tenant())
        try:
            done = self._threads.submit(work)
        except BaseException:
            self._release()
            raise
        loop = asyncio.get_running_loop()
        # The thread is free when the work is done, also where nobody waits for it any more.
        done.add_done_callback(lambda _: _tell(loop, self._release))
        return await asyncio.wrap_future(done)

    async def _turn(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._release()
            raise

    def _release(self) -> None:
        """Give the thread to whoever's turn is next; a caller goes to the end of the line with each."""
        while self._waiting:
            caller = next(iter(self._waiting))
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1


def _tell(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(release)
