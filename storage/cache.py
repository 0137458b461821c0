"""A bounded table of looked-up things, each with its own deadline, one look-up at a time per key."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from baobab.storage.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Keeps what `load` answered: a value for `keep` seconds, None for `keep_absent`.

    Callers that ask for the same key while it is being loaded share that one load. A key forgotten during its load
    is not kept, so that a change which arrives in between is never overwritten by the older answer.
    """

    def __init__(
        self,
        load: Callable[[K], Awaitable[V | None]],
        clock: Clock,
        *,
        keep: float = 30.0,
        keep_absent: float = 2.0,
        size: int = 10_000,
    ) -> None:
        self._load = load
        self._time = clock.time
        self._keep = keep
        self._keep_absent = keep_absent
        self._size = size
        self._entries: dict[K, tuple[float, V | None]] = {}
        self._loading: dict[K, asyncio.Future[V | None]] = {}

    def find_cached(self, key: K) -> V | None:
        """What is in memory now; None also when nothing is, or when it is too old."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] > self._time() else None

    async def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is not None and entry[0] > self._time():
            return entry[1]
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(self._fill(key))
        # One caller that goes away must not take the others' answer with it.
        return await asyncio.shield(loading)

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
        self._loading.pop(key, None)

    def clear(self) -> None:
        self._entries.clear()
        self._loading.clear()

    async def _fill(self, key: K) -> V | None:
        this = asyncio.current_task()
        try:
            value = await self._load(key)
        finally:
            current = self._loading.get(key) is this
            if current:
                del self._loading[key]
        if current:
            self._entries.pop(key, None)
            while len(self._entries) >= self._size:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (self._time() + (self._keep if value is not None else self._keep_absent), value)
        return value
