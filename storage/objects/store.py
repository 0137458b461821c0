"""The port of the object store: whole files by key, as a stream in and a stream out.

A key is text such as `app_1a2b3c/user/photo.png` (`key.py`); what begins with `app_1a2b3c/` is that app's. A store
knows nothing of HTTP, rules or plans: whoever calls it brings the largest size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, Self


class ObjectInfo(NamedTuple):
    """`sha256` is of the content, in hexadecimal."""

    size: int
    sha256: str
    content_type: str


class ObjectReader(Protocol):
    """The chunks of one object or of a part of it, once. Read it to the end or close it.

    It stays with the object it was opened on, whatever is put or deleted meanwhile. Raises StoreUnavailable and
    ObjectDamaged.
    """

    @property
    def info(self) -> ObjectInfo:
        """Of the whole object."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


class ObjectStore(Protocol):
    """Every method raises InvalidKey and StoreUnavailable."""

    async def put(self, key: str, chunks: AsyncIterator[bytes], *, content_type: str, max_bytes: int) -> ObjectInfo:
        """Stores what `chunks` brings, in place of what was there. Others see the old object or the new one, whole.

        Of two at once the last to end wins. Once answered it survives a power cut. Raises TooLarge as soon as a chunk
        passes `max_bytes`, InvalidContentType, and whatever `chunks` raises; then what was there before is still there.
        A put that was cancelled may have been made.
        """
        ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> ObjectReader | None:
        """The bytes from `start` up to and without `end`, as far as there are any. Raises ObjectDamaged."""
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """Raises ObjectDamaged."""
        ...

    async def delete(self, key: str) -> bool:
        """Whether there was such an object. Of several deletions at once, more than one may say so."""
        ...

    async def delete_all(self, prefix: str) -> int:
        """Deletes what begins with `prefix`, which ends in a slash; answers how many objects that were.

        After a failure or a crash it may be called again. What is put meanwhile may stay.
        """
        ...

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """At most `limit` keys that begin with `prefix`, in the order of their code points, from behind `after` on.

        `prefix` is "" or ends in a slash, `after` is "" or a key. Fewer than `limit` means that there are no more.
        """
        ...

    async def sweep(self) -> int:
        """Removes what killed processes have left for more than a day; answers how many files that were."""
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable unless the store answers. Where it costs nothing, it tries a write as well."""
        ...


def clip_range(size: int, start: int, end: int | None) -> tuple[int, int]:
    """The part of an object of `size` bytes that is there between `start` and `end`."""
    if start < 0:
        raise ValueError("a part starts at 0 or later")
    stop = size if end is None else min(end, size)
    return min(start, size), max(min(start, size), stop)
