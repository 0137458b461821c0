"""The identity of an installation: an id that its rows hold, and that each of its other stores holds as well.

A start compares them. So a store that was emptied, lost, or is another installation's is noticed before anything is
served from it, and the operator is told what to restore.
"""

import uuid
from collections.abc import AsyncIterator
from datetime import datetime

from sqlalchemy import Column, String, Table, delete, insert, select

from baobab.storage.database import Database
from baobab.storage.kv.engine import Engine, Quota, Tier
from baobab.storage.objects.store import ObjectStore
from baobab.storage.tables import Instant, build_upsert, metadata

# No app has this id: no caller reaches it, and no quota counts it.
_SPACE = "~installation"
_KEY = "id"
_OBJECT = f"{_SPACE}/{_KEY}"

installation_table = Table(
    "installation",
    metadata,
    Column("id", String(36), primary_key=True),
    Column("region", String(40), nullable=False),
    Column("created_at", Instant, nullable=False),
)
"""One row: the id, and the region whose own stores hold it."""

installation_stores = Table(
    "installation_stores",
    metadata,
    Column("store", String(80), primary_key=True),
    Column("seen_at", Instant, nullable=False),
)
"""The stores that have been given the id: `kv:REGION` and `objects:REGION`."""


class StoreLost(Exception):
    """A store is not the one that the rows belong to. The message is one line: what is wrong, and what to restore."""


class Identity:
    """The id of an installation, as its rows have it."""

    def __init__(self, rows: Database, id_: str, now: datetime) -> None:
        self._rows = rows
        self._id = id_
        self._now = now
        self._seen: list[str] = []
        """The stores that were found to be the right ones by this object."""

    @classmethod
    async def load(cls, rows: Database, region: str, now: datetime) -> "Identity":
        """The identity that is in the rows, made at the first start. StoreLost where the region is another one."""
        async with rows.reading() as connection:
            found = (await connection.execute(select(installation_table))).first()
        if found is None:
            async with rows.writing() as connection:
                found = (await connection.execute(select(installation_table))).first()
                if found is None:
                    made = str(uuid.uuid4())
                    values = {"id": made, "region": region, "created_at": now}
                    await connection.execute(insert(installation_table), values)
                    return cls(rows, made, now)
        if found.region != region:
            raise StoreLost(
                f"BAOBAB_REGION is {region}, but this installation's own region is {found.region}, where its apps are. "
                f"Set BAOBAB_REGION={found.region}; further regions are named by BAOBAB_REGIONS"
            )
        return cls(rows, found.id, now)

    async def require_rows(self, database: Database, name: str) -> None:
        """Give the id to the rows of a further region; StoreLost where they are another installation's."""
        async with database.writing() as connection:
            found = (await connection.execute(select(installation_table))).first()
            if found is None:
                values = {"id": self._id, "region": name, "created_at": self._now}
                await connection.execute(insert(installation_table), values)
            elif found.id != self._id:
                raise StoreLost(_foreign_message(f"the database of the region {name}"))

    async def require_kv(self, engine: Engine, region: str) -> None:
        """Compare the id in a key-value store, which is given it where it has never been there; StoreLost."""
        held = await engine.get(_SPACE, _KEY)
        if held is None:
            await self._require_new(f"kv:{region}", f"the key-value store of the region {region}", f"kv/{region}")
            await engine.put(_SPACE, _KEY, f'"{self._id}"'.encode(), None, Tier.DURABLE, Quota())
        elif held.decode().strip('"') != self._id:
            raise StoreLost(_foreign_message(f"the key-value store of the region {region}"))
        self._seen.append(f"kv:{region}")

    async def require_objects(self, store: ObjectStore, region: str, *, shared: bool) -> None:
        """The same for an object store. shared: whether every server has the same one: a folder on each machine may
        be empty on a machine that is new.
        """
        reader = await store.get(_OBJECT)
        if reader is None:
            if shared:
                what = f"the object store of the region {region}"
                await self._require_new(f"objects:{region}", what, f"objects/{region}")
            await store.put(
                _OBJECT, _single_chunk(self._id.encode()), content_type="text/plain", max_bytes=len(self._id)
            )
        elif b"".join([chunk async for chunk in reader]).decode() != self._id:
            raise StoreLost(_foreign_message(f"the object store of the region {region}"))
        self._seen.append(f"objects:{region}")

    async def _require_new(self, store: str, what: str, place: str) -> None:
        async with self._rows.reading() as connection:
            known = select(installation_stores.c.store).where(installation_stores.c.store == store)
            if await connection.scalar(known) is not None:
                raise StoreLost(
                    f"{what} is empty, and was not: its data is lost or somewhere else. Restore it from a backup "
                    f"({place} of the data folder, or the server that it is on), or correct the setting that names it; "
                    f"`baobab forget-store {store}` begins anew with an empty one"
                )

    async def remember(self) -> None:
        """Write down which stores have the id, so that one that loses it is missed."""
        async with self._rows.reading() as connection:
            known = set((await connection.execute(select(installation_stores.c.store))).scalars())
        new = [{"store": store, "seen_at": self._now} for store in self._seen if store not in known]
        if new:
            async with self._rows.writing() as connection:
                adding = build_upsert(self._rows.dialect, installation_stores).on_conflict_do_nothing()
                await connection.execute(adding, new)


async def forget_store(rows: Database, store: str) -> bool:
    """Let a store that has lost its data begin anew; False where no such store is known."""
    async with rows.writing() as connection:
        gone = await connection.execute(delete(installation_stores).where(installation_stores.c.store == store))
        return gone.rowcount > 0


def _foreign_message(what: str) -> str:
    return (
        f"{what} belongs to another installation than the database: the database was emptied or exchanged, or a "
        "setting names the wrong place. Restore the one that is missing from a backup, or name the right place"
    )


async def _single_chunk(content: bytes) -> AsyncIterator[bytes]:
    yield content
