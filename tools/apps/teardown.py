"""Teardown: what an app kept outside the platform's rows is removed even if we are killed on the way.

The tombstone is written in the transaction that deletes the app. Workers that still hold the app in memory may let
a write through for a moment; the last purge, after that moment, takes it along.
"""

from datetime import timedelta

from sqlalchemy import Column, String, Table, delete, insert, select

from baobab.storage.tables import Instant, metadata
from baobab.tools.call import Call
from baobab.tools.directory import App
from baobab.tools.failures import failures
from baobab.tools.registry import Registry
from baobab.tools.services import Stores

tombstones = Table(
    "app_tombstones",
    metadata,
    Column("app_id", String(36), primary_key=True),
    Column("region", String(40), nullable=False),
    Column("deleted_at", Instant, nullable=False),
)

# Longer than any worker may hold a deleted app in memory.
_SETTLED = timedelta(seconds=60)


async def bury(call: Call, app: App) -> None:
    """Remove the app's data now, and promise in this transaction to do so once more."""
    row = {"app_id": app.id, "region": app.region, "deleted_at": call.now}
    await call.execute(insert(tombstones), row)
    await purge(call.registry, call.stores, app.id)


async def purge(registry: Registry, stores: Stores, app_id: str) -> None:
    for toolset in registry.toolsets:
        if toolset.purge is not None:
            await toolset.purge(stores, app_id)


async def finish(registry: Registry) -> None:
    """Purge what was deleted a minute ago for the last time."""
    services = registry.services
    due = select(tombstones).where(
        tombstones.c.deleted_at < services.clock.now() - _SETTLED,
        # The data of another region is with the installation that serves it.
        tombstones.c.region.in_(services.regions),
    )
    async with services.database.reading() as connection:
        rows = (await connection.execute(due)).all()
    for row in rows:
        await purge(registry, services.regions[row.region], row.app_id)
        async with services.database.writing() as connection:
            await connection.execute(delete(failures).where(failures.c.app_id == row.app_id))
            await connection.execute(delete(tombstones).where(tombstones.c.app_id == row.app_id))
