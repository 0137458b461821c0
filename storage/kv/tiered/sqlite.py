"""The durable tier in files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.tiered.durable import Asked, Found, seen
from baobab.storage.kv.transaction import Transaction

T = TypeVar("T")


class DurableFiles(SqliteEngine):
    async def find(self, asked: Asked) -> Found:
        return await self._while_locked(asked, lambda _, found: found)

    async def change(self, asked: Asked, work: Callable[[Transaction, Found], T], *, resizes: bool) -> T:
        # There is one lock, however little is changed.
        return await self._while_locked(asked, work)

    async def decided(self, space: str) -> None:
        # One thread makes all writes, one after the other.
        await self._writer.submit(lambda _: None)

    def _while_locked(self, asked: Asked, work: Callable[[Transaction, Found], T]) -> asyncio.Future[T]:
        # Before the lock: what others add meanwhile is counted by their turns.
        usage = self._reader.usage(asked.space) if asked.usage else Usage(0, 0)
        return self._writer.submit(lambda transaction: work(transaction, seen(asked, transaction, lambda _: usage)))
