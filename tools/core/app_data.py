"""What is kept of an app in the stores of its region, for those who move an app or remove it."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, cast

from baobab.storage.database import Unit
from baobab.storage.objects.store import ObjectStore
from baobab.tools.core.stores import Stores

MOVE_ENDED = "app.move_ended"
"""The event of an app that is not moved any more, wherever it is now: it tells `migration_id` and `outcome`."""
_LARGEST_OBJECT = 2**40
_KEYS_AT_ONCE = 500


class AppData(Protocol):
    """One family's part of it. Each of these may be done twice."""

    async def freeze(self, stores: Stores, app_id: str) -> None:
        """Refuse every write from now on, in every process, until it is thawed or erased."""
        ...

    async def thaw(self, stores: Stores, app_id: str) -> None: ...

    async def copy(self, source: Stores, dest: Stores, app_id: str) -> None:
        """Bring what is frozen in the source to the destination, which holds nothing of the app but parts of this."""
        ...

    async def erase(self, stores: Stores, app_id: str) -> None:
        """Remove all of it, frozen or not."""
        ...


async def erase_app(toolsets: Iterable[Any], stores: Stores, app_id: str, unit: Unit | None = None) -> None:
    """Remove everything that the stores of a region hold of an app. May be done twice.

    unit: one that is open, and holds the turn to write in its database: rows that are kept there are removed in it.
    """
    if unit is not None and unit.database is stores.database:
        stores = replace(stores, database=cast(Any, _Within(unit)))
    for toolset in toolsets:
        if toolset.data is not None:
            await toolset.data.erase(stores, app_id)
    await stores.objects.delete_all(f"{app_id}/")


class _Within:
    """A database whose transactions are all one unit, which is open and stays so."""

    def __init__(self, unit: Unit) -> None:
        self._unit = unit
        self.dialect = unit.database.dialect

    @asynccontextmanager
    async def writing(self, *, turn: bool = True) -> AsyncIterator[Unit]:
        """What is executed here has its turn already, whatever `turn` says."""
        del turn
        yield self._unit


async def copy_objects(source: ObjectStore, dest: ObjectStore, app_id: str) -> None:
    """Bring the files of an app along; those that are there already, whole, are left."""
    after, prefix = "", f"{app_id}/"
    while keys := await source.list(prefix, after, _KEYS_AT_ONCE):
        for key in keys:
            reader = await source.get(key)
            if reader is None:
                continue
            try:
                if await dest.head(key) != reader.stored:
                    await dest.put(
                        key, _chunks(reader), content_type=reader.stored.content_type, max_bytes=_LARGEST_OBJECT
                    )
            finally:
                await reader.aclose()
        after = keys[-1]


async def _chunks(reader: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    async for chunk in reader:
        yield chunk
