"""What a Valkey holds of key-value stores: whether there is anything, and how all of it is deleted."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator

from baobab.storage.identity import read_mark
from baobab.storage.kv.errors import StoreUnavailable
from baobab.storage.kv.valkey.engine import ValkeyEngine
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.scan import scan_names

_LIBRARIES = "baobab_kv_*"
"""The names of the functions that write entries."""
_ENTRIES = "kv:{*}:entries"


async def holds_entries(valkey_url: str, installation_id: str) -> bool:
    """Returns whether the installation's key-value store has a live entry there. Raises ValkeyUnavailable."""
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
        # Without a mark it is the rest of a transfer that was interrupted.
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


@contextlib.asynccontextmanager
async def _connect(valkey_url: str) -> AsyncIterator[Pipeline]:
    pipeline = Pipeline(valkey_url)
    try:
        await pipeline.open()
        yield pipeline
    finally:
        await pipeline.close()
