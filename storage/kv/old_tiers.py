"""The key-value store as earlier versions kept it on two servers: durable entries beside the rows, ephemeral ones in
Valkey.

No engine writes it any more. A start finds what is left of it, and `baobab transfer` moves it.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable

from baobab.storage.identity import read_mark
from baobab.storage.kv.engine import Engine, Entry, Tier
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.idempotency import KEPT_SECONDS, SPACE
from baobab.storage.kv.valkey.engine import ValkeyEngine
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.scan import scan_names

_LIBRARIES = "baobab_[kt]*"
"""The names of the functions that wrote entries: of the library `kv`, and of `tiers` in the old layout."""
_ENTRIES = "kv:{*}:entries"
_TOKENS = "kv:{*}:kept:*"
_TIERS_ONLY = ("holders", "held", "queue", "asked", "doubt", "moved", "kept")
"""What the old layout stored beside the entries: locks, and results of writes by their tokens."""


class OldTiers:
    """Reads both tiers as one store. Nothing may write to either meanwhile.

    A key may be in both after a crash. Then the durable entry counts, as it did for readers of the old layout.
    """

    def __init__(self, durable: Engine, valkey_url: str, clock: Callable[[], float]) -> None:
        self._durable = durable
        self._ephemeral = ValkeyEngine(valkey_url, clock)
        self._valkey_url = valkey_url
        self._tokens: list[Entry] = []

    async def open(self) -> None:
        await self._durable.open()
        await self._ephemeral.open()
        try:
            async with _connect(self._valkey_url) as pipeline:
                self._tokens = await _read_tokens(pipeline)
        except ValkeyUnavailable as exc:
            raise StoreUnavailable.because(exc) from exc

    async def close(self) -> None:
        await self._ephemeral.close()
        await self._durable.close()

    async def spaces(self, after: str | None, limit: int) -> list[str]:
        durable, ephemeral = [await tier.spaces(after, limit) for tier in (self._durable, self._ephemeral)]
        return sorted({*durable, *ephemeral})[:limit]

    async def export(self, space: str, after: str | None, limit: int) -> list[Entry]:
        durable = await self._durable.export(space, after, limit)
        ephemeral = self._tokens if space == SPACE else await self._ephemeral.export(space, after, limit)
        merged_entries = {entry.key: entry for entry in (*ephemeral, *durable) if entry.key > (after or "")}
        return [merged_entries[key] for key in sorted(merged_entries)][:limit]


async def holds_entries(valkey_url: str, installation_id: str) -> bool:
    """Returns whether the installation's key-value store has a live entry, in any layout. Raises ValkeyUnavailable."""
    async with _connect(valkey_url) as pipeline:
        # Functions are stored with the entries, so without them there is nothing to look for among all keys.
        if not await pipeline.send("FUNCTION", "LIST", "LIBRARYNAME", _LIBRARIES):
            return False
        names = {name async for name in scan_names(pipeline.send, _ENTRIES)}
    if not names:
        return False
    engine = ValkeyEngine(valkey_url)
    try:
        await engine.open()
        # Without a mark, which is durable, it is of the old layout.
        return await read_mark(engine) in (None, installation_id) and bool(await engine.spaces(None, 1))
    except StoreUnavailable as exc:
        raise ValkeyUnavailable(exc.reason) from exc
    finally:
        await engine.close()


async def delete_entries(valkey_url: str) -> None:
    """Deletes everything that a key-value store has in Valkey, its functions included. Raises ValkeyUnavailable."""
    async with _connect(valkey_url) as pipeline:
        async for name in scan_names(pipeline.send, "kv:{*}:*"):
            await pipeline.send("UNLINK", name)
        for description in await pipeline.send("FUNCTION", "LIST", "LIBRARYNAME", _LIBRARIES):
            # Another installation on this server loads its functions again when it misses them.
            await pipeline.send("FUNCTION", "DELETE", description[description.index(b"library_name") + 1])


async def delete_locks(valkey_url: str) -> None:
    """Deletes what only the old layout has in Valkey, and leaves the entries. Raises ValkeyUnavailable."""
    async with _connect(valkey_url) as pipeline:
        async for name in scan_names(pipeline.send, "kv:{*}:*"):
            if name.partition("}:")[2].partition(":")[0] in _TIERS_ONLY:
                await pipeline.send("UNLINK", name)


@contextlib.asynccontextmanager
async def _connect(valkey_url: str) -> AsyncIterator[Pipeline]:
    pipeline = Pipeline(valkey_url)
    try:
        await pipeline.open()
        yield pipeline
    finally:
        await pipeline.close()


async def _read_tokens(pipeline: Pipeline) -> list[Entry]:
    """Returns the results of ephemeral writes under their tokens, as the other engines store them."""
    tokens: dict[str, Entry] = {}
    async for name in scan_names(pipeline.send, _TOKENS):
        result, expires = await pipeline.send("GET", name), await pipeline.send("PEXPIRETIME", name)
        if result is not None:
            token = name.partition("}:kept:")[2]
            tokens[token] = Entry(token, result, Tier.DURABLE, expires, KEPT_SECONDS)
    return [tokens[token] for token in sorted(tokens)]
