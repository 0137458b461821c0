"""The durable tier in files."""

from __future__ import annotations

from collections.abc import Sequence

from baobab.storage.kv.engine import Usage
from baobab.storage.kv.once import SPACE
from baobab.storage.kv.sqlite import SqliteEngine
from baobab.storage.kv.tiered.durable import Deed, Found, apply
from baobab.storage.kv.transaction import Transaction


class DurableFiles(SqliteEngine):
    async def find(self, space: str, keys: Sequence[str], tokens: Sequence[str], *, usage: bool) -> Found:
        def look(transaction: Transaction) -> Found:
            rows = ((key, transaction.current(space, key)) for key in keys)
            kept = ((token, transaction.current(SPACE, token)) for token in tokens)
            return Found(
                {key: found[1] for key, found in rows if found is not None},
                {token: found[1] for token, found in kept if found is not None},
                transaction.is_frozen(space),
                Usage(0, 0),
            )

        found = await self._writer.submit(look)
        return found._replace(usage=await self.usage(space)) if usage else found

    async def do(self, deed: Deed) -> None:
        await self._writer.submit(lambda transaction: apply(deed, transaction))

    async def decided(self, space: str) -> None:
        # One thread makes all writes, one after the other.
        await self._writer.submit(lambda _: None)
