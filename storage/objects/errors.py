"""Errors of object stores. A missing object is not an error: methods return None or False.

ObjectError
├── InvalidKey
├── InvalidContentType
├── TooLarge            more bytes came than are allowed; nothing was stored
├── ObjectDamaged       the stored object is not what `put` wrote, or only a part of it
└── StoreUnavailable    the store cannot answer now. A put that it refused may have been made, but only as a whole
    └── StoreFull       there is no space left
"""

from __future__ import annotations

import errno

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ObjectError(Exception):
    """The base class of all errors of a store."""


class InvalidKey(ObjectError):
    def __init__(self, why: str) -> None:
        super().__init__(f"not a valid object key: {why}")


class InvalidContentType(ObjectError):
    def __init__(self) -> None:
        super().__init__("a content type must be at most 255 printable ASCII characters")


class TooLarge(ObjectError):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"more than {max_bytes} bytes")
        self.max_bytes = max_bytes


class ObjectDamaged(ObjectError):
    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key!r} is damaged: {problem}")
        self.key = key


class StoreUnavailable(ObjectError):
    """`reason` is for the log, not for callers: it may hold messages of a server or the operating system."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @classmethod
    def because(cls, cause: Exception) -> StoreUnavailable:
        kind = StoreFull if isinstance(cause, OSError) and cause.errno in _FULL else StoreUnavailable
        return kind(f"{type(cause).__name__}: {cause}")


class StoreFull(StoreUnavailable):
    pass
