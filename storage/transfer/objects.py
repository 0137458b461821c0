"""Copies objects as streams. An object with the same size, digest and type in the target is skipped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from baobab.storage.objects.store import ObjectInfo, ObjectStore
from baobab.storage.transfer.digest import Digest
from baobab.storage.transfer.errors import TransferRefused

# Objects at once: a remote server answers a few as fast as one, but unfinished ones take space on this machine.
_TOGETHER = 8


async def survey(store: ObjectStore) -> dict[str, Digest]:
    """Returns a digest for each app, which is the first segment of the keys."""
    digests: dict[str, Digest] = {}
    async for keys in _pages(store):
        for key, info in zip(keys, await _heads(store, keys), strict=True):
            digest = digests.setdefault(key.partition("/")[0], Digest())
            if info is not None:
                digest.add([key, *info], info.size)
    return digests


async def is_empty(store: ObjectStore) -> bool:
    return not await store.list("", "", 1)


async def copy(source: ObjectStore, target: ObjectStore) -> None:
    async for keys in _pages(source):
        await asyncio.gather(*(_copy(source, target, key) for key in keys))


async def _copy(source: ObjectStore, target: ObjectStore, key: str) -> None:
    reader = await source.get(key)
    if reader is None:
        raise TransferRefused(f"object {key} has disappeared; another process uses the source")
    try:
        source_info = reader.info
        if await target.head(key) == source_info:
            return
        target_info = await target.put(key, reader, content_type=source_info.content_type, max_bytes=source_info.size)
    finally:
        await reader.aclose()
    if target_info != source_info:
        raise TransferRefused(f"object {key} has changed since it was stored; restore it from a backup")


async def _heads(store: ObjectStore, keys: Sequence[str]) -> list[ObjectInfo | None]:
    return await asyncio.gather(*(store.head(key) for key in keys))


async def _pages(store: ObjectStore) -> AsyncIterator[Sequence[str]]:
    after = ""
    while keys := await store.list("", after, _TOGETHER):
        yield keys
        after = keys[-1]
