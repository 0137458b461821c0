"""A process that puts objects into a folder until it is killed; it prints each key and version acknowledged."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

from baobab.storage.objects.store import ObjectStore
from baobab.storage.objects.stores import store_at

CHUNK = 50_000


async def version(number: int) -> AsyncIterator[bytes]:
    for _ in range(number % 30):
        yield bytes([number % 256]) * CHUNK
        await asyncio.sleep(0)


async def write(store: ObjectStore, key: str, start: int) -> None:
    number = start
    while True:
        number += 1
        await store.put(key, version(number), content_type=f"version/{number}", max_bytes=10_000_000)
        os.write(sys.stdout.fileno(), f"{key} {number}\n".encode())


async def main(folder: Path, start: int) -> None:
    store = store_at("", folder)
    # Two writers of one key, and one that makes and removes the folder of another's.
    await asyncio.gather(
        write(store, "app_1/shared", start),
        write(store, "app_1/shared", start),
        write(store, "app_1/own/a", start),
        come_and_go(store),
    )


async def come_and_go(store: ObjectStore) -> None:
    while True:
        await store.put("app_1/own/b/c", version(1), content_type="version/1", max_bytes=10_000_000)
        await store.delete("app_1/own/b/c")


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
