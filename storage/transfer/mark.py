"""The mark on a target that is being filled: whose it is, and that nobody else may use it yet.

While it is there the schema claims a revision that no version knows, so that no server, worker or command opens a
database that is half filled.
"""

from __future__ import annotations

from sqlalchemy import Column, MetaData, String, Table, insert, select, text

from baobab.storage.database import Database
from baobab.storage.migrate import SchemaTooNew, list_revisions, migrate, read_revision
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
    """Whether a transfer from this source has begun; TransferRefused where the target is somebody else's."""
    unfinished = await read_revision(target) == UNFINISHED
    async with target.reading() as connection:
        if not unfinished:
            taken = await rows.find_occupied_table(connection)
            if taken is not None:
                raise TransferRefused(f"the target holds rows already (table {taken}); name an empty database")
            return False
        begun = (await connection.execute(select(_mark))).one()
    if begun.source != fingerprint:
        raise TransferRefused(
            "the target holds a part of another installation, or of this one before it was changed; empty it first"
        )
    if begun.revision != list_revisions()[-1]:
        raise TransferRefused("the target was begun by another version; go on with that one, or empty it first")
    return True


async def begin_transfer(target: Database, fingerprint: str) -> None:
    """Make the schema and the mark in a target that `require_ours` has found empty."""
    try:
        await migrate(target)
    except SchemaTooNew as exc:
        raise TransferRefused(f"the target: {exc}") from exc
    async with target.writing() as connection:
        # Looked at again in our turn: a server may have started there, or another transfer begun.
        taken = await rows.find_occupied_table(connection)
        if taken is not None:
            raise TransferRefused(f"somebody else has begun to fill the target (table {taken})")
        await connection.run_sync(_mark.create)
        await connection.execute(insert(_mark), {"source": fingerprint, "revision": list_revisions()[-1]})
        await connection.execute(_SET_REVISION, {"revision": UNFINISHED})


async def finish_transfer(target: Database) -> None:
    """Hand the target over: from here on it is an installation like any other."""
    async with target.writing() as connection:
        await rows.set_sequences(connection)
        await connection.run_sync(_mark.drop)
        await connection.execute(_SET_REVISION, {"revision": list_revisions()[-1]})
