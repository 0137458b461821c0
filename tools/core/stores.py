"""The stores that tools keep things in, and the cells that have them."""

from dataclasses import dataclass

from baobab.storage.data.store import DataStore
from baobab.storage.kv.engine import Engine
from baobab.storage.objects.store import ObjectStore
from baobab.storage.sql.database import Database


@dataclass(frozen=True, slots=True)
class Stores:
    """The stores of one region: an app's data is only ever in those of its own."""

    database: Database
    kv: Engine
    objects: ObjectStore
    data: DataStore


@dataclass(frozen=True, slots=True)
class Cell:
    """A region as the settings name it, whether its stores answer or not."""

    name: str
    geography: str
    """The name that the region shares with the cells in which an app may be instead."""
    max_apps: int | None = None
    """How many apps it is to hold at most; None for any number."""
