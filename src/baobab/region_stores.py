"""Opens the stores of the regions. The installation's own must answer at the start; those of others may come later."""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence

from baobab.settings import Settings
from baobab.storage.clock import Clock
from baobab.storage.data.stores import data_store_at
from baobab.storage.identity import Identity, StoreLost
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.errors import KvError, StoreUnavailable
from baobab.storage.kv.valkey.contents import holds_entries
from baobab.storage.kv.valkey.engine import ValkeyEngine
from baobab.storage.objects.errors import ObjectError
from baobab.storage.objects.stores import store_at
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.databases import database_at
from baobab.storage.sql.migrate import SchemaTooNew, migrate
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.vectors.extension import complete_vectors
from baobab.tools.core.stores import Stores
from baobab.tools.data.migration.own_tables import upgrade_databases

_WATCH_SECONDS = 3.0

_log = logging.getLogger(__name__)


class RegionUnavailable(Exception):
    """A store of another region could not be opened. The message is one line, for operators."""


class RegionStores:
    """The stores of every region, by its name, once they have been opened and found to be the installation's own."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.opened_stores: dict[str, Stores] = {}
        self._settings = settings
        self._clock = clock
        self._places = settings.all_regions
        # Regions with the same address share one Database.
        self._databases: dict[str, Database] = {}
        self._identity: Identity | None = None
        self._opened_stack = contextlib.AsyncExitStack()
        self._opening = asyncio.Lock()

    async def open_own(self) -> Database:
        """Opens the stores of the installation's own region, and returns the database that all regions share. Raises
        DatabaseUnavailable, StoreUnavailable, StoreLost.
        """
        stores = await self._open_region(self._settings.region)
        return stores.database

    async def open_further(self, name: str) -> Stores:
        """Opens the stores of another region. Raises RegionUnavailable with nothing left open, and StoreLost."""
        try:
            return await self._open_region(name)
        except (DatabaseUnavailable, StoreUnavailable) as exc:
            raise RegionUnavailable(f"the region {name} does not open: {exc.reason}") from exc

    async def close(self) -> None:
        await self._opened_stack.aclose()

    async def _open_region(self, name: str) -> Stores:
        """Opens one region's stores, migrates them and compares their identity. All of it is closed if a part fails."""
        place = self._places[name]
        async with self._opening, contextlib.AsyncExitStack() as stack:
            database = self._databases.get(place.database_url)
            if database is None:
                database = database_at(place.database_url, place.notices_url)
                stack.push_async_callback(database.close)
                await database.open()
                await migrate(database)
                await complete_vectors(database)
            kv = engine_at(
                self._settings.kv_folder(name), place.database_url, place.valkey_url, self._clock.time, place.kv
            )
            stack.push_async_callback(kv.close)
            await kv.open()
            if isinstance(kv, ValkeyEngine):
                await kv.warn_of_loss()
            objects = store_at(place.objects_url, self._settings.data / "objects" / name)
            data = data_store_at(database, self._settings.tables_folder(name))
            stack.push_async_callback(data.close)
            stores = Stores(database, kv, objects, data)
            await self._require_own_stores(name, stores)
            if self._settings.row_security:
                await data.open_row_security()
            await upgrade_databases(data)
            self._databases[place.database_url] = database
            self._opened_stack.push_async_callback(stack.pop_all().aclose)
        self.opened_stores[name] = stores
        return stores

    async def _require_own_stores(self, region: str, stores: Stores) -> None:
        """Raises StoreLost if a store is empty that was not before, belongs to another installation, or holds keys that
        nothing would read.
        """
        if self._identity is None:
            self._identity = await Identity.load(stores.database, self._settings.region, self._clock.now())
        identity, place = self._identity, self._places[region]
        if place.database_url != self._places[self._settings.region].database_url:
            await identity.require_rows(stores.database, region)
        await identity.require_kv(stores.kv, region)
        if place.valkey_url and place.kv == "database":
            await _require_nothing_left_in_valkey(region, place.valkey_url, identity.id)
        # With the rows in Postgres, every machine has its own folder of objects.
        is_shared = place.objects_url.startswith("s3:") or stores.database.dialect == "sqlite"
        try:
            await identity.require_objects(stores.objects, region, shared=is_shared)
        except ObjectError as exc:
            # Not needed before the first file; until then `/health/ready` reports it.
            _log.warning("objects: the store of the region %s does not answer (%s)", region, type(exc).__name__)
        await identity.remember()


class RegionWatch:
    """Asks every further region whether it answers, and opens those that have not answered since the start."""

    def __init__(
        self, stores: RegionStores, names: Sequence[str], silent: set[str], on_open: Callable[[str], Awaitable[None]]
    ) -> None:
        """silent: takes the names of those that do not answer. on_open: called with the name of one that is open."""
        self._stores = stores
        self._names = names
        self._silent = silent
        self._on_open = on_open
        self._task: asyncio.Task[None] | None = None
        self._silent.update(name for name in names if name not in stores.opened_stores)

    def start(self) -> None:
        self._task = asyncio.create_task(self._watch(), name="regions")

    async def stop(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            await asyncio.gather(*(self._look_at(name) for name in self._names))

    async def _look_at(self, name: str) -> None:
        try:
            stores = self._stores.opened_stores.get(name) or await self._stores.open_further(name)
            await self._on_open(name)
            await stores.database.ping()
            await stores.kv.check()
        except (RegionUnavailable, DatabaseUnavailable, KvError, StoreLost, SchemaTooNew) as exc:
            if name not in self._silent:
                self._silent.add(name)
                _log.warning("the region %s does not answer (%s)", name, exc)
            elif isinstance(exc, StoreLost | SchemaTooNew):
                _log.error("the region %s is not opened: %s", name, exc)
        except Exception:  # noqa: BLE001 - the region must be watched on
            _log.exception("the region %s could not be looked at", name)
        else:
            if name in self._silent:
                self._silent.discard(name)
                _log.info("the region %s answers again", name)


async def _require_nothing_left_in_valkey(region: str, valkey_url: str, installation_id: str) -> None:
    """Raises StoreLost if Valkey holds keys while the key-value store is in the database."""
    try:
        has_entries = await holds_entries(valkey_url, installation_id)
    except ValkeyUnavailable as exc:
        _log.warning("kv: cannot see whether the Valkey of the region %s still holds keys (%s)", region, exc.reason)
        return
    if has_entries:
        raise StoreLost(
            f"the key-value store of the region {region} is in the database, but Valkey holds keys of it too: set "
            "BAOBAB_KV=valkey if the store is there; if `baobab transfer --kv` was interrupted, stop all servers and "
            "run the same command again"
        )
