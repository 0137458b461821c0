"""Objects, each as the stream it is. Those that have arrived before are told by their size, digest and type."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from baobab.storage.objects.store import ObjectInfo, ObjectStore
from baobab.storage.transfer.digest import Digest
from baobab.storage.transfer.errors import TransferRefused

# At once: a server far away answers as fast for a few as for one, and what is not whole yet takes room on this machine.
_TOGETHER = 8


async def survey(store: ObjectStore) -> dict[str, Digest]:
    """By the first segment of the keys, which is an app."""
    found: dict[str, Digest] = {}
    async for keys in _pages(store):
        for key, stored in zip(keys, await _heads(store, keys), strict=True):
            digest = found.setdefault(key.partition("/")[0], Digest())
            if stored is not None:
                digest.add([key, *stored], stored.size)
    return found


async def is_empty(store: ObjectStore) -> bool:
    return not await store.list("", "", 1)


async def copy(source: ObjectStore, target: ObjectStore) -> None:
    async for keys in _pages(source):
        await asyncio.gather(*(_copy(source, target, key) for key in keys))


async def _copy(source: ObjectStore, target: ObjectStore, key: str) -> None:
    reader = await source.get(key)
    if reader is None:
        raise TransferRefused(f"object {key} went away; somebody else uses the source")
    try:
        wanted = reader.info
        if await target.head(key) == wanted:
            return
        arrived = await target.put(key, reader, content_type=wanted.content_type, max_bytes=wanted.size)
    finally:
        await reader.aclose()
    if arrived != wanted:
        raise TransferRefused(f"object {key} is not what it was when it was stored; restore it from a backup")


async def _heads(store: ObjectStore, keys: Sequence[str]) -> list[ObjectInfo | None]:
    return await asyncio.gather(*(store.head(key) for key in keys))


async def _pages(store: ObjectStore) -> AsyncIterator[Sequence[str]]:
    after = ""
    while keys := await store.list("", after, _TOGETHER):
        yield keys
        after = keys[-1]
