"""Bytes to put and bytes that were read."""

from __future__ import annotations

from collections.abc import AsyncIterator

from baobab.storage.objects import ObjectInfo, ObjectReader, ObjectStore


async def chunks_of(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def put(store: ObjectStore, key: str, content: bytes, content_type: str = "text/plain") -> ObjectInfo:
    return await store.put(key, chunks_of(content), content_type=content_type, max_bytes=1_000_000_000)


async def whole(reader: ObjectReader | None) -> bytes | None:
    return None if reader is None else b"".join([chunk async for chunk in reader])


async def content(store: ObjectStore, key: str, start: int = 0, end: int | None = None) -> bytes | None:
    return await whole(await store.get(key, start=start, end=end))
