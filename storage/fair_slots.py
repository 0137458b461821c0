"""Places that several keys share, such as the reads of all apps in one worker."""

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager

_Waiting = deque[asyncio.Future[None]]


class FairSlots:
    """A number of places, of which each key has some at most, and of those each caller some at most.

    A place that becomes free goes to the key that holds the fewest, and among its callers to the one that has waited
    for a turn the longest. So whoever asks for a hundred places delays nobody else by more than one turn.
    """

    def __init__(self, total: int, *, of_key: int, of_caller: int) -> None:
        self._free = total
        self._of_key = of_key
        self._of_caller = of_caller
        self._held: Counter[Hashable] = Counter()
        self._held_by_caller: Counter[tuple[Hashable, Hashable]] = Counter()
        self._waiting: dict[Hashable, OrderedDict[Hashable, _Waiting]] = {}

    @asynccontextmanager
    async def acquire_slot(self, key: Hashable, caller: Hashable | None = None) -> AsyncGenerator[None, None]:
        """Waits for a place. caller: None for the key's owner, whom only the limit of the key bounds."""
        await self._acquire(key, caller)
        try:
            yield
        finally:
            self._release(key, caller)

    async def _acquire(self, key: Hashable, caller: Hashable | None) -> None:
        # Whoever waits already, waits for a place that the newcomer may not have either, or is another's.
        if caller not in self._waiting.get(key, ()) and self._may_take(key, caller):
            self._take(key, caller)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, OrderedDict()).setdefault(caller, deque()).append(future)
        try:
            await future
        except asyncio.CancelledError:
            if future.cancelled():
                self._forget(key, caller, future)
            else:
                self._release(key, caller)
            raise

    def _may_take(self, key: Hashable, caller: Hashable | None) -> bool:
        is_in_bounds = caller is None or self._held_by_caller[key, caller] < self._of_caller
        return self._free > 0 and self._held[key] < self._of_key and is_in_bounds

    def _take(self, key: Hashable, caller: Hashable | None) -> None:
        self._free -= 1
        self._held[key] += 1
        self._held_by_caller[key, caller] += 1

    def _release(self, key: Hashable, caller: Hashable | None) -> None:
        self._free += 1
        self._held[key] -= 1
        self._held_by_caller[key, caller] -= 1
        if not self._held_by_caller[key, caller]:
            del self._held_by_caller[key, caller]
        if not self._held[key]:
            del self._held[key]
        self._pass_on()

    def _pass_on(self) -> None:
        while (turn := self._find_next()) is not None:
            key, caller = turn
            callers = self._waiting[key]
            futures = callers.pop(caller)
            future = futures.popleft()
            if futures:
                # Back to the end, so that the callers take turns.
                callers[caller] = futures
            elif not callers:
                del self._waiting[key]
            if not future.done():
                self._take(key, caller)
                future.set_result(None)

    def _find_next(self) -> tuple[Hashable, Hashable | None] | None:
        turns = [
            (key, caller)
            for key, callers in self._waiting.items()
            if (caller := next((each for each in callers if self._may_take(key, each)), _NOBODY)) is not _NOBODY
        ]
        return min(turns, key=lambda turn: self._held[turn[0]], default=None)

    def _forget(self, key: Hashable, caller: Hashable | None, future: asyncio.Future[None]) -> None:
        callers = self._waiting.get(key, OrderedDict())
        futures = callers.get(caller, deque())
        if future in futures:
            futures.remove(future)
            if not futures:
                del callers[caller]
            if not callers:
                del self._waiting[key]


_NOBODY = object()
