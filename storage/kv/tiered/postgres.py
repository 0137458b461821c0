"""The durable tier in Postgres. The groups of many spaces share its statements and its commits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.once import SPACE
from baobab.storage.kv.postgres.engine import PostgresEngine
from baobab.storage.kv.postgres.writer import Job
from baobab.storage.kv.tiered.durable import Asked, Found, seen
from baobab.storage.kv.tiered.finder import Finder

T = TypeVar("T")


class DurablePostgres(PostgresEngine):
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._finder = Finder(self._rows, lambda: self._now)

    async def find(self, asked: Asked) -> Found:
        return await self._finder.find(asked)

    async def change(self, asked: Asked, work: Callable[[Any, Found], T], *, resizes: bool) -> T:
        def write(transaction: Any) -> T:
            def usage(exact: bool) -> Usage:
                total: Usage = transaction.total(asked.space, exact=exact)
                return total

            return work(transaction, seen(asked, transaction, usage))

        places = tuple((asked.space, key) for key in asked.keys) + tuple((SPACE, token) for token in asked.tokens)
        changed: T = await self._writer(asked.space).submit(Job(write, asked.space, places, alone=resizes))
        return changed

    async def decided(self, space: str) -> None:
        # The lock of the space is free for this when no earlier transaction has it any more, wherever that is.
        await self._writer(space).submit(Job(lambda _: None, space))
