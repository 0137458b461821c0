"""Chooses the store of apps' tables by the database of the rows."""

from pathlib import Path

from baobab.storage.data.files import FileStore
from baobab.storage.data.store import DataStore
from baobab.storage.sql.database import Database


def data_store_at(database: Database, folder: Path) -> DataStore:
    """Returns the store beside these rows: in the same Postgres, or in files in the folder."""
    if database.dialect == "sqlite":
        return FileStore(folder)
    from baobab.storage.data.postgres import SchemaStore  # noqa: PLC0415 - it imports the driver, in a tenth of a second

    return SchemaStore(database)
