"""The mark in a target that is being filled: which source it is for, and that no server may open it yet.

Until the transfer is finished, the schema claims a revision that no version knows, so that no server, worker or command
opens a half-filled database.
"""

from __future__ import annotations

from sqlalchemy import Column, MetaData, String, Table, insert, select, text

from baobab.storage.copies import forget_place
from baobab.storage.sql.database import INSTALLATION, Database
from baobab.storage.sql.migrate import SchemaTooNew, list_revisions, migrate, read_revision
from baobab.storage.transfer import rows
from baobab.storage.transfer.errors import TransferRefused

UNFINISHED = "unfinished-transfer"

_mark = Table(
    "baobab_transfer",
    MetaData(),
    Column("source", String(64), primary_key=True),
    Column("revision", String(32), nullable=False),
)
_SET_REVISION = text("UPDATE alembic_version SET version_num = :revision")


async def is_begun(target: Database, fingerprint: str) -> bool:
    """Returns whether a transfer from this source has begun. Raises TransferRefused if the target holds other data."""
    is_unfinished = await read_revision(target) == UNFINISHED
    async with target.reading() as connection:
        if not is_unfinished:
            occupied_table = await rows.find_occupied_table(connection)
            if occupied_table is not None:
                raise TransferRefused(f"the target already holds rows (table {occupied_table}); name an empty database")
            return False
        mark = (await connection.execute(select(_mark))).one()
    if mark.source != fingerprint:
        raise TransferRefused(
            "the target holds a part of another installation, or of this one before a change; empty it first"
        )
    if mark.revision != list_revisions()[-1]:
        raise TransferRefused(
            "another version of Baobab began this transfer; continue with that version, or empty the target first"
        )
    return True


async def begin_transfer(target: Database, fingerprint: str) -> None:
    """Creates the schema and the mark in a target that `is_begun` has found empty."""
    try:
        await migrate(target)
    except SchemaTooNew as exc:
        raise TransferRefused(f"the target: {exc}") from exc
    async with target.writing(lock=INSTALLATION, bulk=True) as connection:
        # Checked again under the write lock: a server may have started there, or another transfer may have begun.
        occupied_table = await rows.find_occupied_table(connection)
        if occupied_table is not None:
            raise TransferRefused(f"another process has begun to fill the target (table {occupied_table})")
        await connection.run_sync(_mark.create)
        await connection.execute(insert(_mark), {"source": fingerprint, "revision": list_revisions()[-1]})
        await connection.execute(_SET_REVISION, {"revision": UNFINISHED})


async def finish_transfer(target: Database) -> None:
    """Removes the mark; from then on the target is a normal installation."""
    async with target.writing(lock=INSTALLATION, bulk=True) as connection:
        await rows.set_sequences(connection)
        await forget_place(connection.execute)
        await connection.run_sync(_mark.drop)
        await connection.execute(_SET_REVISION, {"revision": list_revisions()[-1]})
