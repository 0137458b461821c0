"""The durable tier in Postgres. Groups of many spaces share statements and commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.idempotency import SPACE
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.postgres.writer import WriteJob
from baobab.storage.kv.tiered.durable import LookupRequest, LookupResult, look_up_in
from baobab.storage.kv.tiered.finder import LookupBatcher

T = TypeVar("T")


class PostgresDurableEngine(PostgresEngine):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._lookup_batcher = LookupBatcher(self._fetch_rows, lambda: self._now)

    async def look_up(self, request: LookupRequest) -> LookupResult:
        return await self._lookup_batcher.look_up(request)

    async def change_rows(self, request: LookupRequest, work: Callable[[Any, LookupResult], T], *, resizes: bool) -> T:
        def write(transaction: Any) -> T:
            def usage(exact: bool) -> Usage:
                total: Usage = transaction.total(request.space, exact=exact)
                return total

            return work(transaction, look_up_in(request, transaction, usage))

        places = tuple((request.space, key) for key in request.keys) + tuple((SPACE, token) for token in request.tokens)
        result: T = await self._select_writer(request.space).submit(
            WriteJob(write, request.space, places, alone=resizes)
        )
        return result

    async def wait_for_transactions(self, space: str) -> None:
        # This acquires the lock of the space, which means that every earlier transaction has ended.
        await self._select_writer(space).submit(WriteJob(lambda _: None, space))
