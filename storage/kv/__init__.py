"""The key-value storage engines behind one port."""

from baobab.storage.kv.engine import (
    ABSENT,
    Absent,
    Delete,
    Engine,
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
    QuotaExceeded,
    StorageFull,
    StoreUnavailable,
)
from baobab.storage.kv.memory import MemoryEngine
from baobab.storage.kv.sqlite import SqliteEngine

__all__ = [
    "ABSENT",
    "Absent",
    "Delete",
    "Engine",
    "Get",
    "IntegerOverflow",
    "KeysExhausted",
    "KvError",
    "MemoryEngine",
    "NotAnInteger",
    "Op",
    "OpResult",
    "Quota",
    "QuotaExceeded",
    "Set",
    "SqliteEngine",
    "StorageFull",
    "StoreUnavailable",
    "Tier",
    "Usage",
]
