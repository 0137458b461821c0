"""Places that each has a share of: so many at once for one key, and nobody waits for another's."""

import asyncio
from collections.abc import AsyncGenerator, Hashable
from contextlib import asynccontextmanager


class KeyedSemaphore:
    """So many places for each key; keys that nobody uses are forgotten."""

    def __init__(self, each: int) -> None:
        self._each = each
        self._semaphores: dict[Hashable, tuple[asyncio.Semaphore, int]] = {}

    @asynccontextmanager
    async def acquire_slot(self, key: Hashable, each: int | None = None) -> AsyncGenerator[None, None]:
        """A place of this key's, once one is free. each: how many this key has, where not as many as all."""
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
