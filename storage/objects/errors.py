"""What an object store can refuse. That there is no object is no error: it is None or False.

ObjectError
├── InvalidKey
├── InvalidContentType
├── TooLarge            more bytes came than were allowed; nothing was stored
├── ObjectDamaged       under the key is something that `put` did not write, or only a part of it
└── StoreUnavailable    the store cannot answer now. A put that it refused may yet be there, but only as a whole
    └── StoreFull       no space is left for it
"""

from __future__ import annotations

import errno

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}


class ObjectError(Exception):
    """Every refusal of a store."""


class InvalidKey(ObjectError):
    def __init__(self, why: str) -> None:
        super().__init__(f"not the key of an object: {why}")


class InvalidContentType(ObjectError):
    def __init__(self) -> None:
        super().__init__("a content type is at most 255 printable ASCII characters")


class TooLarge(ObjectError):
    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"more than {max_bytes} bytes")
        self.max_bytes = max_bytes


class ObjectDamaged(ObjectError):
    def __init__(self, key: str, what: str) -> None:
        super().__init__(f"{key!r} is damaged: {what}")
        self.key = key


class StoreUnavailable(ObjectError):
    """`reason` is for the log, not for callers: it may hold what a server or the operating system said."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @classmethod
    def because(cls, cause: Exception) -> StoreUnavailable:
        kind = StoreFull if isinstance(cause, OSError) and cause.errno in _FULL else StoreUnavailable
        return kind(f"{type(cause).__name__}: {cause}")


class StoreFull(StoreUnavailable):
    pass
