"""The identity of an installation: an id in its database that each of its other stores holds too.

Every start compares the ids. So a store that was emptied or lost, or that belongs to another installation, is noticed
before anything is served from it, and the operator is told what to restore.
"""

import uuid
from collections.abc import AsyncIterator
from datetime import datetime

from sqlalchemy import Column, String, Table, Text, delete, insert, select

from baobab.storage.kv.engine import Engine, Quota, Tier
from baobab.storage.objects.store import ObjectStore
from baobab.storage.sql.database import INSTALLATION, Database
from baobab.storage.sql.tables import Instant, build_upsert, metadata

# No app has this id, so no caller can reach the space and no quota counts it.
SPACE = "~installation"
_KEY = "id"
_KV_HINT = " (a change of BAOBAB_KV moves nothing; `baobab transfer --kv` does)"
_OBJECT = f"{SPACE}/{_KEY}"

installation_table = Table(
    "installation",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("region", String(40), nullable=False),
    Column("created_at", Instant, nullable=False),
    # Where the database was when the installation last lived, as storage/copies.py says; null before its first start.
    Column("place", String(100)),
    # Set while it is a copy: since when, and how that is known.
    Column("copied_at", Instant),
    Column("copied_how", Text),
)
"""One row: the id, the installation's own region, and whether it lives or is a copy."""

installation_stores = Table(
    "installation_stores",
    metadata,
    Column("store", String(80), primary_key=True),
    Column("seen_at", Instant, nullable=False),
)
"""The stores that hold the id: `kv:REGION` and `objects:REGION`."""


class StoreLost(Exception):
    """A store does not belong to the database. The message is one line for the operator: what is wrong, and what to
    restore.
    """


class Identity:
    """The id of an installation, as its database holds it."""

    def __init__(self, rows: Database, id_: str, now: datetime) -> None:
        self._rows = rows
        self.id = id_
        self._now = now
        self._checked_stores: list[str] = []
        """The stores that this object has found to be the right ones."""

    @classmethod
    async def load(cls, rows: Database, region: str, now: datetime) -> "Identity":
        """Loads the identity; the first start creates it. Raises StoreLost if the installation's own region is another
        one.
        """
        async with rows.reading() as connection:
            row = (await connection.execute(select(installation_table))).first()
        if row is None:
            async with rows.writing(lock=INSTALLATION) as connection:
                row = (await connection.execute(select(installation_table))).first()
                if row is None:
                    new_id = str(uuid.uuid4())
                    values = {"id": new_id, "region": region, "created_at": now}
                    await connection.execute(insert(installation_table), values)
                    return cls(rows, new_id, now)
        if row.region != region:
            raise StoreLost(
                f"BAOBAB_REGION is {region}, but this installation's own region is {row.region}, where its apps are. "
                f"Set BAOBAB_REGION={row.region}; further regions are named by BAOBAB_REGIONS"
            )
        return cls(rows, row.id, now)

    async def require_rows(self, database: Database, name: str) -> None:
        """Writes the id into the database of a further region. Raises StoreLost if it belongs to another
        installation.
        """
        async with database.writing(lock=INSTALLATION) as connection:
            row = (await connection.execute(select(installation_table))).first()
            if row is None:
                values = {"id": self.id, "region": name, "created_at": self._now}
                await connection.execute(insert(installation_table), values)
            elif row.id != self.id:
                raise StoreLost(_foreign_message(f"the database of the region {name}"))

    async def require_kv(self, engine: Engine, region: str) -> None:
        """Compares the id in a key-value store, or writes it into a new one. Raises StoreLost."""
        was_in_use = await self._was_in_use(f"kv:{region}")
        stored_id = await read_mark(engine)
        if stored_id is None:
            if was_in_use:
                raise StoreLost(_lost_message("key-value store", "kv", region, _KV_HINT))
            await engine.put(SPACE, _KEY, f'"{self.id}"'.encode(), None, Tier.DURABLE, Quota())
        elif stored_id != self.id:
            raise StoreLost(_foreign_message(f"the key-value store of the region {region}"))
        self._checked_stores.append(f"kv:{region}")

    async def require_objects(self, store: ObjectStore, region: str, *, shared: bool) -> None:
        """Does the same for an object store. shared: whether all servers share it; a folder of each machine's own may
        be empty on a new machine.
        """
        was_in_use = shared and await self._was_in_use(f"objects:{region}")
        reader = await store.get(_OBJECT)
        if reader is None:
            if was_in_use:
                raise StoreLost(_lost_message("object store", "objects", region))
            await store.put(_OBJECT, _single_chunk(self.id.encode()), content_type="text/plain", max_bytes=len(self.id))
        elif b"".join([chunk async for chunk in reader]).decode() != self.id:
            raise StoreLost(_foreign_message(f"the object store of the region {region}"))
        self._checked_stores.append(f"objects:{region}")

    async def _was_in_use(self, store: str) -> bool:
        """Returns whether a server has recorded that a store holds the id.

        It is asked before the store is: a server writes the id first and records it later, so another server that
        starts at the same moment cannot have written it between the two.
        """
        async with self._rows.reading() as connection:
            query = select(installation_stores.c.store).where(installation_stores.c.store == store)
            return await connection.scalar(query) is not None

    async def remember(self) -> None:
        """Records which stores hold the id, so that a store that loses it is noticed."""
        async with self._rows.reading() as connection:
            recorded_stores = set((await connection.execute(select(installation_stores.c.store))).scalars())
        new = [{"store": store, "seen_at": self._now} for store in self._checked_stores if store not in recorded_stores]
        if new:
            async with self._rows.writing(lock=INSTALLATION) as connection:
                adding = build_upsert(self._rows.dialect, installation_stores).on_conflict_do_nothing()
                await connection.execute(adding, new)


async def read_mark(engine: Engine) -> str | None:
    """Returns the id of the installation whose key-value store it is; None if it has never been in use."""
    value = await engine.get(SPACE, _KEY)
    return None if value is None else value.decode().strip('"')


async def load_id(rows: Database) -> str | None:
    """Returns the id of an installation from its own database."""
    async with rows.reading() as connection:
        id_: str | None = await connection.scalar(select(installation_table.c.id))
        return id_


async def forget_store(rows: Database, store: str) -> bool:
    """Lets a store that has lost its data start again empty. Returns False if no such store is recorded."""
    async with rows.writing(lock=INSTALLATION) as connection:
        result = await connection.execute(delete(installation_stores).where(installation_stores.c.store == store))
        return result.rowcount > 0


def _lost_message(store: str, kind: str, region: str, hint: str = "") -> str:
    return (
        f"the {store} of the region {region} is empty, but it held data: the data is lost or somewhere else. Restore "
        f"it from a backup ({kind}/{region} of the data folder, or the server that it is on), or correct the setting "
        f"that names it{hint}; `baobab forget-store {kind}:{region}` lets it start again empty"
    )


def _foreign_message(store: str) -> str:
    return (
        f"{store} belongs to another installation than the database: the database was emptied or exchanged, or a "
        "setting names the wrong place. Restore the one that is missing from a backup, or name the right place"
    )


async def _single_chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content
