"""The durable tier in SQLite files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.tiered.durable import LookupRequest, LookupResult, look_up_in
from baobab.storage.kv.transaction import Transaction

T = TypeVar("T")


class SqliteDurableEngine(SqliteEngine):
    async def look_up(self, request: LookupRequest) -> LookupResult:
        return await self._run_locked(request, lambda _, found: found)

    async def change_rows(
        self, request: LookupRequest, work: Callable[[Transaction, LookupResult], T], *, resizes: bool
    ) -> T:
        # SQLite has only one lock, however little changes.
        return await self._run_locked(request, work)

    async def wait_for_transactions(self, space: str) -> None:
        # One thread makes all writes in order, so this write comes after them.
        await self._writer.submit(lambda _: None)

    def _run_locked(self, request: LookupRequest, work: Callable[[Transaction, LookupResult], T]) -> asyncio.Future[T]:
        # Read before the lock: what others add meanwhile is counted in `pledged`.
        usage = self._reader.usage(request.space) if request.usage else Usage(0, 0)
        return self._writer.submit(
            lambda transaction: work(transaction, look_up_in(request, transaction, lambda _: usage))
        )
