"""What a key-value engine can refuse.

KvError
├── NotAnInteger        incr of a value that is not a JSON integer literal
├── IntegerOverflow     incr whose result leaves signed 64 bit
├── QuotaExceeded
│   ├── KeysExhausted   one more key would pass the cap
│   └── StorageFull     these bytes would pass the cap
├── SpaceFrozen         a write to a space that is being carried elsewhere
└── StoreUnavailable    the store cannot answer now; the write it refused was not applied, except where a connection to
    │                   a server broke while it was being made: then nobody here knows (`once` makes it safe to repeat)
    ├── StoreClosed
    ├── StoreDamaged    what the store has is not what it wrote: only a backup helps
    └── QueueFull       more writes are waiting than the engine will hold
"""

from __future__ import annotations


class KvError(Exception):
    """Every refusal of an engine."""


class NotAnInteger(KvError):
    def __init__(self) -> None:
        super().__init__("the stored value is not an integer")


class IntegerOverflow(KvError):
    def __init__(self) -> None:
        super().__init__("the result does not fit a signed 64-bit integer")


class QuotaExceeded(KvError):
    """A write that would raise a live total above its cap."""


class KeysExhausted(QuotaExceeded):
    """`keys` are the live entries before the write."""

    def __init__(self, keys: int, cap: int) -> None:
        super().__init__(f"{keys} of {cap} keys are in use")
        self.keys = keys
        self.cap = cap


class StorageFull(QuotaExceeded):
    """`used` are the live bytes before the write."""

    def __init__(self, used: int, cap: int) -> None:
        super().__init__(f"{used} of {cap} bytes are in use")
        self.used = used
        self.cap = cap


class SpaceFrozen(KvError):
    """Nothing was written, and nothing will be until the space is thawed."""

    def __init__(self) -> None:
        super().__init__("the space is frozen")


class StoreUnavailable(KvError):
    """`reason` is for the log, not for callers: it may hold what the operating system said."""

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
    """Met once, it stays so until the store is opened anew: what is still read may be wrong."""


class QueueFull(StoreUnavailable):
    def __init__(self) -> None:
        super().__init__("too many writes are waiting")
