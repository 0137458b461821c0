"""Rotates the key that seals secrets."""

from pathlib import Path

from sqlalchemy import Table, select, update

from baobab.storage.secrets import Vault, encode_key, new_key, read_keys, write_private
from baobab.storage.sql.database import INSTALLATION, Database, DatabaseConnection
from baobab.storage.sql.tables import Sealed, metadata


def rotate_key(path: Path) -> None:
    """Adds a new key in front of the keys in the file, which is replaced atomically."""
    keys = read_keys(path)
    fresh = path.with_suffix(".new")
    write_private(fresh, "".join(encode_key(key) + "\n" for key in (new_key(), *keys)))
    fresh.replace(path)


async def reseal(database: Database, vault: Vault) -> int:
    """Seals again, in one transaction, all secrets that an older key has sealed. Returns their number."""
    async with database.writing(lock=INSTALLATION, bulk=True) as connection:
        return sum([await _reseal(connection, table, vault) for table in metadata.sorted_tables])


async def _reseal(connection: DatabaseConnection, table: Table, vault: Vault) -> int:
    count = 0
    for column in (column for column in table.columns if isinstance(column.type, Sealed)):
        # The last column of a key names the row; those before it say whose it is.
        identity = list(table.primary_key.columns)
        # Locked: whoever sets such a secret at the same time waits, and is not overwritten.
        sealed_rows = select(column, *identity).where(column.is_not(None)).with_for_update()
        for envelope, *key in (await connection.execute(sealed_rows)).all():
            if not vault.is_current(envelope):
                context = f"{table.name}.{column.name}:{key[-1]}"
                new_envelope = vault.seal(vault.open(envelope, context), context)
                conditions = [part == value for part, value in zip(identity, key, strict=True)]
                await connection.execute(update(table).where(*conditions).values({column.name: new_envelope}))
                count += 1
    return count
