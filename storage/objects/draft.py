"""Bytes on their way in: counted, hashed and held to a limit, in a file that is not an object yet."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from typing import BinaryIO

from baobab.storage.objects.errors import StoreUnavailable, TooLarge
from baobab.storage.objects.store import ObjectInfo

# Small chunks are gathered: a turn of a thread costs more than copying them.
_GATHERED = 512 * 1024


class Draft:
    """The file is made with the first write, touched in threads only, and by one at a time.

    A caller that is cancelled leaves its thread running. `drop` waits for that thread, and what comes later is refused.
    """

    def __init__(self, make: Callable[[], BinaryIO], max_bytes: int) -> None:
        self._make = make
        self._max_bytes = max_bytes
        self._file: BinaryIO | None = None
        self._lock = threading.Lock()
        self._dropped = False
        self._digest = hashlib.sha256()
        self.size = 0

    def build_info(self, content_type: str) -> ObjectInfo:
        return ObjectInfo(self.size, self._digest.hexdigest(), content_type)

    async def receive(self, chunks: AsyncIterator[bytes]) -> None:
        """Raises TooLarge, StoreUnavailable and whatever `chunks` raises."""
        gathered: list[bytes] = []
        waiting = 0
        async for chunk in chunks:
            self.size += len(chunk)
            if self.size > self._max_bytes:
                raise TooLarge(self._max_bytes)
            gathered.append(chunk)
            waiting += len(chunk)
            if waiting >= _GATHERED:
                await asyncio.to_thread(self._write, gathered)
                gathered, waiting = [], 0
        await asyncio.to_thread(self._write, gathered)

    @contextlib.contextmanager
    def file(self) -> Iterator[BinaryIO]:
        """For one thread at a time. What the operating system refuses is raised as StoreUnavailable."""
        with self._lock:
            if self._dropped:
                raise StoreUnavailable("the put was given up")
            try:
                if self._file is None:
                    self._file = self._make()
                yield self._file
            except OSError as exc:
                raise StoreUnavailable.because(exc) from exc

    def drop(self) -> None:
        with self._lock:
            self._dropped = True
            if self._file is not None:
                # Closing writes what is buffered, on a disk that may be full. It is not wanted any more.
                with contextlib.suppress(OSError):
                    self._file.close()

    def _write(self, gathered: list[bytes]) -> None:
        with self.file() as file:
            for chunk in gathered:
                self._digest.update(chunk)
                file.write(chunk)
