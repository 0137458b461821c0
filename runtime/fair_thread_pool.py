"""A thread pool that tenants share in turns: a tenant with much work delays only itself."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

from baobab.tools.core.errors import Unavailable
from baobab.tools.core.tenancy import current_tenant

T = TypeVar("T")


class FairThreadPool:
    """Threads for work of one kind. The caller is the tenant of the running call (`current_tenant`).

    Each caller may have one request at work and `most_waiting` waiting, all callers together `most_inside`; more raise
    Unavailable. Work is done in turns, one piece of each caller. Used on one event loop at a time.
    """

    def __init__(self, name: str, *, threads: int = 1, most_waiting: int = 8, most_inside: int = 256) -> None:
        self._name = name
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        self._most_waiting = most_waiting
        self._most_inside = most_inside
        self._inside: dict[str, int] = {}
        self._waiting: dict[str, deque[asyncio.Future[None]]] = {}

    def is_full(self, caller: str) -> bool:
        """Returns whether this caller would be refused."""
        full = sum(self._inside.values()) >= self._most_inside
        return full or self._inside.get(caller, 0) > self._most_waiting

    @contextmanager
    def reserve_place(self) -> Iterator[None]:
        """Reserves a place for all the work of one request. Raises Unavailable where there is none."""
        caller = current_tenant()
        if self.is_full(caller):
            raise Unavailable(f"There is too much to do for {self._name} at the moment.")
        self._inside[caller] = self._inside.get(caller, 0) + 1
        try:
            yield
        finally:
            self._inside[caller] -= 1
            if not self._inside[caller]:
                del self._inside[caller]

    async def run_work(self, work: Callable[[], T]) -> T:
        """Runs a piece of work in a thread and returns its result. Work that is cancelled before its turn does not
        run.
        """
        await self._wait_for_thread(current_tenant())
        try:
            future = self._threads.submit(work)
        except BaseException:
            self._release_thread()
            raise
        loop = asyncio.get_running_loop()
        # The thread is free only when the work is done, even if the caller was cancelled.
        future.add_done_callback(lambda _: _schedule_release(loop, self._release_thread))
        return await asyncio.wrap_future(future)

    async def _wait_for_thread(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(waiter)
        try:
            await waiter
        except BaseException:
            if waiter.done() and not waiter.cancelled():
                self._release_thread()
            raise

    def _release_thread(self) -> None:
        """Gives the thread to the next caller in the queue, who then goes to the end of it."""
        while self._waiting:
            caller = next(iter(self._waiting))
            waiters = self._waiting.pop(caller)
            waiter = waiters.popleft()
            if waiters:
                self._waiting[caller] = waiters
            if not waiter.done():
                waiter.set_result(None)
                return
        self._free += 1


def _schedule_release(loop: asyncio.AbstractEventLoop, release: Callable[[], None]) -> None:
    if not loop.is_closed():
        loop.call_soon_threadsafe(release)
