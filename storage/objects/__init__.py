"""The object store: whole files by key, with several backends."""

from baobab.storage.objects.errors import (
    InvalidContentType,
    InvalidKey,
    ObjectDamaged,
    ObjectError,
    StoreFull,
    StoreUnavailable,
    TooLarge,
)
from baobab.storage.objects.store import ObjectInfo, ObjectReader, ObjectStore
from baobab.storage.objects.stores import store_at

__all__ = [
    "InvalidContentType",
    "InvalidKey",
    "ObjectDamaged",
    "ObjectError",
    "ObjectInfo",
    "ObjectReader",
    "ObjectStore",
    "StoreFull",
    "StoreUnavailable",
    "TooLarge",
    "store_at",
]
