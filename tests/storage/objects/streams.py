"""Bytes to put and bytes that were read."""

from __future__ import annotations

from collections.abc import AsyncIterator

from baobab.storage.objects.store import ObjectInfo, ObjectReader, ObjectStore


async def split_chunks(content: bytes, size: int = 100_000) -> AsyncIterator[bytes]:
    for start in range(0, len(content), size):
        yield content[start : start + size]


async def put_object(store: ObjectStore, key: str, content: bytes, content_type: str = "text/plain") -> ObjectInfo:
    return await store.put(key, split_chunks(content), content_type=content_type, max_bytes=1_000_000_000)


async def read_whole(reader: ObjectReader | None) -> bytes | None:
    return None if reader is None else b"".join([chunk async for chunk in reader])


async def read_content(store: ObjectStore, key: str, start: int = 0, end: int | None = None) -> bytes | None:
    return await read_whole(await store.get(key, start=start, end=end))
