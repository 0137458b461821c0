"""The key-value store: several engines with one interface."""

from baobab.storage.kv.engine import (
    ABSENT,
    Absent,
    Delete,
    Engine,
    Entry,
    Get,
    Op,
    OpResult,
    Quota,
    Set,
    Tier,
    Usage,
)
from baobab.storage.kv.errors import (
    IntegerOverflow,
    KeysExhausted,
    KvError,
    NotAnInteger,
    QueueFull,
    QuotaExceeded,
    SpaceFrozen,
    StorageFull,
    StoreClosed,
    StoreDamaged,
    StoreUnavailable,
)
from baobab.storage.kv.memory import MemoryEngine
from baobab.storage.kv.sqlite import SqliteEngine

__all__ = [
    "ABSENT",
    "Absent",
    "Delete",
    "Engine",
    "Entry",
    "Get",
    "IntegerOverflow",
    "KeysExhausted",
    "KvError",
    "MemoryEngine",
    "NotAnInteger",
    "Op",
    "OpResult",
    "QueueFull",
    "Quota",
    "QuotaExceeded",
    "Set",
    "SpaceFrozen",
    "SqliteEngine",
    "StorageFull",
    "StoreClosed",
    "StoreDamaged",
    "StoreUnavailable",
    "Tier",
    "Usage",
]
