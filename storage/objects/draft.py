"""A draft: the bytes of an upload, counted, hashed and limited, in a file that is not an object yet."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO

from baobab.storage.objects.errors import StoreUnavailable, TooLarge
from baobab.storage.objects.store import ObjectInfo

# Small chunks are collected, because switching to a thread costs more than copying them.
_GATHERED = 512 * 1024


class Draft:
    """The file is created at the first write, and used in threads only, by one at a time.

    A cancelled caller leaves its thread running. `drop` waits for that thread; later writes are refused.
    """

    def __init__(self, make: Callable[[], BinaryIO], max_bytes: int) -> None:
        self._make = make
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._is_dropped = False
        self._digest = hashlib.sha256()
        self.size = 0

    def build_info(self, content_type: str) -> ObjectInfo:
        return ObjectInfo(self.size, self._digest.hexdigest(), content_type)

    async def receive(self, chunks: AsyncIterator[bytes]) -> None:
        """Writes the chunks into the file. Raises TooLarge, StoreUnavailable and whatever `chunks` raises."""
        gathered_chunks: list[bytes] = []
        waiting = 0
        async for chunk in chunks:
            self.size += len(chunk)
            if self.size > self._max_bytes:
                raise TooLarge(self._max_bytes)
            gathered_chunks.append(chunk)
            waiting += len(chunk)
            if waiting >= _GATHERED:
                await asyncio.to_thread(self._write, gathered_chunks)
                gathered_chunks, waiting = [], 0
        await asyncio.to_thread(self._write, gathered_chunks)

    @contextlib.contextmanager
    def file(self) -> Iterator[BinaryIO]:
        """Yields the file to one thread at a time. Turns OSError into StoreUnavailable."""
        with self._lock:
            if self._is_dropped:
                raise StoreUnavailable("the put was cancelled")
            try:
                if self._file is None:
                    self._file = self._make()
                yield self._file
            except OSError as exc:
                raise StoreUnavailable.because(exc) from exc

    def drop(self) -> None:
        with self._lock:
            self._is_dropped = True
            if self._file is not None:
                # Closing flushes buffered bytes, perhaps to a full disk; they are not needed any more.
                with contextlib.suppress(OSError):
                    self._file.close()

    def _write(self, gathered_chunks: list[bytes]) -> None:
        with self.file() as file:
            for chunk in gathered_chunks:
                self._digest.update(chunk)
                file.write(chunk)
