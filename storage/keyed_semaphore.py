"""A semaphore for each key, so that the users of one key do not wait for those of another."""

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager


class KeyedSemaphore:
    """Semaphores of `each` slots, one for each key. Keys that nobody uses are forgotten."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._semaphores: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def acquire_slot(self, key: Hashable, each: int | None = None) -> AsyncGenerator[None, None]:
        """Waits for a slot of this key. each: the number of slots of this key, if it differs from the others."""
        semaphore, users = self._semaphores.get(key) or (asyncio.Semaphore(each or self._each), 0)
        self._semaphores[key] = semaphore, users + 1
        try:
            async with semaphore:
                yield
        finally:
            users = self._semaphores[key][1] - 1
            if users:
                self._semaphores[key] = semaphore, users
            else:
                del self._semaphores[key]
