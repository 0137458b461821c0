"""A cache of limited size: each entry has its own expiry, and each key is loaded by one caller at a time."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

from baobab.storage.clock import Clock

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Cache(Generic[K, V]):
    """Stores the results of `load`: a value for `keep` seconds, None for `keep_absent`.

    Callers that ask for a key while it is being loaded share that load. If a key is forgotten during its load, the
    result is not stored, so that a change in between is never overwritten by the older value.
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
        """Returns the value that is in memory now; None also if there is none, or if it has expired."""
        entry = self._entries.get(key)
        return entry[1] if entry is not None and entry[0] > self._time() else None

    async def get(self, key: K) -> V | None:
        entry = self._entries.get(key)
        if entry is not None and entry[0] > self._time():
            return entry[1]
        loading = self._loading.get(key)
        if loading is None:
            loading = self._loading[key] = asyncio.ensure_future(self._fill(key))
        # A caller that is cancelled must not cancel the load of the others.
        return await asyncio.shield(loading)

    def forget(self, key: K) -> None:
        self._entries.pop(key, None)
        self._loading.pop(key, None)

    def forget_value(self, value: V) -> None:
        """Forgets the keys that lead to a value, and those that lead to none, because they may now."""
        for key in [key for key, (_, entry) in self._entries.items() if entry is None or entry == value]:
            del self._entries[key]
        self._loading.clear()

    def clear(self) -> None:
        self._entries.clear()
        self._loading.clear()

    async def _fill(self, key: K) -> V | None:
        current_task = asyncio.current_task()
        try:
            value = await self._load(key)
        finally:
            current = self._loading.get(key) is current_task
            if current:
                del self._loading[key]
        if current:
            self._entries.pop(key, None)
            while len(self._entries) >= self._size:
                del self._entries[next(iter(self._entries))]
            self._entries[key] = (self._time() + (self._keep if value is not None else self._keep_absent), value)
        return value
