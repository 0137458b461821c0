"""The interface of object stores: whole files by key, written and read as streams.

A key is text such as `app_1a2b3c/user/photo.png` (`key.py`); keys that begin with `app_1a2b3c/` belong to that app. A
store knows nothing of HTTP, rules or plans: the caller passes the largest size.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import NamedTuple, Protocol, Self


class ObjectInfo(NamedTuple):
    """`sha256` is the digest of the content, in hexadecimal."""

    size: int
    sha256: str
    content_type: str


class ObjectReader(Protocol):
    """The chunks of an object or of a part of it. Read it to the end or close it.

    It stays with the object that it was opened on, whatever is put or deleted meanwhile. Raises StoreUnavailable and
    ObjectDamaged.
    """

    @property
    def info(self) -> ObjectInfo:
        """The size, digest and type of the whole object."""
        ...

    def __aiter__(self) -> Self: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


class ObjectStore(Protocol):
    """Every method raises InvalidKey and StoreUnavailable."""

    async def put(self, key: str, chunks: AsyncIterator[bytes], *, content_type: str, max_bytes: int) -> ObjectInfo:
        """Stores the content of `chunks` in place of an earlier object. Others see either the old object or the new
        one.

        Of two puts at once, the last one to end wins. A finished put survives a power failure. Raises TooLarge as soon
        as a chunk exceeds `max_bytes`, InvalidContentType, and whatever `chunks` raises; the earlier object then
        remains. A put that was cancelled may have been made.
        """
        ...

    async def get(self, key: str, *, start: int = 0, end: int | None = None) -> ObjectReader | None:
        """Returns the bytes from `start` to before `end`, as far as they exist; None if there is no object. Raises
        ObjectDamaged.
        """
        ...

    async def head(self, key: str) -> ObjectInfo | None:
        """Returns the object's info; None if there is no object. Raises ObjectDamaged."""
        ...

    async def delete(self, key: str) -> bool:
        """Returns whether the object existed. Of several deletions at once, more than one may return True."""
        ...

    async def delete_all(self, prefix: str) -> int:
        """Deletes all keys that begin with `prefix`, which ends with a slash; returns how many there were.

        After a failure or a crash it may be repeated. Objects that are put meanwhile may stay.
        """
        ...

    async def list(self, prefix: str, after: str, limit: int) -> Sequence[str]:
        """Returns at most `limit` keys that begin with `prefix`, in the order of their code points, beginning after
        `after`.

        `prefix` is "" or ends with a slash; `after` is "" or a key. Fewer than `limit` keys mean that there are no
        more.
        """
        ...

    async def sweep(self) -> int:
        """Removes files that killed processes left more than a day ago; returns how many there were."""
        ...

    async def check(self) -> None:
        """Raises StoreUnavailable unless the store answers. If a test write costs nothing, it makes one too."""
        ...


def clip_range(size: int, start: int, end: int | None) -> tuple[int, int]:
    """Returns the part between `start` and `end` that exists in an object of `size` bytes."""
    if start < 0:
        raise ValueError("a part must start at 0 or later")
    stop = size if end is None else min(end, size)
    return min(start, size), max(min(start, size), stop)
