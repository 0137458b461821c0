"""Whole files by key, behind one port."""

from baobab.storage.objects.errors import (
    InvalidContentType,
    InvalidKey,
    ObjectDamaged,
    ObjectError,
    StoreFull,
    StoreUnavailable,
    TooLarge,
)
from baobab.storage.objects.store import ObjectStore, Reader, Stored
from baobab.storage.objects.stores import store_at

__all__ = [
    "InvalidContentType",
    "InvalidKey",
    "ObjectDamaged",
    "ObjectError",
    "ObjectStore",
    "Reader",
    "StoreFull",
    "StoreUnavailable",
    "Stored",
    "TooLarge",
    "store_at",
]
