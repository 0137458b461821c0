"""Errors of key-value engines.

KvError
├── NotAnInteger        incr of a value that is not a JSON integer literal
├── IntegerOverflow     incr whose result does not fit signed 64 bit
├── QuotaExceeded
│   ├── KeysExhausted   one more key would exceed the cap
│   └── StorageFull     these bytes would exceed the cap
├── SpaceFrozen         a write to a space that is being moved
└── StoreUnavailable    the store cannot answer now. The refused write was not applied, unless the connection to the
    │                   server broke during it: then nobody knows (`for_attempt` makes it safe to repeat)
    ├── StoreClosed
    ├── StoreDamaged    the store's files are corrupt: only a backup helps
    └── QueueFull       more writes are waiting than the engine accepts
"""

from __future__ import annotations


class KvError(Exception):
    """The base class of all errors of an engine."""


class NotAnInteger(KvError):
    def __init__(self) -> None:
        super().__init__("the stored value is not an integer")


class IntegerOverflow(KvError):
    def __init__(self) -> None:
        super().__init__("the result does not fit a signed 64-bit integer")


class QuotaExceeded(KvError):
    """A write that would raise a total of live entries above its cap."""


class KeysExhausted(QuotaExceeded):
    """`keys` is the number of live entries before the write."""

    def __init__(self, keys: int, cap: int) -> None:
        super().__init__(f"{keys} of {cap} keys are in use")
        self.keys = keys
        self.cap = cap


class StorageFull(QuotaExceeded):
    """`used_bytes` is the number of live bytes before the write."""

    def __init__(self, used_bytes: int, cap: int) -> None:
        super().__init__(f"{used_bytes} of {cap} bytes are in use")
        self.used_bytes = used_bytes
        self.cap = cap


class SpaceFrozen(KvError):
    """The space is frozen: nothing was written, and nothing will be until it is thawed."""

    def __init__(self) -> None:
        super().__init__("the space is frozen")


class StoreUnavailable(KvError):
    """`reason` is for the log, not for callers: it may hold messages of the operating system."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    @classmethod
    def because(cls, cause: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"{type(cause).__name__}: {cause}")


class StoreClosed(StoreUnavailable):
    def __init__(self) -> None:
        super().__init__("the store is closed")


class StoreDamaged(StoreUnavailable):
    """Once raised, it is raised until the store is opened again, since anything that can still be read may be wrong."""


class QueueFull(StoreUnavailable):
    def __init__(self) -> None:
        super().__init__("too many writes are waiting")
